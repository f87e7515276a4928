"""The reconcile loop: a tick soon after something changed, and at intervals in case a change was missed."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn, Protocol

import msgspec
import structlog

from forebay.engine.apply.applier import ApplyResult
from forebay.engine.counts import Counts
from forebay.engine.observe import Observer
from forebay.engine.sources.sources import Sources
from forebay.engine.views import Views
from forebay.lifecycle.facts import machine_sources, serving_source
from forebay.lifecycle.next_step import awaits_listing, may_await_listing
from forebay.model.kept import among
from forebay.reconcile.class_finalizers import awaited_sources
from forebay.reconcile.decisions import Decision
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import TickResult, tick
from forebay.reporting.decision_log import DecisionLog

log = structlog.get_logger(__name__)


class LoopTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals of the reconcile loop, in seconds."""

    #: A burst of changes has ended when none came for this long.
    debounce: float = 0.05
    #: A burst is cut short after this long.
    debounce_limit: float = 0.1
    #: Between ticks while nothing changes.
    resync: float = 30.0
    #: Shortest wait for a deadline, which may have passed already.
    shortest: float = 0.2
    #: After decisions that could not be applied, and while the views are incomplete or stale.
    retry: float = 2.0


class AppliesDecisions(Protocol):
    """Carries out what a tick decided."""

    async def apply(self, decisions: Iterable[Decision]) -> ApplyResult: ...


class Loop:
    """Runs ticks. Changes only wake the loop; what a tick decides follows from the state it observes."""

    def __init__(
        self,
        *,
        views: Views,
        observer: Observer,
        sources: Sources,
        applier: AppliesDecisions,
        configure: Callable[[], None],
        counts: Counts,
        timing: LoopTiming = LoopTiming(),  # noqa: B008 (immutable)
        traced: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._views = views
        self._observer = observer
        self._sources = sources
        self._applier = applier
        self._configure = configure
        self._counts = counts
        self._timing = timing
        self._traced = traced
        #: Time of the event loop at which the first change came that no tick has acted on yet; None: all are.
        self._changed_at: float | None = None
        #: Ticks that failed since the last one that did not.
        self.failures = 0
        self._last_failure = ""
        #: What the last tick saw and decided, and the decisions before that, for whoever shows them.
        self.last: tuple[Snapshot, TickResult] | None = None
        self.decision_log = DecisionLog()

    def error(self, most: int) -> str | None:
        """Sentence about the failing ticks where more than `most` failed in a row; None otherwise."""
        if self.failures <= most:
            return None
        return f"the last {self.failures} ticks failed ({self._last_failure}): see the log"

    async def run(self) -> NoReturn:
        while True:
            self._note_change()
            # Cleared before the tick, not after: a change that arrives during the tick must cause the next one.
            self._views.wake.clear()
            with self._traced():
                wait = await self.reconcile()
            if wait:
                await self._wait_for_change(wait)

    async def reconcile(self) -> float:
        """Observes, decides and applies once. Returns the seconds until the next tick unless a change comes first."""
        if self._views.error() is not None:
            return self._timing.retry
        began = time.perf_counter()
        try:
            self._configure()
            snapshot = self._observer.observe()
            result = await run_tick(snapshot)
        except Exception as error:
            # A bug must not end the loop: running machines still need it once the cause has passed.
            log.exception("reconcile failed")
            self._counts.internal_errors += 1
            self.failures += 1
            self._last_failure = f"{type(error).__name__}: {error}"
            return self._timing.retry
        self.failures = 0
        self.last = (snapshot, result)
        self._observer.memory = result.memory
        self._counts.ticks += 1
        self._counts.tick_seconds += time.perf_counter() - began
        decisions: tuple[Decision, ...] = (*self._observer.publications, *result.decisions)
        self._counts.decisions.update(type(each).__name__ for each in decisions)
        for faulty, fault in result.errors.items():
            log.error("reconcile failed", object=str(faulty), exc_info=fault)
            self._counts.internal_errors += 1
        self.decision_log.add(decisions, snapshot.now)
        applied = await self._applier.apply(decisions)
        self._counts.failed += applied.failed
        self._counts.durations.observe(time.perf_counter() - began)
        if self._changed_at is not None:
            self._counts.latency.observe(asyncio.get_running_loop().time() - self._changed_at)
            self._changed_at = None
        may_await = among(snapshot.records, may_await_listing)
        awaiting = [record for record in may_await if awaits_listing(record, snapshot.now)]
        machines = machine_sources(snapshot.sources) if awaiting else {}
        awaited = (serving_source(record, machines) for record in awaiting)
        self._sources.poll_faster((*awaited, *awaited_sources(snapshot)))
        if applied.failed or applied.conflicts or result.errors:
            return self._timing.retry
        if result.requeue_now:
            return 0.0
        if result.requeue_at is None:
            return self._timing.resync
        until = (result.requeue_at - snapshot.now).total_seconds()
        return min(max(until, self._timing.shortest), self._timing.resync)

    def _note_change(self) -> None:
        if self._changed_at is None:
            self._changed_at = self._views.wake.since

    async def _wait_for_change(self, limit: float) -> None:
        """Returns after a burst of changes, or after `limit` seconds without any."""
        wake = self._views.wake
        try:
            async with asyncio.timeout(limit):
                await wake.wait()
        except TimeoutError:
            return
        self._note_change()
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timing.debounce_limit
        while wake.is_set() and loop.time() < end:
            wake.clear()
            try:
                async with asyncio.timeout(min(self._timing.debounce, end - loop.time())):
                    await wake.wait()
            except TimeoutError:
                return


async def run_tick(snapshot: Snapshot) -> TickResult:
    """The tick, in a thread where there is something to plan: one gang can take the planner a second."""
    if not snapshot.pending:
        return tick(snapshot)
    return await asyncio.to_thread(tick, snapshot)
