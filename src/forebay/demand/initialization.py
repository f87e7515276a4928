"""Whether a node is initialized, in Karpenter's sense: Ready, with its GPUs, and without its startup taints."""

from forebay.api.gpu_instance import GPUInstance
from forebay.api.names import STARTUP_TAINT
from forebay.model.nodes import Node, is_startup_taint
from forebay.model.quantities import Gpus, Resources


def is_initialized(record: GPUInstance, node: Node) -> bool:
    """True once the node of this GPUInstance is Ready, has its GPUs and has lost its startup taints, planned or not.

    A node that is Ready but still has such a taint (`node.kubernetes.io/not-ready`) takes no pods yet: it is launching.

    Forebay's own startup taint does not count: Forebay takes it off only after this. Neither does a deletion of the
    node: a caller that wants to place pods has to look at `node.deleted` as well.
    """
    return node.ready and gpus_allocatable(record, node) and not _has_startup_taints(record, node)


def gpus_allocatable(record: GPUInstance, node: Node) -> bool:
    """True once the device plugin has registered what was planned; without planned figures, the GPUs of the offer."""
    planned, offer = record.spec.node, record.spec.offer
    # Resources with a domain are devices. Only their figures come from the offer and must be met.
    devices = {name: amount for name, amount in planned.allocatable.items() if "/" in name} if planned else {}
    if devices:
        return Resources.parse(devices).fits_within(node.allocatable)
    # Without plan and offer nothing is known but that the node is for GPUs.
    return node.allocatable.gpus() >= Gpus(offer.gpu_count if offer is not None else 1)


def _has_startup_taints(record: GPUInstance, node: Node) -> bool:
    if any(is_startup_taint(taint.key) for taint in node.taints):
        return True
    planned = record.spec.node
    if planned is None:
        return False
    present = {(taint.key, taint.effect) for taint in node.taints}
    return any(
        (taint.key, taint.effect.value) in present for taint in planned.startup_taints if taint.key != STARTUP_TAINT
    )
