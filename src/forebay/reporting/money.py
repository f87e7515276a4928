"""Money now and over time, by pool, namespace and provider, from the ledgers of the bill."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

import msgspec

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.budgets.bill_keys import BillKey
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import microseconds
from forebay.model.quantities import Usd, UsdPerHour
from forebay.reporting.machines import decimal


class Span(msgspec.Struct, frozen=True):
    """A time span that ends now, divided into slices."""

    length: timedelta
    slices: int


#: By the name that a user picks.
SPANS: Final[Mapping[str, Span]] = {
    "6h": Span(timedelta(hours=6), 72),
    "24h": Span(timedelta(hours=24), 48),
    "7d": Span(timedelta(days=7), 56),
    "31d": Span(timedelta(days=31), 62),
}
#: Shown for a cost that no namespace, pool or class is charged with.
NOBODY: Final = "none"


class MoneyLine(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one pool, namespace or provider. Dollars as decimals, and exact where the name says so."""

    name: str
    #: Dollars an hour now, exact.
    hourly: str
    spent: str
    spent_exact: str
    #: Dollars in each slice of the span, the oldest first.
    slices: list[str]


class MoneyView(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of all machines in one span. Each of the three lists adds up to the whole; the largest cost comes first."""

    span: str
    #: The bounds of the slices, one more than there are slices.
    bounds: list[datetime]
    total: MoneyLine
    by_pool: list[MoneyLine]
    by_namespace: list[MoneyLine]
    #: By the providers of the class: a class with several of them is one line.
    by_provider: list[MoneyLine]


def providers_of_classes(classes: Iterable[GPUNodeClass]) -> dict[str, str]:
    """The providers of each class, as one text, by the name of the class."""
    return {
        each.metadata.name: ", ".join(sorted({provider.name for provider in each.spec.providers})) for each in classes
    }


def money_view(ledgers: Mapping[BillKey, Ledger], providers: Mapping[str, str], now: datetime, span: str) -> MoneyView:
    """The cost by the ledgers. `providers`: by the name of the class."""
    chosen = SPANS[span]
    step = chosen.length / chosen.slices
    bounds = [now - chosen.length + step * number for number in range(chosen.slices)] + [now]
    moments = [microseconds(each) for each in bounds]
    costs = {
        key: (
            ledger.profile.rate(moments[-1]),
            [ledger.profile.between(start, end) for start, end in pairwise(moments)],
        )
        for key, ledger in ledgers.items()
    }

    def lines(name_of: Callable[[BillKey], str]) -> list[MoneyLine]:
        rates: defaultdict[str, int] = defaultdict(int)
        slices: defaultdict[str, list[int]] = defaultdict(lambda: [0] * chosen.slices)
        for key, (rate, parts) in costs.items():
            name = name_of(key) or NOBODY
            rates[name] += rate
            slices[name] = [one + other for one, other in zip(slices[name], parts, strict=True)]
        found = [(sum(parts), rates[name], name, parts) for name, parts in slices.items()]
        return [_line(name, rate, parts) for total, rate, name, parts in sorted(found, key=_largest) if total or rate]

    return MoneyView(
        span=span,
        bounds=bounds,
        total=_line(
            "all",
            sum(rate for rate, _ in costs.values()),
            [sum(parts) for parts in zip(*(parts for _, parts in costs.values()), strict=True)] or [0] * chosen.slices,
        ),
        by_pool=lines(lambda key: key.pool),
        by_namespace=lines(lambda key: key.namespace),
        by_provider=lines(lambda key: providers.get(key.node_class, key.node_class)),
    )


def _line(name: str, rate: int, parts: list[int]) -> MoneyLine:
    spent = Usd.from_units(sum(parts))
    return MoneyLine(
        name=name,
        hourly=UsdPerHour.from_units(rate).exact(),
        spent=decimal(spent.dollars),
        spent_exact=spent.exact(),
        slices=[decimal(Usd.from_units(part).dollars) for part in parts],
    )


def _largest(found: tuple[int, int, str, list[int]]) -> tuple[int, int, str]:
    return (-found[0], -found[1], found[2])
