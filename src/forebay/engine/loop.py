"""When to think: soon after something changed, and now and then in case a change was missed."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import NoReturn

import msgspec

from forebay.engine.decisions import Decision
from forebay.engine.tick import tick
from forebay.engine.views import Views


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    #: A burst of changes is one reason to think: it has ended when nothing came for this long,
    quiet: float = 0.05
    #: and it is cut short after this long.
    at_most: float = 0.5
    #: Without any change.
    resync: float = 30.0
    #: After decisions that could not be applied, or while the views say nothing.
    again: float = 2.0


class Loop:
    """Events wake it; the state decides."""

    def __init__(
        self,
        views: Views,
        apply: Callable[[tuple[Decision, ...]], Awaitable[int]],
        clock: Callable[[], datetime],
        pace: Pace = Pace(),  # noqa: B008 (immutable)
    ) -> None:
        self._views = views
        self._apply = apply
        self._clock = clock
        self._pace = pace
        self.ticks = 0
        #: Why the last tick did not take place; None where it did.
        self.trouble: str | None = None

    async def run(self) -> NoReturn:
        while True:
            # Cleared before the look, not after: what comes during the tick is a reason for the next.
            self._views.wake.clear()
            failed = await self._once()
            await self._next_reason(self._pace.again if failed else self._pace.resync)

    async def _once(self) -> bool:
        self.trouble = self._views.trouble()
        if self.trouble is not None:
            return True
        self.ticks += 1
        return await self._apply(tick(self._views.snapshot(self._clock()))) > 0

    async def _next_reason(self, patience: float) -> None:
        wake = self._views.wake
        try:
            async with asyncio.timeout(patience):
                await wake.wait()
        except TimeoutError:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + self._pace.at_most
        while wake.is_set() and loop.time() < end:
            wake.clear()
            try:
                async with asyncio.timeout(min(self._pace.quiet, end - loop.time())):
                    await wake.wait()
            except TimeoutError:
                return
