"""Capacity of an owned machine as its node reported it. The Node object stays while the machine is off."""

from typing import Final

from msgspec.structs import replace

from forebay.model.nodes import CONDITION_TAINTS, Node
from forebay.model.quantities import Resources
from forebay.model.requirements import Taint
from forebay.model.sources import Offer

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


def with_observed_capacity(offer: Offer, node: Node | None) -> Offer:
    """The offer of an owned machine, corrected by its node.

    Values that the user did not configure come from the node; configured amounts are cut to what the node has; taints
    of the node are added in any case.
    """
    if node is None or node.name != offer.node_name:
        return offer
    gpus = min(offer.gpu_count, node.capacity.amount(offer.gpu_resource) or offer.gpu_count)
    return replace(
        offer,
        gpu_count=gpus,
        gpu_type=offer.gpu_type or next((node.labels[key] for key in GPU_TYPE_LABELS if node.labels.get(key)), None),
        allocatable=_allocatable(offer, node, gpus),
        labels={**offer.labels, **{key: value for key, value in node.labels.items() if _may_correct(key, offer)}},
        taints=_taints(offer, node),
    )


def _allocatable(offer: Offer, node: Node, gpus: int) -> Resources:
    amounts = dict(node.allocatable)
    for name, stated in offer.allocatable.items():
        # A node without a resource that every machine has was created by hand and has never reported.
        amounts[name] = min(stated, amounts.get(name, stated))
    # Not the node's allocatable GPUs: those may be 0 while the machine is off or its driver starts.
    amounts[offer.gpu_resource] = gpus
    return Resources(amounts)


def _may_correct(key: str, offer: Offer) -> bool:
    return not (key.startswith(_OURS) and key in offer.labels)


def _taints(offer: Offer, node: Node) -> tuple[Taint, ...]:
    lasting = (taint for taint in node.taints if not taint.key.startswith(_PASSING))
    return tuple(dict.fromkeys((*offer.taints, *lasting)))
