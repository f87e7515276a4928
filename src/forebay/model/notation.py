"""Kubernetes quantities: `500m`, `1.5Gi`, `12e6`.

Follows apimachinery's `resource.Quantity`, quirks included, because manifests in the field rely on them and the API
server shows them: nothing finer than a nano (rounded away from zero), binary amounts capped at 2^63-1, text that
already looks canonical kept as it was written. Whatever the API server admits is read: `1e101` and `1e999999999` too.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, Self

from forebay.model.exact import Exact

NANO: Final = 10**9
_INT64_MAX: Final = 2**63 - 1
#: A Go `int64` holds any number of this many digits.
_INT64_DIGITS: Final = 18
#: apimachinery's cautious estimate of the same where a binary suffix takes some of the digits.
_BINARY_DIGITS: Final = 15
#: Go keeps the exponent apart; here it is multiplied out, and `1e999999999` would eat the memory of the process. So a
#: number with more zeros than this counts as 1 with so many: more than anything that exists. More digits than this are
#: refused, because Python does not read them.
_MOST_DIGITS: Final = 4000
_ENORMOUS: Final = 10**_MOST_DIGITS * NANO
#: Decimals of a binary amount that can matter: 2^60 nanos have fewer.
_MOST_DECIMALS: Final = 100

# Possessive: a text of a million digits is refused as quickly as it is read.
_TEXT: Final = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)", re.ASCII)
_EXPONENT: Final = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
# The reasons are in apimachinery's words.
_WRONG_FORMAT: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NO_NUMBER: Final = "unable to parse numeric part of quantity"
_WRONG_SUFFIX: Final = "unable to parse quantity's suffix"

_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", *_BINARY)


class Format(StrEnum):
    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


class InvalidQuantity(ValueError):
    """`reason` is what the API server would say about `text`."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f'"{text}" is not a Kubernetes quantity: {reason}')
        self.text = text
        self.reason = reason


class Quantity(Exact):
    """An exact number that remembers its notation. Two quantities are equal if their numbers are."""

    __slots__ = ("_written", "format")

    def __init__(self, nano: int, format: Format = Format.DECIMAL_SI, written: str | None = None) -> None:  # noqa: A002 (Kubernetes' word)
        self._units = nano
        self.format: Final = format
        self._written = written

    @classmethod
    def _of(cls, units: int) -> Self:
        return cls(units)

    @staticmethod
    def parse(text: str | int) -> "Quantity":
        """Quantity of a text or integer. Floats are refused, because they have already lost digits."""
        if isinstance(text, str):
            return _parse(text)
        if type(text) is int:
            return Quantity(text * NANO)
        raise TypeError(f"a quantity is parsed from text or an integer, not from {type(text).__name__} {text!r}")

    @property
    def nano(self) -> int:
        """The amount in billionths: an integer, because nothing finer exists."""
        return self._units

    @property
    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _away_from_zero(self.nano, NANO)

    @property
    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return _away_from_zero(self.nano, NANO // 1000)

    def __str__(self) -> str:
        return self._written if self._written is not None else self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({self!s})"

    def canonical(self) -> str:
        """Canonical text: no fraction, and the largest suffix (in steps of a thousand) that loses nothing."""
        if self.nano == 0:
            return "0"
        if self.format is Format.BINARY_SI and abs(self.nano) >= 1024 * NANO and self.nano % NANO == 0:
            number, power = self.nano // NANO, 0
            while number % 1024 == 0 and power < len(_BINARY):
                number, power = number // 1024, power + 1
            return f"{number}{_BINARY_SUFFIX[power]}"
        number, exponent = self.nano, -9
        while number % 1000 == 0:
            number, exponent = number // 1000, exponent + 3
        if exponent == 0:
            return str(number)
        if self.format is Format.DECIMAL_EXPONENT or exponent not in _DECIMAL_SUFFIX:
            return f"{number}e{exponent}"
        return f"{number}{_DECIMAL_SUFFIX[exponent]}"

    def __add__(self, other: "Quantity") -> "Quantity":
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self.nano + other.nano, (self or other).format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self.nano - other.nano, (self or other).format)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nano, self.format)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    if text == "0":
        return Quantity(0, Format.DECIMAL_SI, text)
    found = _TEXT.fullmatch(text) if text else None
    if found is None:
        raise InvalidQuantity(text, _WRONG_FORMAT)
    sign, zeros, whole, fraction, suffix = found.groups(default="")
    digits = (whole or "0") + fraction

    # `simple` is what apimachinery reads by its fast path, which alone may keep the text as it was written.
    if suffix in _BINARY:
        power, form = _BINARY[suffix], Format.BINARY_SI
        nano = _binary(whole, fraction, power)
        if 0 < nano < NANO:
            form = Format.DECIMAL_SI
        simple = not fraction and len(digits) + power * 3 // 10 < _BINARY_DIGITS
        looks_canonical = simple and int(digits) % 8 != 0
    else:
        exponent, form = _decimal_exponent(text, suffix)
        scale = exponent - len(fraction)
        nano = _scaled(digits, scale + 9)
        simple = scale >= _DECIMAL["n"] and len(digits) <= _INT64_DIGITS
        looks_canonical = scale % 3 == 0 and not digits.startswith("0") and not digits.endswith("000")
    if not (simple or zeros or whole or fraction):
        raise InvalidQuantity(text, _NO_NUMBER)
    written = text if (simple and looks_canonical) or nano == _ENORMOUS else None
    return Quantity(-nano if sign == "-" else nano, form, written)


def _decimal_exponent(text: str, suffix: str) -> tuple[int, Format]:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], Format.DECIMAL_SI
    found = _EXPONENT.fullmatch(suffix)
    if found is None:
        raise InvalidQuantity(text, _WRONG_SUFFIX)
    # Compared as text, because Python refuses to read thousands of digits.
    magnitude = found[1].lstrip("+-0") or "0"
    if len(magnitude) > _INT64_DIGITS + 1 or (exponent := int(magnitude)) > _INT64_MAX:
        raise InvalidQuantity(text, _WRONG_SUFFIX)
    # Go reads 64 bits and keeps 32 of them.
    kept = (-exponent if found[1].startswith("-") else exponent) % 2**32
    return kept - 2**32 if kept >= 2**31 else kept, Format.DECIMAL_EXPONENT


def _scaled(digits: str, exponent: int) -> int:
    """Digits times a power of ten, rounded up to a whole number, and `_ENORMOUS` where that has too many digits."""
    digits = digits.lstrip("0")
    if not digits:
        return 0
    if len(digits) + exponent > _MOST_DIGITS:
        if len(digits.rstrip("0")) > _MOST_DIGITS:
            raise InvalidQuantity(f"{digits[:40]}...", f"more than {_MOST_DIGITS} digits")
        return _ENORMOUS
    if exponent >= 0:
        return int(digits) * int(10**exponent)
    kept, cut = digits[:exponent], digits[exponent:]
    return int(kept or "0") + bool(cut.strip("0"))


def _binary(whole: str, fraction: str, power: int) -> int:
    if len(whole) > _INT64_DIGITS + 1:
        return _INT64_MAX * NANO
    if len(fraction) > _MOST_DECIMALS:
        fraction = fraction[:_MOST_DECIMALS] + ("1" if fraction[_MOST_DECIMALS:].strip("0") else "0")
    number = int((whole or "0") + fraction)
    return min(_away_from_zero((number << power) * NANO, 10 ** len(fraction)), _INT64_MAX * NANO)


def _away_from_zero(number: int, divisor: int) -> int:
    return -(-number // divisor) if number >= 0 else number // divisor
