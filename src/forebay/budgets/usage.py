"""Rules of usage accounting: from when to when a pod used how much, as docs/budgets.md states them.

Times are whole seconds since 1970, as Kubernetes writes them. Intervals are half open. Amounts are thousandths of a
GPU, of a core, or of whatever resource the budget counts.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from forebay.model.quantities import CPU, GPU_SUFFIX, GpuHours
from forebay.model.workloads import Pod, PodShape

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
MICROSECONDS: Final = 10**6


class Interval(NamedTuple):
    """Use or cost at a constant rate from one second to another; `end` is None while it goes on.

    Ledgers of usage have rates in thousandths of a resource, ledgers of dollars in units of `UsdPerHour`.
    """

    start: int
    end: int | None
    rate: int


class Run(NamedTuple):
    """Time from the first start to the last finish of a pod's containers, as far as both are known."""

    start: int
    end: int | None
    #: The pod's status says when it ended. If not, `end` is when Forebay first saw the pod ended.
    end_reported: bool = True


def seconds(at: datetime) -> int:
    """Seconds since 1970, rounded down."""
    return (at - _EPOCH) // _SECOND


def microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def from_microseconds(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def thousandths(shape: PodShape, resource: str) -> int:
    """Thousandths of a resource that the scheduler reserves for a pod of this shape."""
    amount = shape.requests.amount(resource)
    return amount if resource == CPU else amount * 1000


def described(amount: GpuHours, resource: str) -> str:
    """An amount for people, in the unit of its resource: `1.5 GPU-h`, `3 core-h`, `2 example.com/tpu-h`."""
    return str(amount) if resource.endswith(GPU_SUFFIX) else f"{amount.decimals()} {unit_of(resource)}"


def unit_of(resource: str) -> str:
    """What usage of a resource is counted in: `GPU-h`, `core-h`, `example.com/tpu-h`."""
    return "GPU-h" if resource.endswith(GPU_SUFFIX) else f"{'core' if resource == CPU else resource}-h"


def run_of(pod: Pod, known_start: int | None, seen: int) -> Run | None:
    """Run of a pod from the first start to the last finish of its containers; None if no start is known.

    `known_start` is the earliest start that was ever seen: a status shows only the two latest runs of a container, and
    the pod has held its GPUs through all of them. `seen` is when Forebay saw the pod in this state.
    """
    start, behind = known_start, 0
    if pod.started is not None:
        shown = seconds(pod.started)
        # A container cannot start before its pod is created: the node's clock is behind by at least the difference.
        behind = max(seconds(pod.created) - shown, 0)
        start = shown + behind if start is None else min(start, shown + behind)
    if start is None:
        return None
    if not pod.phase.ended:
        return Run(start, None)
    if pod.finished is not None:
        finish = seconds(pod.finished)
        # If the clock was corrected meanwhile, `behind` no longer applies: the finish is not later than it was seen.
        end = finish if not behind else min(finish + behind, max(finish, seen))
        return Run(start, max(end, start))
    # The kubelet reported no finish, so the node is lost: the controller that failed the pod also deleted it.
    end = seen if pod.deleted is None else min(seconds(pod.deleted), seen)
    return Run(start, max(end, start), end_reported=False)


def usage(intervals: Iterable[Interval], now: datetime, window: timedelta) -> GpuHours:
    """Usage within [now - window, now), added up interval by interval. `Profile` gives the same result from sums."""
    to = microseconds(now)
    since = to - window // _MICROSECOND
    total = 0
    for start, end, rate in intervals:
        until = to if end is None else min(end * MICROSECONDS, to)
        total += rate * max(until - max(start * MICROSECONDS, since), 0)
    return GpuHours.from_units(total)
