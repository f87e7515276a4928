"""Wall time, taken from the running event loop, so that a loop in virtual time governs everything that runs on it.

`loop.time()` stays the clock for durations and timers. This is the other one: the date that goes into a timestamp.
"""

import asyncio
from datetime import UTC, datetime
from typing import Protocol, runtime_checkable


@runtime_checkable
class KeepsWallTime(Protocol):
    """An event loop with a calendar of its own."""

    def wall_time(self) -> datetime: ...


def now() -> datetime:
    """The date and time on the running loop, aware, UTC."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, KeepsWallTime):
        return loop.wall_time()
    return datetime.now(UTC)
