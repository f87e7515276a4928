"""The virtual node is created, kept Ready by whoever leads, and repaired."""

import asyncio
from contextlib import asynccontextmanager

from forebay.embedded.api.kinds import LEASE_KIND, NODE_KIND
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.virtual_node.node_keeper import VirtualNodeKeeper
from forebay.kube.client import Client
from forebay.net.clock import now
from forebay.net.in_process import InProcess
from forebay.offload.virtual_node import LogEndpoint
from tests.net.faults import Answer, Faulty, When

NODE = "runpod-virtual-node"
OUTAGE = Answer(503)
CONFLICT = b'{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409}'


class Kept:
    """A cluster, and replicas that keep its virtual node."""

    def __init__(self, cluster):
        self.store = cluster.store
        self.plan = When(lambda _: False, OUTAGE)
        self.handler = cluster.handler
        self.leader = "one"
        self.endpoint = LogEndpoint(address="10.0.0.7", port=10250)
        self.requests = []

    def _faults(self, request):
        self.requests.append(request)
        return self.plan(request)

    def writes(self):
        """Paths of the writes since the last call."""
        paths = [request.url.removeprefix("http://embedded") for request in self.requests if request.method != "GET"]
        self.requests.clear()
        return [path.partition("?")[0].rpartition("/v1/")[2] for path in paths]

    def keeper(self, name="one"):
        client = Client(Faulty(InProcess(self.handler), self._faults), "http://embedded")
        return VirtualNodeKeeper(client, name, lambda: self.leader == name, now, lambda: self.endpoint)

    @property
    def node(self):
        return self.store.find(NODE_KIND, None, NODE)

    @property
    def lease(self):
        return self.store.find(LEASE_KIND, "kube-node-lease", NODE)

    def update(self, **changes):
        self.store.update(NODE_KIND, {**self.node, **changes})

    def ready(self):
        return next(each for each in self.node["status"]["conditions"] if each["type"] == "Ready")


@asynccontextmanager
async def kept():
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        yield Kept(cluster)


