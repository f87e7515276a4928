"""Keys of the bill for all machines, and how costs are recorded in the ledger of a key."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import Interval
from forebay.model.quantities import Usd, UsdPerHour

HOUR: Final = 3600


class BillKey(NamedTuple):
    """Namespace, pool and class that a cost belongs to; the bill has one ledger of dollars for each such key.

    `namespace` is empty for unallocated cost, `pool` and `node_class` for a machine without one.
    """

    namespace: str
    pool: str
    node_class: str

    @property
    def owner(self) -> str:
        """Owner of the stored ledger, from which `parse` reads the key; none of the fields can contain a space."""
        return f"spend {self.namespace} {self.pool} {self.node_class}"

    @property
    def uid(self) -> str:
        return digest(self.owner)

    @classmethod
    def parse(cls, owner: str) -> "BillKey | None":
        kind, *parts = owner.split(" ")
        return cls(*parts) if kind == "spend" and len(parts) == len(cls._fields) else None


class Cost(NamedTuple):
    """Dollars in a window, and dollars per hour now."""

    amount: Usd
    rate: UsdPerHour


def record_by_hour(ledger: Ledger, uid: str, interval: Interval) -> None:
    """Record a machine's cost by the hour, so that old hours of a long-lived machine can be compacted."""
    start, end, rate = interval
    assert end is not None
    while start < end:
        upto = min(end, (start // HOUR + 1) * HOUR)
        ledger.record(hour_key(uid, start // HOUR), start, upto, rate)
        start = upto


def merge_adjacent(rates: Mapping[tuple[int, int | None], int]) -> list[Interval]:
    """Intervals ordered by time; adjacent intervals with the same rate become one."""
    found: list[Interval] = []
    for (start, end), rate in sorted(rates.items(), key=lambda each: each[0][0]):
        if found and found[-1][1:] == (start, rate):
            found[-1] = Interval(found[-1].start, end, rate)
        else:
            found.append(Interval(start, end, rate))
    return found


def hour_key(uid: str, hour: int) -> str:
    """Ledger key of a machine's cost in one hour."""
    return digest(f"{uid} {hour}")


def digest(text: str) -> str:
    """Digest of a text in the form of a UUID, which a chunk stores in 16 bytes."""
    return str(UUID(bytes=blake2b(text.encode(), digest_size=16).digest()))
