"""The lines of the bill for all machines, and how what is on them is kept."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import Piece
from forebay.model.quantities import Usd, UsdPerHour

HOUR: Final = 3600


class BillLine(NamedTuple):
    """One line of the bill. Nobody's has no namespace; a machine of no pool or class has none."""

    namespace: str
    pool: str
    node_class: str

    @property
    def owner(self) -> str:
        """As the stored ledger names it; none of the three can hold a blank."""
        return f"spend {self.namespace} {self.pool} {self.node_class}"

    @property
    def uid(self) -> str:
        return digest(self.owner)

    @classmethod
    def parse(cls, owner: str) -> "BillLine | None":
        kind, *parts = owner.split(" ")
        return cls(*parts) if kind == "spend" and len(parts) == len(cls._fields) else None


class Spent(NamedTuple):
    amount: Usd
    rate: UsdPerHour


def record_by_hour(ledger: Ledger, uid: str, piece: Piece) -> None:
    """By the hour: of a machine that is there for months, what is long past can be added up."""
    start, end, rate = piece
    assert end is not None
    while start < end:
        upto = min(end, (start // HOUR + 1) * HOUR)
        ledger.record(hour_key(uid, start // HOUR), start, upto, rate)
        start = upto


def merge_adjacent(rates: Mapping[tuple[int, int | None], int]) -> list[Piece]:
    """By time; what follows at the same rate is one."""
    found: list[Piece] = []
    for (start, end), rate in sorted(rates.items(), key=lambda each: each[0][0]):
        if found and found[-1][1:] == (start, rate):
            found[-1] = Piece(found[-1].start, end, rate)
        else:
            found.append(Piece(start, end, rate))
    return found


def hour_key(uid: str, hour: int) -> str:
    return digest(f"{uid} {hour}")


def digest(text: str) -> str:
    """As a UUID, which is stored in 16 bytes."""
    return str(UUID(bytes=blake2b(text.encode(), digest_size=16).digest()))
