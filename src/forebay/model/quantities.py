"""Exact amounts with their units."""

from collections.abc import Iterator, Mapping


class Resources(Mapping[str, int]):
    """Amounts by resource name: cpu in millicores, everything else in whole units, both rounded up."""

    __slots__ = ("_amounts",)

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = {name: amount for name, amount in (amounts or {}).items() if amount}

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __hash__(self) -> int:
        return hash(frozenset(self._amounts.items()))
