"""Ledger of what was used, which survives the deletion of pods and restarts of the operator.

A ledger belongs to one budget (or to one key of the bill). It holds, by pod UID, the intervals in which the pod
counted. Intervals of deleted pods that ended more than a day ago are compacted to sums by the minute.

    ledger.record(uid, start, end, rate)
    for write in ledger.chunk_log.writes(now):      # store write.data under write.serial, then:
        ledger.chunk_log.wrote(write)
    for serial in ledger.chunk_log.obsolete():      # delete it, then:
        ledger.chunk_log.deleted(serial)
    ledger, damages = Ledger.load(owner, stored)
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from forebay.budgets.ledger.chunk_log import ChunkLog, DamagedChunk
from forebay.budgets.ledger.chunks import Chunk
from forebay.budgets.ledger.profile import Profile
from forebay.budgets.ledger.recorded_usage import LedgerSummary, RecordedUsage
from forebay.budgets.usage import Interval

#: Seconds for which intervals are kept to the second; older ones are compacted to the minute.
EXACT_PERIOD: Final = 24 * 3600
_MINUTE: Final = 60
_HOUR: Final = 3600


class Ledger(RecordedUsage):
    """Intervals by pod UID, their profile over time, and the chunks they are stored in."""

    profile: Profile

    def __init__(self, owner: str, chunk_log: ChunkLog | None = None) -> None:
        self.chunk_log = chunk_log or ChunkLog(owner)
        #: Intervals by pod UID, ordered by time and without overlap. Only the last may be open.
        self._intervals: dict[str, list[Interval]] = {}
        self._open: set[str] = set()
        super().__init__(Profile(), self._intervals, self._open)
        self._provisional: dict[str, tuple[Interval, ...]] = {}

    @classmethod
    def load(cls, owner: str, stored: Mapping[int, bytes]) -> "tuple[Ledger, tuple[DamagedChunk, ...]]":
        """Ledger from stored chunks by serial, and the chunks that cannot be read."""
        chunk_log, damages = ChunkLog.load(owner, stored)
        ledger = cls(owner, chunk_log)
        for chunk in chunk_log.chunks.values():
            ledger._restore(chunk)
        return ledger, damages

    @classmethod
    def from_summary(
        cls, owner: str, summary: LedgerSummary, intervals: Mapping[str, Sequence[Interval]] | None = None
    ) -> "Ledger":
        """Ledger with the same usage as the summarised one. It can be read, but not stored.

        `intervals` are those of some pods, for `consumed_by`: the summary does not say who used what.
        """
        ledger = cls(owner)
        ledger._intervals.update((uid, list(each)) for uid, each in (intervals or {}).items())
        ledger.profile.change_at_marks(summary.changes)
        for at, pods in summary.ends.items():
            ledger.profile.ended(at, pods)
        ledger._open.update(summary.running)
        return ledger

    def recount(self, since: int) -> None:
        """Count again what is stored and has left a shorter window, if the profile lacks some after `since`: the
        window was made longer, and holds at once what it would hold after a restart.
        """
        if self.profile.floor <= since:
            return
        version, self.profile = self.profile.version, Profile()
        self.profile.version = version + 1
        for chunk in self.chunk_log.chunks.values():
            self._count_sums(chunk)
        for intervals in self._intervals.values():
            self._count_intervals(intervals)
            if intervals[-1].end is not None:
                self._count_end(intervals)
        for provisional in self._provisional.values():
            self._count_intervals(provisional)

    def _count_sums(self, chunk: Chunk) -> None:
        self.profile.change_at_marks(chunk.minutes)
        for mark, pods in chunk.ends.items():
            self.profile.ended(mark, pods)

    def _count_intervals(self, intervals: Iterable[Interval], sign: int = 1) -> None:
        for start, end, rate in intervals:
            self.profile.change(start, sign * rate)
            if end is not None:
                self.profile.change(end, -sign * rate)

    def frozen(self, pods: Iterable[str] = ()) -> RecordedUsage:
        """The usage so far, which later changes leave alone; with the intervals of these pods (UIDs)."""
        intervals = {uid: tuple(self._intervals[uid]) for uid in pods if uid in self._intervals}
        return RecordedUsage(self.profile.frozen(), intervals, frozenset(self._open))

    def _restore(self, chunk: Chunk) -> None:
        self._count_sums(chunk)
        for uid, intervals in list(chunk.entries.items()):
            if uid in self._intervals:
                # The operator died while it moved the entry from one chunk to another: remove one copy.
                self.chunk_log.remove(uid, chunk.serial)
                self._merge(uid, intervals)
                continue
            self._intervals[uid] = intervals
            self.chunk_log.place(uid, chunk.serial, intervals)
            self._count_intervals(intervals)
            if intervals[-1].end is None:
                self._open.add(uid)
            else:
                self._count_end(intervals)

    def merge(self, other: "Ledger") -> None:
        """Add the entries of another copy of this ledger. Sums are not merged: they come with the stored chunks."""
        for uid, intervals in other._intervals.items():  # noqa: SLF001 (of its own class)
            self._merge(uid, intervals)
        for uid, provisional in other._provisional.items():  # noqa: SLF001 (of its own class)
            self.set_provisional(uid, provisional)

    def _merge(self, uid: str, intervals: Iterable[Interval]) -> None:
        for start, end, rate in intervals:
            if end == start:
                self.note_end(uid, start)
            elif end is not None:
                self.record(uid, start, end, rate)
            elif not any(each.end is None or each.end > start for each in self._intervals.get(uid, ())):
                self.begin(uid, start, rate, start, durable=True)

    def begin(self, uid: str, since: int, rate: int, at: int, *, durable: bool = False) -> None:
        """Count a pod at this rate from `since` on.

        A pod that counts already keeps its start; if its rate has changed, a new interval begins at `at`. With
        `durable` the open interval is stored, because after a restart of Forebay the pod's status would not show its
        start.
        """
        intervals = self._intervals.get(uid)
        if uid in self._open and intervals:
            if intervals[-1].rate == rate:
                if durable and not self.chunk_log.has(uid):
                    self.chunk_log.put(uid, intervals)
                return
            self.end(uid, at)
            since, durable, intervals = max(since, at), True, self._intervals.get(uid)
        if intervals:
            since = max(since, _last_end(intervals))
            self._count_end(intervals, -1)
        else:
            intervals = self._intervals[uid] = []
        intervals.append(Interval(since, None, rate))
        self._open.add(uid)
        self.profile.change(since, rate)
        if durable:
            self.chunk_log.put(uid, intervals)

    def end(self, uid: str, at: int) -> None:
        """Stop counting a pod at `at`; nothing happens if the pod does not count."""
        if uid not in self._open:
            return
        self._open.discard(uid)
        intervals = self._intervals[uid]
        start, _, rate = intervals.pop()
        at = max(at, start)
        self.profile.change(at, -rate)
        if at > start:
            intervals.append(Interval(start, at, rate))
        if intervals:
            self._count_end(intervals)
            self.chunk_log.put(uid, intervals)
        else:
            del self._intervals[uid]
            self.chunk_log.remove(uid)

    def record(self, uid: str, start: int, end: int, rate: int) -> None:
        """Record that a pod counted from `start` to `end`. What is already recorded of the pod stays as it is."""
        self.end(uid, end)
        intervals = self._intervals.get(uid)
        added, at = [], start
        for interval in intervals or ():
            if min(interval.start, end) > at:
                added.append(Interval(at, min(interval.start, end), rate))
            at = max(at, interval.end or at)
        if end > at:
            added.append(Interval(at, end, rate))
        if not added:
            return
        if intervals is None:
            intervals = self._intervals[uid] = []
        else:
            self._count_end(intervals, -1)
        for each in added:
            self.profile.change(each.start, rate)
            self.profile.change(each.end or end, -rate)
        intervals.extend(added)
        intervals.sort()
        _merge_adjacent(intervals)
        self._count_end(intervals)
        self.chunk_log.put(uid, intervals)

    def take_back(self, uid: str, after: int) -> None:
        """Take back what is recorded of `uid` after that second. Safe to repeat; what is compacted stays."""
        intervals = self._intervals.get(uid)
        if intervals is None or uid in self._open or _last_end(intervals) <= after:
            return
        self._count_end(intervals, -1)
        kept = []
        for start, end, rate in intervals:
            assert end is not None
            if end > after:
                self.profile.change(max(start, after), -rate)
                self.profile.change(end, rate)
            if start < after or end <= after:
                kept.append(Interval(start, min(end, after), rate))
        intervals[:] = kept
        if kept:
            self._count_end(intervals)
            self.chunk_log.put(uid, intervals)
        else:
            del self._intervals[uid]
            self.chunk_log.remove(uid)

    def note_end(self, uid: str, at: int) -> None:
        """Note that nothing of a pod is missing before `at`, by an empty interval: also of one that has used nothing,
        lest it be counted after a restart.
        """
        intervals = self._intervals.get(uid)
        if uid in self._open or (intervals and _last_end(intervals) >= at):
            return
        if intervals is None:
            intervals = self._intervals[uid] = []
        else:
            self._count_end(intervals, -1)
        intervals.append(Interval(at, at, 0))
        self._count_end(intervals)
        self.chunk_log.put(uid, intervals)

    def _count_end(self, intervals: list[Interval], pods: int = 1) -> None:
        """Count the end of a pod's last interval, or with -1 no longer; a pod that has used nothing is not tracked."""
        if any(each.rate for each in intervals):
            self.profile.ended(_last_end(intervals), pods)

    def set_provisional(self, uid: str, intervals: Sequence[Interval]) -> None:
        """Replace the provisional intervals of `uid`, which count but are never stored nor part of `intervals`."""
        before, after = self._provisional.get(uid, ()), tuple(intervals)
        if before == after:
            return
        self._count_intervals(before, -1)
        self._count_intervals(after)
        if after:
            self._provisional[uid] = after
        else:
            del self._provisional[uid]

    def drop_provisional(self) -> None:
        """Remove all provisional intervals."""
        for uid in list(self._provisional):
            self.set_provisional(uid, ())

    @property
    def is_empty(self) -> bool:
        """Whether the ledger holds no usage at all."""
        return not self._intervals and not self._provisional and self.profile.is_empty

    def close_missing(self, visible: Collection[str]) -> None:
        """End stored open intervals of pods that no longer exist, at the last time they were known to run."""
        for uid in [each for each in self._open if each not in visible and self.chunk_log.has(each)]:
            self.end(uid, self.chunk_log.last_written(uid))

    def entries(self) -> Iterable[tuple[str, tuple[Interval, ...]]]:
        """Recorded intervals of every pod that is not compacted, by its UID."""
        return ((uid, tuple(intervals)) for uid, intervals in self._intervals.items())

    def is_durable(self, uid: str) -> bool:
        """Whether all usage of a pod is stored, so that the pod may be deleted."""
        return uid not in self._open and self.chunk_log.is_stored(uid)

    def compact(self, now: int, window: int, visible: Collection[str]) -> bool:
        """Compact entries that ended more than a day ago to sums by the minute, and drop what has left the window.

        `visible` are UIDs of all existing pods; their entries stay, lest the pods be counted again. Call only with a
        complete view of the pods. Times are in seconds. Returns False if there was nothing to do, or if chunks that the
        last compaction replaced are not deleted yet.
        """
        chunk_log = self.chunk_log
        if not chunk_log.may_replace:
            return False
        self.profile.forget_before(now - window - _HOUR)
        floor = self.profile.floor
        old = {serial: self._old(chunk, now - EXACT_PERIOD, visible) for serial, chunk in chunk_log.chunks.items()}
        chosen = {
            serial
            for serial, chunk in chunk_log.chunks.items()
            if len(old[serial]) * 2 > len(chunk.entries) or min(chunk.minutes, default=floor) < floor - EXACT_PERIOD
        }
        if not chosen:
            return False
        spare = chunk_log.with_room_for_sums()
        if spare is not None:
            chosen.add(spare)
        entries: dict[str, list[Interval]] = {}
        minutes: dict[int, int] = {}
        ends: dict[int, int] = {}
        for serial in sorted(chosen):
            chunk = chunk_log.take_out(serial)
            for mark, part in chunk.minutes.items():
                minutes[max(mark, floor)] = minutes.get(max(mark, floor), 0) + part
            for mark, pods in chunk.ends.items():
                if mark >= floor:
                    ends[mark] = ends.get(mark, 0) + pods
            for uid, intervals in chunk.entries.items():
                if uid in old[serial]:
                    self._sum_by_minute(self._intervals.pop(uid), minutes, ends)
                else:
                    entries[uid] = intervals
        chunk_log.replace_with(entries, minutes, ends)
        return True

    def _old(self, chunk: Chunk, cutoff: int, visible: Collection[str]) -> set[str]:
        return {
            uid
            for uid, intervals in chunk.entries.items()
            if uid not in self._open and uid not in visible and _last_end(intervals) <= cutoff
        }

    def _sum_by_minute(self, intervals: list[Interval], minutes: dict[int, int], ends: dict[int, int]) -> None:
        """Replace intervals of one pod by changes of the rate at minute marks, in the profile and in `minutes`."""
        profile, last = self.profile, _last_end(intervals)
        for start, end, rate in intervals:
            for at, change in ((start, rate), (last if end is None else end, -rate)):
                profile.change(at, -change)
                shares = dict(profile.split_by_minute(at, change))
                profile.change_at_marks(shares)
                for mark, part in shares.items():
                    minutes[mark] = minutes.get(mark, 0) + part
        if not any(each.rate for each in intervals):
            return
        profile.ended(last, -1)
        mark = -(-last // _MINUTE) * _MINUTE
        if mark >= profile.floor:
            profile.ended(mark)
            ends[mark] = ends.get(mark, 0) + 1


def _merge_adjacent(intervals: list[Interval]) -> None:
    """Merge adjacent intervals with the same rate, in place."""
    joined = intervals[:1]
    for interval in intervals[1:]:
        last = joined[-1]
        if (last.end, last.rate) == (interval.start, interval.rate):
            joined[-1] = Interval(last.start, interval.end, last.rate)
        else:
            joined.append(interval)
    if len(joined) < len(intervals):
        intervals[:] = joined


def _last_end(intervals: list[Interval]) -> int:
    end = intervals[-1].end
    assert end is not None
    return end
