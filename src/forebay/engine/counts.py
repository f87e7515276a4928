"""Counters of a running operator; `metrics` exports them to Prometheus."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

#: Upper bounds in seconds: a quiet tick takes a millisecond, and one with much to plan and write some seconds.
_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class DurationHistogram:
    """How often something took how long."""

    def __init__(self) -> None:
        self.sum = 0.0
        self._counts = [0] * (len(_BOUNDS) + 1)

    def observe(self, seconds: float) -> None:
        self.sum += seconds
        self._counts[bisect_left(_BOUNDS, seconds)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound and number of all that took at most so long, as Prometheus wants them."""
        found, total = [], 0
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found


class Counts(msgspec.Struct):
    """Totals since this process started."""

    ticks: int = 0
    #: Seconds spent observing and deciding, without applying decisions.
    tick_seconds: float = 0.0
    #: Decisions by type name.
    decisions: Counter[str] = msgspec.field(default_factory=Counter)
    #: Decisions that could not be applied.
    failed: int = 0
    #: Bugs of Forebay that were caught and logged.
    internal_errors: int = 0
    #: Provider calls by provider, call and outcome.
    calls: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
    #: From the first change that the loop had not seen until its decisions were applied.
    latency: DurationHistogram = msgspec.field(default_factory=DurationHistogram)
    #: Of whole ticks: observing, deciding and applying.
    durations: DurationHistogram = msgspec.field(default_factory=DurationHistogram)
    #: What waits to be done, by name, while this process leads.
    queues: dict[str, Callable[[], int]] = {}
    #: Machines that became Ready, by provider, and the seconds from their request until then.
    ready: Counter[str] = msgspec.field(default_factory=Counter)
    ready_seconds: dict[str, float] = msgspec.field(default_factory=dict)
    #: Seconds of provider calls, by provider and call.
    call_seconds: dict[tuple[str, ...], float] = msgspec.field(default_factory=dict)
    #: Machines that began to leave, by reason.
    terminations: Counter[str] = msgspec.field(default_factory=Counter)
