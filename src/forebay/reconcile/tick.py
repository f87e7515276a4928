"""One tick: a `Snapshot` in, decisions with reasons out. No I/O, and no clock but the snapshot's."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.names import STARTUP_TAINT
from forebay.budgets.admission import Held
from forebay.demand.assessment import Assessment
from forebay.demand.reservation import Reservations
from forebay.demand.startup_taint import ReserveNode, next_taint_change
from forebay.lifecycle.node_certificates import certificate_decisions
from forebay.lifecycle.steps import Adopt, DeleteRecord, WriteStatus
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.reconcile.adoption import adopt_orphans
from forebay.reconcile.budget_reports import report_budgets
from forebay.reconcile.budgeting import (
    assess_budgets,
    enforcement,
    gates,
    held_by,
    held_pod_events,
    unneeded_pause_requests,
    usage_finalizers,
)
from forebay.reconcile.buying import first_offers_due
from forebay.reconcile.capacity_conditions import report_capacity
from forebay.reconcile.class_deletions import report_deletions
from forebay.reconcile.class_finalizers import class_finalizers
from forebay.reconcile.decisions import CreateInstance, Decision, PodEvent, SetClassFinalizer
from forebay.reconcile.deleted_pools import deleted_pools
from forebay.reconcile.due_steps import due_steps, paused_replacements
from forebay.reconcile.group_reports import report_provisioners
from forebay.reconcile.group_sizing import adopt_members, size_groups
from forebay.reconcile.idle_nodes import mark_idle_nodes
from forebay.reconcile.isolation import Faults, ObjectId, without_faulty
from forebay.reconcile.member_claims import claim_members
from forebay.reconcile.node_changes import (
    giving_way,
    most_urgent,
    out_of_service,
    record_refusals,
    reserve_nodes,
    sync_nodes,
)
from forebay.reconcile.pod_events import per_owner, pod_events
from forebay.reconcile.purchases import Purchases, purchases
from forebay.reconcile.reports import report_classes, report_pools, unreadable_instances
from forebay.reconcile.scale_down import scale_down_steps
from forebay.reconcile.snapshot import Memory, Snapshot
from forebay.reconcile.static_capacity import static_capacity
from forebay.reconcile.unmet_demand import assess_demand, grace_end, reserve_existing
from forebay.reconcile.unserved_budgets import report_unserved

#: Decisions that make the next decision about the same object possible as soon as they are applied.
_LEAD_TO_MORE: Final = CreateInstance | Adopt | DeleteRecord | WriteStatus | SetClassFinalizer


class TickResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one tick decided, and when the next one is due."""

    decisions: tuple[Decision, ...]
    #: When the passing of time alone may lead to the next decision; None: only a change can.
    requeue_at: datetime | None
    #: Run the next tick as soon as the decisions are applied, without waiting for a change.
    requeue_now: bool
    #: Input of the next tick.
    memory: Memory
    #: Objects that this tick could not handle because of a bug. The others went on.
    errors: Mapping[ObjectId, Exception]


