"""Encoding of chunks, the stored form of a ledger: each fits into one Kubernetes object and is valid by itself.

An encoded chunk is `FBL`, the format version, a digest of the body, and the body: compressed msgpack. Decoding gives
either what was written or an error that says what is wrong.
"""

import zlib
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import gcd
from typing import Final

import msgspec

from forebay.budgets.usage import Interval

MAGIC: Final = b"FBL"
CHUNK_VERSION: Final = 1
_DIGEST: Final = 8
_HEADER: Final = len(MAGIC) + 1 + _DIGEST
_UID: Final = 16

#: A chunk takes no more entries at this size: every added entry writes the whole chunk again.
FULL_BYTES: Final = 128 * 1024
#: Largest size of a chunk: 512 KiB as base64, which is how JSON carries bytes, with room for the rest of the object.
MAX_BYTES: Final = 380 * 1024
#: Largest size before compression of an interval (uid, start, length, rate), a minute (mark, change) and an end (mark,
#: pods); a price has up to 27 digits.
ENTRY_BYTES: Final = 38 + 5 + 5 + 27
MINUTE_BYTES: Final = 5 + 27
END_BYTES: Final = 5 + 5

_SMALL: Final = range(-(2**63), 2**63)


class UnreadableChunk(ValueError):
    """Chunk that cannot be decoded; the message says what is wrong."""


class Chunk(msgspec.Struct, kw_only=True):
    """Content of one stored object: a part of a ledger."""

    #: UID of the budget, or the owner of another ledger: a chunk counts only in the ledger of its owner.
    owner: str
    serial: int
    #: Group of chunks that count only together: the first serial, and the number of chunks.
    group: tuple[int, int]
    #: Serials of chunks whose content is now in this group. They no longer count, even while they exist.
    replaces: tuple[int, ...] = ()
    #: When the chunk was written, in seconds: open intervals were open at least until then.
    saved: int = 0
    #: Intervals by pod UID.
    entries: dict[str, list[Interval]] = {}
    #: Changes of the rate in sixtieths, by minute mark.
    minutes: dict[int, int] = {}
    #: Number of pods that ended, by minute mark.
    ends: dict[int, int] = {}

    @property
    def size(self) -> int:
        """Upper bound of the encoded size in bytes."""
        intervals = sum(map(len, self.entries.values()))
        sums = len(self.minutes) * MINUTE_BYTES + len(self.ends) * END_BYTES
        return 256 + intervals * ENTRY_BYTES + sums + len(self.replaces) * 5


class _Body(msgspec.Struct, array_like=True):
    """Chunk in columns, which compress well. Times are differences between rows; a length of -1 is an open interval."""

    owner: str
    serial: int
    group: tuple[int, int]
    replaces: tuple[int, ...]
    saved: int
    #: Common divisor of all rates.
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


def encode_chunk(chunk: Chunk) -> bytes:
    rows = sorted((interval, uid) for uid, intervals in chunk.entries.items() for interval in map(_sortable, intervals))
    unit = gcd(*(interval[2] for interval, _ in rows), *chunk.minutes.values()) or 1
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
            starts=_differences([interval[0] for interval, _ in rows]),
            lengths=[interval[1] for interval, _ in rows],
            rates=[_whole(interval[2] // unit) for interval, _ in rows],
            marks=_differences([mark // 60 for mark in marks]),
            changes=[_whole(chunk.minutes[mark] // unit) for mark in marks],
            end_marks=_differences([mark // 60 for mark in end_marks]),
            end_counts=[chunk.ends[mark] for mark in end_marks],
        )
    )
    packed = zlib.compress(body, 6)
    return MAGIC + bytes([CHUNK_VERSION]) + _digest(packed) + packed


def decode_chunk(data: bytes) -> Chunk:
    """Decoded chunk. Raises `UnreadableChunk`."""
    if len(data) < _HEADER or data[:3] != MAGIC:
        raise UnreadableChunk("the data is not a ledger chunk, or is truncated")
    if data[3] != CHUNK_VERSION:
        raise UnreadableChunk(
            f"the format is version {data[3]} and this release reads version {CHUNK_VERSION}: upgrade Forebay"
        )
    packed = data[_HEADER:]
    if data[4:_HEADER] != _digest(packed):
        raise UnreadableChunk("the checksum does not match the content")
    try:
        body = _decoder.decode(zlib.decompress(packed))
        return _chunk(body)
    except (zlib.error, msgspec.MsgspecError, ValueError, IndexError) as error:
        raise UnreadableChunk(f"the content cannot be decoded ({error})") from None


def _chunk(body: _Body) -> Chunk:
    unit = int(body.unit)
    chunk = Chunk(
        owner=body.owner,
        serial=body.serial,
        group=body.group,
        replaces=body.replaces,
        saved=body.saved,
        entries={},
        minutes={mark * 60: int(change) * unit for mark, change in zip(_sums(body.marks), body.changes, strict=True)},
        ends={mark * 60: count for mark, count in zip(_sums(body.end_marks), body.end_counts, strict=True)},
    )
    uids = _unpacked(body.uids, body.named, len(body.starts))
    for uid, start, length, rate in zip(uids, _sums(body.starts), body.lengths, body.rates, strict=True):
        end = None if length < 0 else start + length
        chunk.entries.setdefault(uid, []).append(Interval(start, end, int(rate) * unit))
    return chunk


def _sortable(interval: Interval) -> tuple[int, int, int]:
    return interval.start, -1 if interval.end is None else interval.end - interval.start, interval.rate


def _whole(number: int) -> int | str:
    """Number as msgpack can store it: prices have more digits than its integers."""
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
        raise ValueError("the UIDs do not match the entries")
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
