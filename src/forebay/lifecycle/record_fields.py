"""Offers, planned nodes and initial statuses in the form a GPUInstance stores them."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus
from forebay.api.instance_order import BillingTerms, PlannedNode
from forebay.api.instance_order import OfferRecord as RecordedOffer
from forebay.api.names import GROUP
from forebay.api.parts import Figures, TaintEffect, Taints
from forebay.api.parts import TaintEntry as RecordedTaint
from forebay.api.values import duration_text
from forebay.model.nodes import Node
from forebay.model.quantities import CPU, Resources
from forebay.model.requirements import Taint
from forebay.model.sources import AMPLE, SIZES, Billing, Offer

#: Annotation with the status that the record of a found instance starts with. A status cannot be created together with
#: its object, and a record without status would be launched.
INITIAL_STATUS_ANNOTATION: Final = f"{GROUP}/first-status"


def offer_record(offer: Offer) -> RecordedOffer:
    boot = offer.boot_deadline
    return RecordedOffer(
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        spot=offer.spot,
        gpu_type=offer.gpu_type,
        gpu_count=offer.gpu_count,
        gpu_resource=offer.gpu_resource,
        gpu_memory_gib=offer.gpu_memory_gib,
        boot_deadline=f"{int(boot.total_seconds())}s" if boot is not None else None,
    )


def billing_terms(billing: Billing) -> BillingTerms | None:
    """The terms as stored; None for the usual ones, by the second and without a minimum."""
    usual = Billing()
    if billing == usual:
        return None
    return BillingTerms(
        minimum=duration_text(billing.minimum) if billing.minimum != usual.minimum else None,
        increment=duration_text(billing.increment) if billing.increment != usual.increment else None,
    )


def planned_node(  # noqa: PLR0917 (each is a part of the record)
    name: str,
    labels: Mapping[str, str],
    taints: Iterable[Taint],
    allocatable: Resources,
    startup_taints: Taints = (),
    annotations: Mapping[str, str] | None = None,
) -> PlannedNode:
    return PlannedNode(
        name=name,
        labels=dict(labels),
        taints=tuple(
            RecordedTaint(key=each.key, value=each.value or None, effect=TaintEffect(each.effect)) for each in taints
        ),
        startup_taints=startup_taints,
        allocatable=figures(allocatable),
        annotations=dict(annotations or {}),
    )


def figures(resources: Resources) -> Figures:
    """The amounts as stored. Unstated ones are left out, and read back as ample."""
    return {
        resource: f"{amount}m" if resource == CPU else str(amount)
        for resource, amount in resources.items()
        if amount < AMPLE
    }


def reported_size(node: Node) -> Figures:
    """What a node has for pods beside its GPUs, as stored."""
    known = {name: amount for name, amount in node.allocatable.items() if name in SIZES}
    return figures(Resources(known))


def initial_status(record: GPUInstance) -> GPUInstanceStatus | None:
    """The status to write on the record of a found instance that has none yet; None for every other record."""
    text = record.metadata.annotations.get(INITIAL_STATUS_ANNOTATION)
    if record.status is not None or text is None:
        return None
    return msgspec.json.decode(text, type=GPUInstanceStatus)
