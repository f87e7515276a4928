"""Indexes kept up to date change by change: what a look-up costs follows its answer, not the size of the cluster."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic

from forebay.kube.resources import T

Key = tuple[str, str]


class Index(Generic[T]):
    """The objects under each of the values that `values_of` names for them: none, one or several.

    `among` leaves objects out; indexes with the same one are asked together. Both must depend on the object alone:
    they are asked again about the old state when that is replaced.
    """

    def __init__(
        self, name: str, values_of: Callable[[T], Iterable[Hashable]], *, among: Callable[[T], bool] | None = None
    ) -> None:
        self.name = name
        self.among = among
        self.values_of = values_of
        self.found: dict[Hashable, dict[Key, T]] = {}

    def change(self, key: Key, old: T | None, new: T | None) -> None:
        """Of objects that are `among` the indexed; for one that is not, None."""
        values = () if new is None else self.values_of(new)
        if old is not None:
            values = tuple(values)
            for value in self.values_of(old):
                if value not in values:
                    self._forget(value, key)
        if new is not None:
            for value in values:
                found = self.found.get(value)
                if found is None:
                    self.found[value] = {key: new}
                else:
                    found[key] = new

    def _forget(self, value: Hashable, key: Key) -> None:
        found = self.found.get(value)
        if found is None:  # the value was named twice
            return
        found.pop(key, None)
        if not found:
            del self.found[value]

    def get(self, value: Hashable) -> tuple[T, ...]:
        """The objects under `value`, as they are now."""
        found = self.found.get(value)
        return () if found is None else tuple(found.values())

    def count(self, value: Hashable) -> int:
        found = self.found.get(value)
        return 0 if found is None else len(found)

    def __iter__(self) -> Iterator[Hashable]:
        """The values that have any object."""
        return iter(tuple(self.found))

    def __len__(self) -> int:
        return len(self.found)


class Indexes(Generic[T]):
    """All indexes of one kind, each `among` asked once per change."""

    def __init__(self, indexes: Iterable[Index[T]]) -> None:
        self._by_name = {index.name: index for index in indexes}
        self._groups: dict[Callable[[T], bool] | None, list[Index[T]]] = {}
        for index in self._by_name.values():
            self._groups.setdefault(index.among, []).append(index)

    def __getitem__(self, name: str) -> Index[T]:
        return self._by_name[name]

    def add(self, key: Key, new: T) -> None:
        """What `change` does for an object that was not there, without a call for each index."""
        for among, indexes in self._groups.items():
            if among is None or among(new):
                for index in indexes:
                    for value in index.values_of(new):
                        found = index.found.get(value)
                        if found is None:
                            index.found[value] = {key: new}
                        else:
                            found[key] = new

    def change(self, key: Key, old: T | None, new: T | None) -> None:
        for among, indexes in self._groups.items():
            before, after = old, new
            if among is not None:
                if before is not None and not among(before):
                    before = None
                if after is not None and not among(after):
                    after = None
                if before is None and after is None:
                    continue
            for index in indexes:
                index.change(key, before, after)
