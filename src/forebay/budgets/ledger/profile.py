"""Profile of use over time, stored as changes of a rate: use between two moments is a difference of two sums.

Rates are in sixtieths. When a ledger compacts old entries, it splits each change between the two minute marks around
it, in proportion to its distance from them. The rate, the total and the mean time of all changes stay exact; only
*within* that minute a sum is wrong, by at most 15 seconds of the changed rate.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from forebay.budgets.usage import MICROSECONDS

_MINUTE: Final = 60
_HOUR: Final = 3600
_SIXTIETHS: Final = 60


class _Bucket:
    """Changes of the rate within one hour, and their sums."""

    __slots__ = ("changes", "ended", "ends", "moment", "rate")

    def __init__(self) -> None:
        self.changes: dict[int, int] = {}
        #: Sum of the changes, and sum of each change times its second.
        self.rate = 0
        self.moment = 0
        #: Number of pods that ended, by second or minute mark, and in total.
        self.ends: dict[int, int] = {}
        self.ended = 0

    def copy(self) -> "_Bucket":
        made = _Bucket()
        made.changes, made.ends = dict(self.changes), dict(self.ends)
        made.rate, made.moment, made.ended = self.rate, self.moment, self.ended
        return made


class UsageProfile:
    """Use over time, to be read. Reading a window takes time by the number of hours with changes, not by the number of
    changes.
    """

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        self._hours: list[int] = []
        self._rate = 0
        self._moment = 0
        self._ended = 0
        #: Number of changes so far, so that results can be cached until it differs.
        self.version = 0

    def between(self, start: int, end: int) -> int:
        """Use (rate x microseconds) from one moment to another, both in microseconds."""
        return max(self._sum(end) - self._sum(start), 0) // _SIXTIETHS if self._hours else 0

    def rate(self, at: int) -> int:
        """Rate at a moment in microseconds; a change at that very moment counts."""
        return self._rate_at(at) // _SIXTIETHS if self._hours else 0

    def expected_rate(self, at: int, span: int) -> int:
        """Rate that is forecast at a moment: the present one, or its mean over the last `span` where that is lower."""
        return self._expected_rate(at, span) // _SIXTIETHS if self._hours else 0

    def _expected_rate(self, at: int, span: int) -> int:
        rate = self._rate_at(at)
        return min(rate, (self._sum(at) - self._sum(at - span)) // span) if span else rate

    def _rate_at(self, at: int) -> int:
        rate, _, inside = self._before(at // MICROSECONDS // _HOUR)
        return rate + sum(part for second, part in inside if second * MICROSECONDS <= at)

    def ends_after(self, at: int) -> int:
        """Number of pods that ended after a moment in microseconds."""
        if not self._ended:
            return 0
        hour = at // MICROSECONDS // _HOUR
        place = bisect_right(self._hours, hour)
        if place <= len(self._hours) // 2:
            after = self._ended - sum(self._buckets[each].ended for each in self._hours[:place])
        else:
            after = sum(self._buckets[each].ended for each in self._hours[place:])
        edge = self._buckets.get(hour)
        if edge is not None and edge.ended:
            after += sum(count for second, count in edge.ends.items() if second * MICROSECONDS > at)
        return after

    def _sum(self, at: int) -> int:
        """Use before a moment, in sixtieths, since the floor; only differences of two such sums mean something."""
        rate, weight, inside = self._before(at // MICROSECONDS // _HOUR)
        total = rate * at - weight * MICROSECONDS
        for second, part in inside:
            span = at - second * MICROSECONDS
            if span > 0:
                total += part * span
        return total

    def _before(self, hour: int) -> tuple[int, int, Iterable[tuple[int, int]]]:
        """Sums of the changes before this hour, and the changes within it; added up from the nearer end."""
        hours, buckets = self._hours, self._buckets
        place = bisect_left(hours, hour)
        if place <= len(hours) // 2:
            rate = weight = 0
            for each in hours[:place]:
                rate += buckets[each].rate
                weight += buckets[each].moment
        else:
            rate, weight = self._rate, self._moment
            for each in hours[place:]:
                rate -= buckets[each].rate
                weight -= buckets[each].moment
        edge = buckets.get(hour)
        return rate, weight, edge.changes.items() if edge is not None else ()

    @property
    def changes(self) -> dict[int, int]:
        """Changes of the rate in sixtieths, by second."""
        return {at: part for hour in self._hours for at, part in sorted(self._buckets[hour].changes.items())}

    @property
    def ends(self) -> dict[int, int]:
        """Number of pods that ended, by second."""
        return {at: pods for hour in self._hours for at, pods in sorted(self._buckets[hour].ends.items()) if pods}

    @property
    def is_empty(self) -> bool:
        """Whether the profile has no change of the rate, and so no use."""
        return not self._rate and not any(bucket.changes for bucket in self._buckets.values())

    def reaches(self, amount: int, now: int, window: int, span: int = 0) -> int | None:
        """Moment at which the window holds `amount` at the present rate, while older use leaves the window.

        With `span` (microseconds), at the mean rate of that time if it is lower: a burst is not taken for the rule.
        In microseconds, rounded up; None if not within one window from now. The result is exact: the far edge of the
        window is moved over every past change, and an hour in which the amount cannot be reached is skipped at once.
        """
        rate = self._expected_rate(now, span)
        amount *= _SIXTIETHS
        first = edge = now - window
        held = self._sum(now) - self._sum(edge)
        if held >= amount:
            return now
        if rate <= 0 or held + rate * window < amount:
            return None
        leaving = self._rate_at(edge)
        for upto, bucket in self._stretches(edge, now):
            # A change at the first moment itself is in the rate already, so that hour is not skipped.
            whole = bucket is None or (upto - edge == _HOUR * MICROSECONDS and edge > first)
            if whole and held + rate * (upto - edge) < amount:
                held += (rate - leaving) * (upto - edge)
                if bucket is not None:
                    held -= bucket.rate * upto - bucket.moment * MICROSECONDS
                    leaving += bucket.rate
                edge = upto
                continue
            changes = {} if bucket is None else bucket.changes
            marks = {second * MICROSECONDS: part for second, part in changes.items() if second * MICROSECONDS > first}
            for mark in sorted({upto, *(at for at in marks if at < upto)}):
                gain = rate - leaving
                grown = held + gain * (mark - edge)
                if gain > 0 and grown >= amount:
                    return edge + window - (held - amount) // gain
                held, edge = grown, mark
                leaving += marks.get(mark, 0) if mark < upto else 0
        return None

    def _stretches(self, start: int, end: int) -> Iterator[tuple[int, _Bucket | None]]:
        """Stretches between two moments: the end of each, and the bucket of its hour or None if nothing changes."""
        for hour in self._hours[bisect_left(self._hours, start // MICROSECONDS // _HOUR) :]:
            begins = hour * _HOUR * MICROSECONDS
            if begins >= end:
                break
            if begins > start:
                yield begins, None
            start = min(end, begins + _HOUR * MICROSECONDS)
            yield start, self._buckets[hour]
        if start < end:
            yield end, None

    def peak(self, now: int, window: int, span: int) -> int:
        """Most that the window will hold within `span` from now at the present rate."""
        rate = self._rate_at(now)
        first = edge = now - window
        last = edge + min(span, window)
        most = held = self._sum(now) - self._sum(edge)
        leaving = self._rate_at(edge)
        changes = {}
        for hour in range(edge // MICROSECONDS // _HOUR, last // MICROSECONDS // _HOUR + 1):
            bucket = self._buckets.get(hour)
            if bucket is not None:
                changes.update(bucket.changes)
        for mark in sorted({last, *(at * MICROSECONDS for at in changes if first < at * MICROSECONDS < last)}):
            held += (rate - leaving) * (mark - edge)
            most = max(most, held)
            leaving += changes.get(mark // MICROSECONDS, 0)
            edge = mark
        return -(-most // _SIXTIETHS)

    def falls_below(self, amount: int, now: int, window: int) -> int:
        """Moment at which the window holds less than `amount` (more than 0) if nothing more is used from now on.

        In microseconds: now, or the first whole second at which that is so.
        """
        held = self._sum(now)
        if held - self._sum(now - window) < amount * _SIXTIETHS:
            return now
        low, high = now // MICROSECONDS, (now + window) // MICROSECONDS + 1
        while low < high:
            middle = (low + high) // 2
            if held - self._sum(min(middle * MICROSECONDS - window, now)) < amount * _SIXTIETHS:
                high = middle
            else:
                low = middle + 1
        return low * MICROSECONDS


class Profile(UsageProfile):
    """Use over time, as it is recorded."""

    def __init__(self) -> None:
        super().__init__()
        #: Earliest second of the profile; of the time before, only the rate at this second is known.
        self.floor = 0
        self._last_frozen: UsageProfile | None = None
        #: Hours whose bucket the last frozen profile has too: it is copied before it changes.
        self._shared: set[int] = set()

    def frozen(self) -> UsageProfile:
        """The use so far, which later changes leave alone. Hours without later changes are shared, not copied."""
        last = self._last_frozen
        if last is None or last.version != self.version:
            last = self._last_frozen = UsageProfile()
            last._buckets, last._hours = dict(self._buckets), list(self._hours)  # noqa: SLF001 (its own base class)
            last._rate, last._moment, last._ended = self._rate, self._moment, self._ended  # noqa: SLF001
            last.version = self.version
            self._shared = set(self._buckets)
        return last

    def change(self, at: int, rate: int) -> None:
        """Change the rate from this second on."""
        self._add(at, rate * _SIXTIETHS)

    def change_at_marks(self, parts: Mapping[int, int]) -> None:
        """Change the rate at minute marks, by sixtieths."""
        add = self._add
        for mark, part in parts.items():
            add(mark, part)

    def split_by_minute(self, at: int, rate: int) -> Iterator[tuple[int, int]]:
        """Change of the rate split between the two minute marks around it, in sixtieths."""
        at = max(at, self.floor)
        past = at % _MINUTE
        yield at - past, rate * (_SIXTIETHS - past)
        if past:
            yield at - past + _MINUTE, rate * past

    def ended(self, at: int, pods: int = 1) -> None:
        """Count pods that ended at this second."""
        if at < self.floor:
            return
        bucket = self._bucket(at // _HOUR)
        bucket.ends[at] = bucket.ends.get(at, 0) + pods
        bucket.ended += pods
        self._ended += pods
        self.version += 1

    def _bucket(self, hour: int) -> _Bucket:
        """The changes of an hour, to be changed."""
        bucket = self._buckets.get(hour)
        if bucket is None:
            bucket = self._buckets[hour] = _Bucket()
            insort(self._hours, hour)
        elif hour in self._shared:
            self._shared.discard(hour)
            bucket = self._buckets[hour] = bucket.copy()
        return bucket

    def _add(self, at: int, part: int) -> None:
        at = max(at, self.floor)
        hour = at // _HOUR
        bucket = self._buckets.get(hour)
        if bucket is None or hour in self._shared:
            bucket = self._bucket(hour)
        changes = bucket.changes
        there = changes.get(at, 0) + part
        if there:
            changes[at] = there
        else:
            changes.pop(at, None)
        weight = part * at
        bucket.rate += part
        bucket.moment += weight
        self._rate += part
        self._moment += weight
        self.version += 1

    def forget_before(self, at: int) -> None:
        """Drop the hours before a second; the rate at that time is kept."""
        hour = at // _HOUR
        kept = bisect_left(self._hours, hour)
        if not kept:
            self.floor = max(self.floor, hour * _HOUR)
            return
        carried = 0
        for each in self._hours[:kept]:
            bucket = self._buckets.pop(each)
            self._shared.discard(each)
            carried += bucket.rate
            self._rate -= bucket.rate
            self._moment -= bucket.moment
            self._ended -= bucket.ended
        del self._hours[:kept]
        self.floor = hour * _HOUR
        if carried:
            self._add(self.floor, carried)
        self.version += 1
