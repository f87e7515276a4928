"""What a GPUInstance costs, and who pays at every moment.

The price of a machine is shared by the pods that hold its GPUs, in proportion to what they hold; while none does (it
boots, it idles, it drains) by the pods it was bought for, each alike. Where there are neither, as with leftovers and
leaks, it is nobody's. So every dollar has exactly one payer at every moment.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.values import Figure
from forebay.budgets.usage import Piece, seconds
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Billing

_SECOND: Final = timedelta(seconds=1)


class Payer(NamedTuple):
    """A pod that pays. Nobody: both empty."""

    namespace: str
    uid: str


NOBODY: Final = Payer("", "")


class PodStay(NamedTuple):
    """A pod on the machine: how much of its GPUs it held, and when."""

    payer: Payer
    piece: Piece


class Share(NamedTuple):
    """What one pays of one machine for a time; the rate is in units of `UsdPerHour`."""

    payer: Payer
    piece: Piece


class RecordedSpend(NamedTuple):
    """What the pods of a namespace are known to have paid."""

    namespace: str
    piece: Piece


def billed(record: GPUInstance, billing: Billing) -> Piece | None:
    """The time that is paid for, at the price that is billed, or else was offered. None: it has cost nothing.

    Without an end while it goes on. What is billed at least, and in which steps, may lie beyond the end of the machine.
    """
    status = record.status
    if status is None or status.billed_from is None:
        return None
    price = _price(status.hourly_price if status.hourly_price is not None else record.spec.hourly_price or 0)
    if price <= UsdPerHour.zero():
        return None
    start, until = seconds(status.billed_from), status.billed_until
    if until is None and status.state is InstanceState.GONE:
        until = status.since or status.billed_from
    if until is None:
        return Piece(start, None, price.units)
    length = max(until - status.billed_from, timedelta(0), billing.minimum)
    step = max(billing.increment, _SECOND)
    return Piece(start, start + -(-length // step) * (step // _SECOND), price.units)


@lru_cache(maxsize=4096)
def _price(written: Figure) -> UsdPerHour:
    """What cannot be read costs nothing here: one strange record must not keep all others from being counted."""
    try:
        return UsdPerHour(str(written))
    except ValueError:
        return UsdPerHour.zero()


def shares(
    paid: Piece,
    pods_by_node: Sequence[PodStay],
    bought_for: Sequence[Payer] = (),
    entered: Sequence[RecordedSpend] = (),
) -> Iterator[Share]:
    """Who pays for which time, in order. What does not divide evenly (10^-24 dollars an hour) falls to the first.

    Of time in which some namespaces have `entered` what they pay, only the rest is shared, by the others.
    """
    start, end, price = paid
    marks = {start}
    for piece in (*(each.piece for each in pods_by_node), *(each.piece for each in entered)):
        marks.update(
            at for at in (piece.start, piece.end) if at is not None and start < at and (end is None or at < end)
        )
    for begun, ended in pairwise([*sorted(marks), end]):
        assert begun is not None
        if begun == ended:
            continue
        there = [each for each in entered if _covers(each.piece, begun)]
        left = price - sum(each.piece.rate for each in there)
        if left <= 0:
            continue
        parts = [(payer, piece.rate) for payer, piece in pods_by_node if _covers(piece, begun)]
        parts = parts or [(payer, 1) for payer in bought_for]
        if there:
            settled = {each.namespace for each in there}
            parts = [(payer, amount) for payer, amount in parts if payer.namespace not in settled]
        for payer, rate in _divided(left, parts or [(NOBODY, 1)]):
            yield Share(payer, Piece(begun, ended, rate))


def _covers(piece: Piece, at: int) -> bool:
    return piece.start <= at and (piece.end is None or at < piece.end)


def _divided(price: int, parts: Sequence[tuple[Payer, int]]) -> Iterator[tuple[Payer, int]]:
    whole = sum(amount for _, amount in parts)
    rest = price - sum(price * amount // whole for _, amount in parts)
    for index, (payer, amount) in enumerate(sorted(parts)):
        yield payer, price * amount // whole + (rest if index == 0 else 0)
