"""Under-utilized nodes: which ones may be emptied to save cost, when, and for how much less.

As Karpenter does: the pods of a node fit on others, or on one machine that is cheaper. Moving pods disturbs them, so a
replacement must pay for itself within an hour, and nothing is moved that would lose work by it.
"""

from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_pool import ConsolidationPolicy
from forebay.api.parts import Truth
from forebay.api.values import duration_or_never
from forebay.demand.maintenance import may_be_moved
from forebay.demand.replacements import UNDERUTILIZED, condition_of
from forebay.disruption.consolidation import ScaleDownRules
from forebay.disruption.machine_use import MachineUse
from forebay.disruption.paid_time import goes_at
from forebay.disruption.pool_budgets import pool_of
from forebay.lifecycle.moving import MOVE_RETRY
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason

#: For so long both machines are paid: until the replacement has booted and the pods have left the other.
OVERLAP: Final = timedelta(minutes=10)
#: In this time a replacement must have saved what the overlap costs.
PAYBACK: Final = timedelta(hours=1)


def may_be_emptied(machine: MachineUse, now: datetime, rules: ScaleDownRules) -> bool:
    """Whether the pods of the node may be moved to save cost.

    Not from an owned machine, which costs the same elsewhere or nothing; not where a pod would lose its work, people
    hold the node, or pods could not be evicted from it a while ago.
    """
    pool = pool_of(machine)
    disruption = rules.pools.get(pool) if pool is not None else None
    if disruption is None or disruption.consolidation_policy is not ConsolidationPolicy.WHEN_UNDERUTILIZED:
        return False
    return (
        machine.in_service
        and machine.policy.expires
        and machine.user is not None
        and machine.awaited_by is None
        and machine.held is None
        and all(may_be_moved(pod) and pod.deleted is None for pod in machine.pods)
        and not tried_lately(machine.record, now)
    )


def tried_lately(record: GPUInstance, now: datetime) -> bool:
    """Whether the node was to be emptied a while ago and was not: pods could not be evicted, or others came."""
    steps = record.status.transitions if record.status is not None else ()
    return any(each.reason == Reason.UNDERUTILIZED and now < each.at + MOVE_RETRY for each in steps)


def pays_back(old: UsdPerHour, new: UsdPerHour) -> bool:
    """Whether machines at `old` dollars per hour are worth replacing by one at `new`.

    What is saved in `PAYBACK` must cover the `OVERLAP`, in which both are paid: at most 6/7 of the price.
    """
    return old.units > new.units and (old.units - new.units) * (PAYBACK // OVERLAP) >= new.units


def moves_at(machine: MachineUse, now: datetime, rules: ScaleDownRules) -> datetime | None:
    """From when on the node is emptied; None while it does not count as under-utilized, or is never consolidated."""
    told, pool = condition_of(machine.record, UNDERUTILIZED), pool_of(machine)
    delay = duration_or_never(rules.pools[pool].consolidate_after) if pool is not None else None
    if told is None or told.status is not Truth.TRUE or delay is None:
        return None
    since = told.last_transition_time + delay
    return goes_at(machine.record, since, now) if delay else since


def utilization(machine: MachineUse) -> tuple[float, str]:
    """Sort key: nodes with the smallest share of their GPUs in use first."""
    node = machine.node
    there = int(node.allocatable.gpus(machine.gpu_resources)) if node is not None else 0
    used = sum(int(pod.shape.gpus(machine.gpu_resources)) for pod in machine.pods)
    return used / there if there else 1.0, machine.name
