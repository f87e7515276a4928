"""Interning: one shared object for equal values, in tables of bounded size."""

from collections.abc import Callable, Hashable
from typing import TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Interned(dict[_K, _V]):
    """`table[key]` is made by `make` once and is then the same object for as long as the key stays in use.

    Two generations of at most `limit` entries: a full table becomes the old generation, and entries that are used again
    move to the new one. The size is bounded, entries in use stay, and a hit costs one dict look-up.
    """

    __slots__ = ("_limit", "_make", "_old")

    def __init__(self, make: Callable[[_K], _V], limit: int) -> None:
        super().__init__()
        self._make = make
        self._limit = limit
        self._old: dict[_K, _V] = {}

    def __missing__(self, key: _K) -> _V:
        # A `make` that raises stores nothing: it is called again for the same key.
        return self._keep(key, self._old[key] if key in self._old else self._make(key))

    def unify(self, key: _K, value: _V) -> _V:
        """The object stored for `key`; `value` is stored first if there is none."""
        if key in self:
            return self[key]
        return self._keep(key, self._old.get(key, value))

    def _keep(self, key: _K, value: _V) -> _V:
        if len(self) >= self._limit:
            self._old = dict(self)
            self.clear()
        self[key] = value
        return value


def interned_strings(limit: int) -> Interned[str, str]:
    return Interned(lambda text: text, limit)
