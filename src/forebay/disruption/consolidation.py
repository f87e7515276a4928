"""Which machines to give back now: the idle, and those past their time. How they go is lifecycle's business."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_pool import ConsolidationPolicy, Disruption, DisruptionReason
from forebay.api.values import NEVER, duration_or_never
from forebay.disruption.machine_use import MachineUse
from forebay.disruption.node_budgets import allowance
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.spans import human
from forebay.model.workloads import Pod

PoolName = tuple[str, str]

#: "true" on a pod: it must not be moved; on a node: it must not be given back.
_DO_NOT_DISRUPT: Final = ("forebay.dev/do-not-disrupt", "karpenter.sh/do-not-disrupt")
_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"


class ScaleDownRules(msgspec.Struct, frozen=True, kw_only=True):
    #: How long an owned machine of no pool must have been idle. Zero: it goes at once.
    idle_delay: timedelta = timedelta(0)
    #: At most one owned machine begins to go in this time.
    cycle: timedelta = timedelta(seconds=10)
    #: By namespace and name of the GPUNodePool. Machines of a pool that is not here are left alone.
    pools: Mapping[PoolName, Disruption] = {}


class ScaleDown(msgspec.Struct, frozen=True, kw_only=True):
    record: GPUInstance
    #: IDLE or EXPIRED.
    reason: Reason
    sentence: str


def scale_down(machines: Iterable[MachineUse], now: datetime, rules: ScaleDownRules) -> tuple[ScaleDown, ...]:
    """Of all machines there are records of, those that have gone included: from these it is known when the last one
    went, and how many are on their way.

    The largest first. Owned machines one per cycle; machines of a pool as its `disruption` says, which owned ones of a
    pool obey too. An owned machine does not expire: there is nothing to replace it by.
    """
    machines = tuple(machines)
    idle = [(each, why) for each in machines if each.idle and (why := _idle_long_enough(each, now, rules)) is not None]
    expiring = {name for name, disruption in rules.pools.items() if disruption.expire_after != NEVER}
    old = [
        (each, why)
        for each in machines
        if expiring and _pool(each) in expiring and (why := _expired(each, now, rules)) is not None
    ]
    if not idle and not old:
        return ()
    pools = _Pools(machines, rules.pools, now)
    may_power_off = _may_power_off(machines, now, rules.cycle)
    found: dict[str, ScaleDown] = {}
    for machine, sentence in sorted(idle, key=lambda pair: _largest_first(pair[0])):
        owned = machine.record.spec.delivers is Delivery.POWER
        if (owned and not may_power_off) or not pools.admit(machine, DisruptionReason.IDLE):
            continue
        may_power_off = may_power_off and not owned
        found[machine.name] = ScaleDown(record=machine.record, reason=Reason.IDLE, sentence=sentence)
    for machine, sentence in sorted(old, key=lambda pair: _oldest_first(pair[0])):
        if machine.name not in found and pools.admit(machine, DisruptionReason.EXPIRED):
            found[machine.name] = ScaleDown(record=machine.record, reason=Reason.EXPIRED, sentence=sentence)
    return tuple(found.values())


def _idle_long_enough(machine: MachineUse, now: datetime, rules: ScaleDownRules) -> str | None:
    if machine.node is None or _kept_by_annotation(machine.node.annotations):
        return None
    if machine.refused is not None and not machine.marked_refused:
        return None  # first its record must say so, or the next machine would be obtained for the same pod
    delay = _delay(machine, rules)
    if delay is None:
        return None
    span = now - (machine.idle_since or now)
    if span < delay:
        return None
    lasted = f" for {human(span)}" if span >= timedelta(seconds=1) else ""
    if machine.refused is not None:
        return (
            f"Node {machine.node.name} was obtained for pod {machine.refused}, which the scheduler does not place"
            " there; it is given back."
        )
    return f"Nothing but DaemonSets has run on node {machine.node.name}{lasted}; it is given back."


def _delay(machine: MachineUse, rules: ScaleDownRules) -> timedelta | None:
    """How long it must have been idle; None: it is not given back for that."""
    pool = _pool(machine)
    if pool is None:
        # Without a pool there are owned machines, machines of a NodeProvisioner, and leftovers.
        return rules.idle_delay if machine.record.spec.delivers is Delivery.POWER else None
    disruption = rules.pools.get(pool)
    # WhenUnderutilized gives back what is idle, and does not yet empty machines whose pods would fit elsewhere.
    if disruption is None or disruption.consolidation_policy is ConsolidationPolicy.NEVER:
        return None
    return duration_or_never(disruption.consolidate_after)


def _expired(machine: MachineUse, now: datetime, rules: ScaleDownRules) -> str | None:
    pool = _pool(machine)
    disruption = rules.pools.get(pool) if pool is not None else None
    born = machine.record.metadata.creation_timestamp
    if disruption is None or born is None or not machine.in_service or machine.record.spec.delivers is Delivery.POWER:
        return None
    most = duration_or_never(disruption.expire_after)
    if most is None or now - born < most:
        return None
    if machine.node is not None and _kept_by_annotation(machine.node.annotations):
        return None
    if any(must_stay(pod) for pod in machine.pods):
        return None
    return (
        f"It is {human(now - born)} old and its pool's expireAfter is {disruption.expire_after}: it is drained and"
        " given back."
    )


def must_stay(pod: Pod) -> bool:
    """Its owner asks that it is not moved before it ends."""
    return _kept_by_annotation(pod.annotations) or pod.annotations.get(_SAFE_TO_EVICT) == "false"


def _kept_by_annotation(annotations: Mapping[str, str]) -> bool:
    return any(annotations.get(key) == "true" for key in _DO_NOT_DISRUPT)


def _may_power_off(machines: Iterable[MachineUse], now: datetime, cycle: timedelta) -> bool:
    """Told from the records, so that a restart does not begin a new cycle."""
    latest = max(
        (
            step.at
            for machine in machines
            if machine.record.spec.delivers is Delivery.POWER and machine.record.status is not None
            for step in machine.record.status.transitions
            if step.state is InstanceState.DRAINING
        ),
        default=None,
    )
    return latest is None or now - latest >= cycle


class _Pools:
    """How many machines of each pool may still go."""

    def __init__(self, machines: Sequence[MachineUse], pools: Mapping[PoolName, Disruption], now: datetime) -> None:
        self._pools = pools
        self._now = now
        self._nodes: defaultdict[PoolName, int] = defaultdict(int)
        self._leaving: defaultdict[PoolName, int] = defaultdict(int)
        for machine in machines:
            pool = _pool(machine)
            if pool is None:
                continue
            # What never became a node is no node of the pool, neither there nor leaving.
            was_node = machine.record.status is not None and machine.record.status.node_name is not None
            leaving = machine.state in (InstanceState.DRAINING, InstanceState.TERMINATING) and was_node
            self._leaving[pool] += leaving
            self._nodes[pool] += leaving or machine.state in (InstanceState.JOINED, InstanceState.READY)

    def admit(self, machine: MachineUse, reason: DisruptionReason) -> bool:
        """Whether the budgets let it go; if so, it counts as leaving."""
        pool = _pool(machine)
        if pool is None:
            return True
        budgets = self._pools[pool].budgets
        left = allowance(budgets, reason, self._nodes[pool], self._leaving[pool], self._now)
        if left is not None and left <= 0:
            return False
        self._leaving[pool] += 1
        return True


def _pool(machine: MachineUse) -> PoolName | None:
    pool = machine.record.spec.pool_ref
    return None if pool is None else (pool.namespace, pool.name)


def _largest_first(machine: MachineUse) -> tuple[int, str]:
    offer = machine.record.spec.offer
    return -(offer.gpu_count if offer is not None else 0), machine.name


def _oldest_first(machine: MachineUse) -> tuple[bool, float, str]:
    born = machine.record.metadata.creation_timestamp
    return born is None, born.timestamp() if born is not None else 0.0, machine.name
