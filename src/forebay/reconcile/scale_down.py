"""Scale-down in one tick: which machines start draining, and which Idle conditions change."""

from datetime import datetime
from typing import NamedTuple

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_node_pool import DisruptionReason, GPUNodePool
from forebay.api.values import duration_or_never
from forebay.demand.reservation import Reservations
from forebay.disruption import consolidation
from forebay.disruption.machine_use import idle_updates, machine_uses
from forebay.disruption.node_budgets import allowed_disruptions
from forebay.lifecycle.steps import WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.reasons import Reason
from forebay.reconcile.isolation import Faults, ObjectId
from forebay.reconcile.orders import template_hash
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.wanted import Wanted


class ScaleDownSteps(NamedTuple):
    steps: tuple[WriteStatus, ...]
    requeue_at: datetime | None


def scale_down_steps(
    snapshot: Snapshot, reservations: Reservations, with_step: set[str], faults: Faults
) -> ScaleDownSteps:
    """Draining for machines that are no longer needed, and Idle conditions for the others.

    `with_step` names GPUInstances for which this tick has decided a step already.
    """
    now = snapshot.now
    machines = machine_uses(
        snapshot.records,
        snapshot.nodes,
        snapshot.pods_by_node,
        reservations,
        snapshot.pending,
        now=now,
        gpu_resources=snapshot.rules.gpu_resources,
        wanted=Wanted(snapshot),
    )
    rules = consolidation.ScaleDownRules(
        adoption_grace=snapshot.rules.adoption_grace,
        cycle=snapshot.rules.scale_down_interval,
        # Nodes of a pool that is missing here are kept.
        pools={pool.key: pool.spec.disruption for pool in snapshot.pools if _understood(pool, now, faults)},
        templates=_templates(snapshot),
        min_nodes={pool.key: pool.spec.min_nodes for pool in snapshot.pools if pool.spec.min_nodes},
    )
    leaving = {each.record.metadata.name: each for each in consolidation.scale_down(machines, now, rules)}
    excluded = with_step | snapshot.calls_in_flight | snapshot.unreadable_records.keys()
    steps: list[WriteStatus] = []
    for name, each in leaving.items():
        if name not in excluded:
            # What never became a node has nothing to drain.
            to = InstanceState.TERMINATING if each.reason is Reason.NOT_NEEDED else InstanceState.DRAINING
            status = transition(each.record.status, to, each.reason, each.sentence, now)
            steps.append(WriteStatus(record=each.record, reason=each.reason, sentence=each.sentence, status=status))
    steps += [
        WriteStatus(record=update.record, reason=update.reason, sentence=update.sentence, status=update.status)
        for update in idle_updates(machines, now, consolidation.kept_idle(machines, now, rules))
        if update.record.metadata.name not in excluded | leaving.keys()
    ]
    return ScaleDownSteps(tuple(steps), consolidation.next_scale_down(machines, now, rules))


def _templates(snapshot: Snapshot) -> dict[tuple[str, str], str]:
    """By pool, what its machines are made of now. Without those whose class is not there: it may come back."""
    classes = {each.metadata.name: each for each in snapshot.classes}
    found = ((pool, classes.get(pool.spec.node_class_ref.name)) for pool in snapshot.pools)
    hashes = ((pool.key, template_hash(node_class, pool)) for pool, node_class in found if node_class is not None)
    return {key: made_of for key, made_of in hashes if made_of is not None}


def _understood(pool: GPUNodePool, now: datetime, faults: Faults) -> bool:
    """Whether the rules of the pool can be applied. One pool's rules must not stop the scale-down of the others."""
    disruption = pool.spec.disruption
    with faults.of("GPUNodePool", *pool.key):
        allowed_disruptions(disruption.budgets, DisruptionReason.IDLE, nodes=1, disrupted=0, now=now)
        allowed_disruptions(disruption.budgets, DisruptionReason.EXPIRED, nodes=1, disrupted=0, now=now)
        allowed_disruptions(disruption.budgets, DisruptionReason.DRIFTED, nodes=1, disrupted=0, now=now)
        duration_or_never(disruption.consolidate_after)
        duration_or_never(disruption.expire_after)
    return ObjectId("GPUNodePool", *pool.key) not in faults.errors