async def test_the_node_is_created_ready_tainted_and_without_gpus():
    async with kept() as world:
        assert await world.keeper().keep()
        assert world.ready()["status"] == "True"
        taints = {each["key"]: each["effect"] for each in world.node["spec"]["taints"]}
        assert taints["runpod.io/virtual"] == "NoSchedule"
        assert "nvidia.com/gpu" not in world.node["status"]["allocatable"]
        assert world.node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
        assert world.node["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.4+forebay.embedded"
        assert world.lease["spec"]["holderIdentity"] == "one"


async def test_its_lease_is_renewed_and_its_ready_condition_keeps_its_time():
    async with kept() as world:
        running = asyncio.ensure_future(world.keeper().run())
        await asyncio.sleep(1)
        lease, since = world.lease["spec"]["renewTime"], world.ready()["lastTransitionTime"]
        await asyncio.sleep(900)
        assert world.lease["spec"]["renewTime"] > lease
        assert world.ready()["lastTransitionTime"] == since
        assert world.ready()["lastHeartbeatTime"] > since
        running.cancel()


async def test_a_standby_does_nothing_and_takes_over_when_it_leads():
    async with kept() as world:
        first, second = world.keeper("one"), world.keeper("two")
        assert await first.keep()
        assert not await second.keep()
        world.leader = "two"
        assert await second.keep()
        assert not await first.keep()
        assert world.lease["spec"]["holderIdentity"] == "two"


async def test_what_somebody_removed_is_put_back():
    async with kept() as world:
        keeper = world.keeper()
        await keeper.keep()
        other = {"key": "somebody/else", "effect": "NoExecute"}
        metadata = {**world.node["metadata"], "labels": {"mine": "stays"}}
        world.update(metadata=metadata, spec={**world.node["spec"], "taints": [other]})
        assert await keeper.keep()
        assert world.node["metadata"]["labels"]["type"] == "virtual-kubelet"
        assert world.node["metadata"]["labels"]["mine"] == "stays"
        assert {each["key"] for each in world.node["spec"]["taints"]} >= {"somebody/else", "runpod.io/virtual"}


async def test_a_deleted_node_is_created_again_and_ready_at_once():
    async with kept() as world:
        keeper = world.keeper()
        await keeper.keep()
        world.store.delete(NODE_KIND, None, NODE)
        assert await keeper.keep()
        assert world.ready()["status"] == "True"


async def test_an_outage_of_the_api_server_ends_nothing():
    async with kept() as world:
        keeper = world.keeper()
        world.plan = When(lambda _: True, OUTAGE)
        assert not await keeper.keep()
        world.plan = When(lambda _: False, OUTAGE)
        assert await keeper.keep()


STATUS, LEASE = f"nodes/{NODE}/status", f"namespaces/kube-node-lease/leases/{NODE}"


async def test_an_unchanged_node_costs_one_write_a_round_and_its_status_is_written_every_thirty_rounds():
    async with kept() as world:
        keeper = world.keeper()
        await keeper.keep()
        world.writes()
        for _ in range(29):
            await keeper.keep()
            assert world.writes() == [LEASE]
        await keeper.keep()
        assert world.writes() == [STATUS, LEASE]


async def test_a_new_log_endpoint_is_published_at_once():
    async with kept() as world:
        keeper = world.keeper()
        await keeper.keep()
        world.endpoint = LogEndpoint(address="10.0.0.8", port=10251)
        await keeper.keep()
        assert world.node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10251


async def test_the_next_round_begins_at_once_when_the_port_was_opened():
    async with kept() as world:
        keeper = world.keeper()
        running = asyncio.ensure_future(keeper.run())
        await asyncio.sleep(1)
        world.writes()
        await asyncio.sleep(1)
        assert world.writes() == []
        keeper.wake()
        await asyncio.sleep(1)
        assert world.writes() == [LEASE]
        await asyncio.sleep(1)
        assert world.writes() == [], "once"
        running.cancel()


async def test_a_node_that_the_control_plane_took_for_lost_is_ready_again_with_a_new_time():
    async with kept() as world:
        keeper = world.keeper()
        await keeper.keep()
        before = world.ready()["lastTransitionTime"]
        conditions = [
            {**each, "status": "Unknown"} if each["type"] == "Ready" else each
            for each in world.node["status"]["conditions"]
        ]
        conditions.append({"type": "SomebodyElses", "status": "True"})
        status = {**world.node["status"], "conditions": conditions}
        world.store.update(NODE_KIND, {**world.node, "status": status}, subresource="status")
        await asyncio.sleep(30)
        await keeper.keep()
        assert world.ready()["status"] == "True"
        assert world.ready()["lastTransitionTime"] > before


async def test_a_taint_of_the_same_key_with_another_effect_is_not_ours():
    async with kept() as world:
        keeper = world.keeper()
        await keeper.keep()
        other = {"key": "runpod.io/virtual", "effect": "PreferNoSchedule"}
        world.update(spec={**world.node["spec"], "taints": [other]})
        assert await keeper.keep()
        assert {each["effect"] for each in world.node["spec"]["taints"]} == {"PreferNoSchedule", "NoSchedule"}
        world.writes()
        await keeper.keep()
        assert world.writes() == [LEASE], "nothing is left to repair"


async def test_a_failed_round_has_the_next_one_write_everything(capsys):
    async with kept() as world:
        keeper = world.keeper()
        await keeper.keep()
        world.plan = When(lambda _: True, OUTAGE)
        assert not await keeper.keep()
        assert "virtual node not kept" in capsys.readouterr().out
        world.plan = When(lambda _: False, OUTAGE)
        world.writes()
        await keeper.keep()
        assert world.writes() == [STATUS, LEASE]


async def test_a_lease_that_another_replica_has_just_renewed_is_as_good(capsys):
    async with kept() as world:
        keeper = world.keeper()
        await keeper.keep()
        world.plan = When(lambda request: request.method == "PUT", Answer(409, body=CONFLICT))
        assert await keeper.keep()
        assert "renewed by another replica" in capsys.readouterr().out
