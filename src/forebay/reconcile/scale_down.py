"""Scale-down in one tick: which machines start draining, and which Idle conditions change."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_node_pool import DisruptionReason, GPUNodePool
from forebay.api.values import duration_or_never
from forebay.budgets.admission import Admission
from forebay.demand.reservation import Reservations
from forebay.disruption import consolidation
from forebay.disruption.machine_use import MachineUses, idle_updates, machine_uses
from forebay.disruption.node_budgets import allowed_disruptions
from forebay.disruption.pool_budgets import PoolBudgets
from forebay.lifecycle.steps import DeleteRecord, WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.reasons import Reason
from forebay.reconcile.cost_moves import cost_moves
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.isolation import Faults, ObjectId
from forebay.reconcile.orders import current_templates
from forebay.reconcile.replacing import moving_to, replace_first
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.wanted import Wanted


class ScaleDownSteps(NamedTuple):
    steps: tuple[WriteStatus | CreateInstance | DeleteRecord, ...]
    requeue_at: datetime | None
    #: For the next tick.
    uses: MachineUses
    #: When nodes were last looked at that may be under-utilized.
    consolidated: datetime | None = None
    #: By name of the machine, from when a node without GPU pods may go.
    goes_at: Mapping[str, datetime] = {}


def scale_down_steps(
    snapshot: Snapshot,
    reservations: Reservations,
    with_step: set[str],
    faults: Faults,
    *,
    admission: Admission | None = None,
    may_launch: bool = True,
) -> ScaleDownSteps:
    """Draining for machines that are no longer needed, replacements of others, and Idle conditions for the rest.

    `with_step` names GPUInstances for which this tick has decided a step already. `may_launch`: whether this tick may
    launch replacements.
    """
    now = snapshot.now
    uses = machine_uses(
        snapshot.records,
        snapshot.nodes,
        snapshot.pods_by_node,
        reservations,
        snapshot.pending,
        now=now,
        gpu_resources=snapshot.rules.gpu_resources,
        wanted=Wanted(snapshot),
        waits=snapshot.scheduler_waits,
        moving=moving_to(snapshot),
        before=snapshot.memory.uses,
    )
    machines = uses.machines
    rules = consolidation.ScaleDownRules(
        adoption_grace=snapshot.rules.adoption_grace,
        cycle=snapshot.rules.scale_down_interval,
        # Nodes of a pool that is missing here are kept.
        pools={pool.key: pool.spec.disruption for pool in snapshot.pools if _understood(pool, now, faults)},
        templates=current_templates(snapshot.pools, snapshot.classes),
        min_nodes={pool.key: pool.spec.min_nodes for pool in snapshot.pools if pool.spec.min_nodes},
    )
    excluded = with_step | snapshot.calls_in_flight | snapshot.unreadable_records.keys()
    budgets = PoolBudgets(machines, rules.pools, now)
    due = (*consolidation.taken_back(machines), *consolidation.scale_down(machines, now, rules, budgets))
    unreplaced = consolidation.still_unreplaced(machines, now, rules)
    replacing = replace_first(
        snapshot,
        [each for each in due if each.record.metadata.name not in excluded],
        admission,
        faults=faults,
        may_launch=may_launch,
        unreplaced=unreplaced,
    )
    left_as_they_are = unreplaced.difference(each.record.uid for each in replacing.leaving)
    for each in due:
        # Their pods run on: another node may be emptied meanwhile.
        if each.record.uid in left_as_they_are:
            budgets.release(uses.by_name[each.record.metadata.name])
    ending = {each.record.metadata.name for each in due}
    moves = cost_moves(
        snapshot,
        machines,
        rules,
        budgets,
        admission=admission,
        faults=faults,
        besides=excluded | ending,
        ending=ending,
        may_launch=may_launch and not any(isinstance(each, CreateInstance) for each in replacing.decisions),
    )
    leaving = {each.record.metadata.name: each for each in (*replacing.leaving, *moves.leaving)}
    steps: list[WriteStatus | CreateInstance | DeleteRecord] = []
    for name, each in leaving.items():
        if name not in excluded:
            # What never became a node has nothing to drain.
            to = InstanceState.TERMINATING if each.reason is Reason.NOT_NEEDED else InstanceState.DRAINING
            status = transition(each.record.status, to, each.reason, each.sentence, now)
            steps.append(WriteStatus(record=each.record, reason=each.reason, sentence=each.sentence, status=status))
    steps += (*replacing.decisions, *moves.decisions)
    written = {each.record.metadata.name for each in steps if isinstance(each, WriteStatus)}
    steps += [
        WriteStatus(record=update.record, reason=update.reason, sentence=update.sentence, status=update.status)
        for update in idle_updates(machines, now, consolidation.kept_idle(machines, now, rules))
        if update.record.metadata.name not in excluded | written
    ]
    due_at = [each for each in (consolidation.next_scale_down(machines, now, rules), moves.requeue_at) if each]
    goes_at = consolidation.idle_ends(machines, now, rules)
    return ScaleDownSteps(tuple(steps), min(due_at, default=None), uses, moves.checked_at, goes_at)


def _understood(pool: GPUNodePool, now: datetime, faults: Faults) -> bool:
    """Whether the rules of the pool can be applied. One pool's rules must not stop the scale-down of the others."""
    disruption = pool.spec.disruption
    with faults.of("GPUNodePool", *pool.key):
        for reason in DisruptionReason:
            allowed_disruptions(disruption.budgets, reason, nodes=1, disrupted=0, now=now)
        duration_or_never(disruption.consolidate_after)
        duration_or_never(disruption.expire_after)
    return ObjectId("GPUNodePool", *pool.key) not in faults.errors
