"""What was used, so that it is still known when the pods are gone and the operator has been away.

A ledger is of one budget. It holds, by pod, the pieces of time in which the pod counted; those of pods that ended more
than a day ago and that nobody can see any more are added up by the minute.

    ledger.record(uid, start, end, rate)
    for write in ledger.shelf.writes(now):      # store write.data under write.serial, then:
        ledger.shelf.wrote(write)
    for serial in ledger.shelf.obsolete():      # delete it, then:
        ledger.shelf.deleted(serial)
    ledger, damages = Ledger.load(owner, stored)
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from forebay.budgets.ledger.chunk_log import ChunkLog, DamagedChunk
from forebay.budgets.ledger.chunks import Chunk
from forebay.budgets.ledger.profile import Profile
from forebay.budgets.usage import MICROSECONDS, Piece

#: Exact to the second for so long; beyond, to the minute.
EXACT: Final = 24 * 3600
_MINUTE: Final = 60
_HOUR: Final = 3600


class Outline(NamedTuple):
    """What counts when, and for which pods now; not for which pods before."""

    #: By second: changes of the rate in sixtieths, and how many pods ended.
    changes: Mapping[int, int]
    ends: Mapping[int, int]
    running: tuple[str, ...]


class Ledger:
    def __init__(self, owner: str, shelf: ChunkLog | None = None) -> None:
        self.shelf = shelf or ChunkLog(owner)
        self.profile = Profile()
        #: Of each pod, by time and without overlap. Only the last may be open.
        self._pieces: dict[str, list[Piece]] = {}
        self._open: set[str] = set()
        self._drafts: dict[str, tuple[Piece, ...]] = {}

    @classmethod
    def load(cls, owner: str, stored: Mapping[int, bytes]) -> "tuple[Ledger, tuple[DamagedChunk, ...]]":
        """From whatever was stored, by serial."""
        shelf, damages = ChunkLog.load(owner, stored)
        ledger = cls(owner, shelf)
        for chunk in shelf.chunks.values():
            ledger._restore(chunk)
        return ledger, damages

    @classmethod
    def drawn(cls, owner: str, outline: Outline) -> "Ledger":
        """One that counts the same. It is to be read, not to be kept."""
        ledger = cls(owner)
        ledger.profile.change_at_marks(outline.changes)
        for at, pods in outline.ends.items():
            ledger.profile.ended(at, pods)
        ledger._open = set(outline.running)
        return ledger

    @property
    def outline(self) -> Outline:
        return Outline(self.profile.changes, self.profile.ends, tuple(sorted(self._open)))

    def _restore(self, chunk: Chunk) -> None:
        self.profile.change_at_marks(chunk.minutes)
        for mark, pods in chunk.ends.items():
            self.profile.ended(mark, pods)
        for uid, pieces in list(chunk.records.items()):
            if uid in self._pieces:
                # Moved from one chunk to the other when the operator died in between: one copy goes.
                self.shelf.drop(uid, chunk.serial)
                self._merge(uid, pieces)
                continue
            self._pieces[uid] = pieces
            self.shelf.kept(uid, chunk.serial, pieces)
            for start, end, rate in pieces:
                self.profile.change(start, rate)
                if end is not None:
                    self.profile.change(end, -rate)
            last = pieces[-1].end
            if last is None:
                self._open.add(uid)
            else:
                self.profile.ended(last)

    def merge(self, other: "Ledger") -> None:
        """The records of another copy of this ledger. Its sums are in its chunks, and are merged by loading these."""
        for uid, pieces in other._pieces.items():  # noqa: SLF001 (of its own class)
            self._merge(uid, pieces)
        for uid, drafted in other._drafts.items():  # noqa: SLF001 (of its own class)
            self.draft(uid, drafted)

    def _merge(self, uid: str, pieces: Iterable[Piece]) -> None:
        for start, end, rate in pieces:
            if end is not None:
                self.record(uid, start, end, rate)
            elif not any(each.end is None or each.end > start for each in self._pieces.get(uid, ())):
                self.begin(uid, start, rate, start, durable=True)

    def begin(self, uid: str, since: int, rate: int, at: int, *, durable: bool = False) -> None:
        """The pod counts with this rate since then. One that counts already does so from when it did; with another
        rate it begins anew, `at` being the time of the change.

        Durable: its status alone would not tell since when, after a restart of Forebay.
        """
        pieces = self._pieces.get(uid)
        if uid in self._open and pieces:
            if pieces[-1].rate == rate:
                if durable and not self.shelf.holds(uid):
                    self.shelf.keep(uid, pieces)
                return
            self.end(uid, at)
            since, durable, pieces = max(since, at), True, self._pieces.get(uid)
        if pieces:
            since = max(since, _last_end(pieces))
            self.profile.ended(_last_end(pieces), -1)
        else:
            pieces = self._pieces[uid] = []
        pieces.append(Piece(since, None, rate))
        self._open.add(uid)
        self.profile.change(since, rate)
        if durable:
            self.shelf.keep(uid, pieces)

    def end(self, uid: str, at: int) -> None:
        """The pod counts no longer, since then; of one that did not, nothing is recorded."""
        if uid not in self._open:
            return
        self._open.discard(uid)
        pieces = self._pieces[uid]
        start, _, rate = pieces.pop()
        at = max(at, start)
        self.profile.change(at, -rate)
        if at > start:
            pieces.append(Piece(start, at, rate))
        if pieces:
            self.profile.ended(_last_end(pieces))
            self.shelf.keep(uid, pieces)
        else:
            del self._pieces[uid]
            self.shelf.drop(uid)

    def record(self, uid: str, start: int, end: int, rate: int) -> None:
        """The pod counted from then to then. What is recorded of it already stays as it is."""
        self.end(uid, end)
        pieces = self._pieces.get(uid)
        added, at = [], start
        for piece in pieces or ():
            if min(piece.start, end) > at:
                added.append(Piece(at, min(piece.start, end), rate))
            at = max(at, piece.end or at)
        if end > at:
            added.append(Piece(at, end, rate))
        if not added:
            return
        if pieces is None:
            pieces = self._pieces[uid] = []
        else:
            self.profile.ended(_last_end(pieces), -1)
        for each in added:
            self.profile.change(each.start, rate)
            self.profile.change(each.end or end, -rate)
        pieces.extend(added)
        pieces.sort()
        _join(pieces)
        self.profile.ended(_last_end(pieces))
        self.shelf.keep(uid, pieces)

    def draft(self, uid: str, pieces: Sequence[Piece]) -> None:
        """What counts for now, instead of what was drafted before. It is never stored, and says nothing of `uid`."""
        before, after = self._drafts.get(uid, ()), tuple(pieces)
        if before == after:
            return
        for sign, drafted in ((-1, before), (1, after)):
            for start, end, rate in drafted:
                self.profile.change(start, sign * rate)
                if end is not None:
                    self.profile.change(end, -sign * rate)
        if after:
            self._drafts[uid] = after
        else:
            del self._drafts[uid]

    @property
    def is_blank(self) -> bool:
        """Nothing counts, and nothing has in any time that is remembered."""
        return not self._pieces and not self._drafts and self.profile.is_blank

    def close_missing(self, visible: Collection[str]) -> None:
        """Pods that were running when this was stored and are not there any more: nobody saw them end, so they count
        until the last moment at which they were known to run.
        """
        for uid in [each for each in self._open if each not in visible and self.shelf.holds(each)]:
            self.end(uid, self.shelf.saved(uid))

    def pieces(self, uid: str) -> tuple[Piece, ...]:
        return tuple(self._pieces.get(uid, ()))

    @property
    def running(self) -> Collection[str]:
        """UIDs of the pods that count now."""
        return self._open

    def consumed(self, now: int, window: int) -> int:
        """In the window that ends now; all in microseconds."""
        return self.profile.between(now - window, now)

    def consumed_by(self, uid: str, now: int, window: int) -> int:
        total = 0
        for start, end, rate in self._pieces.get(uid, ()):
            until = now if end is None else min(end * MICROSECONDS, now)
            total += rate * max(until - max(start * MICROSECONDS, now - window), 0)
        return total

    def tracked(self, now: int, window: int) -> int:
        """Pods that have used anything in the window or do so now."""
        return len(self._open) + self.profile.ends_after(now - window)

    def is_durable(self, uid: str) -> bool:
        """All its time is stored as it is now: the pod may go."""
        return uid not in self._open and self.shelf.is_stored(uid)

    def compact(self, now: int, window: int, visible: Collection[str]) -> bool:
        """Adds up, by the minute, what ended more than a day ago, and forgets what has left the window.

        `visible` are the UIDs of all pods that are there: as long as one can be seen its record stays, lest it be
        counted again. Only with a complete view. All in seconds. False: there was nothing to do, or what the last
        compaction replaced is not deleted yet.
        """
        shelf = self.shelf
        if not shelf.may_replace:
            return False
        self.profile.forget_before(now - window - _HOUR)
        floor = self.profile.floor
        past = {serial: self._past(chunk, now - EXACT, visible) for serial, chunk in shelf.chunks.items()}
        chosen = {
            serial
            for serial, chunk in shelf.chunks.items()
            if len(past[serial]) * 2 > len(chunk.records) or min(chunk.minutes, default=floor) < floor - EXACT
        }
        if not chosen:
            return False
        with_room = shelf.sums()
        if with_room is not None:
            chosen.add(with_room)
        records: dict[str, list[Piece]] = {}
        minutes: dict[int, int] = {}
        ends: dict[int, int] = {}
        for serial in sorted(chosen):
            chunk = shelf.take(serial)
            for mark, part in chunk.minutes.items():
                minutes[max(mark, floor)] = minutes.get(max(mark, floor), 0) + part
            for mark, pods in chunk.ends.items():
                if mark >= floor:
                    ends[mark] = ends.get(mark, 0) + pods
            for uid, pieces in chunk.records.items():
                if uid in past[serial]:
                    self._add_up(self._pieces.pop(uid), minutes, ends)
                else:
                    records[uid] = pieces
        shelf.put(records, minutes, ends)
        return True

    def _past(self, chunk: Chunk, cutoff: int, visible: Collection[str]) -> set[str]:
        return {
            uid
            for uid, pieces in chunk.records.items()
            if uid not in self._open and uid not in visible and _last_end(pieces) <= cutoff
        }

    def _add_up(self, pieces: list[Piece], minutes: dict[int, int], ends: dict[int, int]) -> None:
        profile, last = self.profile, _last_end(pieces)
        for start, end, rate in pieces:
            for at, change in ((start, rate), (last if end is None else end, -rate)):
                profile.change(at, -change)
                shares = dict(profile.shared_out(at, change))
                profile.change_at_marks(shares)
                for mark, part in shares.items():
                    minutes[mark] = minutes.get(mark, 0) + part
        profile.ended(last, -1)
        mark = -(-last // _MINUTE) * _MINUTE
        if mark >= profile.floor:
            profile.ended(mark)
            ends[mark] = ends.get(mark, 0) + 1


def _join(pieces: list[Piece]) -> None:
    """What follows at the same rate is one."""
    joined = pieces[:1]
    for piece in pieces[1:]:
        last = joined[-1]
        if (last.end, last.rate) == (piece.start, piece.rate):
            joined[-1] = Piece(last.start, piece.end, last.rate)
        else:
            joined.append(piece)
    if len(joined) < len(pieces):
        pieces[:] = joined


def _last_end(pieces: list[Piece]) -> int:
    end = pieces[-1].end
    assert end is not None
    return end
