"""Which pods need capacity. Every other one has its reason."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod

DEFAULT_SCHEDULER: Final = "default-scheduler"


class NotDemand(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    reason: Reason
    #: What, why, and what comes next or would help.
    sentence: str


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    wanted: tuple[Pod, ...] = ()
    others: tuple[NotDemand, ...] = ()


def assess(
    pods: Iterable[Pod],
    gpu_resources: Collection[str] | None,
    now: datetime,
    *,
    nodes: Mapping[str, Node] | None = None,
    promised: Mapping[str, Collection[str]] | None = None,
) -> Assessment:
    """Demand: the scheduler finds no node for the pod, and it asks for a GPU. Pods that ask for none are passed over.

    `promised` names the nodes that were obtained for a pod (by uid): a nomination to one of these is Forebay's own.
    `nodes` tells nominations that still mean something from those to nodes that are gone.
    """
    wanted: list[Pod] = []
    others: list[NotDemand] = []
    for pod in pods:
        if not pod.shape.gpus(gpu_resources):
            continue
        ours = promised.get(pod.uid, ()) if promised else ()
        found = not_demand(pod, gpu_resources, now, nodes=nodes, ours=ours)
        if found is None:
            wanted.append(pod)
        else:
            others.append(found)
    return Assessment(wanted=tuple(wanted), others=tuple(others))


def not_demand(
    pod: Pod,
    gpu_resources: Collection[str] | None,
    now: datetime,
    *,
    nodes: Mapping[str, Node] | None = None,
    ours: Collection[str] = (),
) -> NotDemand | None:
    """Why capacity is not sought for this pod, whatever pod it is; None where it is."""
    found = _why_not(pod, gpu_resources, now, nodes, ours)
    return None if found is None else NotDemand(pod=pod, reason=found[0], sentence=found[1])


def _why_not(
    pod: Pod,
    gpu_resources: Collection[str] | None,
    now: datetime,
    nodes: Mapping[str, Node] | None,
    ours: Collection[str],
) -> tuple[Reason, str] | None:
    shape = pod.shape
    if pod.phase.ended:
        return Reason.ENDED, f"The pod has ended ({pod.phase.value})."
    if pod.deleted is not None:
        return Reason.POD_DELETED, f"The pod was asked to end {human(now - pod.deleted)} ago."
    if pod.node is not None:
        return Reason.BOUND, f"The pod has its node, {pod.node}."
    if not shape.gpus(gpu_resources):
        asked = "a GPU" if gpu_resources is None else " or ".join(sorted(gpu_resources))
        return Reason.NO_GPU_ASKED, f"The pod does not ask for {asked}, and Forebay obtains GPU capacity only."
    if shape.scheduling_gates:
        gates = ", ".join(shape.scheduling_gates)
        return Reason.GATED, f"The pod is held back by its scheduling gates ({gates}) until these are taken away."
    if pod.nominated_node is not None and pod.nominated_node not in ours and _stands(pod.nominated_node, nodes):
        return (
            Reason.PREEMPTING,
            f"The scheduler has chosen node {pod.nominated_node} and waits for other pods to leave it.",
        )
    if pod.unschedulable_since is None:
        # Whoever schedules the pod: what counts is that its own scheduler says that there is no node for it.
        if shape.scheduler_name != DEFAULT_SCHEDULER:
            who = shape.scheduler_name
            return Reason.OTHER_SCHEDULER, f"Scheduler {who} has not marked the pod Unschedulable; only then it counts."
        return (
            Reason.NOT_YET_SCHEDULED,
            f"The scheduler has not tried the pod yet; it was made {human(now - pod.created)} ago.",
        )
    return None


def _stands(nominated: str, nodes: Mapping[str, Node] | None) -> bool:
    """A nomination outlives its node: the scheduler clears it only when it tries the pod again."""
    if nodes is None:
        return True
    node = nodes.get(nominated)
    return node is not None and node.ready and not node.unschedulable
