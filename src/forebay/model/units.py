"""Exact unit types: GPUs, GPU-hours and dollars.

Each type counts in a unit so small that products of these types are whole numbers: nothing is rounded before a number
is shown.
"""

import re
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Final, Self, overload

from forebay.model.exact import Exact
from forebay.model.notation import NANO, Quantity

_MICROSECOND: Final = timedelta(microseconds=1)
_MICROSECONDS_PER_HOUR: Final = 3600 * 10**6

#: A thousandth of a GPU-microsecond divides a millicore held for a microsecond (budgets may count cpu) and a billionth
#: of an hour (3.6 us), the finest a Kubernetes quantity can say.
_PER_GPU_MICROSECOND: Final = 1000
_PER_GPU_HOUR: Final = _PER_GPU_MICROSECOND * _MICROSECONDS_PER_HOUR

#: Prices have at most 24 decimals: enough for any double from a provider's JSON, down to a ten-millionth of a dollar.
_DECIMALS: Final = 24
_PER_DOLLAR_AN_HOUR: Final = 10**_DECIMALS
#: What one unit of price costs in a microsecond, so that price x time is a plain product.
_PER_DOLLAR: Final = _PER_DOLLAR_AN_HOUR * _MICROSECONDS_PER_HOUR

#: A quota above this is no limit: no cluster uses so much. Status fields have room for it with all its digits.
_MOST_GPU_HOURS: Final = 10**18

_DECIMAL_TEXT: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")

_CENTS: Final = 2
_MOST_DECIMALS: Final = 12
_PRICE_DECIMALS: Final = 4


