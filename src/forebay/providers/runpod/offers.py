"""RunPod's catalogue as offers: one for each GPU type, number of GPUs and, with regions configured, data center."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

from forebay.model.gpu_models import Vendor, gpu_model
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import AMPLE, Delivery, Offer
from forebay.providers.base import Unavailable
from forebay.providers.runpod.wire import NONE, RunpodGpuType

NAME: Final = "runpod"
#: Numbers of GPUs that are offered; the stock of each is asked for.
COUNTS: Final = (1, 2, 4, 8)
_VENDORS: Final = {"NVIDIA": Vendor.NVIDIA, "AMD": Vendor.AMD}


def offers(count: int, gpus: Iterable[RunpodGpuType], regions: frozenset[str]) -> Iterator[Offer]:
    """What the secure cloud has now, by its catalogue for this number of GPUs."""
    for each in gpus:
        vendor = _VENDORS.get(each.manufacturer)
        if vendor is None or not each.secure or each.price.secure <= 0 or count > each.max_count.secure:
            continue
        if not regions:
            if each.availability != NONE:
                yield _offer(each, count, vendor, None)
            continue
        for place in each.data_centers:
            if place.id in regions and place.availability != NONE:
                yield _offer(each, count, vendor, place.id)


def in_stock(gpu: RunpodGpuType, region: str | None) -> bool | None:
    """Whether the catalogue says that there are some; None: it does not tell."""
    if region is not None:
        return any(each.id == region and each.availability != NONE for each in gpu.data_centers)
    return None if gpu.availability is None else gpu.availability != NONE


def instance_type(gpu_id: str, count: int) -> str:
    """Name of an offer: `4x NVIDIA A40`. The id of a single GPU is its own name."""
    return gpu_id if count == 1 else f"{count}x {gpu_id}"


def gpu_id(offer: Offer) -> str:
    """The GPU type of an offer: the inverse of `instance_type`."""
    return offer.instance_type.removeprefix(f"{offer.gpu_count}x ")


def dollars(amount: Decimal) -> UsdPerHour:
    try:
        return UsdPerHour(amount)
    except ValueError as error:
        raise Unavailable(f"RunPod lists a price that cannot be read: {error}.") from None


def _offer(gpu: RunpodGpuType, count: int, vendor: Vendor, region: str | None) -> Offer:
    model = gpu_model(gpu.name) or gpu_model(gpu.id)
    return Offer(
        provider=NAME,
        instance_type=instance_type(gpu.id, count),
        region=region,
        gpu_type=model.name if model is not None else gpu.name,
        gpu_count=count,
        gpu_resource=vendor.resource,
        gpu_memory_gib=gpu.memory,
        price=dollars(gpu.price.secure * count),
        # How many CPUs and how much memory come with a GPU differs from host to host, and is not told.
        allocatable=Resources(
            {"cpu": AMPLE, "memory": AMPLE, "ephemeral-storage": AMPLE, "pods": 1, vendor.resource: count}
        ),
        labels={"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        delivers=Delivery.CONTAINER,
    )
