"""Cost of a GPUInstance, and which pods pay for it at every moment.

The price of a machine is shared by the pods that hold its GPUs, in proportion to the GPUs they hold. While no pod holds
any, the pods that keep the machine though it is idle share the price equally, because they must not be evicted. Without
those (the machine boots, idles or drains), the pods it was launched for share it equally. Without either, as with
orphans, the cost is unallocated. So every dollar has exactly one payer at every moment.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.values import Figure
from forebay.budgets.usage import Interval, seconds
from forebay.model.quantities import UsdPerHour

_SECOND: Final = timedelta(seconds=1)


class Payer(NamedTuple):
    """Pod that pays a part of a machine's price. Both fields are empty for unallocated cost."""

    namespace: str
    uid: str


UNALLOCATED: Final = Payer("", "")


class PodUse(NamedTuple):
    """Interval in which a pod held GPUs of a machine, or kept it; the rate is the number of GPUs, which may be 0."""

    payer: Payer
    interval: Interval


class Share(NamedTuple):
    """Interval in which a pod pays a part of a machine's price; the rate is in units of `UsdPerHour`."""

    payer: Payer
    interval: Interval


class RecordedCost(NamedTuple):
    """Interval in which the pods of a namespace are recorded to have paid a part of a machine's price."""

    namespace: str
    interval: Interval


def billed(record: GPUInstance) -> Interval | None:
    """Interval for which a machine is billed, at the billed price or else the offered one; None if it cost nothing.

    The interval has no end while the machine is billed. The provider's minimum billing and billing increment may extend
    it beyond the machine's termination.
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
        return Interval(start, None, price.units)
    billing = record.billing
    length = max(until - status.billed_from, timedelta(0), billing.minimum)
    step = max(billing.increment, _SECOND)
    return Interval(start, start + -(-length // step) * (step // _SECOND), price.units)


@lru_cache(maxsize=4096)
def _price(text: Figure) -> UsdPerHour:
    """Parsed price; zero if it cannot be parsed, because one invalid record must not stop the bill of all others."""
    try:
        return UsdPerHour(str(text))
    except ValueError:
        return UsdPerHour.zero()


def shares(
    paid: Interval,
    uses: Sequence[PodUse],
    launched_for: Sequence[Payer] = (),
    recorded: Sequence[RecordedCost] = (),
) -> Iterator[Share]:
    """Shares of a machine's cost in order of time; the first payer takes what does not divide evenly.

    `uses` say which pods held GPUs or kept the machine, `launched_for` which pods the machine was launched for. Where
    costs of some namespaces are already `recorded`, only the rest is shared, among the pods of other namespaces.
    """
    start, end, price = paid
    marks = {start}
    for interval in (*(each.interval for each in uses), *(each.interval for each in recorded)):
        marks.update(
            at for at in (interval.start, interval.end) if at is not None and start < at and (end is None or at < end)
        )
    for begun, ended in pairwise([*sorted(marks), end]):
        assert begun is not None
        if begun == ended:
            continue
        paid_already = [each for each in recorded if _covers(each.interval, begun)]
        unpaid = price - sum(each.interval.rate for each in paid_already)
        if unpaid <= 0:
            continue
        there = [(payer, interval.rate) for payer, interval in uses if _covers(interval, begun)]
        weights = [(payer, gpus) for payer, gpus in there if gpus] or [(payer, 1) for payer, _ in there]
        weights = weights or [(payer, 1) for payer in launched_for]
        if paid_already:
            namespaces = {each.namespace for each in paid_already}
            weights = [(payer, amount) for payer, amount in weights if payer.namespace not in namespaces]
        for payer, rate in _divide(unpaid, weights or [(UNALLOCATED, 1)]):
            yield Share(payer, Interval(begun, ended, rate))


def _covers(interval: Interval, at: int) -> bool:
    return interval.start <= at and (interval.end is None or at < interval.end)


def _divide(price: int, weights: Sequence[tuple[Payer, int]]) -> Iterator[tuple[Payer, int]]:
    whole = sum(amount for _, amount in weights)
    rest = price - sum(price * amount // whole for _, amount in weights)
    for index, (payer, amount) in enumerate(sorted(weights)):
        yield payer, price * amount // whole + (rest if index == 0 else 0)
