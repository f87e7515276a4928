"""A provider from outside the package: installed beside Forebay, found by its entry point, and used like any other."""

import asyncio
import json
import sys
import textwrap

import pytest

from forebay.embedded.controllers import register_node
from forebay.engine.operator import Operator
from forebay.kube.client import Client
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.transport import Headers, Response
from forebay.providers import registry
from forebay.reconcile.snapshot import OperatorRules
from tests.engine.power_world import SERVER, lab

MODULE = '''
    from forebay.model.quantities import Resources, UsdPerHour
    from forebay.model.sources import Capabilities, Check, Delivery, Found, Instance, InstancePhase, Offer
    from forebay.net.transport import Request
    from forebay.providers.plugin import ProviderPlugin
    import json

    CAPABILITIES = Capabilities(deliveries=(Delivery.NODE,), idempotent_launch=True)


    class ToyCloud:
        """Rents machines that join the cluster by themselves."""

        def __init__(self, entry, context):
            self._base = entry.endpoint
            self._transport = context.make_transport(None)

        def capabilities(self):
            return CAPABILITIES

        async def offers(self):
            amounts = Resources({"cpu": 8000, "memory": 2**34, "pods": 110, "nvidia.com/gpu": 4})
            return [Offer(provider="toy-cloud", instance_type="toy.4x", gpu_count=4, gpu_type="L40S",
                          price=UsdPerHour("1.25"), allocatable=amounts)]

        async def launch(self, request):
            await self._call("POST", f"/{request.node_name}?owner={request.uid}")
            return Instance(id=request.node_name, phase=InstancePhase.STARTING, owner=request.uid,
                            node_name=request.node_name)

        async def instances(self):
            found = await self._call("GET", "/")
            return Found(instances=tuple(
                Instance(id=name, phase=InstancePhase.RUNNING, owner=owner, node_name=name)
                for name, owner in found.items()))

        async def terminate(self, instance_id):
            await self._call("DELETE", f"/{instance_id}")

        async def check(self):
            return Check(ok=True, sentence="The toy cloud answers.")

        async def close(self):
            await self._transport.close()

        async def _call(self, method, path):
            async with await self._transport.request(Request(method=method, url=self._base + path)) as response:
                return json.loads(b"".join([chunk async for chunk in response.chunks()]))


    PLUGIN = ProviderPlugin(capabilities=CAPABILITIES, build=ToyCloud)
    NOT_A_PLUGIN = object()
'''


class ToyWorld:
    """The toy cloud's own side: machines that register as nodes at once."""

    def __init__(self, store):
        self._store = store
        self.machines = {}
        self.calls = []

    async def answer(self, request):
        path, _, query = request.url.removeprefix("http://toy/").partition("?")
        self.calls.append((request.method, path))
        if request.method == "POST" and path not in self.machines:
            self.machines[path] = query.removeprefix("owner=")
            register_node(self._store, path, allocatable={"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": 4})
        if request.method == "DELETE" and self.machines.pop(path, None) is not None:
            self._store.delete(self._store.kinds.named("v1", "Node"), None, path)
        return Response(200, Headers({}), json.dumps(self.machines).encode())


