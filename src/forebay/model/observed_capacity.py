"""What a node tells about the machine that it is, once it has been seen: an owned machine keeps its Node while off."""

from typing import Final

from msgspec.structs import replace

from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.requirements import Taint
from forebay.model.sources import Offer

#: Under these a node names the model of its GPUs, the most trusted first.
GPU_TYPE_LABELS: Final = (
    "forebay.dev/gpu-type",
    "tgp.io/gpu-type",
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
)

#: Taints that say how the node fares at the moment, or that Forebay puts there itself: it boots without them.
_PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "forebay.dev/")
_OURS: Final = "forebay.dev/"


def as_learned(offer: Offer, node: Node | None) -> Offer:
    """The offer of an owned machine, corrected by its node: what nobody stated is the node's, what the user stated
    holds as far as the node bears it out, and what keeps pods away counts in any case.
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
        # A node that does not list a resource every machine has was made by hand and has never reported.
        amounts[name] = min(stated, amounts.get(name, stated))
    # Not what is allocatable: while the machine is off or its driver starts, that may be none.
    amounts[offer.gpu_resource] = gpus
    return Resources(amounts)


def _may_correct(key: str, offer: Offer) -> bool:
    return not (key.startswith(_OURS) and key in offer.labels)


def _taints(offer: Offer, node: Node) -> tuple[Taint, ...]:
    lasting = (taint for taint in node.taints if not taint.key.startswith(_PASSING))
    return tuple(dict.fromkeys((*offer.taints, *lasting)))
