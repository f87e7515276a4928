"""An integer that knows its unit: it can be added to and compared with its own kind and with nothing else."""

from typing import Self


class Exact:
    """The base of the unit types. Mixing two of them is an error to mypy, and a TypeError to who does not run it."""

    __slots__ = ("_units",)

    #: In a unit so small that every amount of interest is a whole number of them; each type says which.
    _units: int

    @classmethod
    def _of(cls, units: int) -> Self:
        amount = object.__new__(cls)
        amount._units = units
        return amount

    @classmethod
    def zero(cls) -> Self:
        """Where `sum(amounts, start=...)` begins."""
        return cls._of(0)

    def __add__(self, other: Self) -> Self:
        return self._of(self._units + other._units) if type(other) is type(self) else NotImplemented

    def __sub__(self, other: Self) -> Self:
        return self._of(self._units - other._units) if type(other) is type(self) else NotImplemented

    def __neg__(self) -> Self:
        return self._of(-self._units)

    def __bool__(self) -> bool:
        return self._units != 0

    def __eq__(self, other: object) -> bool:
        return self._units == other._units if isinstance(other, Exact) and type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), self._units))

    def __lt__(self, other: Self) -> bool:
        return self._units < other._units if type(other) is type(self) else NotImplemented

    def __le__(self, other: Self) -> bool:
        return self._units <= other._units if type(other) is type(self) else NotImplemented

    def __gt__(self, other: Self) -> bool:
        return self._units > other._units if type(other) is type(self) else NotImplemented

    def __ge__(self, other: Self) -> bool:
        return self._units >= other._units if type(other) is type(self) else NotImplemented
