"""Indexes over pods, by which each part of the operator finds those that concern it."""

from collections.abc import Collection
from operator import attrgetter
from typing import Final

from forebay.api.names import BUDGET_GATE, PAUSE_REQUESTED_BY_ANNOTATION, USAGE_FINALIZER
from forebay.kube.index import Index
from forebay.model.requirements import NODE_NAME_FIELD
from forebay.model.workloads import Pod

PENDING_GPU: Final = "pending GPU pods"
PENDING_CLAIMS: Final = "pending pods with resource claims that request no GPU"
BY_NODE: Final = "pods by node"
BY_OWNER: Final = "pods by owner"
MARKED: Final = "pods with a finalizer, gate or annotation of a budget"
DAEMONS_TO_COME: Final = "pods of DaemonSets that wait for their node"
TOLD_BUT_BOUND: Final = "bound pods whose condition says that they wait"


def is_pending(pod: Pod) -> bool:
    """Whether a pod waits for a node: not bound, not ended, not being deleted."""
    return pod.node is None and pod.deleted is None and not pod.phase.ended


def asks_for_gpu(pod: Pod) -> bool:
    return pod.shape.requests.any_gpu()


def pod_indexes(gpu_resources: Collection[str] | None = None) -> tuple[Index[Pod], ...]:
    """PENDING_GPU, PENDING_CLAIMS and TOLD_BUT_BOUND (by True), BY_NODE, BY_OWNER (by UID), MARKED, DAEMONS_TO_COME (by
    the name of the node).

    MARKED is by USAGE_FINALIZER, BUDGET_GATE and PAUSE_REQUESTED_BY_ANNOTATION.

    `gpu_resources` are the resources that count as GPUs; None: every `<vendor>/gpu`.
    """
    wants_gpu = asks_for_gpu if gpu_resources is None else lambda pod: pod.shape.requests.any_gpu(gpu_resources)
    return (
        Index(BY_NODE, attrgetter("node")),
        Index(BY_OWNER, lambda pod: None if pod.owner is None else pod.owner.uid),
        Index(MARKED, _marks, several=True),
        Index(PENDING_GPU, lambda pod: is_pending(pod) or None, among=wants_gpu),
        Index(
            PENDING_CLAIMS,
            lambda pod: is_pending(pod) or None,
            among=lambda pod: pod.shape.resource_claims and not wants_gpu(pod),
        ),
        Index(DAEMONS_TO_COME, _node_of_daemon),
        Index(TOLD_BUT_BOUND, _told_but_bound),
    )


def _node_of_daemon(pod: Pod) -> str | None:
    """The node that a pod of a DaemonSet is for, while it is not there: its controller names it in the affinity."""
    if pod.owner is None or pod.owner.kind != "DaemonSet" or not is_pending(pod):
        return None
    fields = (each for term in pod.shape.node_affinity or () for each in term.match_fields)
    return next((each.values[0] for each in fields if each.key == NODE_NAME_FIELD and len(each.values) == 1), None)


def _told_but_bound(pod: Pod) -> bool | None:
    return (pod.capacity is not None and pod.node is not None and not pod.phase.ended) or None


def _marks(pod: Pod) -> tuple[str, ...]:
    if not pod.finalizers and not pod.shape.scheduling_gates and not pod.annotations:
        return ()
    finalizer = (USAGE_FINALIZER,) if USAGE_FINALIZER in pod.finalizers else ()
    gate = (BUDGET_GATE,) if BUDGET_GATE in pod.shape.scheduling_gates else ()
    pause = (PAUSE_REQUESTED_BY_ANNOTATION,) if PAUSE_REQUESTED_BY_ANNOTATION in pod.annotations else ()
    return (*finalizer, *gate, *pause)
