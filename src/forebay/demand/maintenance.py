"""What people do to keep a machine as it is: a cordon of theirs, and annotations on nodes, GPUInstances and pods."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.names import CORDONED_ANNOTATION, MAINTENANCE_ANNOTATION
from forebay.model.nodes import Node
from forebay.model.requirements import Effect, Taint
from forebay.model.workloads import Pod

#: "true" on a pod: the pod must not be evicted; on a node or GPUInstance: the machine must not be disrupted.
_DO_NOT_DISRUPT: Final = ("forebay.dev/do-not-disrupt", "karpenter.sh/do-not-disrupt")
_SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
#: Taints of a node that is NotReady. Kubernetes gives every pod tolerations of 300 s for them, unless it has its own.
_LOST: Final = (
    Taint("node.kubernetes.io/not-ready", "", Effect.NO_EXECUTE),
    Taint("node.kubernetes.io/unreachable", "", Effect.NO_EXECUTE),
)
_LONGEST_REASON: Final = 200


def cordon_is_ours(node: Node) -> bool:
    """Whether Forebay cordoned the node: an annotation with the time tells its cordons from those of people."""
    return CORDONED_ANNOTATION in node.annotations


def maintenance(node: Node | None) -> str | None:
    """Why nobody but its owner may power on the machine of this node, as a clause; None where Forebay may."""
    if node is None:
        return None
    if (mark := _maintenance_mark(node.annotations)) is not None:
        return f"node {node.name} has the annotation {mark}"
    if node.unschedulable and not cordon_is_ours(node):
        return f"node {node.name} is cordoned, and not by Forebay"
    return None


def held_by_people(record: GPUInstance, node: Node | None, *, held_by_cordon: bool) -> str | None:
    """Why the machine is neither drained, terminated nor powered off, as a clause; None where nobody holds it.

    `held_by_cordon`: whether a cordon holds a machine of this delivery.
    """
    if (mark := _maintenance_mark(record.metadata.annotations)) is not None:
        return f"GPUInstance {record.metadata.name} has the annotation {mark}"
    why = maintenance(node)
    marked = node is not None and _maintenance_mark(node.annotations) is not None
    if why is not None and (held_by_cordon or marked):
        return why
    if (key := _do_not_disrupt(record.metadata.annotations)) is not None:
        return f"GPUInstance {record.metadata.name} has the annotation {key}"
    if node is not None and (key := _do_not_disrupt(node.annotations)) is not None:
        return f"node {node.name} has the annotation {key}"
    return None


def must_stay(pod: Pod) -> bool:
    """True for a pod that its owner has annotated as not to be evicted."""
    return _do_not_disrupt(pod.annotations) is not None or pod.annotations.get(_SAFE_TO_EVICT) == "false"


def may_be_moved(pod: Pod) -> bool:
    """True for a pod that its controller creates again, and that loses no work by it.

    A pod of a Job would begin anew, and a pod without a controller would be gone: Forebay waits until they end.
    """
    return pod.owner is not None and pod.owner.kind != "Job" and not must_stay(pod)


def keeps_machine(pod: Pod, gpu_resources: Collection[str] | None) -> bool:
    """True for a pod that an idle machine stays on for: it requests a GPU, or may use one, or must not be evicted."""
    return pod.shape.requests.any_gpu(gpu_resources) or keeps_without_gpu(pod)


def keeps_without_gpu(pod: Pod) -> bool:
    """True for a pod that an idle machine stays on for whether or not it requests a GPU."""
    return pod.shape.resource_claims or must_stay(pod)


def waits_for_its_node(pods: Iterable[Pod], *, by_toleration: bool) -> str | None:
    """A pod (`namespace/name`) whose owner wants it to stay on a NotReady node however long that takes.

    `by_toleration`: whether a toleration without an end says so. Many pods tolerate everything, and would keep a rented
    machine that is lost, and billed, for good.
    """
    waiting = (pod for pod in pods if must_stay(pod) or (by_toleration and _stays_for_ever(pod)))
    return next(("/".join(pod.key) for pod in waiting), None)


def _stays_for_ever(pod: Pod) -> bool:
    """True where the pod tolerates the taints of a NotReady node without a limit of time."""
    return all(
        any(each.toleration_seconds is None and each.tolerates(taint) for each in pod.shape.tolerations)
        for taint in _LOST
    )


def _maintenance_mark(annotations: Mapping[str, str]) -> str | None:
    value = annotations.get(MAINTENANCE_ANNOTATION)
    if value is None or value == "false":
        return None
    return f"{MAINTENANCE_ANNOTATION}: {value[:_LONGEST_REASON]}" if value else MAINTENANCE_ANNOTATION


def _do_not_disrupt(annotations: Mapping[str, str]) -> str | None:
    return next((key for key in _DO_NOT_DISRUPT if annotations.get(key) == "true"), None)
