"""What every GPUInstance costs, and who pays: by pool, class, namespace and budget, with a line for what nobody does.

At every moment the price of a machine is shared by the pods that hold its GPUs, in proportion to what they hold; while
none does (it boots, it idles, it drains) by the pods it was bought for, each alike. Where there are neither, as with
leftovers and leaks, it is nobody's. So every dollar has exactly one payer at every moment.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.budgets.accounts import Account
from forebay.budgets.usage import MICROSECONDS, Piece, microseconds, seconds
from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.sources import Billing

_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)


class Payer(NamedTuple):
    """A pod that pays. Nobody: both empty."""

    namespace: str
    uid: str


NOBODY: Final = Payer("", "")


class Tenant(NamedTuple):
    """A pod on the machine: how much of its GPUs it held, and when."""

    payer: Payer
    piece: Piece


class Share(NamedTuple):
    """What one pays of one machine for a time; the rate is in units of `UsdPerHour`."""

    payer: Payer
    piece: Piece


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars in a window, cut in several ways. Each way adds up to the total."""

    total: Usd
    by_pool: Mapping[tuple[str, str], Usd]
    by_class: Mapping[str, Usd]
    #: "" is the line of what nobody pays: leftovers, leaks, and machines that no pod was bought for.
    by_namespace: Mapping[str, Usd]


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """One machine: what is billed for it, and who held it."""

    record: GPUInstance
    billing: Billing = Billing()
    tenants: tuple[Tenant, ...] = ()


def billed(record: GPUInstance, billing: Billing, now: datetime) -> Piece | None:
    """The time that is paid for, at the price that is billed, or else was offered. None: it has cost nothing.

    What is billed at least, and in which steps, is paid from the first moment: so the end may lie in the future.
    """
    status = record.status
    if status is None or status.billed_from is None:
        return None
    figure = status.hourly_price if status.hourly_price is not None else record.spec.hourly_price
    price = UsdPerHour.zero() if figure is None else UsdPerHour(figure)
    start = seconds(status.billed_from)
    length = max((status.billed_until or now) - status.billed_from, timedelta(0), billing.minimum)
    step = max(billing.increment, _SECOND)
    steps = -(-length // step)
    return Piece(start, start + steps * (step // _SECOND), price.units)


def shares(bill: Bill, now: datetime) -> Iterator[Share]:
    """Who pays for which time of the machine. What does not divide evenly (10^-24 dollars) falls to the first."""
    paid = billed(bill.record, bill.billing, now)
    if paid is None or paid.end is None or not paid.rate:
        return
    spec = bill.record.spec
    bought_for = [Payer(pod.namespace, pod.uid) for pod in spec.pods]
    marks = {paid.start, paid.end}
    for _, (start, end, _) in bill.tenants:
        marks.update(at for at in (start, end) if at is not None and paid.start < at < paid.end)
    # Of an instance that goes on, who will hold it in the seconds already paid is not known: those who do now.
    ordered = sorted(marks)
    for start, end in pairwise(ordered):
        holding = [
            (payer, rate)
            for payer, (begun, ended, rate) in bill.tenants
            if begun <= start and (ended is None or ended > start)
        ]
        parts = holding or [(payer, 1) for payer in bought_for] or [(NOBODY, 1)]
        yield from (Share(payer, Piece(start, end, rate)) for payer, rate in _divided(paid.rate, parts))


def _divided(price: int, parts: Sequence[tuple[Payer, int]]) -> Iterator[tuple[Payer, int]]:
    whole = sum(amount for _, amount in parts)
    rest = price - sum(price * amount // whole for _, amount in parts)
    for index, (payer, amount) in enumerate(sorted(parts)):
        yield payer, price * amount // whole + (rest if index == 0 else 0)


def spending(bills: Iterable[Bill], now: datetime, window: timedelta | None = None) -> Spending:
    """In the window that ends now, or ever. What is paid in advance counts at once."""
    since = None if window is None else microseconds(now - window)
    pools: defaultdict[tuple[str, str], Usd] = defaultdict(Usd.zero)
    classes: defaultdict[str, Usd] = defaultdict(Usd.zero)
    namespaces: defaultdict[str, Usd] = defaultdict(Usd.zero)
    total = Usd.zero()
    for bill in bills:
        pool = bill.record.spec.pool_ref
        for payer, piece in shares(bill, now):
            amount = _cost(piece, since)
            total += amount
            pools[("", "") if pool is None else (pool.namespace, pool.name)] += amount
            classes[bill.record.spec.node_class_name or ""] += amount
            namespaces[payer.namespace] += amount
    return Spending(total=total, by_pool=dict(pools), by_class=dict(classes), by_namespace=dict(namespaces))


def _cost(piece: Piece, since: int | None) -> Usd:
    start, end = piece.start * MICROSECONDS, (piece.end or piece.start) * MICROSECONDS
    return Usd.from_units(piece.rate * max(end - (start if since is None else max(start, since)), 0))


def charge(account: Account, bill: Bill, now: datetime, takes: Callable[[Payer], bool]) -> None:
    """Enters what the pods that the budget `takes` pay of this machine into its books.

    What goes on stays open there and accrues by the clock, so that nothing is written until its tenants change. To be
    called whenever they do, before one of them is forgotten, and when the machine is gone. Idempotent: what is entered
    stays.
    """
    money, uid = account.money, bill.record.uid
    status = bill.record.status
    ongoing = status is not None and status.billed_until is None
    parts = _together(shares(bill, now), takes)
    entered = money.pieces(uid)
    upto = 0
    if entered and entered[-1].end is None:
        upto = entered[-1].start
        same = next((end for start, end, rate in parts if start <= upto < end and rate == entered[-1].rate), upto)
        if ongoing and parts and same == parts[-1][1]:
            return
        money.end(uid, same)
        upto = same
    elif entered:
        upto = entered[-1].end or 0
    for index, (start, end, rate) in enumerate(parts):
        begun = max(start, upto)
        if end > begun and ongoing and index == len(parts) - 1 and end >= seconds(now):
            money.begin(uid, begun, rate, begun)
        elif end > begun:
            money.record(uid, begun, end, rate)


def _together(found: Iterable[Share], takes: Callable[[Payer], bool]) -> list[tuple[int, int, int]]:
    """The rates of all that are taken, added up by time; what follows at the same rate is one."""
    rates: defaultdict[tuple[int, int], int] = defaultdict(int)
    for payer, piece in found:
        if takes(payer):
            rates[piece.start, piece.end or piece.start] += piece.rate
    joined: list[tuple[int, int, int]] = []
    for (start, end), rate in sorted(rates.items()):
        if joined and joined[-1][1:] == (start, rate):
            joined[-1] = (joined[-1][0], end, rate)
        else:
            joined.append((start, end, rate))
    return joined
