"""Receipts of a dry run: what Forebay would have bought and saved on one day."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction
from itertools import groupby
from typing import Final

import msgspec

from forebay.model.counts import counted
from forebay.model.quantities import Usd
from forebay.reconcile.shadow_fleet import MachineTime
from forebay.reporting.machines import decimal

_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
#: Days that are kept and shown.
MOST_DAYS: Final = 31


class ReceiptLine(msgspec.Struct, frozen=True, kw_only=True):
    """What machines of one pool and type would have cost, or saved. Dollars as a decimal, and exact."""

    #: "bought" or "saved".
    what: str
    #: As namespace/name; "" where they have none.
    pool: str
    provider: str
    instance_type: str
    machines: int
    hours: str
    dollars: str
    dollars_exact: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One day (UTC) of a dry run."""

    day: date
    #: End of what is counted: the end of the day, or now.
    until: datetime
    lines: tuple[ReceiptLine, ...]
    #: Machines that would have been bought on that day, and pods that they were for.
    bought: int
    pods: int
    cost: str
    saved: str
    sentence: str


def receipt(purchases: Iterable[MachineTime], savings: Iterable[MachineTime], day: date, now: datetime) -> Receipt:
    """The receipt of a day, as far as it is over. Machines of earlier days are counted for their time on this one."""
    start = datetime.combine(day, time(), UTC)
    end = min(start + _DAY, now)
    bought, saved = list(purchases), list(savings)
    fresh = [each for each in bought if start <= each.since < start + _DAY]
    cost, gain = _total(bought, start, end), _total(saved, start, end)
    lines = (*_lines("bought", bought, start, end), *_lines("saved", saved, start, end))
    pods = sum(each.pods for each in fresh)
    return Receipt(
        day=day,
        until=end,
        lines=lines,
        bought=len(fresh),
        pods=pods,
        cost=decimal(cost.dollars),
        saved=decimal(gain.dollars),
        sentence=_sentence(fresh, pods, lines, cost, gain),
    )


def receipt_days(since: datetime, now: datetime) -> list[date]:
    """The days of which there are receipts, today first; today alone where the clock went back."""
    days = min((now.date() - since.date()).days, MOST_DAYS - 1)
    return [now.date() - timedelta(days=ago) for ago in range(max(days, 0) + 1)]


def _sentence(fresh: Sequence[MachineTime], pods: int, lines: Sequence[ReceiptLine], cost: Usd, gain: Usd) -> str:
    machines = counted(len(fresh), "machine")
    on = sum((Fraction(each.hours) for each in lines if each.what == "bought"), start=Fraction(0))
    off = sum((Fraction(each.hours) for each in lines if each.what == "saved"), start=Fraction(0))
    for_pods = counted(pods, "pod")
    bought = f"Would have bought {machines} for {for_pods}" if fresh else "Would have bought nothing new"
    saved = (
        f"Would have terminated or powered off machines that ran for {_hours(off)} h after that, and saved {gain}."
        if off
        else "Would have terminated or powered off nothing."
    )
    return f"{bought}: {_hours(on)} machine-hours, {cost}. {saved}"


def _hours(hours: Fraction) -> str:
    hundredths = round(hours * 100)
    return f"{hundredths // 100}.{hundredths % 100:02}"


def _lines(what: str, times: Iterable[MachineTime], start: datetime, end: datetime) -> Iterable[ReceiptLine]:
    def kind(each: MachineTime) -> tuple[str, str, str]:
        return each.pool, each.provider, each.instance_type

    counted = sorted((each for each in times if _within(each, start, end)), key=kind)
    for (pool, provider, instance_type), group in groupby(counted, key=kind):
        own = list(group)
        lasted = sum((_within(each, start, end) for each in own), start=timedelta(0))
        dollars = _total(own, start, end)
        yield ReceiptLine(
            what=what,
            pool=pool,
            provider=provider,
            instance_type=instance_type,
            machines=len({each.name for each in own}),
            hours=decimal(Fraction(lasted // timedelta(microseconds=1), _HOUR // timedelta(microseconds=1))),
            dollars=decimal(dollars.dollars),
            dollars_exact=dollars.exact(),
        )


def _total(times: Iterable[MachineTime], start: datetime, end: datetime) -> Usd:
    return sum((each.price * _within(each, start, end) for each in times), start=Usd.zero())


def _within(each: MachineTime, start: datetime, end: datetime) -> timedelta:
    """How much of its time is in the span."""
    until = end if each.until is None else min(each.until, end)
    return max(until - max(each.since, start), timedelta(0))
