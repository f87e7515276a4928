"""A work queue of keys like client-go's: no duplicates, delays, retries; one failing key delays no other."""

import asyncio
import math
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from forebay.embedded.api.failures import ApiFailure

KeyT = TypeVar("KeyT")

#: Errors that one object can cause: a rejected write, a field that cannot be decoded, an annotation with a bad value.
OBJECT_ERRORS = (ApiFailure, msgspec.ValidationError, ValueError)

_FIRST_RETRY, _MAX_RETRY = 1.0, 300.0
#: Keys worked on before other callbacks of the loop run.
_BATCH = 100


class WorkQueue(Generic[KeyT]):
    """Calls `work(key)` from the loop, and `failed(key, error)` when that raises one of `OBJECT_ERRORS`.

    After a rejected write the key is retried with exponential backoff; after another error it waits until it is added
    again, since only a change of the object can help.
    """

    def __init__(self, work: Callable[[KeyT], None], failed: Callable[[KeyT, Exception], None]) -> None:
        self._work = work
        self._failed = failed
        self._ready: dict[KeyT, None] = {}
        self._delayed: dict[KeyT, asyncio.TimerHandle] = {}
        self._failures: dict[KeyT, int] = {}
        self._retries: set[KeyT] = set()
        self._next_run: asyncio.Handle | None = None

    def add(self, key: KeyT, delay: float = 0.0) -> None:
        """Calls `work` for the key after the delay; of several delays the shortest counts."""
        if delay <= 0.0:
            self._ready[key] = None
            if self._next_run is None:
                self._next_run = asyncio.get_running_loop().call_soon(self._run)
            return
        loop = asyncio.get_running_loop()
        # A delay can be smaller than the resolution of the clock. Then it would be over at once, `work` would find that
        # time is left and add the key again, and virtual time would never advance.
        due = max(loop.time() + delay, math.nextafter(loop.time(), math.inf))
        timer = self._delayed.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._delayed[key] = loop.call_at(due, self._due, key)

    def retry(self, key: KeyT) -> None:
        """Called by `work` when a part of it failed: the key is retried with exponential backoff."""
        self._retries.add(key)

    def stop(self) -> None:
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        self._ready.clear()
        if self._next_run is not None:
            self._next_run.cancel()
            self._next_run = None

    def _due(self, key: KeyT) -> None:
        del self._delayed[key]
        self.add(key)

    def _run(self) -> None:
        self._next_run = None
        batch = [key for key, _ in zip(self._ready, range(_BATCH), strict=False)]
        for key in batch:
            del self._ready[key]
            try:
                self._work(key)
            except OBJECT_ERRORS as error:
                if isinstance(error, ApiFailure):
                    self.retry(key)
                self._failed(key, error)
            if key in self._retries:
                self._retries.remove(key)
                count = self._failures[key] = self._failures.get(key, 0) + 1
                self.add(key, min(_FIRST_RETRY * 2.0 ** min(count - 1, 16), _MAX_RETRY))
            else:
                self._failures.pop(key, None)
        if self._ready and self._next_run is None:
            self._next_run = asyncio.get_running_loop().call_soon(self._run)
