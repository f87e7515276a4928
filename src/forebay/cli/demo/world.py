"""The demo's world: an embedded cluster, the lab's machines, and the operator as it runs anywhere else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from random import Random
from typing import Any, Final

import msgspec

from forebay.api.crd import custom_resource_definitions
from forebay.api.gpu_instance import InstanceState
from forebay.cli.demo.recorder import DemoRecorder
from forebay.embedded.api import kinds
from forebay.embedded.controllers.nodes import register_node
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.operator import Operator
from forebay.engine.views import Views
from forebay.kube.client import Client
from forebay.kube.own_kinds import GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.model.reasons import Reason
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.simulate.lab import BOOT_TIMEOUT, MACHINES, SULKS, stream
from forebay.simulate.power import PowerWorld
from forebay.simulate.power_faults import Boot
from forebay.simulate.power_nodes import EmbeddedNodes

_SERVER: Final = "http://embedded"
_POWER: Final = "http://power.lab"
#: How long the pool keeps a machine that nothing runs on.
IDLE: Final = "3m"
#: Finished Jobs go after so many seconds, as in a well-kept cluster.
_TTL: Final = 600
#: A story that is not over after so many hours of its own time is no demo.
_TOO_LONG: Final = 24 * 3600.0
#: These do not pass by themselves: who is told so waits until somebody changes something.
HOPELESS: Final = frozenset({Reason.NO_OFFER_FITS, Reason.NOT_ALLOWED, Reason.PRICE_TOO_HIGH})


class Demo:
    """A running one. `begun` is when, on its own clock."""

    def __init__(self, cluster: EmbeddedCluster, world: PowerWorld, operator: Operator, seed: int) -> None:
        assert operator.views is not None, "the operator's block is around this"
        self.cluster = cluster
        self.world = world
        self.operator = operator
        self.views: Views = operator.views
        self.begun = clock.now()
        self.chronicle = DemoRecorder(cluster.store, self.views)
        self.work = asyncio.create_task(operator.run(), name="operator")
        self._seed = seed
        #: Of all Jobs that have come.
        self.pods_asked_for = 0
        self.all_submitted = False

    @property
    def elapsed(self) -> float:
        return (clock.now() - self.begun).total_seconds()

    async def submit(self, jobs: int | None) -> None:
        """The stream, up to so many Jobs; None: without end."""
        for arrival in islice(stream(self._seed), jobs):
            await asyncio.sleep(arrival.after)
            self.cluster.store.create(kinds.JOB_KIND, arrival.job(ttl=_TTL))
            self.pods_asked_for += arrival.pods
        self.all_submitted = True

    async def until_idle(self) -> bool:
        """True when all is done: every pod has ended or has been told that nothing can serve it, all is off, and there
        is proof of it.
        """
        while self.elapsed < _TOO_LONG:
            await asyncio.sleep(1)
            if self.all_submitted and not self.world.on and self._nobody_hopes() and self._all_proven():
                return True
        return False

    def _nobody_hopes(self) -> bool:
        words, lives = self.chronicle.last_word, self.chronicle.pods
        return len(lives) >= self.pods_asked_for and all(
            life.finished is not None or (uid in words and words[uid].reason in HOPELESS) for uid, life in lives.items()
        )

    def _all_proven(self) -> bool:
        return all(record.state is InstanceState.GONE for record in self.views.instances.values())


@asynccontextmanager
async def playing(cluster: EmbeddedCluster, seed: int) -> AsyncIterator[Demo]:
    """`cluster` runs already; here come its furniture, the machines and the operator."""
    world = PowerWorld((each.machine for each in MACHINES), EmbeddedNodes(cluster.store))
    world.script_boots(SULKS, Boot(joins=False))
    for definition in custom_resource_definitions():
        cluster.store.create(kinds.CRD_KIND, definition)
    register_node(cluster.store, "control", allocatable={"cpu": "8", "memory": "32Gi"})
    async with AsyncExitStack() as stack:
        client, election = (Client(InProcess(cluster.handler), _SERVER) for _ in range(2))
        stack.push_async_callback(client.close)
        stack.push_async_callback(election.close)
        stack.callback(world.stop)
        await client.create(GPU_NODE_CLASSES, _class(world))
        await client.create(GPU_NODE_POOLS, _POOL)
        operator = Operator(
            client,
            election,
            _SERVER,
            namespace="kube-system",
            identity="forebay-demo",
            clock=clock.now,
            make_transport=lambda _tls: InProcess(world.answer),
            rng=Random(seed),  # noqa: S311 (a story, not a secret)
        )
        await stack.enter_async_context(operator)
        demo = Demo(cluster, world, operator, seed)
        try:
            yield demo
        finally:
            demo.work.cancel()
            await asyncio.wait({demo.work})


_POOL: Final[dict[str, Any]] = {
    "metadata": {"name": "lab", "namespace": "default"},
    "spec": {"nodeClassRef": {"name": "lab"}, "disruption": {"consolidateAfter": IDLE, "budgets": [{"nodes": 1}]}},
}


def _class(world: PowerWorld) -> dict[str, Any]:
    types = {each.machine.name: each.gpu_type for each in MACHINES}
    machines = [
        msgspec.structs.replace(machine, boot_timeout=BOOT_TIMEOUT, gpu_type=types[machine.name])
        for machine in world.configured(_POWER)
    ]
    provider = {"name": "webhook", "machines": msgspec.to_builtins(machines)}
    return {"metadata": {"name": "lab"}, "spec": {"providers": [provider]}}