def tick(snapshot: Snapshot) -> TickResult:
    """The decisions that follow from the snapshot."""
    faults = Faults()
    # 1. Observe: the caller has (`engine.observe`), and the snapshot is the result.

    # 2. Lifecycle: the next step of every GPUInstance, and adoption of orphans.
    paused = paused_replacements(snapshot)
    due = due_steps(snapshot, paused)
    faults.add("GPUInstance", {("", name): error for name, error in due.errors.items()})
    adopted, orphans = adopt_orphans(snapshot)
    claimed = claim_members(snapshot)

    # 3. Account: usage and forecast of every budget, from the ledger and the running pods.
    assessed = assess_budgets(snapshot)
    faults.add("GPUWorkloadBudget", assessed.errors)

    def serve(seen: Snapshot) -> tuple[Assessment, Reservations, Purchases]:
        # 4. Demand: unschedulable GPU pods, minus those that fit on free or launching nodes.
        assessment = assess_demand(seen)
        reservations = reserve_existing(seen, assessment)
        # 5. Admit and 6. plan: budgets gate the demand, and the cheapest capacity is planned for what they admit.
        # One call, because a pod that no offer fits must not use up its budget's room and hold back the pods after it.
        return assessment, reservations, purchases(seen, assessed, reservations)

    served, left_out = without_faulty(snapshot, serve, faults)
    assessment, reservations, (admitted, bought, grown, budgeting) = served
    # Nodes that pools are to have whatever pods there are.
    static = static_capacity(snapshot, bought.decisions, faults)
    gated = gates(snapshot, budgeting)
    held = (*admitted.held, *grown.held, *bought.held, *gated.held)

    # New nodes: reserved for the pods they were launched for, then with planned labels and taints.
    to_reserve = reserve_nodes(snapshot, reservations, due.allowed)
    reserved = most_urgent(snapshot, to_reserve)
    applied = giving_way(snapshot, due.allowed, reserved)
    reserved_now = {each.node.name for each in reserved if isinstance(each, ReserveNode)}
    synced = sync_nodes(snapshot, due.looked_at, besides=reserved_now)

    # 7. Disrupt: drain idle machines, never one that the reservations count on.
    with_step = {step.record.metadata.name for step in due.steps}
    scaled_down = scale_down_steps(
        snapshot,
        reservations,
        with_step,
        faults,
        admission=budgeting.admission,
        # Limits are counted from the records, so machines are ordered for one reason at a time.
        may_launch=not any(isinstance(each, CreateInstance) for each in (*bought.decisions, *static.decisions)),
    )
    changed = {each.node.name for each in synced.decisions} | reserved_now
    marked = mark_idle_nodes(snapshot, scaled_down.uses.machines, scaled_down.goes_at, changed)
    # Instance groups: one pass towards the target of each NodeProvisioner.
    orders = (*bought.decisions, *static.decisions, *scaled_down.steps)
    sized = size_groups(snapshot, reservations, grown, with_step, faults, orders)

    # 8. Enforce: evict or pause pods of exceeded budgets.
    enforced = enforcement(snapshot, budgeting.standings, faults)

    budgets = report_budgets(snapshot, budgeting.standings, held_by(held), faults)

    # Why each pending pod waits.
    waits = (
        *pod_events(snapshot, assessment, reservations, bought),
        *held_pod_events(held),
        *(_left_out(pod, faults) for pod in left_out),
    )
    # 9. Apply: the caller does (`engine.apply`), in this order for each object.
    decisions: tuple[Decision, ...] = (
        # Before the launches, so that the node has its startup taint when the machine comes up.
        *reserved,
        *claimed.without(applied),
        *claimed.claims,
        *certificate_decisions(snapshot.records, snapshot.signing_requests, snapshot.nodes, snapshot.now),
        *class_finalizers(snapshot),
        *adopted,
        *adopt_members(snapshot, claimed.members),
        *bought.decisions,
        *static.decisions,
        *sized.decisions,
        *synced.decisions,
        *out_of_service(snapshot),
        *record_refusals(snapshot, reservations),
        *scaled_down.steps,
        *marked,
        *report_pools(snapshot, paused, faults, static.facts),
        *report_classes(snapshot, deleted_pools(snapshot), faults),
        *report_deletions(snapshot),
        *report_provisioners(snapshot, sized.sizes, faults, paused),
        *unreadable_instances(snapshot),
        *budgets.decisions,
        *report_unserved(snapshot),
        *gated.released,
        *enforced.decisions,
        *(() if snapshot.budget_state is None else snapshot.budget_state.resumed_by_hand),
        *unneeded_pause_requests(snapshot, budgeting.standings),
        *usage_finalizers(snapshot),
        *per_owner(waits),
        *report_capacity(snapshot, reservations, waits),
    )
    return TickResult(
        decisions=decisions,
        requeue_at=_earliest(
            due.requeue_at,
            # News that gave way.
            snapshot.now + timedelta(seconds=1) if len(applied) < len(due.allowed) else None,
            scaled_down.requeue_at,
            sized.requeue_at,
            bought.requeue_at,
            static.requeue_at,
            first_offers_due(snapshot),
            grace_end(reservations, snapshot.now),
            snapshot.soon_used.until,
            next_taint_change(snapshot.records, snapshot.nodes_by_taint.get(STARTUP_TAINT, ()), snapshot.now),
            enforced.requeue_at,
            budgets.requeue_at,
            *(each.until for each in held if isinstance(each, Held) and each.until > snapshot.now),
        ),
        requeue_now=len(reserved) < len(to_reserve) or any(isinstance(each, _LEAD_TO_MORE) for each in decisions),
        memory=Memory(
            reservations=reservations,
            scheduler_waits=snapshot.scheduler_waits,
            orphans=orphans,
            reported=budgets.reported,
            assessments=assessed.assessments,
            consolidated=scaled_down.consolidated,
            defragmented=sized.defragmented,
            settled=due.settled.without(synced.pending),
            uses=scaled_down.uses,
            plans=bought.plans,
        ),
        errors=faults.errors,
    )


def _left_out(pod: Pod, faults: Faults) -> PodEvent:
    sentence = faults.told("Pod", pod.key) or "Forebay failed to handle this pod."
    return PodEvent(pod=pod, reason=Reason.RECONCILE_FAILED, sentence=sentence, warning=True)


def _earliest(*times: datetime | None) -> datetime | None:
    return min((at for at in times if at is not None), default=None)
