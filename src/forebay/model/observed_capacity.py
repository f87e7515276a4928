"""Capacity as nodes reported it: of an owned machine, whose Node stays while it is off, and of a type of machines."""

from typing import Final

from msgspec.structs import replace

from forebay.model.nodes import CONDITION_TAINTS, Node
from forebay.model.quantities import Resources
from forebay.model.requirements import Taint
from forebay.model.sources import SIZES, Offer

#: Labels that name a node's GPU model, the most trusted first.
GPU_TYPE_LABELS: Final = (
    "forebay.dev/gpu-type",
    "tgp.io/gpu-type",
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
)

_OURS: Final = "forebay.dev/"
#: Prefixes of temporary taints: node conditions, or set by Forebay itself. The machine boots without them.
_PASSING: Final = (*CONDITION_TAINTS, _OURS)


def with_observed_capacity(offer: Offer, node: Node | None, last_ready: Node | None = None) -> Offer:
    """The offer of an owned machine, corrected by its node, and by that node as it was when it was last Ready.

    Values that the user did not configure come from the node; configured amounts are cut to what the node has; taints
    of the node are added in any case.
    """
    if node is None or node.name != offer.node_name:
        return offer
    gpus = min(offer.gpu_count, _gpus(offer.gpu_resource, node, last_ready) or offer.gpu_count)
    return replace(
        offer,
        gpu_count=gpus,
        gpu_type=offer.gpu_type or next((node.labels[key] for key in GPU_TYPE_LABELS if node.labels.get(key)), None),
        allocatable=_allocatable(offer, node, gpus),
        labels={**offer.labels, **{key: value for key, value in node.labels.items() if _may_correct(key, offer)}},
        taints=_taints(offer, node),
    )


def with_observed_size(offer: Offer, size: Resources) -> Offer:
    """The offer of a rented machine, with what a node of its type had for pods in place of what is assumed."""
    known = {name: amount for name, amount in size.items() if name in SIZES}
    return replace(offer, allocatable=Resources({**offer.allocatable, **known}))


def _gpus(resource: str, node: Node, last_ready: Node | None) -> int:
    """GPUs that pods could use when the node was last Ready: one that has failed is in the capacity all the same.

    While the machine is off, or its driver starts, 0 are allocatable, which says nothing about the next boot.
    """
    before = last_ready.allocatable.amount(resource) if last_ready is not None else 0
    usable, capacity = before or node.allocatable.amount(resource), node.capacity.amount(resource)
    return min(usable, capacity) if usable and capacity else usable or capacity


def _allocatable(offer: Offer, node: Node, gpus: int) -> Resources:
    amounts = dict(node.allocatable)
    for name, stated in offer.allocatable.items():
        # A node without a resource that every machine has was created by hand and has never reported.
        amounts[name] = min(stated, amounts.get(name, stated))
    amounts[offer.gpu_resource] = gpus
    return Resources(amounts)


def _may_correct(key: str, offer: Offer) -> bool:
    return not (key.startswith(_OURS) and key in offer.labels)


def _taints(offer: Offer, node: Node) -> tuple[Taint, ...]:
    lasting = (taint for taint in node.taints if not taint.key.startswith(_PASSING))
    return tuple(dict.fromkeys((*offer.taints, *lasting)))
