"""Virtual time that people can watch: the clock does not jump to the next timer, it walks there, N times as fast as
ours.

While something runs, the clock stands still, as on every virtual-time loop. So a busy machine makes the story slower,
and never another one: what happens, and in which order, is the same at every speed.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from selectors import SelectorKey
from typing import Any, TypeVar

from forebay.simulate.virtual_time import VirtualTimeLoop

T = TypeVar("T")

Ready = list[tuple[SelectorKey, int]]

_MADE_UP_FOR = 0.5


class PacedLoop(VirtualTimeLoop):
    """`speed` seconds pass on it in one of ours. Sockets may wake it in between."""

    def __init__(self, speed: float, start: datetime | None = None) -> None:
        # Whole seconds, as Kubernetes writes them: else when a story begins would change what is rounded in it.
        super().__init__(start or datetime.now(UTC).replace(microsecond=0))
        if not 0 < speed < math.inf:
            self.close()
            raise ValueError(f"a clock cannot run {speed} times as fast")
        self._speed = speed
        #: When, on our clock, it should have come to its present instant.
        self._arrived = time.monotonic()

    def _before_jump(self, wait: Callable[[float], Ready]) -> Ready:
        due = self._scheduled[0].when()
        if due == math.inf:
            return []
        # Time that work has taken is made up for, but not what is lost beyond that: nobody can watch a leap.
        arrival = max(self._arrived + (due - self._now) / self._speed, time.monotonic() - _MADE_UP_FOR)
        left = arrival - time.monotonic()
        ready = wait(left) if left > 0 else []
        if ready:
            woken = time.monotonic()
            self._now = min(due, self._now + max(0.0, woken - self._arrived) * self._speed)
            self._arrived = woken
        else:
            self._arrived = arrival
        return ready


def run(main: Coroutine[Any, Any, T], *, speed: float) -> T:
    """`asyncio.run` on such a clock."""
    with asyncio.Runner(loop_factory=lambda: PacedLoop(speed)) as runner:
        return runner.run(main)
