"""Tables that give equal things one object, and forget what a changing cluster no longer has."""

from collections.abc import Callable, Hashable
from typing import TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Interned(dict[_K, _V]):
    """`table[key]` is always the same object, made by `make` the first time, for as long as the key stays in use.

    Two generations, each at most `limit` long: a full table becomes the old one, and what is asked for again is taken
    over. So the table is bounded, what is in use stays, and a hit costs one look into a dict and nothing else.
    """

    __slots__ = ("_limit", "_make", "_old")

    def __init__(self, make: Callable[[_K], _V], limit: int) -> None:
        super().__init__()
        self._make = make
        self._limit = limit
        self._old: dict[_K, _V] = {}

    def __missing__(self, key: _K) -> _V:
        # A `make` that raises leaves no trace: a malformed key is looked at anew each time.
        return self._keep(key, self._old[key] if key in self._old else self._make(key))

    def unify(self, key: _K, value: _V) -> _V:
        """The object kept under `key`, or `value`, which is then kept."""
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
