"""What is chosen or found, as a record keeps it."""

from collections.abc import Iterable, Mapping

from forebay.api.gpu_instance import Offer as RecordedOffer
from forebay.api.gpu_instance import PlannedNode
from forebay.api.parts import Taint as RecordedTaint
from forebay.api.parts import TaintEffect
from forebay.model.quantities import CPU, Resources
from forebay.model.requirements import Taint
from forebay.model.sources import AMPLE, Offer


def recorded(offer: Offer) -> RecordedOffer:
    boot = offer.boot_deadline
    return RecordedOffer(
        instance_type=offer.instance_type,
        region=offer.region,
        zone=offer.zone,
        spot=offer.spot,
        gpu_type=offer.gpu_type,
        gpu_count=offer.gpu_count,
        gpu_memory_gib=offer.gpu_memory_gib,
        boot_deadline=f"{int(boot.total_seconds())}s" if boot is not None else None,
    )


def planned(name: str, labels: Mapping[str, str], taints: Iterable[Taint], allocatable: Resources) -> PlannedNode:
    return PlannedNode(
        name=name,
        labels=dict(labels),
        taints=tuple(
            RecordedTaint(key=each.key, value=each.value or None, effect=TaintEffect(each.effect)) for each in taints
        ),
        # What nobody has stated is left out, and read back as ample.
        allocatable={
            resource: f"{amount}m" if resource == CPU else str(amount)
            for resource, amount in allocatable.items()
            if amount < AMPLE
        },
    )
