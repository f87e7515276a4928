"""Prices of machines, as the sum of the catalog's prices for cores, memory and GPUs.

The catalog describes what a price is for in words only. A machine of which one part has no price is not offered: half a
price would make it the cheapest.
"""

from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from typing import Final, NamedTuple

from forebay.model.quantities import UsdPerHour
from forebay.providers.gcp.machines import GPUS, SERIES_NAMES, GpuMachine
from forebay.providers.gcp.wire import BilledSku, UnitPrice

_SPOT_PREFIXES: Final = ("Spot Preemptible ", "Preemptible ")
_SPOT_SUFFIX: Final = " attached to Spot Preemptible VMs"
_NANO: Final = Decimal(10) ** -9
_MIB_PER_GIB: Final = 1024
_USAGE: Final = {"OnDemand": False, "Preemptible": True}


class _SkuPart(StrEnum):
    CORE = "Instance Core"
    MEMORY = "Instance Ram"


#: What the catalog's prices for machines with GPUs begin with.
_KNOWN: Final = frozenset(
    {f"{name} {part}" for name in SERIES_NAMES for part in _SkuPart}
    | {name for kind in GPUS.values() for name in kind.priced_as}
)


class _PriceKey(NamedTuple):
    #: The series and part, or the description of a GPU.
    what: str
    region: str
    spot: bool


class PriceTable:
    """Hourly prices of cores, GiBs of memory and GPUs by region, on demand and spot."""

    def __init__(self, skus: Iterable[BilledSku]) -> None:
        self._prices: dict[_PriceKey, Decimal] = {}
        for sku in skus:
            self.add(sku)

    def __len__(self) -> int:
        return len(self._prices)

    def add(self, sku: BilledSku) -> None:
        spot = _USAGE.get(sku.category.usage_type)
        price = _unit_price(sku)
        if spot is None or price is None:
            return
        what = sku.description
        for prefix in _SPOT_PREFIXES:
            what = what.removeprefix(prefix)
        what = what.partition(" running in ")[0].removesuffix(_SPOT_SUFFIX)
        # Prices of commitments, reservations and queued machines have other words around these, and do not count.
        if what not in _KNOWN:
            return
        for region in sku.service_regions:
            self._prices.setdefault(_PriceKey(what, region, spot), price)

    def of(self, machine: GpuMachine, *, spot: bool) -> UsdPerHour | None:
        """What the machine costs; None where a part of it has no price in that region."""
        core = self._find((f"{each} {_SkuPart.CORE}" for each in machine.series), machine.region, spot=spot)
        memory = self._find((f"{each} {_SkuPart.MEMORY}" for each in machine.series), machine.region, spot=spot)
        gpu = self._find(machine.gpu.priced_as, machine.region, spot=spot)
        if core is None or memory is None or gpu is None:
            return None
        total = core * machine.cores + memory * machine.memory_mib / _MIB_PER_GIB + gpu * machine.gpu_count
        return UsdPerHour(total)

    def _find(self, names: Iterable[str], region: str, *, spot: bool) -> Decimal | None:
        found = (self._prices.get(_PriceKey(name, region, spot)) for name in names)
        return next((each for each in found if each is not None), None)


def _unit_price(sku: BilledSku) -> Decimal | None:
    if not sku.pricing_info:
        return None
    expression = sku.pricing_info[-1].pricing_expression
    # The last tier: earlier ones are free amounts.
    rate = expression.tiered_rates[-1].unit_price if expression.tiered_rates else None
    if rate is None or rate.currency_code != "USD" or expression.usage_unit not in {"h", "GiBy.h"}:
        return None
    return _amount(rate)


def _amount(price: UnitPrice) -> Decimal | None:
    return Decimal(price.units or "0") + price.nanos * _NANO if (price.units or "0").isdigit() else None
