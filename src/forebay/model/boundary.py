"""Boundary between objects: one that Forebay cannot handle costs that object its turn, and nobody else's."""

from types import TracebackType
from typing import Generic, TypeVar

_K = TypeVar("_K")


class Boundary(Generic[_K]):
    """Errors by object. `with boundary.of(key):` keeps what the block raises as the error of that object."""

    __slots__ = ("errors",)

    def __init__(self) -> None:
        self.errors: dict[_K, Exception] = {}

    def of(self, key: _K) -> "_Block[_K]":
        return _Block(self.errors, key)


class _Block(Generic[_K]):
    """A block of code, in the form of a context manager: entering one of these costs less than a generator."""

    __slots__ = ("_errors", "_key")

    def __init__(self, errors: dict[_K, Exception], key: _K) -> None:
        self._errors = errors
        self._key = key

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        # Whatever it is: a bug, which the caller reports on the object; the log of the loop has its traceback.
        if isinstance(error, Exception):
            self._errors[self._key] = error
            return True
        return False
