"""Indexes kept up to date change by change: what a look-up costs follows its answer, not the size of the cluster."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic

from forebay.kube.resources import T

Key = tuple[str, str]


class Index(Generic[T]):
    """The objects under each of the values that `values_of` names for them: none, one or several.

    `values_of` must depend on the object alone: it is asked again about the old state when that is replaced.
    """

    def __init__(self, name: str, values_of: Callable[[T], Iterable[Hashable]]) -> None:
        self.name = name
        self._values_of = values_of
        self._found: dict[Hashable, dict[Key, T]] = {}

    def change(self, key: Key, old: T | None, new: T | None) -> None:
        values = () if new is None else self._values_of(new)
        if old is not None:
            values = tuple(values)
            for value in self._values_of(old):
                if value not in values:
                    self._forget(value, key)
        if new is not None:
            for value in values:
                found = self._found.get(value)
                if found is None:
                    self._found[value] = {key: new}
                else:
                    found[key] = new

    def _forget(self, value: Hashable, key: Key) -> None:
        found = self._found.get(value)
        if found is None:  # the value was named twice
            return
        found.pop(key, None)
        if not found:
            del self._found[value]

    def get(self, value: Hashable) -> tuple[T, ...]:
        """The objects under `value`, as they are now."""
        found = self._found.get(value)
        return () if found is None else tuple(found.values())

    def count(self, value: Hashable) -> int:
        found = self._found.get(value)
        return 0 if found is None else len(found)

    def __iter__(self) -> Iterator[Hashable]:
        """The values that have any object."""
        return iter(tuple(self._found))

    def __len__(self) -> int:
        return len(self._found)
