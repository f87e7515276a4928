"""A cluster, machines with power switches, and the operator between them: whole stories in virtual time."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import cache

import msgspec

from forebay.api.gpu_node_class import EndpointsFrom, ProviderEntry
from forebay.embedded.api import kinds
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.operator import Operator
from forebay.install.crds import custom_resource_definitions
from forebay.kube.client import Client
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.providers.registry import EnvironmentConfig
from forebay.providers.webhook.groups import shown
from forebay.reconcile.snapshot import OperatorRules
from forebay.simulate.power import PowerWorld
from forebay.simulate.power_nodes import EmbeddedNodes

SERVER = "http://embedded"
POWER = "http://power"


def environment(machines):
    """What environment variables that name these machines configure."""
    if not machines:
        return EnvironmentConfig()
    entry = ProviderEntry(name="webhook", machines=tuple(machines))
    public = msgspec.structs.replace(
        entry, machines=tuple(map(shown, machines)), endpoints_from=EndpointsFrom.ENVIRONMENT
    )
    variables = {each.name: f"{each.name.upper().replace('-', '_')}_GPU_COUNT" for each in machines}
    return EnvironmentConfig(entries=(entry,), shown=(public,), gpu_count_variables=variables)


class Lab:
    """What a story looks at: the cluster, the machines, and who is the operator."""

    def __init__(self, cluster, power):
        self.cluster = cluster
        self.power = power
        self.user = Client(InProcess(cluster.handler), SERVER)
        self.store = cluster.store

    def pod(self, name, gpus=1, *, runs="60s", namespace="default", **spec):
        """Runs for so long once it has a node (None: until it is ended); see docs/embedded.md."""
        annotations = {"embedded.forebay.dev/run-time": runs or "10000h"}
        container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        extra = spec.pop("metadata", {})
        annotations |= extra.pop("annotations", {})
        meta = {"name": name, "namespace": namespace, "annotations": annotations, **extra}
        return self.store.create(
            kinds.POD_KIND, {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}
        )

    def job(self, name, gpus=1, *, runs="60s", labels=None, cpu=None):
        """One pod, begun again however often it is lost."""
        resources = {"requests": {"cpu": cpu} if cpu else {}, "limits": {"nvidia.com/gpu": gpus}}
        template = {
            "metadata": {"annotations": {"embedded.forebay.dev/run-time": runs}, "labels": labels or {}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "work:1", "resources": resources}],
            },
        }
        spec = {"template": template, "backoffLimit": 1000}
        return self.store.create(kinds.JOB_KIND, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def where(self, name, namespace="default"):
        return self.store.get(kinds.POD_KIND, namespace, name)["spec"].get("nodeName")

    def phase(self, name, namespace="default"):
        return self.store.get(kinds.POD_KIND, namespace, name)["status"]["phase"]

    def records(self):
        kind = self.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        return {each["metadata"]["name"]: each for each in self.store.list(kind)}

    def states(self):
        return {name: record.get("status", {}).get("state") for name, record in self.records().items()}

    def asked(self, what):
        """Which machines were asked to start or stop, in order."""
        return [call.machine for call in self.power.calls if call.asked == what]

    def events(self, reason=None):
        """Kind and name of the object, and the reason."""
        found = self.store.list(kinds.EVENT_KIND)
        return [
            (each["involvedObject"]["kind"], each["involvedObject"]["name"], each["reason"])
            for each in found
            if reason in {None, each["reason"]}
        ]

    def told(self, name, reason):
        """What was said of an object for that reason, the oldest first."""
        found = [each for each in self.store.list(kinds.EVENT_KIND) if each["involvedObject"]["name"] == name]
        return [each["message"] for each in sorted(found, key=_said_at) if each["reason"] == reason]

    def record(self, name):
        return self.records()[name]

    def state(self, name):
        return self.states().get(name)

    def node(self, name):
        return self.store.get(kinds.NODE_KIND, None, name)

    def is_cordoned(self, name):
        return bool(self.node(name)["spec"].get("unschedulable"))

    def change(self, kind, name, change, namespace=None):
        """Writes the object after `change(copy)`, as a person with kubectl edit does."""
        new = msgspec.json.decode(msgspec.json.encode(self.store.get(kind, namespace, name)))
        change(new)
        return self.store.update(kind, new)

    def give_back(self, name):
        """kubectl delete gi"""
        self.store.delete(self.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance"), None, name)

    def configured(self, *, status=False, every=None, **each):
        """The machines as the operator knows them, with fields for `every` one and for `each` by its name."""
        return tuple(
            msgspec.structs.replace(machine, **{**(every or {}), **each.get(machine.name.replace("-", "_"), {})})
            for machine in self.power.configured(POWER, status=status)
        )


def _said_at(event):
    return event.get("eventTime") or event["firstTimestamp"]


@cache
def _definitions():
    return custom_resource_definitions()


@asynccontextmanager
async def lab(*machines, **options):
    async with EmbeddedCluster(**{"seed": 7, **options}) as cluster:
        for definition in _definitions():
            cluster.store.create(kinds.CRD_KIND, definition)
        yield Lab(cluster, PowerWorld(machines, EmbeddedNodes(cluster.store)))


@asynccontextmanager
async def operator(
    world,
    name="a",
    *,
    machines=None,
    status=False,
    wrap=lambda transport: transport,
    now=clock.now,
    traced=nullcontext,
    **rules,
):
    """A replica at work until the block ends, as a process is until it gets a SIGTERM. `now` is its own clock."""
    async with AsyncExitStack() as stack:
        client, election = (Client(wrap(InProcess(world.cluster.handler)), SERVER) for _ in range(2))
        stack.push_async_callback(client.close)
        stack.push_async_callback(election.close)
        made = Operator(
            client,
            election,
            SERVER,
            namespace="kube-system",
            identity=name,
            clock=now,
            make_transport=lambda _: wrap(InProcess(world.power.answer)),
            environment=environment(world.power.configured(POWER, status=status) if machines is None else machines),
            rules=OperatorRules(**rules),
            traced=traced,
        )
        await stack.enter_async_context(made)
        work = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            work.cancel()
            await asyncio.wait({work})
