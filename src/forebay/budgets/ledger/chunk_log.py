"""Log of the chunks that a ledger is stored in, with an order of writes that is safe to interrupt anywhere.

Entries may be stored twice, because a pod's usage counts once however often it is recorded. Sums may not: a chunk names
the chunks it replaces, and a group of chunks that replaces others counts only when it is complete.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from forebay.budgets.ledger.chunks import (
    END_BYTES,
    ENTRY_BYTES,
    FULL_BYTES,
    MAX_BYTES,
    MINUTE_BYTES,
    Chunk,
    UnreadableChunk,
    decode_chunk,
    encode_chunk,
)
from forebay.budgets.usage import Interval

_MAX_ENTRIES: Final = FULL_BYTES // ENTRY_BYTES
#: Most minutes in a chunk, beside the most entries, before another chunk is begun.
_MAX_MINUTES: Final = (MAX_BYTES - FULL_BYTES - 1024) // (MINUTE_BYTES + END_BYTES)


class ChunkWrite(msgspec.Struct, frozen=True):
    """Chunk to store, in encoded form. `revision` tells whether the chunk has changed since."""

    serial: int
    data: bytes
    revision: int


class DamagedChunk(msgspec.Struct, frozen=True):
    """Stored chunk that is ignored, and a sentence that says why and what to do."""

    serial: int
    sentence: str


class ChunkLog:
    """Chunks of one ledger by serial, and which of them must be written or deleted."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.chunks: dict[int, Chunk] = {}
        #: Serial of the chunk that holds the entry of each pod.
        self._serial_of: dict[str, int] = {}
        #: Serial of the chunk that takes new entries.
        self._current: int | None = None
        self._next = 1
        #: Chunks to write, with the revision of their latest change.
        self._changed: dict[int, int] = {}
        self._revision = 0
        #: Chunks that may be stored, including those whose write has an unknown outcome.
        self._stored: set[int] = set()
        #: Stored chunks that are replaced, and the replacements whose write is not confirmed yet.
        self._obsolete: set[int] = set()
        self._unconfirmed: set[int] = set()

    @classmethod
    def load(cls, owner: str, stored: Mapping[int, bytes]) -> "tuple[ChunkLog, tuple[DamagedChunk, ...]]":
        """Log from stored chunks by serial, without the chunks that cannot be read, which are returned beside it."""
        log, damaged, chunks = cls(owner), [], {}
        for serial, data in sorted(stored.items()):
            try:
                chunk = decode_chunk(data)
            except UnreadableChunk as error:
                damaged.append(DamagedChunk(serial, _sentence(serial, str(error))))
                continue
            if (chunk.owner, chunk.serial) == (owner, serial):
                chunks[serial] = chunk
            else:
                problem = f"its data is chunk {chunk.serial} of {chunk.owner}"
                damaged.append(DamagedChunk(serial, _sentence(serial, problem)))
        dropped = {serial for serial, chunk in chunks.items() if _unfinished(chunk, stored)}
        for serial, chunk in chunks.items():
            if serial not in dropped:
                dropped.update(each for each in chunk.replaces if each in stored)
        log.chunks = {serial: chunk for serial, chunk in chunks.items() if serial not in dropped}
        log._stored = set(stored)
        log._obsolete = dropped
        log._next = max(stored, default=0) + 1
        for serial, chunk in log.chunks.items():
            if chunk.group[1] == 1 and not chunk.replaces:
                log._current = serial
        return log, tuple(each for each in damaged if each.serial not in dropped)

    def put(self, uid: str, intervals: list[Interval]) -> None:
        """Store the intervals of a pod with the next write. The list is not copied: call again when it changes."""
        serial = self._serial_of.get(uid)
        if serial is None:
            chunk = self.chunks.get(self._current or 0)
            if chunk is None or len(chunk.entries) >= _MAX_ENTRIES:
                chunk = self._new()
                self._current = chunk.serial
            serial = self._serial_of[uid] = chunk.serial
            chunk.entries[uid] = intervals
        self._mark_changed(serial)

    def place(self, uid: str, serial: int, intervals: list[Interval]) -> None:
        """Note that the intervals of a pod are in this chunk."""
        self._serial_of[uid] = serial
        self.chunks[serial].entries[uid] = intervals

    def remove(self, uid: str, serial: int | None = None) -> None:
        """Remove the entry of a pod from its chunk, or a second copy from the chunk with this serial."""
        if serial is None:
            serial = self._serial_of.pop(uid, None)
        if serial is not None:
            self.chunks[serial].entries.pop(uid, None)
            self._mark_changed(serial)

    def has(self, uid: str) -> bool:
        """Whether some chunk holds an entry of the pod."""
        return uid in self._serial_of

    def last_written(self, uid: str) -> int:
        """Time at which the chunk of this pod was last written."""
        return self.chunks[self._serial_of[uid]].saved

    def is_stored(self, uid: str) -> bool:
        """Whether the entry of a pod is stored in its present state."""
        return self._serial_of.get(uid, 0) not in self._changed

    def _new(self) -> Chunk:
        serial = self._next
        self._next += 1
        chunk = Chunk(owner=self.owner, serial=serial, group=(serial, 1), entries={}, minutes={}, ends={})
        self.chunks[serial] = chunk
        return chunk

    def _mark_changed(self, serial: int) -> None:
        self._revision += 1
        self._changed[serial] = self._revision

    @property
    def pending(self) -> bool:
        """Whether a chunk must be written or deleted."""
        return bool(self._changed) or bool(self.obsolete())

    def writes(self, now: int) -> list[ChunkWrite]:
        """Chunks to store, in this order."""
        for serial in list(self._changed):
            if self.chunks[serial].size > MAX_BYTES:
                self._split(serial)
        return list(self._writes(now))

    def _writes(self, now: int) -> Iterator[ChunkWrite]:
        # A chunk that takes over entries is stored before the chunk it takes them from, which has a smaller serial.
        for serial in sorted(self._changed, reverse=True):
            chunk = self.chunks[serial]
            chunk.saved = now
            self._stored.add(serial)
            yield ChunkWrite(serial, encode_chunk(chunk), self._changed[serial])

    def _split(self, serial: int) -> None:
        """Move half of the entries to a new chunk: pods whose labels change all day may outgrow their chunk."""
        chunk = self.chunks[serial]
        moving = list(islice(chunk.entries, len(chunk.entries) // 2))
        if moving:
            other = self._new()
            for uid in moving:
                other.entries[uid] = chunk.entries.pop(uid)
                self._serial_of[uid] = other.serial
            self._mark_changed(other.serial)

    def wrote(self, write: ChunkWrite) -> None:
        """Note that a chunk is stored."""
        self._unconfirmed.discard(write.serial)
        if self._changed.get(write.serial) == write.revision:
            del self._changed[write.serial]

    def lost(self, serials: Collection[int]) -> tuple[int, ...]:
        """Note that stored chunks were deleted by somebody else; returns those that must be written again."""
        for serial in serials:
            if serial in self.chunks:
                self._mark_changed(serial)
            else:
                self.deleted(serial)
        return tuple(sorted(serial for serial in serials if serial in self.chunks))

    def obsolete(self) -> tuple[int, ...]:
        """Serials of stored chunks that may be deleted, because their replacements are stored."""
        return () if self._unconfirmed else tuple(sorted(self._obsolete))

    def deleted(self, serial: int) -> None:
        self._obsolete.discard(serial)
        self._stored.discard(serial)

    @property
    def may_replace(self) -> bool:
        """Whether all replaced chunks are deleted: a chunk must not outlive the replacement of its replacement."""
        return not self._obsolete

    def with_room_for_sums(self) -> int | None:
        """Serial of a chunk with room for more sums by the minute."""
        found = [
            serial
            for serial, chunk in self.chunks.items()
            if len(chunk.minutes) < _MAX_MINUTES and (chunk.minutes or not chunk.entries)
        ]
        return found[-1] if found else None

    def take_out(self, serial: int) -> Chunk:
        """Take a chunk out of the log. The caller passes its content to `replace_with`."""
        chunk = self.chunks.pop(serial)
        self._changed.pop(serial, None)
        for uid in chunk.entries:
            del self._serial_of[uid]
        if serial in self._stored:
            self._obsolete.add(serial)
        if serial == self._current:
            self._current = None
        return chunk

    def replace_with(
        self, entries: dict[str, list[Interval]], minutes: Mapping[int, int], ends: Mapping[int, int]
    ) -> None:
        """Make new chunks in place of those taken out. Several chunks form a group that counts only complete."""
        replaces = tuple(sorted(self._obsolete))
        marks = sorted(mark for mark in minutes.keys() | ends.keys() if minutes.get(mark) or ends.get(mark))
        uids = list(entries)
        count = max(-(-len(marks) // _MAX_MINUTES), -(-len(uids) // _MAX_ENTRIES), 1 if replaces else 0)
        first = self._next
        for index in range(count):
            chunk = self._new()
            chunk.group, chunk.replaces = (first, count), replaces
            for mark in marks[index * _MAX_MINUTES : (index + 1) * _MAX_MINUTES]:
                if minutes.get(mark):
                    chunk.minutes[mark] = minutes[mark]
                if ends.get(mark):
                    chunk.ends[mark] = ends[mark]
            for uid in uids[index * _MAX_ENTRIES : (index + 1) * _MAX_ENTRIES]:
                self.place(uid, chunk.serial, entries[uid])
            self._mark_changed(chunk.serial)
            self._unconfirmed.add(chunk.serial)


def _unfinished(chunk: Chunk, stored: Collection[int]) -> bool:
    """Whether a chunk's group is incomplete while chunks that the group replaces still exist."""
    first, count = chunk.group
    missing = any(serial not in stored for serial in range(first, first + count))
    return missing and any(serial in stored for serial in chunk.replaces)


def _sentence(serial: int, problem: str) -> str:
    return (
        f"Chunk {serial} of the ledger is ignored: {problem}. All other chunks count, and pods that still exist are "
        "counted again. Restore the chunk's ConfigMap from a backup, or delete the ConfigMap to accept the loss."
    )
