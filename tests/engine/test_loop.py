"""The reconcile loop on a real view of a cluster: when it ticks again, and what a tick that fails does."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

from structlog.testing import capture_logs

from forebay.embedded.api.kinds import CRD_KIND
from forebay.engine.apply.applier import ApplyResult
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.counts import Counts
from forebay.engine.loop import Loop, LoopTiming
from forebay.engine.observe import Observer
from forebay.engine.sources.sources import Sources
from forebay.net.clock import now
from forebay.reconcile.snapshot import OperatorRules
from tests.engine.views_world import watched_cluster

TIMING = LoopTiming(resync=30.0, retry=2.0, shortest=0.2)


class Applied:
    """Takes note of what is to be applied, and answers as a test says."""

    def __init__(self):
        self.rounds = []
        self.answer = ApplyResult(failed=0, conflicts=0)

    async def apply(self, decisions):
        self.rounds.append((asyncio.get_running_loop().time(), [type(each).__name__ for each in decisions]))
        return self.answer


class Looped:
    def __init__(self, watched):
        self.watched, self.applied, self.counts, self.breaks = watched, Applied(), Counts(), None
        views = watched.views
        sources = Sources(views.wake.set, now)
        observer = Observer(
            views,
            sources,
            ProviderCalls(views.wake.set),
            cluster="c",
            environment=None,
            rules=OperatorRules(),
            clock=now,
            budget_accounting=None,
        )
        self.loop = Loop(
            views=views,
            observer=observer,
            sources=sources,
            applier=self.applied,
            configure=self._configure,
            counts=self.counts,
            timing=TIMING,
        )

    def _configure(self):
        if self.breaks is not None:
            raise self.breaks


@asynccontextmanager
async def looped():
    async with watched_cluster() as watched:
        yield Looped(watched)


async def test_an_idle_loop_ticks_again_after_the_resync_and_after_a_failure_sooner():
    async with looped() as it:
        assert await it.loop.reconcile() == TIMING.resync
        it.applied.answer = ApplyResult(failed=2, conflicts=0)
        assert await it.loop.reconcile() == TIMING.retry
        it.applied.answer = ApplyResult(failed=0, conflicts=1)
        assert await it.loop.reconcile() == TIMING.retry
        assert (it.counts.ticks, it.counts.failed) == (3, 2)
        assert dict(it.counts.durations.buckets())["+Inf"] == 3


async def test_ticks_that_raise_are_counted_told_and_forgotten_after_one_that_does_not():
    async with looped() as it:
        it.breaks = ValueError("odd")
        with capture_logs() as logged:
            assert await it.loop.reconcile() == TIMING.retry
            assert await it.loop.reconcile() == TIMING.retry
        assert [(each["event"], each["log_level"]) for each in logged] == [("reconcile failed", "error")] * 2
        assert (it.loop.failures, it.counts.internal_errors, it.counts.ticks) == (2, 2, 0)
        assert it.loop.error(2) is None
        assert it.loop.error(1) == "the last 2 ticks failed (ValueError: odd): see the log"
        assert it.applied.rounds == []
        it.breaks = None
        await it.loop.reconcile()
        assert (it.loop.failures, it.loop.error(0)) == (0, None)
        assert it.loop.last is not None


async def test_changes_wake_the_loop_a_burst_is_one_tick_and_what_they_waited_is_counted():
    async with looped() as it:
        running = asyncio.ensure_future(it.loop.run())
        await asyncio.sleep(5)
        before, counted = len(it.applied.rounds), dict(it.counts.latency.buckets())["+Inf"]
        assert before <= 2, "nothing happens, so nothing is done"
        for number in range(5):
            it.watched.pod(f"p{number}")
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert 1 <= len(it.applied.rounds) - before <= 3
        waited = dict(it.counts.latency.buckets())
        assert waited["+Inf"] - counted == len(it.applied.rounds) - before
        assert waited["0.2"] == waited["+Inf"], "the debounce is a tenth of a second at most"
        running.cancel()
        await asyncio.wait({running})


async def test_a_loop_whose_views_are_not_current_decides_nothing():
    async with looped() as it:
        it.watched.store.delete(CRD_KIND, None, "gpuinstances.forebay.dev")
        await asyncio.sleep(timedelta(minutes=10).total_seconds())
        assert it.watched.views.error() is not None
        assert await it.loop.reconcile() == TIMING.retry
        assert it.counts.ticks == 0
