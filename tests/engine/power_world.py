"""A cluster, machines with power switches, and the operator between them: whole stories in virtual time."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

from forebay.api.crd import custom_resource_definitions
from forebay.embedded import kinds
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.operator import Operator
from forebay.engine.snapshot import Rules
from forebay.kube.client import Client
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.simulate.power import PowerWorld
from forebay.simulate.power_nodes import EmbeddedNodes

SERVER = "http://embedded"
POWER = "http://power"


class Lab:
    """What a story looks at: the cluster, the machines, and who is the operator."""

    def __init__(self, cluster, power):
        self.cluster = cluster
        self.power = power
        self.user = Client(InProcess(cluster.handler), SERVER)
        self.store = cluster.store

    def pod(self, name, gpus=1, *, runs="60s", namespace="default", **spec):
        """Runs for so long once it has a node; see docs/embedded.md."""
        annotations = {} if runs is None else {"embedded.forebay.dev/run-time": runs}
        container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        meta = {"name": name, "namespace": namespace, "annotations": annotations, **spec.pop("metadata", {})}
        return self.store.create(
            kinds.PODS, {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}
        )

    def where(self, name, namespace="default"):
        return self.store.get(kinds.PODS, namespace, name)["spec"].get("nodeName")

    def phase(self, name, namespace="default"):
        return self.store.get(kinds.PODS, namespace, name)["status"]["phase"]

    def records(self):
        kind = self.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        return {each["metadata"]["name"]: each for each in self.store.list(kind)}

    def states(self):
        return {name: record.get("status", {}).get("state") for name, record in self.records().items()}

    def asked(self, what):
        """Which machines were asked to start or stop, in order."""
        return [call.machine for call in self.power.calls if call.asked == what]

    def events(self, reason=None):
        found = self.store.list(kinds.EVENTS)
        return [
            (each["regarding"]["kind"] if "regarding" in each else each["involvedObject"]["kind"], each["reason"])
            for each in found
            if reason in {None, each["reason"]}
        ]


@asynccontextmanager
async def lab(*machines, **options):
    async with EmbeddedCluster(**options) as cluster:
        for definition in custom_resource_definitions():
            cluster.store.create(kinds.DEFINITIONS, definition)
        yield Lab(cluster, PowerWorld(machines, EmbeddedNodes(cluster.store)))


@asynccontextmanager
async def operator(world, name="a", *, machines=None, status=False, wrap=lambda transport: transport, **rules):
    """A replica at work until the block ends, as a process is until it gets a SIGTERM."""
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
            clock=clock.now,
            make_transport=lambda _: wrap(InProcess(world.power.answer)),
            machines=world.power.configured(POWER, status=status) if machines is None else machines,
            rules=Rules(**rules),
        )
        await stack.enter_async_context(made)
        work = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            work.cancel()
            await asyncio.wait({work})
