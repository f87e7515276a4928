"""An event loop whose virtual clock runs at a fixed speed, N times as fast as real time, for people who watch.

While a task runs, the clock stands still, as on every virtual-time loop. A busy machine therefore slows a simulation
down but does not change it: what happens, and in which order, is the same at every speed.
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

#: Real seconds of delay that the clock makes up for by running faster; a larger backlog is dropped.
_MADE_UP_FOR = 0.5


class PacedLoop(VirtualTimeLoop):
    """A loop on which `speed` virtual seconds pass in one real second. Sockets can wake it between timers.

    `keeps_step`: every delay is made up for, because other processes compare the virtual clock with the real one.
    """

    def __init__(self, speed: float, start: datetime | None = None, *, keeps_step: bool = False) -> None:
        # Whole seconds, as Kubernetes stores them: else the start time would change how timestamps are rounded.
        super().__init__(start or datetime.now(UTC).replace(microsecond=0))
        if not 0 < speed < math.inf:
            self.close()
            raise ValueError(f"a clock cannot run {speed} times as fast")
        self._speed = speed
        self._made_up_for = math.inf if keeps_step else _MADE_UP_FOR
        #: Real (monotonic) time at which the virtual clock should have reached its present value.
        self._arrived = time.monotonic()

    def _before_jump(self, wait: Callable[[float], Ready]) -> Ready:
        due = self._scheduled[0].when()
        if due == math.inf:
            return []
        # Time spent on work is made up for, but only up to a limit: people cannot follow a jump.
        arrival = max(self._arrived + (due - self._now) / self._speed, time.monotonic() - self._made_up_for)
        left = arrival - time.monotonic()
        ready = wait(left) if left > 0 else []
        if ready:
            passed = min(due - self._now, max(0.0, time.monotonic() - self._arrived) * self._speed)
            self._now += passed
            self._arrived += passed / self._speed
        else:
            self._arrived = arrival
        return ready


def run(main: Coroutine[Any, Any, T], *, speed: float, keeps_step: bool = False) -> T:
    """`asyncio.run` on a `PacedLoop`."""
    with asyncio.Runner(loop_factory=lambda: PacedLoop(speed, keeps_step=keeps_step)) as runner:
        return runner.run(main)