def install(folder, *entry_points, name="toy_cloud"):
    """A distribution as pip would leave it behind."""
    if name == "toy_cloud":
        (folder / "toy_cloud.py").write_text(textwrap.dedent(MODULE))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = ["[forebay.providers]", *entry_points]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Installs distributions beside Forebay for the duration of a test."""

    def installed(*entry_points):
        install(tmp_path, *entry_points)
        monkeypatch.syspath_prepend(tmp_path)
        registry.providers.cache_clear()

    yield installed
    sys.modules.pop("toy_cloud", None)
    monkeypatch.undo()
    registry.providers.cache_clear()


def node_class(world, name, *providers):
    kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")
    return world.store.create(kind, {"metadata": {"name": name}, "spec": {"providers": list(providers)}})


def conditions(world, name):
    found = world.store.get(world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass"), None, name)
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in found["status"]["conditions"]}


async def operated(world, toy, until):
    clients = [Client(InProcess(world.cluster.handler), SERVER) for _ in range(2)]
    made = Operator(
        *clients,
        SERVER,
        namespace="kube-system",
        identity="a",
        clock=clock.now,
        make_transport=lambda _: InProcess(toy.answer),
        rules=OperatorRules(),
    )
    async with made:
        work = asyncio.create_task(made.run())
        try:
            await until()
        finally:
            work.cancel()
            await asyncio.wait({work})
            for each in clients:
                await each.close()


def rented_pool(world, provider):
    node_class(world, "rented", {"name": provider, "endpoint": "http://toy"})
    pool = {"nodeClassRef": {"name": "rented"}, "disruption": {"consolidateAfter": "30s"}}
    metadata = {"name": "rented", "namespace": "kube-system"}
    world.store.create(
        world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool"), {"metadata": metadata, "spec": pool}
    )


async def test_offers_by_another_name_than_the_providers_own_buy_nothing_and_say_so(outside):
    outside("other-cloud = toy_cloud:PLUGIN")
    async with lab() as world:
        toy = ToyWorld(world.store)
        rented_pool(world, "other-cloud")

        async def story():
            await asyncio.sleep(10)
            world.pod("train", 2, runs="60s")
            await asyncio.sleep(60)
            assert world.records() == {}
            assert toy.machines == {}
            status, _, message = conditions(world, "rented")["OtherCloudReady"]
            assert status == "False"
            assert "Provider other-cloud has offers of toy-cloud, and none of them counts" in message

        await operated(world, toy, story)


async def test_a_provider_of_somebody_else_rents_a_machine_and_gives_it_back(outside):
    outside("toy-cloud = toy_cloud:PLUGIN")
    async with lab() as world:
        toy = ToyWorld(world.store)
        rented_pool(world, "toy-cloud")

        async def story():
            await asyncio.sleep(10)
            world.pod("train", 2, runs="60s", nodeSelector={"forebay.dev/provider": "toy-cloud"})
            await asyncio.sleep(40)
            assert len(toy.machines) == 1
            assert world.where("train") in toy.machines
            (record,) = world.records().values()
            assert (record["spec"]["provider"], record["spec"]["delivers"]) == ("toy-cloud", "Node")
            assert conditions(world, "rented")["ToyCloudReady"][0] == "True"
            await asyncio.sleep(35)
            assert world.phase("train") == "Succeeded"
            await asyncio.sleep(300)
            assert toy.machines == {}
            assert set(world.states().values()) <= {"Gone"}

        await operated(world, toy, story)


async def test_without_its_package_the_class_lists_the_providers_there_are():
    async with lab() as world:
        node_class(world, "rented", {"name": "toy-cloud", "endpoint": "http://toy"})

        async def story():
            await asyncio.sleep(10)
            status, reason, message = conditions(world, "rented")["ToyCloudReady"]
            assert (status, reason) == ("False", "ProviderNotServed")
            assert message.startswith("There is no provider toy-cloud; there are: ")
            assert "webhook" in message

        await operated(world, ToyWorld(world.store), story)


@pytest.mark.parametrize(
    ("entry_point", "why"),
    [
        ("toy-cloud = toy_cloud:NOT_A_PLUGIN", "is not a ProviderPlugin"),
        ("toy-cloud = toy_cloud:MISSING", "has no attribute 'MISSING'"),
        ("toy-cloud = no_such_module:PLUGIN", "No module named 'no_such_module'"),
        ("Toy_Cloud = toy_cloud:PLUGIN", "its name is not a provider's"),
        ("webhook = toy_cloud:PLUGIN", "there is a provider of this name already"),
    ],
)
def test_a_package_that_cannot_be_used_is_told_in_the_log_and_costs_only_itself(outside, capsys, entry_point, why):
    outside(entry_point, "toy-two = toy_cloud:PLUGIN")

    found = registry.providers()

    assert {"webhook", "toy-two"} <= found.keys()
    assert found["webhook"].capabilities.lists_machines
    assert "toy-cloud" not in found
    said = capsys.readouterr().out
    assert "provider not loaded" in said
    assert why in said
