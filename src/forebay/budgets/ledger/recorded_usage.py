"""What a ledger says of usage, for those who only read it."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from forebay.budgets.ledger.profile import UsageProfile
from forebay.budgets.usage import MICROSECONDS, Interval


class LedgerSummary(NamedTuple):
    """Changes of use over time, and the pods that run now; it does not say which pods ran before."""

    #: By second: changes of the rate in sixtieths, and the number of pods that ended.
    changes: Mapping[int, int]
    ends: Mapping[int, int]
    running: tuple[str, ...]


class RecordedUsage:
    """What a ledger says of usage, to be read."""

    def __init__(
        self, profile: UsageProfile, intervals: Mapping[str, Sequence[Interval]], running: Collection[str]
    ) -> None:
        self.profile = profile
        self._recorded = intervals
        self._running = running

    @property
    def summary(self) -> LedgerSummary:
        return LedgerSummary(self.profile.changes, self.profile.ends, tuple(sorted(self._running)))

    def intervals(self, uid: str) -> tuple[Interval, ...]:
        """Recorded intervals of a pod, ordered by time; empty after compaction."""
        return tuple(self._recorded.get(uid, ()))

    @property
    def running(self) -> Collection[str]:
        """UIDs of pods that count now."""
        return self._running

    def consumed(self, now: int, window: int) -> int:
        """Usage (rate x microseconds) in the window that ends now; both arguments in microseconds."""
        return self.profile.between(now - window, now)

    def consumed_by(self, uid: str, now: int, window: int) -> int:
        """Recorded usage of one pod in the window."""
        total = 0
        for start, end, rate in self._recorded.get(uid, ()):
            until = now if end is None else min(end * MICROSECONDS, now)
            total += rate * max(until - max(start * MICROSECONDS, now - window), 0)
        return total

    def tracked(self, now: int, window: int) -> int:
        """Number of pods that have used anything in the window or run now."""
        return len(self._running) + self.profile.ends_after(now - window)
