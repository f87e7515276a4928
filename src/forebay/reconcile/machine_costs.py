"""What GPUInstances cost an hour, one by one and together."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.values import Figure
from forebay.model.kept import kept
from forebay.model.quantities import UsdPerHour

_COSTS_NOTHING: Final = frozenset({InstanceState.REQUESTED, InstanceState.GONE})
_FREE: Final = UsdPerHour(0)


class MachineTotals(NamedTuple):
    """Number and hourly cost of some GPUInstances together."""

    machines: int = 0
    cost: UsdPerHour = _FREE


def hourly_cost(record: GPUInstance) -> UsdPerHour:
    """Current cost of the GPUInstance per hour: from the launch call until the provider proves it gone."""
    return _FREE if record.state in _COSTS_NOTHING else _price(record.hourly_price)


@lru_cache(maxsize=4096)
def _price(written: Figure) -> UsdPerHour:
    """The exact price, cached: parsing is slow, and many machines share few prices."""
    return UsdPerHour(str(written))


def class_of(record: GPUInstance) -> tuple[str, str]:
    """The class of the GPUInstance as a key: classes are in no namespace."""
    return "", record.spec.node_class_name or ""


@kept
def machine_totals(
    records: Iterable[GPUInstance], key_of: Callable[[GPUInstance], tuple[str, str]]
) -> Mapping[tuple[str, str], MachineTotals]:
    # Many machines have few prices, and sums of exact prices are slow.
    counts: defaultdict[tuple[tuple[str, str], Figure], int] = defaultdict(int)
    for record in records:
        state = record.state
        if state is not InstanceState.GONE:
            counts[key_of(record), 0 if state in _COSTS_NOTHING else record.hourly_price] += 1
    found: defaultdict[tuple[str, str], MachineTotals] = defaultdict(MachineTotals)
    for (key, price), machines in counts.items():
        count, cost = found[key]
        found[key] = MachineTotals(count + machines, cost + _price(price) * machines)
    return dict(found)
