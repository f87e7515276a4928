"""Streams that may be dead without anybody having closed them: one timer looks at all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

#: Seconds between two looks.
_LOOK: Final = 30.0


class _Silence(NamedTuple):
    """A stream that is waited for."""

    since: float
    limit: asyncio.Timeout
    gives_up: Callable[[float], bool]


class SilentStreams:
    """Waits for streams, and gives up those that have been silent for too long."""

    def __init__(self) -> None:
        self._silent: dict[int, _Silence] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def next(self, chunks: AsyncIterator[bytes], gives_up: Callable[[float], bool]) -> bytes | None:
        """The next chunk; None at the end, or once `gives_up` says yes to the seconds of silence."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                self._silent[id(limit)] = _Silence(loop.time(), limit, gives_up)
                if self._timer is None:
                    self._timer = loop.call_later(_LOOK, self._look, loop)
                try:
                    return await anext(chunks, None)
                finally:
                    del self._silent[id(limit)]
                    if not self._silent and self._timer is not None:
                        self._timer.cancel()
                        self._timer = None
        except TimeoutError:
            return None

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for each in self._silent.values():
            if each.gives_up(now - each.since):
                each.limit.reschedule(now)
        self._timer = loop.call_later(_LOOK, self._look, loop)
