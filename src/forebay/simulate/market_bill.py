"""The market's own bookkeeping: what each instance has cost, by the market's clock and in its own arithmetic.

Forebay's ledger must come to the same amount by its own way, so nothing of `forebay.budgets` is used here.
"""

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

import msgspec

_HOUR: Final = 3600


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """Price and terms at the time of the order; later changes of the offer do not concern it."""

    hourly_price: Decimal
    #: Seconds: the least that is billed, and the steps after that.
    minimum: int
    increment: int


class BillLine(msgspec.Struct, frozen=True, kw_only=True):
    """One instance on the bill; `ended` is None while it is billed."""

    instance: str
    #: Tag of the order.
    owner: str
    tariff: Tariff
    created: datetime
    ended: datetime | None = None

    def billed_seconds(self, now: datetime) -> int:
        """Whole seconds, from the one in which it was created to the one in which it ended."""
        until = self.ended or now
        lasted = max(int(until.timestamp()) - int(self.created.timestamp()), self.tariff.minimum)
        steps = -(-lasted // self.tariff.increment)
        return steps * self.tariff.increment

    def dollars(self, now: datetime) -> Fraction:
        return Fraction(self.tariff.hourly_price) * self.billed_seconds(now) / _HOUR


def total(lines: Iterable[BillLine], now: datetime) -> Fraction:
    return sum((line.dollars(now) for line in lines), Fraction(0))
