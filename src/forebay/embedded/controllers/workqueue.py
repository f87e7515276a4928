"""Keys to look at: each once however often it was asked for, soon or later, and one that fails harms no other."""

import asyncio
import math
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from forebay.embedded.api.failures import ApiFailure

KeyT = TypeVar("KeyT")

#: What one bad object can bring about: a refused write, a field that does not decode, a text that makes no sense.
OBJECT_ERRORS = (ApiFailure, msgspec.ValidationError, ValueError)

_FIRST_RETRY, _LONGEST_RETRY = 1.0, 300.0
#: Keys worked on before other callbacks of the loop get their turn.
_BATCH = 100


class WorkQueue(Generic[KeyT]):
    """Calls `work(key)` from the loop, and `failed(key, error)` when that meets `OBJECT_ERRORS`.

    A refused write is tried again, later and later; an object that makes no sense waits until it is changed.
    """

    def __init__(self, work: Callable[[KeyT], None], failed: Callable[[KeyT, Exception], None]) -> None:
        self._work = work
        self._failed = failed
        self._ready: dict[KeyT, None] = {}
        self._later: dict[KeyT, asyncio.TimerHandle] = {}
        self._failures: dict[KeyT, int] = {}
        self._again: set[KeyT] = set()
        self._turn: asyncio.Handle | None = None

    def add(self, key: KeyT, delay: float = 0.0) -> None:
        """Of several delays for one key the shortest counts."""
        if delay <= 0.0:
            self._ready[key] = None
            if self._turn is None:
                self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
            return
        loop = asyncio.get_running_loop()
        # A delay can be smaller than what the clock tells apart. Without a step it would be over before it began, and
        # who then waits for the rest of it waits for ever at one instant.
        due = max(loop.time() + delay, math.nextafter(loop.time(), math.inf))
        waiting = self._later.get(key)
        if waiting is not None:
            if waiting.when() <= due:
                return
            waiting.cancel()
        self._later[key] = loop.call_at(due, self._due, key)

    def retry(self, key: KeyT) -> None:
        """Called by `work`: it could not do all it should, and is to be called again after a growing delay."""
        self._again.add(key)

    def stop(self) -> None:
        for timer in self._later.values():
            timer.cancel()
        self._later.clear()
        self._ready.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _due(self, key: KeyT) -> None:
        del self._later[key]
        self.add(key)

    def _take_turn(self) -> None:
        self._turn = None
        batch = [key for key, _ in zip(self._ready, range(_BATCH), strict=False)]
        for key in batch:
            del self._ready[key]
            try:
                self._work(key)
            except OBJECT_ERRORS as trouble:
                if isinstance(trouble, ApiFailure):
                    self.retry(key)
                self._failed(key, trouble)
            if key in self._again:
                self._again.remove(key)
                count = self._failures[key] = self._failures.get(key, 0) + 1
                self.add(key, min(_FIRST_RETRY * 2.0 ** min(count - 1, 16), _LONGEST_RETRY))
            else:
                self._failures.pop(key, None)
        if self._ready and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
