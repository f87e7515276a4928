"""Instance types as offers: one for each region that has capacity now."""

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from forebay.model.gpu_models import gpu_model
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Billing, Offer
from forebay.providers.lambdalabs.wire import LambdaStock, LambdaType
from forebay.providers.node_size import allocatable

NAME: Final = "lambdalabs"
#: By the minute, from the launch until the termination.
BILLING: Final = Billing(minimum=timedelta(minutes=1), increment=timedelta(minutes=1))

_GPU: Final = re.compile(r"(?P<name>[^(]+?)\s*(?:\((?P<memory>\d+)\s*GB\b.*)?$")
#: Grace CPUs. The API names the architecture of images only.
_GRACE: Final = ("GH200", "GB200", "GB300")


def offers(stock: Iterable[LambdaStock], regions: frozenset[str]) -> tuple[Offer, ...]:
    """The offers in these regions (none: in all). Types without GPUs are left out."""
    return tuple(
        _offer(each.instance_type, region.name)
        for each in stock
        if each.instance_type.specs.gpus > 0
        for region in each.regions_with_capacity_available
        if not regions or region.name in regions
    )


def hourly_price(instance_type: LambdaType) -> UsdPerHour:
    dollars, cents = divmod(instance_type.price_cents_per_hour, 100)
    return UsdPerHour(f"{dollars}.{cents:02d}")


def _offer(instance_type: LambdaType, region: str) -> Offer:
    specs = instance_type.specs
    name, memory = _gpu(instance_type.gpu_description)
    arm = any(grace in instance_type.gpu_description.upper() for grace in _GRACE)
    return Offer(
        provider=NAME,
        instance_type=instance_type.name,
        region=region,
        gpu_type=name,
        gpu_count=specs.gpus,
        gpu_memory_gib=memory,
        price=hourly_price(instance_type),
        allocatable=allocatable(
            vcpus=specs.vcpus, memory_gib=specs.memory_gib, storage_gib=specs.storage_gib, gpus=specs.gpus
        ),
        labels={"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64" if arm else "amd64"},
        billing=BILLING,
    )


def _gpu(description: str) -> tuple[str, int | None]:
    """Model and memory of `H100 (80 GB SXM5)`. What is not of this form is the name of the model."""
    found = _GPU.match(description.strip())
    if found is None:
        return description, None
    memory = int(found["memory"]) if found["memory"] else None
    model = gpu_model(found["name"], memory)
    if model is None:
        return found["name"], memory
    return model.name, memory or model.memory_gib[0]
