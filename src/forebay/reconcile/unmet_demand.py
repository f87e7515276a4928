"""Demand in one tick: unschedulable GPU pods, and which of these free and launching nodes have room for."""

from datetime import datetime

from forebay.demand.assessment import Assessment, assess
from forebay.demand.free_capacity import free_nodes
from forebay.demand.planned_pods import planned_nodes
from forebay.demand.reservation import SCHEDULER_FLUSH, SCHEDULER_GRACE, Reservations, reserve
from forebay.model.reasons import Reason
from forebay.reconcile.snapshot import Snapshot


def assess_demand(snapshot: Snapshot) -> Assessment:
    """Pending GPU pods that need capacity, and the others with their reasons."""
    pending = {pod.uid for pod in snapshot.pending}
    return assess(
        snapshot.pending,
        snapshot.rules.gpu_resources,
        snapshot.now,
        nodes=snapshot.nodes,
        planned_nodes=planned_nodes(snapshot.records, pending),
    )


def reserve_existing(snapshot: Snapshot, assessment: Assessment) -> Reservations:
    """Reservations on free and launching nodes. Capacity is bought only for the pods left without one."""
    if not assessment.demand:
        return Reservations()
    free = free_nodes(
        snapshot.nodes,
        snapshot.used,
        snapshot.records,
        ports=snapshot.ports,
        daemons=snapshot.daemons,
        preempting=(each.pod for each in assessment.not_demand if each.reason is Reason.PREEMPTING),
        gpu_resources=snapshot.rules.gpu_resources,
    )
    return reserve(
        assessment.demand,
        free,
        snapshot.now,
        before=snapshot.memory.reservations,
        pods_by_node=snapshot.pods_by_node,
        gpu_resources=snapshot.rules.gpu_resources,
    )


def grace_end(reservations: Reservations, now: datetime) -> datetime | None:
    """Earliest end of the scheduler's grace time for a pod that seems to fit on a ready node."""
    ends = (
        since + wait
        for since in reservations.fitting.values()
        for wait in (SCHEDULER_GRACE, SCHEDULER_GRACE + SCHEDULER_FLUSH)
    )
    return min((end for end in ends if end > now), default=None)
