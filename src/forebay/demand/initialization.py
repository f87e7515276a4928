"""Whether a node is initialized, in Karpenter's sense: Ready, with its GPUs, and without its startup taints."""

from collections.abc import Iterable

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import STARTUP_TAINT
from forebay.model.nodes import Node, is_startup_taint
from forebay.model.quantities import Gpus, Resources
from forebay.model.workloads import Phase, Pod


def is_initialized(record: GPUInstance, node: Node, pods: Iterable[Pod] = ()) -> bool:
    """True once the node of this GPUInstance is Ready, has its GPUs and has lost its startup taints, planned or not.

    A node that is Ready but still has such a taint (`node.kubernetes.io/not-ready`) takes no pods yet: it is launching.

    `pods` are those on the node, where they are known.

    Forebay's own startup taint does not count: Forebay takes it off only after this. Neither does a deletion of the
    node: a caller that wants to place pods has to look at `node.deleted` as well.
    """
    return (gpus_allocatable(record, node) or runs_gpu_pods(pods)) and is_up(record, node)


def is_up(record: GPUInstance, node: Node) -> bool:
    """True once the node is Ready and has lost its startup taints, whatever GPUs it has."""
    return node.ready and not _has_startup_taints(record, node)


def has_been_ready(record: GPUInstance) -> bool:
    """True once the GPUInstance has been Ready: then its GPUs were accepted, even if fewer than planned."""
    transitions = record.status.transitions if record.status is not None else ()
    return any(each.state is InstanceState.READY for each in transitions)


def runs_gpu_pods(pods: Iterable[Pod]) -> bool:
    """Whether one of the pods on a node runs with a GPU: then the GPUs are there, whatever the Node object shows."""
    return any(pod.phase is Phase.RUNNING and pod.deleted is None and pod.shape.gpus() for pod in pods)


def gpus_allocatable(record: GPUInstance, node: Node) -> bool:
    """True once the device plugin has registered what was planned; without planned figures, the GPUs of the offer.

    Of a GPUInstance that has been Ready one GPU is enough: one of its GPUs may have failed since.
    """
    planned, offer = record.spec.node, record.spec.offer
    if has_been_ready(record):
        return has_a_gpu(record, node)
    # Resources with a domain are devices. Only their figures come from the offer and must be met.
    devices = {name: amount for name, amount in planned.allocatable.items() if "/" in name} if planned else {}
    if devices:
        return Resources.parse(devices).fits_within(node.allocatable)
    # Without plan and offer nothing is known but that the node is for GPUs.
    return node.allocatable.gpus() >= Gpus(offer.gpu_count if offer is not None else 1)


def has_a_gpu(record: GPUInstance, node: Node) -> bool:
    """True where at least one of the devices that were planned is allocatable."""
    planned = record.spec.node
    devices = {name: 1 for name in planned.allocatable if "/" in name} if planned is not None else {}
    return Resources.parse(devices).fits_within(node.allocatable) if devices else node.allocatable.gpus() >= Gpus(1)


def _has_startup_taints(record: GPUInstance, node: Node) -> bool:
    if any(is_startup_taint(taint.key) for taint in node.taints):
        return True
    planned = record.spec.node
    if planned is None:
        return False
    present = {(taint.key, taint.effect) for taint in node.taints}
    # Nobody removes a taint that is also to last.
    lasting = {STARTUP_TAINT, *(taint.key for taint in planned.taints)}
    return any(
        (taint.key, taint.effect.value) in present for taint in planned.startup_taints if taint.key not in lasting
    )
