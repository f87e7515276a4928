"""The running demo: an embedded cluster, simulated machines, and the real operator."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from enum import StrEnum
from itertools import islice
from random import Random
from typing import Any, Final

import msgspec

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import BUDGET_GATE, EXCEEDED_LABEL, OPERATOR_NAMESPACE
from forebay.cli.demo.recorder import DemoRecorder
from forebay.embedded.api import kinds
from forebay.embedded.controllers.nodes import register_node
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.operator import Operator
from forebay.engine.views import Views
from forebay.install.admission_policies import admission_policies
from forebay.install.crds import custom_resource_definitions
from forebay.kube.client import Client
from forebay.kube.own_kinds import GPU_NODE_CLASSES, GPU_NODE_POOLS, GPU_WORKLOAD_BUDGETS
from forebay.kube.types import NAMESPACES
from forebay.model.reasons import Reason
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.simulate import burst, remote_jobs
from forebay.simulate.lab import (
    BOOT_TIMEOUT,
    BUDGET_GPU_HOURS,
    BUDGET_GRACE,
    BUDGET_TEAM,
    FAILS_FIRST_BOOT,
    MACHINES,
    LabMachine,
    arrivals,
)
from forebay.simulate.market import Market, by_host
from forebay.simulate.market_nodes import EmbeddedKubelets
from forebay.simulate.power import PowerWorld
from forebay.simulate.power_faults import Boot
from forebay.simulate.power_nodes import EmbeddedNodes

_SERVER: Final = "http://embedded"
_POWER_HOST: Final = "power.lab"
_POWER: Final = f"http://{_POWER_HOST}"
#: consolidateAfter of the pool: how long an idle machine is kept.
CONSOLIDATE_AFTER: Final = "3m"
#: ttlSecondsAfterFinished of the Jobs.
_TTL: Final = 600
#: Simulated seconds after which a demo that has not become idle counts as failed.
_TIME_LIMIT: Final = 24 * 3600.0
#: Reasons that persist until somebody changes the pod or the configuration.
_PERMANENT_REASONS: Final = frozenset({Reason.NO_OFFER_FITS, Reason.NOT_ALLOWED, Reason.PRICE_TOO_HIGH})


class Scenario(StrEnum):
    """What is simulated."""

    #: Five machines of one's own.
    LAB = "lab"
    #: Two machines of one's own and two clouds.
    BURST = "burst"
    #: One machine of one's own, and containers elsewhere for Jobs that are marked.
    OFFLOAD = "offload"


class Demo:
    """One running demo. `started` is its start, in simulated time."""

    def __init__(  # noqa: PLR0917 (its parts)
        self,
        cluster: EmbeddedCluster,
        world: PowerWorld,
        operator: Operator,
        seed: int,
        scenario: Scenario = Scenario.LAB,
        markets: Sequence[Market] = (),
    ) -> None:
        assert operator.views is not None, "the operator must have been entered (async with)"
        self.cluster = cluster
        self.world = world
        #: Clouds, in the scenario that has some.
        self.markets = tuple(markets)
        self.operator = operator
        self.views: Views = operator.views
        self.started = clock.now()
        self.recorder = DemoRecorder(cluster.store, self.views)
        self.operator_task = asyncio.create_task(operator.run(), name="operator")
        fixed = {Scenario.BURST: burst.ARRIVALS, Scenario.OFFLOAD: remote_jobs.ARRIVALS}
        self._arrivals = iter(fixed[scenario]) if scenario in fixed else arrivals(seed)
        #: Of all Jobs submitted so far.
        self.pods_expected = 0
        self.all_submitted = False

    @property
    def elapsed(self) -> float:
        return (clock.now() - self.started).total_seconds()

    async def submit_jobs(self, jobs: int | None) -> None:
        """Submit this many Jobs, each at its time; None: without end."""
        for arrival in islice(self._arrivals, jobs):
            await asyncio.sleep(arrival.after)
            # The embedded cluster stores admission policies, and evaluates none. Forebay's adds this gate.
            gates = (BUDGET_GATE,) if arrival.team == BUDGET_TEAM and self._is_budget_exceeded() else ()
            self.cluster.store.create(kinds.JOB_KIND, arrival.job(ttl=_TTL, gates=gates))
            self.pods_expected += arrival.pods
        self.all_submitted = True

    def _is_budget_exceeded(self) -> bool:
        return any(EXCEEDED_LABEL in budget.metadata.labels for budget in self.views.budgets.values())

    async def until_idle(self) -> bool:
        """Wait until nothing is left to do; False if that takes too long.

        Nothing is left when every pod has finished or can never run, every machine is off, and every GPUInstance is
        Gone.
        """
        while self.elapsed < _TIME_LIMIT:
            await asyncio.sleep(1)
            powered = self.world.on or any(market.running for market in self.markets)
            if self.all_submitted and not powered and self._all_pods_done() and self._all_instances_gone():
                return True
        return False

    def _all_pods_done(self) -> bool:
        events, pods = self.recorder.last_pod_event, self.recorder.pods
        return len(pods) >= self.pods_expected and all(
            pod.finished is not None or (uid in events and events[uid].reason in _PERMANENT_REASONS)
            for uid, pod in pods.items()
        )

    def _all_instances_gone(self) -> bool:
        return all(record.state is InstanceState.GONE for record in self.views.instances.values())


@asynccontextmanager
async def running_demo(cluster: EmbeddedCluster, seed: int, scenario: Scenario = Scenario.LAB) -> AsyncIterator[Demo]:
    """A demo in `cluster`, which must be running: creates CRDs, class, pool and machines, and runs the operator."""
    owned = {Scenario.BURST: burst.OWNED, Scenario.OFFLOAD: remote_jobs.OWNED}
    machines = owned.get(scenario, MACHINES)
    world = PowerWorld((each.machine for each in machines), EmbeddedNodes(cluster.store))
    rented = {Scenario.BURST: burst.clouds, Scenario.OFFLOAD: remote_jobs.providers}
    markets = rented[scenario](EmbeddedKubelets(cluster.store)) if scenario in rented else ()
    if scenario is Scenario.LAB:
        world.script_boots(FAILS_FIRST_BOOT, Boot(joins=False))
    for definition in custom_resource_definitions():
        cluster.store.create(kinds.CRD_KIND, definition)
    for policy in admission_policies():
        kind = cluster.store.kinds.named(policy["apiVersion"], policy["kind"])
        assert kind is not None, "the embedded cluster has this kind"
        cluster.store.create(kind, policy)
    register_node(cluster.store, "control", allocatable={"cpu": "8", "memory": "32Gi"})
    async with AsyncExitStack() as stack:
        client, election = (Client(InProcess(cluster.handler), _SERVER) for _ in range(2))
        stack.push_async_callback(client.close)
        stack.push_async_callback(election.close)
        stack.callback(world.stop)
        for market in markets:
            stack.callback(market.stop)
        await client.create(NAMESPACES, {"metadata": {"name": OPERATOR_NAMESPACE}})
        await client.create(GPU_NODE_CLASSES, _class(world, machines))
        await client.create(GPU_NODE_POOLS, _pool("lab"))
        for market in markets:
            await client.create(GPU_NODE_CLASSES, _cloud_class(market.name))
            await client.create(GPU_NODE_POOLS, _pool(market.name))
        if scenario is Scenario.LAB:
            await client.create(GPU_WORKLOAD_BUDGETS, _BUDGET)
        answer = by_host({_POWER_HOST: world.answer, **{market.name: market.answer for market in markets}})
        operator = Operator(
            client,
            election,
            _SERVER,
            namespace=OPERATOR_NAMESPACE,
            identity="forebay-demo",
            clock=clock.now,
            make_transport=lambda _tls: InProcess(answer),
            rng=Random(seed),  # noqa: S311 (a simulation, not a secret)
        )
        await stack.enter_async_context(operator)
        demo = Demo(cluster, world, operator, seed, scenario, markets)
        try:
            yield demo
        finally:
            demo.operator_task.cancel()
            await asyncio.wait({demo.operator_task})


def _pool(name: str) -> dict[str, Any]:
    """The pool of a class of the same name."""
    return {
        "metadata": {"name": name, "namespace": OPERATOR_NAMESPACE},
        "spec": {
            "nodeClassRef": {"name": name},
            "disruption": {"consolidateAfter": CONSOLIDATE_AFTER, "budgets": [{"nodes": 1}]},
        },
    }


_BUDGET: Final[dict[str, Any]] = {
    "metadata": {"name": BUDGET_TEAM, "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"team": BUDGET_TEAM}},
        "quota": {"gpuHours": BUDGET_GPU_HOURS, "windowHours": 1},
        "enforcement": {"action": "Pause", "gracePeriodSeconds": BUDGET_GRACE},
    },
}


def _cloud_class(market: str) -> dict[str, Any]:
    provider = {"name": "simulated", "endpoint": f"http://{market}"}
    spec = {"providers": [provider], "instanceRequirements": {"spotAllowed": True}}
    return {"metadata": {"name": market}, "spec": spec}


def _class(world: PowerWorld, lab: Sequence[LabMachine]) -> dict[str, Any]:
    types = {each.machine.name: each.gpu_type for each in lab}
    machines = [
        msgspec.structs.replace(machine, boot_timeout=BOOT_TIMEOUT, gpu_type=types[machine.name])
        for machine in world.configured(_POWER)
    ]
    provider = {"name": "webhook", "machines": msgspec.to_builtins(machines)}
    return {"metadata": {"name": "lab"}, "spec": {"providers": [provider]}}
