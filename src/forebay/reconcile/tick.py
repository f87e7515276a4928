"""One thought: a `Snapshot` in, decisions with reasons out. No I/O, no clock but the snapshot's.

Read `tick` from top to bottom: each line asks one room one question.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import BUDGET_GATE, CLASS_FINALIZER, GROUP, PREDECESSOR_PREFIX
from forebay.budgets.admission import Held
from forebay.demand.assessment import Assessment, assess
from forebay.demand.free_capacity import free_nodes
from forebay.demand.nomination import NominatePods, nominations, reserved_until
from forebay.demand.planned_pods import planned_nodes, refusals
from forebay.demand.reservation import GRACE, Reservations, reserve
from forebay.disruption import consolidation as disruption
from forebay.disruption.machine_use import idle_updates, machine_uses
from forebay.lifecycle.steps import Adopt, AnyStep, DeleteRecord, WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.reconcile.budget_reports import report_budgets
from forebay.reconcile.budgeting import account, enforcement, gates, held_by, held_pod_events, usage_finalizers
from forebay.reconcile.buying import BuyResult
from forebay.reconcile.decisions import CreateInstance, Decision, PodEvent, SetClassFinalizer, SyncNode
from forebay.reconcile.due_steps import adopt_orphans, due_steps, paused_replacements
from forebay.reconcile.purchases import purchases
from forebay.reconcile.reports import report_classes, report_pools
from forebay.reconcile.snapshot import Memory, Snapshot


class TickResult(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[Decision, ...]
    #: When time alone may bring the next decision; None: only news can.
    look_again: datetime | None
    #: What was decided makes the next step possible as soon as it is done.
    at_once: bool
    #: For the next tick.
    memory: Memory
    #: Records that could not be thought about, by name.
    faults: Mapping[str, Exception]


def tick(snapshot: Snapshot) -> TickResult:
    braked = paused_replacements(snapshot)
    due = due_steps(snapshot, braked)
    adopted, unclaimed = adopt_orphans(snapshot)
    assessment = demand(snapshot)
    reservations = reserve_existing(snapshot, assessment)
    admitted, bought, budgeting = purchases(snapshot, account(snapshot), reservations)
    gated = gates(snapshot, budgeting)
    held = (*admitted.held, *bought.held, *gated.held)
    dressed = sync_nodes(snapshot)
    promised = nominate(snapshot, reservations, undressed={each.node.name for each in dressed})
    returned, look_at_idle = consolidate(snapshot, reservations, {step.record.metadata.name for step in due.steps})
    stopped = enforcement(snapshot, budgeting.standings)
    budgets = report_budgets(snapshot, budgeting.standings, held_by(held))
    decisions: tuple[Decision, ...] = (
        *(step for step in due.steps if not (isinstance(step, DeleteRecord) and step.record.uid in snapshot.withheld)),
        *class_finalizers(snapshot),
        *adopted,
        *bought.decisions,
        *dressed,
        *promised,
        *returned,
        *report_pools(snapshot, braked),
        *report_classes(snapshot),
        *budgets.decisions,
        *gated.released,
        *stopped.decisions,
        *usage_finalizers(snapshot),
        *pod_events(snapshot, assessment, reservations, bought),
        *held_pod_events(held),
    )
    return TickResult(
        decisions=decisions,
        look_again=_soonest(
            due.look_again,
            look_at_idle,
            bought.look_again,
            _end_of_grace(reservations, snapshot.now),
            reserved_until(snapshot.records, snapshot.nodes, snapshot.now),
            stopped.look_again,
            budgets.look_again,
            *(each.until for each in held if isinstance(each, Held) and each.until > snapshot.now),
        ),
        at_once=any(
            isinstance(each, CreateInstance | Adopt | DeleteRecord | WriteStatus | SetClassFinalizer)
            for each in decisions
        ),
        memory=Memory(reservations=reservations, unclaimed=unclaimed, reported=budgets.reported),
        faults=due.faults,
    )


def class_finalizers(snapshot: Snapshot) -> Iterator[SetClassFinalizer]:
    """A class says how its machines are ended: it must not go before they have."""
    needed = {record.spec.node_class_name for record in snapshot.records if record.state is not InstanceState.GONE}
    for each in snapshot.classes:
        held = CLASS_FINALIZER in each.metadata.finalizers
        going = each.metadata.deletion_timestamp is not None
        if not held and not going:
            yield SetClassFinalizer(node_class=each, held=True)
        elif held and going and each.metadata.name not in needed:
            yield SetClassFinalizer(node_class=each, held=False)


def demand(snapshot: Snapshot) -> Assessment:
    waiting = {pod.uid for pod in snapshot.pending}
    return assess(
        snapshot.pending,
        snapshot.rules.gpu_resources,
        snapshot.now,
        nodes=snapshot.nodes,
        promised=planned_nodes(snapshot.records, waiting),
    )


def reserve_existing(snapshot: Snapshot, assessment: Assessment) -> Reservations:
    """By capacity that is free or on its way. Only the rest is bought for."""
    if not assessment.wanted:
        return Reservations()
    free = free_nodes(
        snapshot.nodes,
        snapshot.used,
        snapshot.records,
        ports=snapshot.ports,
        daemons=snapshot.daemons,
        holding=(each.pod for each in assessment.others if each.reason is Reason.PREEMPTING),
        gpu_resources=snapshot.rules.gpu_resources,
    )
    return reserve(
        assessment.wanted,
        free,
        snapshot.now,
        before=snapshot.memory.reservations,
        pods_by_node=snapshot.pods_by_node,
        refusals=refusals(snapshot.records),
        gpu_resources=snapshot.rules.gpu_resources,
    )


def sync_nodes(snapshot: Snapshot) -> tuple[SyncNode, ...]:
    """Nodes that have joined without what their plan says they carry, such as a machine that was there before."""
    found: list[SyncNode] = []
    for record in snapshot.records:
        planned = record.spec.node
        node = snapshot.nodes.get(planned.name) if planned is not None else None
        if planned is None or node is None or record.state not in _UP or not node.ready:
            continue
        labels = {
            key: value
            for key, value in planned.labels.items()
            # Others may have changed what is not Forebay's own; that is theirs to do.
            if key not in node.labels or (key.startswith(_OURS) and node.labels[key] != value)
        }
        there = {(each.key, each.effect) for each in node.taints}
        missing = (each for each in planned.taints if (each.key, each.effect.value) not in there)
        taints = tuple(Taint(each.key, each.value or "", each.effect.value) for each in missing)
        if labels or taints:
            found.append(SyncNode(record=record, node=node, labels=labels, taints=taints))
    return tuple(found)


def _soonest(*moments: datetime | None) -> datetime | None:
    return min((at for at in moments if at is not None), default=None)


def _end_of_grace(reservations: Reservations, now: datetime) -> datetime | None:
    """When the scheduler has had its time for a pod that seems to fit on a node that is there."""
    return min((since + GRACE for since in reservations.fitting.values() if since + GRACE > now), default=None)


def nominate(snapshot: Snapshot, reservations: Reservations, undressed: set[str]) -> tuple[NominatePods, ...]:
    return nominations(
        [record for record in snapshot.records if record.node_name not in undressed],
        snapshot.nodes,
        snapshot.pending,
        snapshot.used,
        snapshot.now,
        ports=snapshot.ports,
        pods_by_node=snapshot.pods_by_node,
        refused={each.pod.uid for each in reservations.refused},
    )


def consolidate(
    snapshot: Snapshot, reservations: Reservations, stepping: set[str]
) -> tuple[tuple[AnyStep, ...], datetime | None]:
    """Marks on machines that have become idle or are no longer, and the first step of those that go."""
    now = snapshot.now
    all_machines = machine_uses(snapshot.records, snapshot.nodes, snapshot.pods_by_node, reservations, snapshot.pending)
    rules = disruption.ScaleDownRules(
        idle_delay=snapshot.rules.idle_delay,
        cycle=snapshot.rules.scale_down_interval,
        pools={pool.key: pool.spec.disruption for pool in snapshot.pools},
    )
    leaving = {each.record.metadata.name: each for each in disruption.scale_down(all_machines, now, rules)}
    taken = stepping | snapshot.busy
    found: list[AnyStep] = []
    for name, each in leaving.items():
        if name not in taken:
            status = transition(each.record.status, InstanceState.DRAINING, each.reason, each.sentence, now)
            found.append(WriteStatus(record=each.record, reason=each.reason, sentence=each.sentence, status=status))
    found += [
        WriteStatus(record=mark.record, reason=mark.reason, sentence=mark.sentence, status=mark.status)
        for mark in idle_updates(all_machines, now)
        if mark.record.metadata.name not in taken | leaving.keys()
    ]
    idle = any(machine.idle for machine in all_machines)
    return tuple(found), now + _IDLE_LOOK if idle else None


def pod_events(
    snapshot: Snapshot, assessment: Assessment, reservations: Reservations, bought: BuyResult
) -> Iterator[PodEvent]:
    """For every pod that waits: why, and what comes next."""
    for each in (*assessment.others, *reservations.refused):
        # Whom a budget's gate holds back is told by the budget, which knows until when.
        if each.reason not in _PASSING and BUDGET_GATE not in each.pod.shape.scheduling_gates:
            yield PodEvent(pod=each.pod, reason=each.reason, sentence=each.sentence)
    if any(source.offers is None and source.error is None for source in snapshot.sources.values()):
        return  # the first answer is on its way, and with it perhaps a place
    for left in bought.left_out:
        note = reservations.notes.get(left.pod.uid)
        sentence = f"{note} {left.sentence}" if note else left.sentence
        yield PodEvent(pod=left.pod, reason=left.reason, sentence=sentence, warning=True)


#: Its node is up, and stays.
_UP: Final = frozenset({InstanceState.JOINED, InstanceState.READY})
_OURS: Final = (f"{GROUP}/", PREDECESSOR_PREFIX)
#: How often idle machines are looked at: delays and cycles are in seconds.
_IDLE_LOOK: Final = timedelta(seconds=1)
#: True of nearly every pod for a moment; not worth an event.
_PASSING: Final = frozenset(
    {Reason.NOT_YET_SCHEDULED, Reason.POD_DELETED, Reason.BOUND, Reason.ENDED, Reason.PREEMPTING}
)
