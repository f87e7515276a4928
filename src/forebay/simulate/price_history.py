"""Histories of prices and availability: what each offer cost at each time, and when it could not be had.

Three forms of table are told by their columns (times in Unix seconds):

- `snapshot_unix_utc`, then a column for each spot price, named `<instance type>@<zone>`; empty: not to be had;
- `snapshot_unix_utc`, `instance_type`, `region`, `price_ondemand_usd_h`, and `price_spot_usd_h` where there is spot:
  each snapshot lists what could be had then;
- `first_seen_unix_utc`, `instance_type`, `region`, `ondemand_usd_h`: a row for each change of an on-demand price.

Offers that a history does not name keep the price of the table of offers.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Offer, OfferKey

#: None: cannot be had.
Prices: TypeAlias = Mapping[OfferKey, UsdPerHour | None]
_SNAPSHOT: Final = "snapshot_unix_utc"
_FIRST_SEEN: Final = "first_seen_unix_utc"
_PRICE_COLUMNS: Final = {"price_ondemand_usd_h": False, "price_spot_usd_h": True, "ondemand_usd_h": False}


class HistoryError(ValueError):
    """The table is no history of prices. The text says why."""


class PricesFrom(NamedTuple):
    """From this second on, these offers have other prices."""

    at: int
    prices: Prices


class PriceHistory(NamedTuple):
    """All changes, in order of time; seconds are Unix time."""

    changes: tuple[PricesFrom, ...]

    @property
    def covered(self) -> frozenset[OfferKey]:
        """Offers that the history tells of."""
        return frozenset(key for change in self.changes for key in change.prices)

    def since(self, start: int) -> tuple[PricesFrom, ...]:
        """The changes as seconds from `start`; the first has the prices of that moment."""
        first: dict[OfferKey, UsdPerHour | None] = dict.fromkeys(self.covered)
        later = []
        for at, prices in self.changes:
            if at <= start:
                first.update(prices)
            else:
                later.append(PricesFrom(at - start, prices))
        return (PricesFrom(0, first), *later) if first else ()


def read_history(lines: Iterable[str], offers: Sequence[Offer]) -> PriceHistory:
    """The history of those of `offers` that the table names. Raises `HistoryError`."""
    rows = csv.reader(lines)
    header = next(rows, [])
    if header[:1] == [_FIRST_SEEN] and {"instance_type", "region", "ondemand_usd_h"} <= set(header):
        states = _long_states(header, rows, offers, complete=False)
    elif header[:1] == [_SNAPSHOT] and {"instance_type", "region"} <= set(header):
        states = _long_states(header, rows, offers, complete=True)
    elif header[:1] == [_SNAPSHOT] and any("@" in each for each in header[1:]):
        states = _wide_states(header, rows, offers)
    else:
        raise HistoryError(
            f"its first column is neither {_SNAPSHOT} nor {_FIRST_SEEN}, or the others are not those of a history"
        )
    try:
        history = PriceHistory(tuple(_changes(states)))
    except (ValueError, IndexError) as error:
        raise HistoryError(f"a row cannot be read: {error}") from error
    if not history.changes:
        raise HistoryError("it names none of the offers that are left by --provider, --gpu and --spot")
    return history


def _changes(states: Iterable[tuple[int, Prices]]) -> Iterator[PricesFrom]:
    """Only what differs from the state before."""
    known: dict[OfferKey, UsdPerHour | None] = {}
    for at, state in states:
        changed = {key: price for key, price in state.items() if key not in known or known[key] != price}
        if changed:
            known.update(changed)
            yield PricesFrom(at, changed)


def _wide_states(
    header: Sequence[str], rows: Iterable[list[str]], offers: Sequence[Offer]
) -> Iterator[tuple[int, Prices]]:
    by_place = defaultdict(list)
    for offer in offers:
        if offer.spot:
            by_place[f"{offer.instance_type}@{offer.zone}"].append(offer.key)
    columns = [(number, by_place[name]) for number, name in enumerate(header) if name in by_place]
    for row in rows:
        yield int(row[0]), {key: _price(row[number]) for number, keys in columns for key in keys}


def _long_states(
    header: Sequence[str], rows: Iterable[list[str]], offers: Sequence[Offer], *, complete: bool
) -> Iterator[tuple[int, Prices]]:
    """With `complete`, what a snapshot does not list could not be had then."""
    kind, region = header.index("instance_type"), header.index("region")
    prices = [(header.index(name), spot) for name, spot in _PRICE_COLUMNS.items() if name in header]
    by_place: defaultdict[tuple[str, str, bool], list[OfferKey]] = defaultdict(list)
    for offer in offers:
        by_place[offer.instance_type, offer.region or "", offer.spot].append(offer.key)
    seen: set[OfferKey] = set()
    for at, group in groupby(rows, key=lambda row: int(row[0])):
        listed: dict[OfferKey, UsdPerHour | None] = {}
        for row in group:
            for number, spot in prices:
                for key in by_place.get((row[kind], row[region], spot), ()):
                    listed[key] = _price(row[number])
        seen |= listed.keys()
        yield at, {**dict.fromkeys(seen), **listed} if complete else listed


def _price(text: str) -> UsdPerHour | None:
    return UsdPerHour(text) if text else None
