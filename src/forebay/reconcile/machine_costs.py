"""What GPUInstances cost an hour, one by one and together."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.values import Figure
from forebay.model.kept import kept
from forebay.model.quantities import UsdPerHour

K = TypeVar("K")

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


@kept
def totals_by_pool(records: Iterable[GPUInstance]) -> Mapping[tuple[str, str], MachineTotals]:
    """By namespace and name of the pool; ("", "") has those without one."""
    return _totals(records, lambda record: record.pool_key)


@kept
def totals_by_class(records: Iterable[GPUInstance]) -> Mapping[str, MachineTotals]:
    return _totals(records, lambda record: record.spec.node_class_name or "")


def _totals(records: Iterable[GPUInstance], key_of: Callable[[GPUInstance], K]) -> Mapping[K, MachineTotals]:
    # Many machines have few prices, and sums of exact prices are slow.
    counts: defaultdict[tuple[K, Figure], int] = defaultdict(int)
    for record in records:
        state = record.state
        if state is not InstanceState.GONE:
            counts[key_of(record), 0 if state in _COSTS_NOTHING else record.hourly_price] += 1
    found: defaultdict[K, MachineTotals] = defaultdict(MachineTotals)
    for (key, price), machines in counts.items():
        count, cost = found[key]
        found[key] = MachineTotals(count + machines, cost + _price(price) * machines)
    return dict(found)
