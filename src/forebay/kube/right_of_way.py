"""Right of way: writes that serve pods go first, and writes that only tell of them wait a little.

When hundreds of machines are launched at once, the API server is what everybody waits for: each event that is written
meanwhile delays a toleration or a status for which pods wait.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

#: Seconds that one write waits at most. In the longest rush, events still come.
LONGEST_WAIT: Final = 1.0


class RightOfWay:
    def __init__(self) -> None:
        self._claims = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """While this lasts, others wait."""
        self._claims += 1
        self._free.clear()
        try:
            yield
        finally:
            self._claims -= 1
            if not self._claims:
                self._free.set()

    async def give(self) -> None:
        """Returns when nobody claims it, or after `LONGEST_WAIT`."""
        if self._free.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_WAIT):
                await self._free.wait()
