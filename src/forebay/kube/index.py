"""Indexes over the objects of one kind, updated with every change. A look-up does not search all objects."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Generic, Protocol

from forebay.kube.resources import T, T_contra

ObjectKey = tuple[str, str]


class Index(Generic[T]):
    """Objects by the value that `value_of` returns; None leaves an object out. With `several` it returns many values.

    `among` selects the objects to index. Indexes with the same `among` share its result. Both functions must depend on
    the object alone: they are called again with the old object when that is replaced.
    """

    def __init__(
        self,
        name: str,
        value_of: Callable[[T], Any],
        *,
        several: bool = False,
        among: Callable[[T], bool] | None = None,
    ) -> None:
        self.name = name
        self.among = among
        self.several = several
        self.value_of = value_of
        self.found: dict[Hashable, dict[ObjectKey, T]] = {}

    def change(self, key: ObjectKey, old: T | None, new: T | None) -> None:
        """Replaces `old` by `new`. None stands for an object that does not exist or is not selected by `among`."""
        values = self._values(new)
        for value in self._values(old):
            if value not in values:
                self._remove(value, key)
        if new is not None:
            for value in values:
                self.found.setdefault(value, {})[key] = new

    def add(self, objects: Mapping[ObjectKey, T]) -> None:
        """Adds new objects that `among` selects: the same as `change` for each, but faster."""
        found, value_of = self.found, self.value_of
        if self.several:
            for key, new in objects.items():
                for value in value_of(new):
                    found.setdefault(value, {})[key] = new
            return
        for key, new in objects.items():
            value = value_of(new)
            if value is None:
                continue
            under = found.get(value)
            if under is None:
                found[value] = {key: new}
            else:
                under[key] = new

    def _values(self, of: T | None) -> Collection[Hashable]:
        if of is None:
            return ()
        value = self.value_of(of)
        if self.several:
            return tuple(value)
        return () if value is None else (value,)

    def _remove(self, value: Hashable, key: ObjectKey) -> None:
        found = self.found.get(value)
        if found is None:  # `value_of` returned the value twice
            return
        found.pop(key, None)
        if not found:
            del self.found[value]

    def get(self, value: Hashable) -> tuple[T, ...]:
        """The objects with this value, in a copy that later changes leave alone."""
        found = self.found.get(value)
        return () if found is None else tuple(found.values())

    def count(self, value: Hashable) -> int:
        found = self.found.get(value)
        return 0 if found is None else len(found)


class ChangeHandler(Protocol[T_contra]):
    """Gets every change of the objects of a view, such as `NodeUsage`."""

    def add(self, new: T_contra) -> None: ...

    def change(self, old: T_contra | None, new: T_contra | None) -> None: ...


class Indexes(Generic[T]):
    """All indexes and handlers of one kind. Each `among` is called once per change."""

    def __init__(self, indexes: Iterable[Index[T]], handlers: Iterable[ChangeHandler[T]] = ()) -> None:
        self._handlers = tuple(handlers)
        self._by_name = {index.name: index for index in indexes}
        self._groups: dict[Callable[[T], bool] | None, list[Index[T]]] = {}
        for index in self._by_name.values():
            self._groups.setdefault(index.among, []).append(index)

    def __getitem__(self, name: str) -> Index[T]:
        return self._by_name[name]

    def add(self, objects: Mapping[ObjectKey, T]) -> None:
        """Adds new objects: the same as `change` for each, but faster."""
        for among, indexes in self._groups.items():
            some = objects if among is None else {key: new for key, new in objects.items() if among(new)}
            for index in indexes:
                index.add(some)
        for handler in self._handlers:
            for new in objects.values():
                handler.add(new)

    def change(self, key: ObjectKey, old: T | None, new: T | None) -> None:
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
        for handler in self._handlers:
            handler.change(old, new)
