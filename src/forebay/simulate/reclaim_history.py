"""How often spot machines were taken back, by records of how many could be had in a zone over time.

One JSON object a line, as the spot traces of SkyPilot ("Can't Be Late", NSDI 2024) have them with their lengths run
together: `gap_seconds` is the time between two looks, `rle_available` a list of [machines, looks] in order of time, and
`gpu` the model.
"""

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

import msgspec


class ReclaimError(ValueError):
    """The file has no such records. The text says why."""


class ReclaimRate(NamedTuple):
    """What was measured."""

    #: Of one machine, in an hour.
    hourly: float
    reclaims: int
    machine_hours: float
    records: int


class _Record(msgspec.Struct, frozen=True):
    gap_seconds: int
    rle_available: list[tuple[int, int]]
    gpu: str = ""


def reclaim_rate(lines: Iterable[str], models: Collection[str] = ()) -> ReclaimRate:
    """Over all records, or where some are of these models over those. Raises `ReclaimError`."""
    try:
        records = [msgspec.json.decode(line, type=_Record) for line in lines if line.strip()]
    except msgspec.MsgspecError as error:
        raise ReclaimError(f"a line cannot be read: {error}") from error
    chosen = [each for each in records if each.gpu in models] or records
    # Who has several machines loses each of those that go.
    reclaims = sum(
        max(before - after, 0) for each in chosen for (before, _), (after, _) in pairwise(each.rle_available)
    )
    seconds = sum(machines * looks * each.gap_seconds for each in chosen for machines, looks in each.rle_available)
    if seconds <= 0:
        raise ReclaimError("it has no machine that could be had at any time")
    return ReclaimRate(reclaims * 3600 / seconds, reclaims, seconds / 3600, len(chosen))
