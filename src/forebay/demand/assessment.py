"""Which pending pods are demand: unschedulable, and requesting a GPU. Every other pod gets the reason why it is not."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from forebay.demand.scheduler_waits import SchedulerWaits
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod

DEFAULT_SCHEDULER: Final = "default-scheduler"


class NotDemand(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that no capacity is bought for, and why."""

    pod: Pod
    reason: Reason
    #: The fact, its cause, and what comes next or would help.
    sentence: str


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """All pending GPU pods: those that need capacity, and those that do not."""

    demand: tuple[Pod, ...] = ()
    not_demand: tuple[NotDemand, ...] = ()


def assess(
    pods: Iterable[Pod],
    gpu_resources: Collection[str] | None,
    now: datetime,
    *,
    nodes: Mapping[str, Node] | None = None,
    planned_nodes: Mapping[str, Collection[str]] | None = None,
    waits: SchedulerWaits | None = None,
) -> Assessment:
    """Splits GPU pods into demand and the rest. Pods that request no GPU are in neither.

    `planned_nodes` names, by pod UID, the nodes that Forebay launched for the pod: on one of these, no other pods must
    leave first. `nodes` shows which nominations are stale because their node is gone or down, and `waits` which have
    led to nothing for too long.
    """
    demand: list[Pod] = []
    rest: list[NotDemand] = []
    for pod in pods:
        if not pod.shape.requests.any_gpu(gpu_resources):
            continue
        own = planned_nodes.get(pod.uid, ()) if planned_nodes else ()
        found = not_demand(pod, gpu_resources, now, nodes=nodes, planned_nodes=own, waits=waits)
        if found is None:
            demand.append(pod)
        else:
            rest.append(found)
    return Assessment(demand=tuple(demand), not_demand=tuple(rest))


def not_demand(
    pod: Pod,
    gpu_resources: Collection[str] | None,
    now: datetime,
    *,
    nodes: Mapping[str, Node] | None = None,
    planned_nodes: Collection[str] = (),
    waits: SchedulerWaits | None = None,
) -> NotDemand | None:
    """Why no capacity is bought for this pod (any pod, also one without GPUs); None where the pod is demand."""
    found = _why_not(pod, gpu_resources, now, nodes, planned_nodes, waits=waits or SchedulerWaits())
    return None if found is None else NotDemand(pod=pod, reason=found[0], sentence=found[1])


def _why_not(
    pod: Pod,
    gpu_resources: Collection[str] | None,
    now: datetime,
    nodes: Mapping[str, Node] | None,
    planned_nodes: Collection[str],
    *,
    waits: SchedulerWaits,
) -> tuple[Reason, str] | None:
    shape = pod.shape
    if pod.phase.ended:
        return Reason.ENDED, f"The pod has ended ({pod.phase.value})."
    if pod.deleted is not None:
        return Reason.POD_DELETED, f"The pod was deleted {human(now - pod.deleted)} ago and is terminating."
    if pod.node is not None:
        return Reason.BOUND, f"The pod is bound to node {pod.node}."
    claims_only = shape.resource_claims and not shape.requests.any_gpu(gpu_resources)
    if not claims_only and not shape.requests.any_gpu(gpu_resources):
        requested = "a GPU" if gpu_resources is None else " or ".join(sorted(gpu_resources))
        return Reason.NO_GPU_ASKED, f"The pod does not request {requested}, and Forebay provides GPU capacity only."
    if shape.scheduling_gates:
        gates = ", ".join(shape.scheduling_gates)
        return Reason.GATED, f"The pod has scheduling gates ({gates}) and is not scheduled until they are removed."
    nominated = pod.nominated_node
    is_stale = nominated in planned_nodes or waits.gives_up(pod, now)
    if nominated is not None and not is_stale and _is_current(nominated, nodes):
        return (
            Reason.PREEMPTING,
            f"The scheduler has nominated the pod to node {nominated} and waits for other pods to leave that node.",
        )
    if pod.unschedulable_since is None:
        # Any scheduler counts, as long as the pod's own scheduler has reported that no node fits.
        if shape.scheduler_name != DEFAULT_SCHEDULER:
            sentence = (
                f"Scheduler {shape.scheduler_name} has not marked the pod Unschedulable. Nothing is bought before."
            )
            return Reason.OTHER_SCHEDULER, sentence
        if pod.scheduler_error_since is not None:
            sentence = f'The scheduler fails to try the pod: "{(pod.unschedulable_message or "").rstrip(".")}".'
            return Reason.NOT_YET_SCHEDULED, sentence
        return (
            Reason.NOT_YET_SCHEDULED,
            f"The scheduler has not tried the pod yet; the pod was created {human(now - pod.created)} ago.",
        )
    if claims_only:
        return Reason.CLAIMS_NOT_SERVED, (
            "No node has the devices that the pod requests by resource claims. Forebay launches capacity for requested "
            "resources, not for claims: request the extendedResourceName of the DeviceClass (such as nvidia.com/gpu) "
            "instead, or add nodes with these devices."
        )
    return None


def _is_current(nominated: str, nodes: Mapping[str, Node] | None) -> bool:
    """Whether the nominated node can still take pods.

    A nomination outlives its node: the scheduler clears it only when it tries the pod again.
    """
    if nodes is None:
        return True
    node = nodes.get(nominated)
    return node is not None and node.ready and not node.unschedulable
