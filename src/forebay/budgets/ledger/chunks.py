"""The stored form of a ledger: chunks of bytes, each small enough for one Kubernetes object and valid by itself.

A chunk is `FBL`, the version, a digest of the rest, and the rest: msgpack, compressed. Whoever reads one gets either
what was written or a sentence that says what is wrong with it.
"""

import zlib
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import gcd
from typing import Final

import msgspec

from forebay.budgets.usage import Piece

MAGIC: Final = b"FBL"
VERSION: Final = 1
_DIGEST: Final = 8
_HEADER: Final = len(MAGIC) + 1 + _DIGEST
_UID: Final = 16

#: A chunk of records is closed at this size: every record added to it before is a write of the whole.
FULL: Final = 128 * 1024
#: No chunk is larger: 512 KiB as base64, which is how JSON carries bytes, with room for the rest of the object.
LARGEST: Final = 380 * 1024
#: What a record (uid, start, length, rate), a minute (mark, change) and an end (mark, pods) take before compression,
#: at most; a price has up to 27 digits.
RECORD_BYTES: Final = 38 + 5 + 5 + 27
MINUTE_BYTES: Final = 5 + 27
END_BYTES: Final = 5 + 5

_SMALL: Final = range(-(2**63), 2**63)


class UnreadableChunk(ValueError):
    """Says what is wrong with a chunk, and what to do."""


class Chunk(msgspec.Struct, kw_only=True):
    """What one stored object holds."""

    #: UID of the budget (or of whatever the ledger is of): another's chunk must not count here.
    owner: str
    serial: int
    #: It was made together with others and counts only together with them: the first serial of all, and how many.
    group: tuple[int, int]
    #: Chunks whose content is in this group now. They do not count any more, whether or not they are still there.
    replaces: tuple[int, ...] = ()
    #: In seconds: what is open in it was so at least until then.
    saved: int = 0
    records: dict[str, list[Piece]] = {}
    #: By minute mark: changes of the rate in sixtieths.
    minutes: dict[int, int] = {}
    #: By minute mark: how many pods had ended.
    ends: dict[int, int] = {}

    @property
    def size(self) -> int:
        """At least as much as it takes encoded."""
        records = sum(map(len, self.records.values()))
        sums = len(self.minutes) * MINUTE_BYTES + len(self.ends) * END_BYTES
        return 256 + records * RECORD_BYTES + sums + len(self.replaces) * 5


class _Body(msgspec.Struct, array_like=True):
    """In columns, which compress well. Times are differences from one row to the next; a length of -1 is still open."""

    owner: str
    serial: int
    group: tuple[int, int]
    replaces: tuple[int, ...]
    saved: int
    #: Divides all rates.
    unit: int | str
    uids: bytes
    #: UIDs that are not UUIDs, by row.
    named: dict[int, str]
    starts: list[int]
    lengths: list[int]
    rates: list[int | str]
    marks: list[int]
    changes: list[int | str]
    end_marks: list[int]
    end_counts: list[int]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Body)


def encode(chunk: Chunk) -> bytes:
    rows = sorted((piece, uid) for uid, pieces in chunk.records.items() for piece in map(_sortable, pieces))
    unit = gcd(*(piece[2] for piece, _ in rows), *chunk.minutes.values()) or 1
    uids, named = _packed([uid for _, uid in rows])
    marks = sorted(chunk.minutes)
    end_marks = sorted(chunk.ends)
    body = _encoder.encode(
        _Body(
            owner=chunk.owner,
            serial=chunk.serial,
            group=chunk.group,
            replaces=chunk.replaces,
            saved=chunk.saved,
            unit=_whole(unit),
            uids=uids,
            named=named,
            starts=_differences([piece[0] for piece, _ in rows]),
            lengths=[piece[1] for piece, _ in rows],
            rates=[_whole(piece[2] // unit) for piece, _ in rows],
            marks=_differences([mark // 60 for mark in marks]),
            changes=[_whole(chunk.minutes[mark] // unit) for mark in marks],
            end_marks=_differences([mark // 60 for mark in end_marks]),
            end_counts=[chunk.ends[mark] for mark in end_marks],
        )
    )
    packed = zlib.compress(body, 6)
    return MAGIC + bytes([VERSION]) + _digest(packed) + packed


def decode(data: bytes) -> Chunk:
    """Raises `Damaged`."""
    if len(data) < _HEADER or data[:3] != MAGIC:
        raise UnreadableChunk("it is not a chunk of a ledger, or only the beginning of one")
    if data[3] != VERSION:
        raise UnreadableChunk(f"it has version {data[3]} and this release reads version {VERSION}: upgrade Forebay")
    packed = data[_HEADER:]
    if data[4:_HEADER] != _digest(packed):
        raise UnreadableChunk("its checksum does not match its content")
    try:
        body = _decoder.decode(zlib.decompress(packed))
        return _chunk(body)
    except (zlib.error, msgspec.MsgspecError, ValueError, IndexError) as error:
        raise UnreadableChunk(f"its content cannot be read ({error})") from None


def _chunk(body: _Body) -> Chunk:
    unit = int(body.unit)
    chunk = Chunk(
        owner=body.owner,
        serial=body.serial,
        group=body.group,
        replaces=body.replaces,
        saved=body.saved,
        records={},
        minutes={mark * 60: int(change) * unit for mark, change in zip(_sums(body.marks), body.changes, strict=True)},
        ends={mark * 60: count for mark, count in zip(_sums(body.end_marks), body.end_counts, strict=True)},
    )
    uids = _unpacked(body.uids, body.named, len(body.starts))
    for uid, start, length, rate in zip(uids, _sums(body.starts), body.lengths, body.rates, strict=True):
        end = None if length < 0 else start + length
        chunk.records.setdefault(uid, []).append(Piece(start, end, int(rate) * unit))
    return chunk


def _sortable(piece: Piece) -> tuple[int, int, int]:
    return piece.start, -1 if piece.end is None else piece.end - piece.start, piece.rate


def _whole(number: int) -> int | str:
    """Prices have more digits than msgpack's integers."""
    return number if number in _SMALL else str(number)


def _differences(values: Iterable[int]) -> list[int]:
    last, found = 0, []
    for value in values:
        found.append(value - last)
        last = value
    return found


def _sums(differences: Iterable[int]) -> list[int]:
    last, found = 0, []
    for difference in differences:
        last += difference
        found.append(last)
    return found


def _packed(uids: Iterable[str]) -> tuple[bytes, dict[int, str]]:
    packed, named = [], {}
    for row, uid in enumerate(uids):
        digits = uid.replace("-", "")
        try:
            raw = bytes.fromhex(digits)
        except ValueError:
            raw = b""
        if len(raw) == _UID and _uuid(raw) == uid:
            packed.append(raw)
        else:
            named[row] = uid
    return b"".join(packed), named


def _unpacked(packed: bytes, named: Mapping[int, str], rows: int) -> list[str]:
    if len(packed) != (rows - len(named)) * _UID:
        raise ValueError("the UIDs do not match the records")
    cut = iter(range(0, len(packed), _UID))
    found = []
    for row in range(rows):
        name = named.get(row)
        if name is None:
            at = next(cut)
            name = _uuid(packed[at : at + _UID])
        found.append(name)
    return found


def _uuid(raw: bytes) -> str:
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _digest(packed: bytes) -> bytes:
    return blake2b(packed, digest_size=_DIGEST).digest()
