"""When to think: soon after something changed, and now and then in case a change was missed."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec
import structlog

from forebay.engine.apply.applier import Applier
from forebay.engine.counts import Counts
from forebay.engine.observe import Observer
from forebay.engine.sources.sources import Sources
from forebay.engine.views import Views
from forebay.lifecycle.next_step import awaits_listing
from forebay.reconcile.orders import source_of
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import TickResult, tick

log = structlog.get_logger(__name__)

#: With more pods than this to plan for, thinking takes long enough to do it beside the loop.
_MANY_PODS: Final = 32


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    #: A burst of changes is one reason to think: it has ended when nothing came for this long,
    quiet: float = 0.05
    #: and it is cut short after this long.
    at_most: float = 0.1
    #: Without any change.
    resync: float = 30.0
    #: Until a deadline or the end of a wait, which may be due already.
    at_least: float = 0.2
    #: After decisions that could not be applied, or while the views say nothing.
    again: float = 2.0


class Loop:
    """Events wake it; the state decides."""

    def __init__(
        self,
        *,
        views: Views,
        observer: Observer,
        sources: Sources,
        applier: Applier,
        configure: Callable[[], None],
        counts: Counts,
        pace: Pace = Pace(),  # noqa: B008 (immutable)
    ) -> None:
        self._views = views
        self._observer = observer
        self._sources = sources
        self._applier = applier
        self._configure = configure
        self._counts = counts
        self._pace = pace
        #: Why the last tick did not take place; None where it did.
        self.error: str | None = None

    async def run(self) -> NoReturn:
        while True:
            # Cleared before the look, not after: what comes during the tick is a reason for the next.
            self._views.wake.clear()
            patience = await self._once()
            if patience:
                await self._next_reason(patience)

    async def _once(self) -> float:
        """Seconds until the next tick, where nothing happens before."""
        self.error = self._views.error()
        if self.error is not None:
            return self._pace.again
        began = time.perf_counter()
        try:
            self._configure()
            snapshot = self._observer.observe()
            thought = await self._think(snapshot)
        except Exception:
            # A fault of ours must not end the loop: what runs is still looked after once the cause has passed.
            log.exception("a tick broke")
            self._counts.broken += 1
            return self._pace.again
        self._observer.memory = thought.memory
        self._counts.ticks += 1
        self._counts.thinking += time.perf_counter() - began
        self._counts.decisions.update(type(each).__name__ for each in thought.decisions)
        for name, fault in thought.errors.items():
            log.error("a GPUInstance cannot be thought about", instance=name, exc_info=fault)
            self._counts.broken += 1
        outcome = await self._applier.apply(thought.decisions)
        self._counts.failed += outcome.failed
        self._sources.hurry(source_of(record) for record in snapshot.records if awaits_listing(record, snapshot.now))
        if outcome.failed or outcome.void or thought.errors:
            return self._pace.again
        if thought.requeue_now:
            return 0.0
        if thought.requeue_at is None:
            return self._pace.resync
        until = (thought.requeue_at - snapshot.now).total_seconds()
        return min(max(until, self._pace.at_least), self._pace.resync)

    async def _think(self, snapshot: Snapshot) -> TickResult:
        if len(snapshot.pending) <= _MANY_PODS:
            return tick(snapshot)
        return await asyncio.to_thread(tick, snapshot)

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
