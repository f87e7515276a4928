"""Offers from a CSV table of prices: one row for each instance type and place, with on-demand and spot prices.

Every value is read exactly, or refused with its line number: a misread price would buy the wrong machine.
"""

import csv
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from forebay.model.gpu_models import Vendor, gpu_model
from forebay.model.quantities import CPU, Resources, UsdPerHour
from forebay.model.sources import Offer
from forebay.model.workloads import POD_COUNT

COLUMNS: Final = {
    "provider": "provider, by its name in a GPUNodeClass",
    "instance_type": "the provider's name for the machine type",
    "gpu_model": "GPU model, by any of its names",
    "gpu_name": "the provider's name for the GPU; takes precedence over gpu_model",
    "gpu_count": "GPUs in the machine; a fraction is a slice of a GPU, which fits no pod that requests a whole one",
    "gpu_mem_gib": "memory of one GPU in GiB",
    "vcpus": "virtual CPUs",
    "memory_gib": "memory of the machine in GiB",
    "price_ondemand_usd_h": "dollars an hour; empty where it is not offered on demand",
    "price_spot_usd_h": "dollars an hour if the provider may reclaim it; empty where it is not offered as spot",
    "region": "by the provider's own name",
    "zone": "by the provider's own name",
    "asof": "date of the price",
    "flag": "remarks, separated by ;. spot_eq_ondemand: there is no separate spot price",
    "stock": "how many are available; empty: unknown: one for a marketplace (vast), enough for others",
}
NEEDED: Final = ("provider", "instance_type", "gpu_count", "vcpus", "memory_gib")
_PRICES: Final = (("price_ondemand_usd_h", False), ("price_spot_usd_h", True))
_NO_SPOT: Final = "spot_eq_ondemand"

_MILLI: Final = 1000
_MIB: Final = 2**20
_GIB: Final = 2**30
#: On a marketplace a listing is one machine.
_LISTED: Final = {"vast": 1, "vastai": 1, "vast.ai": 1}
#: Larger numbers are mistakes in the table.
_LARGEST: Final = 10**6
#: Characters of a name that an error quotes.
_LONGEST_NAME: Final = 60
_PODS: Final = 110
#: GPUs that come with an Arm processor.
_ON_ARM: Final = frozenset({"GB200", "GH200", "T4g"})


class TableError(ValueError):
    """An invalid table, as one sentence: what is wrong, where, and what to do."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One offer of the table."""

    offer: Offer
    #: GPUs as stated, which may be a fraction.
    gpus: Fraction
    as_of: str = ""


def read_table(lines: Iterable[str]) -> list[Row]:
    """The offers in the order of the table; on demand before spot. Raises `TableError`."""
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip().lstrip("\ufeff") for name in next(reader, [])]
        _check(header)
        return [row for fields in reader if fields for row in _rows(header, fields, reader.line_num)]
    except csv.Error as error:
        raise TableError(f"line {reader.line_num} is not CSV: {error}") from error


@lru_cache(maxsize=4096)
def left_for_pods(vcpus: Fraction, memory_gib: Fraction) -> Resources:
    """Allocatable resources, by the reservations that clouds use (docs/plan.md): exact within a few percent."""
    kept, rest = Fraction(0), vcpus
    for cores, millicores in ((1, 60), (1, 10), (2, 5)):
        these = min(rest, Fraction(cores))
        kept += these * millicores
        rest -= these
    cpu = vcpus * _MILLI - kept - rest * Fraction(5, 2)
    memory = memory_gib * _GIB
    free = memory * Fraction(925, 1000) - min(memory / 25, Fraction(8 * _GIB)) - 355 * _MIB
    return Resources({CPU: max(int(cpu), 0), "memory": max(int(free), 0), POD_COUNT: _PODS})


def _check(header: list[str]) -> None:
    if not any(header):
        raise TableError("the table is empty: its first line must name the columns")
    for name in header:
        if name not in COLUMNS:
            # A file of another kind may be one long line.
            said = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
            raise TableError(f'"{said}" is not a column of an offers table; columns are {", ".join(COLUMNS)}')
        if header.count(name) > 1:
            raise TableError(f'column "{name}" occurs twice')
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise TableError(f"columns are missing: {', '.join(missing)}; required are {', '.join(NEEDED)}")
    if not any(price in header for price, _ in _PRICES):
        raise TableError(f"there is no price column: add {' or '.join(price for price, _ in _PRICES)}")


def _rows(header: list[str], fields: list[str], line: int) -> Iterator[Row]:
    if len(fields) != len(header):
        raise TableError(f"line {line} has {len(fields)} fields, but there are {len(header)} columns")
    cell = dict(zip(header, (field.strip() for field in fields), strict=True))
    for name in ("provider", "instance_type"):
        if not cell[name]:
            raise TableError(f"line {line} has no {name}")
    gpus = _number(cell, "gpu_count", line)
    gpu_memory = _number(cell, "gpu_mem_gib", line) if cell.get("gpu_mem_gib") else None
    called = cell.get("gpu_name") or cell.get("gpu_model") or None
    model = gpu_model(called, None if gpu_memory is None else float(gpu_memory)) if called else None
    vendor = model.vendor if model is not None else Vendor.NVIDIA
    amounts = left_for_pods(_number(cell, "vcpus", line), _number(cell, "memory_gib", line))
    for column, spot in _PRICES:
        if not cell.get(column) or (spot and _NO_SPOT in cell.get("flag", "").split(";")):
            continue
        offer = Offer(
            provider=cell["provider"],
            instance_type=cell["instance_type"],
            region=cell.get("region") or None,
            zone=cell.get("zone") or None,
            spot=spot,
            gpu_type=model.name if model is not None else called,
            gpu_count=int(gpus),
            gpu_resource=vendor.resource,
            gpu_memory_gib=None if gpu_memory is None else int(gpu_memory),
            price=_price(cell[column], column, line),
            stock=int(_number(cell, "stock", line)) if cell.get("stock") else _LISTED.get(cell["provider"].casefold()),
            allocatable=Resources({**amounts, vendor.resource: int(gpus)}),
            labels={"kubernetes.io/arch": "arm64"} if model is not None and model.name in _ON_ARM else {},
        )
        yield Row(offer=offer, gpus=gpus, as_of=cell.get("asof", ""))


def _number(cell: dict[str, str], column: str, line: int) -> Fraction:
    number = _parsed(cell[column])
    if number is None:
        raise TableError(f'line {line}: {column} is "{cell[column]}"; it must be a number from 0 to {_LARGEST:,}')
    return number


# A table repeats few different numbers thousands of times, and exact parsing is slow.
@lru_cache(maxsize=4096)
def _parsed(text: str) -> Fraction | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return Fraction(number) if number.is_finite() and 0 <= number <= _LARGEST else None


_dollars = lru_cache(maxsize=16_384)(UsdPerHour)


def _price(text: str, column: str, line: int) -> UsdPerHour:
    try:
        price = _dollars(text)
    except ValueError as error:
        raise TableError(f"line {line}: {column}: {error}") from error
    if price < UsdPerHour.zero():
        raise TableError(f"line {line}: {column} is {text}; a price cannot be negative")
    return price
