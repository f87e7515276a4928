"""Demand in one tick: unschedulable GPU pods, and which of these free and launching nodes have room for."""

from datetime import datetime

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.demand.assessment import Assessment, NotDemand, assess, not_demand
from forebay.demand.free_capacity import free_nodes
from forebay.demand.planned_pods import live_containers, planned_nodes
from forebay.demand.replacements import without_promised
from forebay.demand.reservation import SCHEDULER_FLUSH, SCHEDULER_GRACE, Reservations, reserve
from forebay.lifecycle.wording import describe
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import Snapshot


def assess_demand(snapshot: Snapshot) -> Assessment:
    """Pending GPU pods that need capacity, and the others with their reasons.

    Also pods with resource claims only, as far as these are why the scheduler finds no node.
    """
    pending = {pod.uid for pod in snapshot.pending}
    assessment = assess(
        snapshot.pending,
        snapshot.rules.gpu_resources,
        snapshot.now,
        nodes=snapshot.nodes,
        planned_nodes=planned_nodes(snapshot.records, pending),
        waits=snapshot.scheduler_waits,
    )
    assessment = _without_containers(snapshot, assessment)
    if not snapshot.pending_claims:
        return assessment
    gpu_resources, now = snapshot.rules.gpu_resources, snapshot.now
    found = (not_demand(pod, gpu_resources, now, nodes=snapshot.nodes) for pod in snapshot.pending_claims)
    told = tuple(each for each in found if each is not None and each.reason is Reason.CLAIMS_NOT_SERVED)
    return msgspec.structs.replace(assessment, not_demand=(*assessment.not_demand, *told))


def _without_containers(snapshot: Snapshot, assessment: Assessment) -> Assessment:
    """The assessment without pods that a remote container is launched for, or may still run."""
    containers = live_containers(snapshot.records) if assessment.demand else {}
    if not containers:
        return assessment
    told = tuple(
        _with_container(pod, record) for pod in assessment.demand if (record := containers.get(pod.uid)) is not None
    )
    demand = tuple(pod for pod in assessment.demand if pod.uid not in containers)
    return Assessment(demand=demand, not_demand=(*assessment.not_demand, *told))


def _with_container(pod: Pod, record: GPUInstance) -> NotDemand:
    status = record.status
    if status is not None and status.reason == Reason.CONTAINER_CONFIG_ERROR and status.message:
        # Only somebody who changes what the pod needs ends this wait: the pod says what that is.
        return NotDemand(pod=pod, reason=Reason.CONTAINER_CONFIG_ERROR, sentence=status.message)
    sentence = f"{describe(record)} is to run the pod: GPUInstance {record.metadata.name} is {record.state}."
    return NotDemand(pod=pod, reason=Reason.CAPACITY_LAUNCHING, sentence=sentence)


def reserve_existing(snapshot: Snapshot, assessment: Assessment) -> Reservations:
    """Reservations on free and launching nodes. Capacity is bought only for the pods left without one."""
    if not assessment.demand:
        return Reservations()
    free = free_nodes(
        snapshot.nodes,
        snapshot.soon_used.by_node,
        snapshot.records,
        ports=snapshot.ports,
        daemons=snapshot.daemons,
        preempting=(each.pod for each in assessment.not_demand if each.reason is Reason.PREEMPTING),
        gpu_resources=snapshot.rules.gpu_resources,
    )
    return reserve(
        assessment.demand,
        without_promised(free, snapshot.records, snapshot.pods_by_node, pending=assessment.demand),
        snapshot.now,
        before=snapshot.memory.reservations,
        pods_by_node=snapshot.pods_by_node,
        gpu_resources=snapshot.rules.gpu_resources,
        await_planned=True,
    )


def grace_end(reservations: Reservations, now: datetime) -> datetime | None:
    """Earliest end of the scheduler's grace time for a pod that seems to fit on a ready node."""
    graces = (SCHEDULER_GRACE, SCHEDULER_GRACE + SCHEDULER_FLUSH)
    ends = (since + grace for since in reservations.fitting.values() for grace in graces)
    return min((end for end in ends if end > now), default=None)
