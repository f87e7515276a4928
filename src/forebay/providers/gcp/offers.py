"""Offers: machine types of all zones, each with the sum of its prices."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

import msgspec

from forebay.model.gpu_models import canonical
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Billing, Offer
from forebay.providers.base import InstanceGone, Unavailable
from forebay.providers.gcp.calls import GoogleCalls, ZoneList
from forebay.providers.gcp.group_wire import TemplateProperties
from forebay.providers.gcp.machines import (
    ACCELERATORS_FILTER,
    GPUS,
    TYPES_FILTER,
    GpuMachine,
    attached_name,
    machine_of,
    machines,
)
from forebay.providers.gcp.prices import PriceTable
from forebay.providers.gcp.wire import AttachedAccelerator, ComputeInstance, ComputeMachineType, last_part
from forebay.providers.node_size import allocatable

NAME: Final = "gcp"
#: Google bills by the second, and for a minute at least.
BILLING: Final = Billing(minimum=timedelta(minutes=1), increment=timedelta(seconds=1))
BOOT_DISK_GB: Final = 200
#: The catalog has ten thousands of prices, and Google renews it once a day.
_PRICES_HOLD: Final = timedelta(hours=6)
#: Machine types of a zone seldom change; that a machine is to be had is found out by launching it.
_TYPES_HOLD: Final = timedelta(minutes=10)
#: Google reclaims a few of a hundred spot machines in a day; it publishes no number.
_SPOT_RECLAIMS: Final = 4_000


class OfferList:
    """The offers of a project, with the prices and machine types that they are made of."""

    def __init__(self, calls: GoogleCalls, clock: Callable[[], datetime], regions: Collection[str]) -> None:
        self._calls = calls
        self._clock = clock
        self._regions = frozenset(regions)
        self._lock = asyncio.Lock()
        self._prices: PriceTable | None = None
        self._priced_at: datetime | None = None
        self._machines: tuple[GpuMachine, ...] = ()
        self._listed_at: datetime | None = None
        #: Machine types of templates, by zone and name.
        self._types: dict[tuple[str, str], ComputeMachineType] = {}
        self._by_offer: dict[tuple[str, str, bool], UsdPerHour] = {}

    async def offers(self) -> Sequence[Offer]:
        async with self._lock:
            prices = await self._current_prices()
            found = await self._current_machines()
        offers = tuple(
            _offer(machine, price, spot=spot)
            for machine in found
            for spot in (False, True)
            if (price := prices.of(machine, spot=spot)) is not None
        )
        self._by_offer = {(each.instance_type, each.zone or "", each.spot): each.price for each in offers}
        return offers

    def price(self, instance: ComputeInstance) -> UsdPerHour | None:
        """What an instance costs by the latest offers; None where they have nothing like it."""
        machine, zone = last_part(instance.machine_type), last_part(instance.zone)
        spot = instance.scheduling.provisioning_model == "SPOT"
        for name in (machine, *(_with_gpus(machine, each) for each in instance.guest_accelerators)):
            if (found := self._by_offer.get((name, zone, spot))) is not None:
                return found
        return None

    async def of_template(self, template: TemplateProperties, zones: Sequence[str], *, regional: bool) -> Offer | None:
        """What an instance of the template is, in the first of these zones that has it; None without a known price."""
        async with self._lock:
            prices = await self._current_prices()
        for zone in zones:
            machine = await self._machine_of(template, zone)
            price = None if machine is None else prices.of(machine, spot=template.spot)
            if machine is not None and price is not None:
                offer = _offer(machine, price, spot=template.spot)
                return msgspec.structs.replace(offer, zone=None) if regional else offer
        return None

    async def _machine_of(self, template: TemplateProperties, zone: str) -> GpuMachine | None:
        name = last_part(template.machine_type)
        key = (zone, name)
        if key not in self._types:
            path = f"zones/{quote(zone, safe='')}/machineTypes/{quote(name, safe='')}"
            try:
                self._types[key] = await self._calls.get(path, ComputeMachineType)
            except InstanceGone:
                return None
        attached = [(last_part(each.accelerator_type), each.accelerator_count) for each in template.guest_accelerators]
        return machine_of(self._types[key], attached)

    async def _current_prices(self) -> PriceTable:
        now = self._clock()
        if self._prices is None or self._priced_at is None or now - self._priced_at >= _PRICES_HOLD:
            table = PriceTable(())
            async for page in self._calls.skus():
                for sku in page.skus:
                    table.add(sku)
            if not len(table):
                raise Unavailable("Google's catalog has no price for any machine with GPUs.")
            self._prices, self._priced_at = table, now
        return self._prices

    async def _current_machines(self) -> tuple[GpuMachine, ...]:
        now = self._clock()
        if self._listed_at is None or now - self._listed_at >= _TYPES_HOLD:
            types = await self._reachable("machineTypes", TYPES_FILTER)
            accelerators = await self._reachable("acceleratorTypes", ACCELERATORS_FILTER)
            unique = {(each.name, each.zone): each for each in machines(types, accelerators)}
            self._machines = tuple(
                each for each in unique.values() if not self._regions or self._regions & {each.region, each.zone}
            )
            self._listed_at = now
        return self._machines

    async def _reachable(self, resource: str, matching: str) -> list[ZoneList]:
        """The list, without zones that Google itself cannot reach: nothing can be launched there."""
        return [each async for each in self._calls.aggregated(resource, matching) if each.missing is None]


def _with_gpus(machine: str, attached: AttachedAccelerator) -> str:
    kind = GPUS.get(last_part(attached.accelerator_type))
    return "" if kind is None else attached_name(machine, attached.accelerator_count, kind)


def _offer(machine: GpuMachine, price: UsdPerHour, *, spot: bool) -> Offer:
    return Offer(
        provider=NAME,
        instance_type=machine.name,
        region=machine.region,
        zone=machine.zone,
        spot=spot,
        gpu_type=canonical(machine.gpu.model, machine.gpu.memory_gib),
        gpu_count=machine.gpu_count,
        gpu_memory_gib=machine.gpu.memory_gib,
        price=price,
        allocatable=allocatable(
            vcpus=machine.cores,
            memory_gib=machine.memory_mib // 1024,
            gpus=machine.gpu_count,
            storage_gib=BOOT_DISK_GB,
        ),
        labels={"kubernetes.io/arch": "arm64" if machine.arm else "amd64"},
        billing=BILLING,
        reclaims_per_million_hours=_SPOT_RECLAIMS if spot else 0,
    )