class Gpus(Exact):
    """A number of GPUs."""

    __slots__ = ()

    def __init__(self, count: int) -> None:
        if type(count) is not int:
            raise TypeError(f"GPUs are counted in whole ones, not in {type(count).__name__} {count!r}")
        self._units = count

    def __int__(self) -> int:
        return self._units

    def __mul__(self, duration: timedelta) -> "GpuHours":
        if not isinstance(duration, timedelta):
            return NotImplemented
        return GpuHours.from_microseconds(self._units * (duration // _MICROSECOND))

    __rmul__ = __mul__

    def __str__(self) -> str:
        return f"{self._units} GPU" if self._units == 1 else f"{self._units} GPUs"

    def __repr__(self) -> str:
        return f"Gpus({self._units})"


class GpuHours(Exact):
    """GPU time: a number of GPUs multiplied by a duration."""

    __slots__ = ()

    @classmethod
    def from_microseconds(cls, gpu_microseconds: int) -> Self:
        return cls._of(gpu_microseconds * _PER_GPU_MICROSECOND)

    @classmethod
    def from_units(cls, units: int) -> Self:
        return cls._of(units)

    @property
    def units(self) -> int:
        """The amount in thousandths of a GPU-microsecond, for loops; the inverse of `from_units`."""
        return self._units

    @classmethod
    def parse(cls, text: str | int) -> Self:
        """GPU-hours of a Kubernetes quantity, as in `gpuHours: "1.5"` or `100`; at most 10^18."""
        return cls._of(min(Quantity.parse(text).nano, _MOST_GPU_HOURS * NANO) * (_PER_GPU_HOUR // NANO))

    @classmethod
    def from_exact(cls, text: str) -> Self:
        return cls._of(_whole(Fraction(text) * _PER_GPU_HOUR, f"{text} GPU-hours"))

    def exact(self) -> str:
        """Text for storage: `from_exact(text)` is this very amount."""
        return str(self.hours)

    @property
    def hours(self) -> Fraction:
        return Fraction(self._units, _PER_GPU_HOUR)

    def quantity(self, parts: int = 1000) -> str:
        """Kubernetes quantity for a status field, rounded to the nearest thousandth (or such part) of an hour."""
        return str(Quantity(round(self.hours * parts) * (NANO // parts)))

    def __mul__(self, times: int) -> Self:
        return self._of(self._units * times) if type(times) is int else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Self) -> Fraction:
        """Share of `other`."""
        return Fraction(self._units, other._units) if type(other) is type(self) else NotImplemented

    def decimals(self) -> str:
        """Hours for people: three decimals, or more for an amount that three would show as 0."""
        most = 3
        while self._units and most < _MOST_DECIMALS and not round(abs(self.hours) * 10**most):
            most += 1
        return _decimal(self.hours, 0, most)

    def __str__(self) -> str:
        return f"{self.decimals()} GPU-h"

    def __repr__(self) -> str:
        return f"GpuHours({self.exact()})"


class Usd(Exact):
    """An amount of money."""

    __slots__ = ()

    def __init__(self, amount: str | Decimal | int) -> None:
        self._units = _decimal_units(amount, "an amount of money") * _MICROSECONDS_PER_HOUR

    @classmethod
    def from_units(cls, units: int) -> Self:
        return cls._of(units)

    @property
    def units(self) -> int:
        """The amount in `UsdPerHour.units` times microseconds, for loops; the inverse of `from_units`."""
        return self._units

    @classmethod
    def from_exact(cls, text: str) -> Self:
        return cls._of(_whole(Fraction(text) * _PER_DOLLAR, f"{text} dollars"))

    def exact(self) -> str:
        """Text for storage: `from_exact(text)` is this very amount."""
        return str(self.dollars)

    def decimals(self, places: int = 6) -> str:
        """Decimal text for a status field, rounded to `places` decimals."""
        return _decimal(self.dollars, 0, places)

    @property
    def dollars(self) -> Fraction:
        return Fraction(self._units, _PER_DOLLAR)

    def __mul__(self, times: int) -> Self:
        return self._of(self._units * times) if type(times) is int else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Self) -> Fraction:
        """Share of `other`."""
        return Fraction(self._units, other._units) if type(other) is type(self) else NotImplemented

    def __str__(self) -> str:
        return _dollars(self.dollars, _CENTS)

    def __repr__(self) -> str:
        return f"Usd({self.exact()})"


class UsdPerHour(Exact):
    """A price per hour."""

    __slots__ = ()

    def __init__(self, amount: str | Decimal | int) -> None:
        self._units = _decimal_units(amount, "a price")

    @classmethod
    def from_units(cls, units: int) -> Self:
        return cls._of(units)

    @property
    def units(self) -> int:
        """The price in 10^-24 dollars an hour, for loops over thousands of prices; the inverse of `from_units`."""
        return self._units

    @property
    def amount(self) -> Decimal:
        """The price in dollars, with all digits."""
        return Decimal(self.exact())

    def exact(self) -> str:
        """Text for storage: `UsdPerHour(text)` is this very price."""
        return _decimal(Fraction(self._units, _PER_DOLLAR_AN_HOUR), 0, _DECIMALS)

    @overload
    def __mul__(self, by: timedelta) -> Usd: ...
    @overload
    def __mul__(self, by: int) -> Self: ...
    def __mul__(self, by: timedelta | int) -> "Usd | Self":
        """The cost of a duration, or the price of `by` such instances."""
        if isinstance(by, timedelta):
            return Usd._of(self._units * (by // _MICROSECOND))
        return self._of(self._units * by) if type(by) is int else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: Self) -> Fraction:
        return Fraction(self._units, other._units) if type(other) is type(self) else NotImplemented

    def __str__(self) -> str:
        return f"{_dollars(Fraction(self._units, _PER_DOLLAR_AN_HOUR), _PRICE_DECIMALS)}/h"

    def __repr__(self) -> str:
        return f"UsdPerHour({self.exact()})"


def _decimal_units(amount: str | Decimal | int, what: str) -> int:
    """The amount in units of 10^-24. Floats are refused: 0.1 is not a tenth of a dollar."""
    if type(amount) not in (str, Decimal, int):
        raise TypeError(f"{what} is made from text, Decimal or int, not from {type(amount).__name__} {amount!r}")
    if isinstance(amount, str) and not _DECIMAL_TEXT.fullmatch(amount):
        raise ValueError(f'"{amount}" is not {what} in dollars')
    decimal = Decimal(amount)
    if not decimal.is_finite() or decimal.adjusted() > _DECIMALS:
        raise ValueError(f'"{amount}" is not {what} in dollars')
    if int(decimal.as_tuple().exponent) < -_DECIMALS:
        raise ValueError(f'"{amount}" has more than {_DECIMALS} decimals: round it where it comes from')
    return _whole(Fraction(decimal) * _PER_DOLLAR_AN_HOUR, f'"{amount}"')


def _whole(units: Fraction, what: str) -> int:
    if units.denominator != 1:
        raise ValueError(f"{what} is finer than what is counted")
    return units.numerator


def _dollars(amount: Fraction, most: int) -> str:
    size = abs(amount)
    if 0 < size < Fraction(1, 10**most):
        # Show the first two digits of a very small amount: `$0.00` would mean free.
        while size < Fraction(1, 10**most):
            most += 1
        most += 1
    return f"{'-' if amount < 0 else ''}${_decimal(size, _CENTS, most, ',')}"


def _decimal(value: Fraction, least: int, most: int, separator: str = "") -> str:
    """Decimal text with `most` decimals (nearest, ties to even), without trailing zeros beyond `least`."""
    scaled = round(value * 10**most)
    whole, fraction = divmod(abs(scaled), 10**most)
    decimals = f"{fraction:0{most}}"
    kept = decimals[:least] + decimals[least:].rstrip("0")
    sign = "-" if scaled < 0 else ""
    return f"{sign}{whole:{separator}}.{kept}" if kept else f"{sign}{whole:{separator}}"
