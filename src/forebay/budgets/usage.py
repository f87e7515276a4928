"""When a pod held how much: the rules of accounting, as docs/budgets.md states them.

Times are whole seconds since 1970, as Kubernetes writes them; intervals are half open; amounts are thousandths of a
GPU (or of a core, or of whatever the budget counts).
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from forebay.model.quantities import CPU, GpuHours
from forebay.model.workloads import Pod, PodShape

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
MICROSECONDS: Final = 10**6


class Piece(NamedTuple):
    """So much of the resource, from one second to another; `end` is None while it goes on."""

    start: int
    end: int | None
    rate: int


class Run(NamedTuple):
    """The life of a pod's containers, as far as it is known."""

    start: int
    end: int | None
    #: The status says when it ended. Otherwise the end is where Forebay first saw it.
    told: bool = True


def seconds(at: datetime) -> int:
    """The second it is in."""
    return (at - _EPOCH) // _SECOND


def microseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def moment(at: int) -> datetime:
    return _EPOCH + timedelta(seconds=at)


def instant(at: int) -> datetime:
    """From microseconds."""
    return _EPOCH + timedelta(microseconds=at)


def thousandths(shape: PodShape, resource: str) -> int:
    """What the scheduler reserves for the pod of a resource, in thousandths."""
    amount = shape.requests.amount(resource)
    return amount if resource == CPU else amount * 1000


def run_of(pod: Pod, known_start: int | None, seen: int) -> Run | None:
    """From the first start of any container to the last finish; None for a pod of which no start is known.

    `known_start` is the earliest one that was ever seen: a status shows only the two latest runs of a container, and
    the pod has held its GPUs through all of them. `seen` is when the pod was shown like this.
    """
    start, behind = known_start, 0
    if pod.started is not None:
        shown = seconds(pod.started)
        # A container cannot have started before its pod was made: then the node's clock is behind by at least as much.
        behind = max(seconds(pod.created) - shown, 0)
        start = shown + behind if start is None else min(start, shown + behind)
    if start is None:
        return None
    if not pod.phase.ended:
        return Run(start, None)
    if pod.finished is not None:
        finish = seconds(pod.finished)
        # A clock that was set right meanwhile is no longer behind: then the finish cannot be later than it was seen.
        end = finish if not behind else min(finish + behind, max(finish, seen))
        return Run(start, max(end, start))
    # Its kubelet has not told, so its node is lost: whoever failed the pod also asked it to end, at that time.
    end = seen if pod.deleted is None else min(seconds(pod.deleted), seen)
    return Run(start, max(end, start), told=False)


def usage(pieces: Iterable[Piece], now: datetime, window: timedelta) -> GpuHours:
    """What lies in [now - window, now), piece by piece. `Profile` gives the same from sums."""
    to = microseconds(now)
    since = to - window // _MICROSECOND
    total = 0
    for start, end, rate in pieces:
        until = to if end is None else min(end * MICROSECONDS, to)
        total += rate * max(until - max(start * MICROSECONDS, since), 0)
    return GpuHours.from_units(total)
