"""Base of unit types: an integer that can be added to and compared with values of its own type only."""

from typing import Self


class Exact:
    """Base of the unit types. Mixing two of them is an error to mypy and a TypeError at run time."""

    __slots__ = ("_units",)

    #: Amount in a unit so small that all amounts of interest are whole numbers; each type chooses its unit.
    _units: int

    @classmethod
    def _of(cls, units: int) -> Self:
        amount = object.__new__(cls)
        amount._units = units
        return amount

    @classmethod
    def zero(cls) -> Self:
        """No amount at all, as the start of `sum(amounts, start=...)`."""
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
