"""Where a ledger is kept: chunks with serial numbers, in an order of writes that is true wherever it is broken off.

Records may be stored twice, because a pod's time is counted once however often it is recorded. Sums may not: a chunk
names those it replaces, and chunks that replace others together count only when all of them are there.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from forebay.budgets.ledger.chunks import (
    END_BYTES,
    FULL,
    LARGEST,
    MINUTE_BYTES,
    RECORD_BYTES,
    Chunk,
    UnreadableChunk,
    decode,
    encode,
)
from forebay.budgets.usage import Piece

_RECORDS: Final = FULL // RECORD_BYTES
#: Minutes in a chunk, beside so many records, before it is left as it is and another one begun.
_SUMS: Final = (LARGEST - FULL - 1024) // (MINUTE_BYTES + END_BYTES)


class ChunkWrite(msgspec.Struct, frozen=True):
    """One chunk to store."""

    serial: int
    data: bytes
    revision: int


class DamagedChunk(msgspec.Struct, frozen=True):
    """A stored chunk that does not count, and what to do about it."""

    serial: int
    sentence: str


class ChunkLog:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.chunks: dict[int, Chunk] = {}
        self._home: dict[str, int] = {}
        #: Where new records go.
        self._tail: int | None = None
        self._next = 1
        #: Chunks to be written, and the latest change of each.
        self._changed: dict[int, int] = {}
        self._revision = 0
        #: Chunks that may be stored: also those of which nobody knows whether their write succeeded.
        self._stored: set[int] = set()
        #: Replaced ones among them, and the replacements that are not known to be stored yet.
        self._obsolete: set[int] = set()
        self._awaited: set[int] = set()

    @classmethod
    def load(cls, owner: str, stored: Mapping[int, bytes]) -> "tuple[ChunkLog, tuple[DamagedChunk, ...]]":
        """A chunk that cannot be read is left out, and the others still count."""
        shelf, damages, chunks = cls(owner), [], {}
        for serial, data in sorted(stored.items()):
            try:
                chunk = decode(data)
            except UnreadableChunk as damage:
                damages.append(DamagedChunk(serial, _sentence(serial, str(damage))))
                continue
            if (chunk.owner, chunk.serial) == (owner, serial):
                chunks[serial] = chunk
            else:
                damages.append(DamagedChunk(serial, _sentence(serial, f"it is chunk {chunk.serial} of {chunk.owner}")))
        dropped = {serial for serial, chunk in chunks.items() if _unfinished(chunk, stored)}
        for serial, chunk in chunks.items():
            if serial not in dropped:
                dropped.update(each for each in chunk.replaces if each in stored)
        shelf.chunks = {serial: chunk for serial, chunk in chunks.items() if serial not in dropped}
        shelf._stored = set(stored)
        shelf._obsolete = dropped
        shelf._next = max(stored, default=0) + 1
        for serial, chunk in shelf.chunks.items():
            if chunk.group[1] == 1 and not chunk.replaces:
                shelf._tail = serial
        return shelf, tuple(damage for damage in damages if damage.serial not in dropped)

    def keep(self, uid: str, pieces: list[Piece]) -> None:
        """Store these, and store them again whenever this is called again: the list is kept as it is."""
        home = self._home.get(uid)
        if home is None:
            chunk = self.chunks.get(self._tail or 0)
            if chunk is None or len(chunk.records) >= _RECORDS:
                chunk = self._new()
                self._tail = chunk.serial
            home = self._home[uid] = chunk.serial
            chunk.records[uid] = pieces
        self._touch(home)

    def kept(self, uid: str, serial: int, pieces: list[Piece]) -> None:
        """They are in this chunk already."""
        self._home[uid] = serial
        self.chunks[serial].records[uid] = pieces

    def drop(self, uid: str, serial: int | None = None) -> None:
        """From its chunk, or a second copy from another one."""
        home = self._home.pop(uid, None) if serial is None else serial
        if home is not None:
            self.chunks[home].records.pop(uid, None)
            self._touch(home)

    def holds(self, uid: str) -> bool:
        return uid in self._home

    def saved(self, uid: str) -> int:
        """When the chunk of this pod was last written."""
        return self.chunks[self._home[uid]].saved

    def is_stored(self, uid: str) -> bool:
        """As it is now."""
        return self._home.get(uid, 0) not in self._changed

    def _new(self) -> Chunk:
        serial = self._next
        self._next += 1
        chunk = Chunk(owner=self.owner, serial=serial, group=(serial, 1), records={}, minutes={}, ends={})
        self.chunks[serial] = chunk
        return chunk

    def _touch(self, serial: int) -> None:
        self._revision += 1
        self._changed[serial] = self._revision

    @property
    def pending(self) -> bool:
        """Something is to be stored, or to be deleted."""
        return bool(self._changed) or bool(self.obsolete())

    def writes(self, now: int) -> list[ChunkWrite]:
        """What must be stored, in this order, for everything to be durable as it is."""
        for serial in list(self._changed):
            if self.chunks[serial].size > LARGEST:
                self._divide(serial)
        return list(self._writes(now))

    def _writes(self, now: int) -> Iterator[ChunkWrite]:
        # A chunk that takes records over is stored before the one it takes them from, which has the smaller serial.
        for serial in sorted(self._changed, reverse=True):
            chunk = self.chunks[serial]
            chunk.saved = now
            self._stored.add(serial)
            yield ChunkWrite(serial, encode(chunk), self._changed[serial])

    def _divide(self, serial: int) -> None:
        """Pods whose labels change all day may outgrow their chunk."""
        chunk = self.chunks[serial]
        moving = list(islice(chunk.records, len(chunk.records) // 2))
        if moving:
            other = self._new()
            for uid in moving:
                other.records[uid] = chunk.records.pop(uid)
                self._home[uid] = other.serial
            self._touch(other.serial)

    def wrote(self, write: ChunkWrite) -> None:
        self._awaited.discard(write.serial)
        if self._changed.get(write.serial) == write.revision:
            del self._changed[write.serial]

    def obsolete(self) -> tuple[int, ...]:
        """Stored chunks that may be deleted, because all that replaces them is stored."""
        return () if self._awaited else tuple(sorted(self._obsolete))

    def deleted(self, serial: int) -> None:
        self._obsolete.discard(serial)
        self._stored.discard(serial)

    @property
    def may_replace(self) -> bool:
        """What was replaced last is deleted: a chunk must not outlive the replacement of its replacement."""
        return not self._obsolete

    def sums(self) -> int | None:
        """The chunk that has room for more sums by the minute."""
        found = [
            serial
            for serial, chunk in self.chunks.items()
            if len(chunk.minutes) < _SUMS and (chunk.minutes or not chunk.records)
        ]
        return found[-1] if found else None

    def take(self, serial: int) -> Chunk:
        """A chunk that will be replaced: `put` what was in it."""
        chunk = self.chunks.pop(serial)
        self._changed.pop(serial, None)
        for uid in chunk.records:
            del self._home[uid]
        if serial in self._stored:
            self._obsolete.add(serial)
        if serial == self._tail:
            self._tail = None
        return chunk

    def put(self, records: dict[str, list[Piece]], minutes: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """In place of all that were taken. Several chunks count only together: none alone holds all that these did."""
        replaces = tuple(sorted(self._obsolete))
        marks = sorted(mark for mark in minutes.keys() | ends.keys() if minutes.get(mark) or ends.get(mark))
        uids = list(records)
        count = max(-(-len(marks) // _SUMS), -(-len(uids) // _RECORDS), 1 if replaces else 0)
        first = self._next
        for index in range(count):
            chunk = self._new()
            chunk.group, chunk.replaces = (first, count), replaces
            for mark in marks[index * _SUMS : (index + 1) * _SUMS]:
                if minutes.get(mark):
                    chunk.minutes[mark] = minutes[mark]
                if ends.get(mark):
                    chunk.ends[mark] = ends[mark]
            for uid in uids[index * _RECORDS : (index + 1) * _RECORDS]:
                self.kept(uid, chunk.serial, records[uid])
            self._touch(chunk.serial)
            self._awaited.add(chunk.serial)


def _unfinished(chunk: Chunk, stored: Collection[int]) -> bool:
    """Its group was being written when the operator died, and what it was to replace is still there."""
    first, count = chunk.group
    missing = any(serial not in stored for serial in range(first, first + count))
    return missing and any(serial in stored for serial in chunk.replaces)


def _sentence(serial: int, problem: str) -> str:
    return (
        f"Chunk {serial} of the ledger does not count: {problem}. The other chunks do, and pods of it that are still "
        "there are counted again. Restore its ConfigMap from a backup, or delete it to accept the loss."
    )
