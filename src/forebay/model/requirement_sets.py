"""Requirements as sets that can be intersected: which labels satisfy this *and* that, and whether any do."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from forebay.model.requirements import LabelOperator, Requirement, integer

_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**63 - 1


class Allowed(msgspec.Struct, frozen=True):
    """What one label may be: absent or not; and one of `values`, or (with `others`) anything but `values`.

    With `integers`, only numbers above and below the bounds. Bounds go with `others`: a listed value either keeps
    to them and stays, or is struck off the list. So each set of labels has one form only, and equal sets are equal.
    """

    absent: bool
    others: bool
    values: frozenset[str] = frozenset()
    integers: bool = False
    above: int = _LOWEST - 1
    below: int = _HIGHEST + 1

    @property
    def impossible(self) -> bool:
        return not (self.absent or self.others or self.values)

    @property
    def anything(self) -> bool:
        return self.absent and self.others and not self.values and not self.integers

    def allows(self, value: str | None) -> bool:
        if value is None:
            return self.absent
        return (value in self.values) is not self.others and (
            not self.integers or _between(value, self.above, self.below)
        )

    def intersect(self, other: "Allowed") -> "Allowed":
        if self.others and other.others:
            values = self.values | other.values
        elif self.others:
            values = other.values - self.values
        elif other.others:
            values = self.values - other.values
        else:
            values = self.values & other.values
        absent, others = self.absent and other.absent, self.others and other.others
        if not self.integers and not other.integers:
            return Allowed(absent, others, values)
        above, below = max(self.above, other.above), min(self.below, other.below)
        values = frozenset(value for value in values if _between(value, above, below))
        if others and above + 1 < below:
            return Allowed(absent, others, values, integers=True, above=above, below=below)
        return Allowed(absent, others=False, values=frozenset() if others else values)


def _between(value: str, above: int, below: int) -> bool:
    number = integer(value)
    return number is not None and above < number < below


_ANYTHING: Final = Allowed(absent=True, others=True)
_NOTHING: Final = Allowed(absent=False, others=False)


def _allowed(requirement: Requirement) -> Allowed:
    match requirement.operator:
        case LabelOperator.IN:
            return Allowed(absent=False, others=False, values=frozenset(requirement.values))
        case LabelOperator.NOT_IN:
            return Allowed(absent=True, others=True, values=frozenset(requirement.values))
        case LabelOperator.EXISTS:
            return Allowed(absent=False, others=True)
        case LabelOperator.DOES_NOT_EXIST:
            return Allowed(absent=True, others=False)
        case LabelOperator.GT | LabelOperator.LT:
            bound = requirement.bound
            if bound is None:
                return _NOTHING
            if requirement.operator is LabelOperator.GT:
                return Allowed(absent=False, others=True, integers=True, above=bound)
            return Allowed(absent=False, others=True, integers=True, below=bound)


class Requirements:
    """A set of label sets: those that meet every requirement. Labels of which nothing is said may be anything."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        by_key: dict[str, Allowed] = {}
        for requirement in requirements:
            _narrow(by_key, requirement.key, _allowed(requirement))
        self._by_key = by_key
        self._hash: int | None = None

    @classmethod
    def from_labels(cls, labels: Mapping[str, str]) -> "Requirements":
        """Exactly these values for these keys."""
        return cls._of({key: Allowed(absent=False, others=False, values=frozenset({v})) for key, v in labels.items()})

    @classmethod
    def _of(cls, by_key: dict[str, Allowed]) -> "Requirements":
        made = object.__new__(cls)
        made._by_key = by_key
        made._hash = None
        return made

    def add(self, *requirements: Requirement) -> "Requirements":
        return self.intersect(Requirements(requirements))

    def intersect(self, other: "Requirements") -> "Requirements":
        by_key = self._by_key.copy()
        for key in other.keys:
            _narrow(by_key, key, other[key])
        return Requirements._of(by_key)

    def compatible(self, other: "Requirements") -> bool:
        """Some labels would satisfy both."""
        if not self.satisfiable or not other.satisfiable:
            return False
        return not any(self[key].intersect(other[key]).impossible for key in self.keys & other.keys)

    def allows(self, labels: Mapping[str, str]) -> bool:
        return all(allowed.allows(labels.get(key)) for key, allowed in self._by_key.items())

    @property
    def satisfiable(self) -> bool:
        return not any(allowed.impossible for allowed in self._by_key.values())

    @property
    def keys(self) -> frozenset[str]:
        """Of which labels something is said."""
        return frozenset(self._by_key)

    def __getitem__(self, key: str) -> Allowed:
        return self._by_key.get(key, _ANYTHING)

    def __eq__(self, other: object) -> bool:
        return self._by_key == other._by_key if isinstance(other, Requirements) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._by_key.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Requirements({self._by_key})"


def _narrow(by_key: dict[str, Allowed], key: str, to: Allowed) -> None:
    narrowed = by_key.get(key, _ANYTHING).intersect(to)
    if not narrowed.anything:
        by_key[key] = narrowed
