"""RunPod's catalogue as offers: one for each GPU type, number of GPUs and, with regions configured, data center."""

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

from forebay.model.gpu_models import Vendor, gpu_model
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import AMPLE, Delivery, Offer
from forebay.providers.runpod.wire import COMMUNITY, NONE, SECURE, RunpodGpuType

NAME: Final = "runpod"
#: Numbers of GPUs whose stock is asked for. Where there are four, there are three.
COUNTS: Final = (1, 2, 4, 8)
_VENDORS: Final = {"NVIDIA": Vendor.NVIDIA, "AMD": Vendor.AMD}


def offers(count: int, gpus: Iterable[RunpodGpuType], regions: frozenset[str]) -> Iterator[Offer]:
    """What RunPod has by its catalogue of the secure cloud for this number of GPUs: containers with as many, and with
    fewer down to the next number that is asked for.

    The catalogue tells the prices of the community cloud too, and not its stock, nor where its hosts are.
    """
    fewest = max((each for each in COUNTS if each < count), default=0) + 1
    for each in gpus:
        vendor = _VENDORS.get(each.manufacturer)
        if vendor is None:
            continue
        for number in range(fewest, count + 1):
            for price, region, zone in _places(each, number, regions):
                if (dollars := hourly_price(price * number)) is not None:
                    yield _offer(each, number, vendor, dollars, region, zone)


def _places(
    gpu: RunpodGpuType, count: int, regions: frozenset[str]
) -> Iterator[tuple[Decimal, str | None, str | None]]:
    """Price of one GPU, region and zone of each place where so many of them may be had."""
    if gpu.secure and count <= gpu.max_count.secure:
        if not regions and gpu.availability != NONE:
            yield gpu.price.secure, None, None
        for place in gpu.data_centers:
            if place.id in regions and place.availability != NONE:
                yield gpu.price.secure, place.id, None
    if not regions and gpu.community and count <= gpu.max_count.community:
        yield gpu.price.community, None, COMMUNITY


def cloud_of(offer: Offer) -> str:
    """The cloud of RunPod's that the offer is of."""
    return offer.zone or SECURE


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


def hourly_price(amount: Decimal) -> UsdPerHour | None:
    """The price; None where the amount is none."""
    try:
        return UsdPerHour(amount) if amount.is_finite() and amount > 0 else None
    except ValueError:
        return None


def _offer(  # noqa: PLR0917 (what an offer is made of)
    gpu: RunpodGpuType, count: int, vendor: Vendor, price: UsdPerHour, region: str | None, zone: str | None
) -> Offer:
    model = gpu_model(gpu.name) or gpu_model(gpu.id)
    return Offer(
        provider=NAME,
        instance_type=instance_type(gpu.id, count),
        region=region,
        zone=zone,
        gpu_type=model.name if model is not None else gpu.name,
        gpu_count=count,
        gpu_resource=vendor.resource,
        gpu_memory_gib=gpu.memory,
        price=price,
        # How many CPUs and how much memory come with a GPU differs from host to host, and is not told.
        allocatable=Resources(
            {"cpu": AMPLE, "memory": AMPLE, "ephemeral-storage": AMPLE, "pods": 1, vendor.resource: count}
        ),
        labels={"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        delivers=Delivery.CONTAINER,
    )
