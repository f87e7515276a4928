"""Snapshots that are kept from earlier ticks: they stay as they were, and replay to the same decisions."""

from collections import Counter

from forebay.budgets.enforcement import Evict, Pause, Resume
from forebay.reconcile.saved_snapshot import load_snapshot, save_snapshot
from forebay.reconcile.tick import tick
from tests.engine.budget_world import operator, passing, world


class Recorder:
    """Keeps what each tick has seen and decided, and what a file of that said at the time."""

    def __init__(self, running):
        self.kept = []
        self._last = None
        self._operator = running

    async def watch(self, seconds, every=1.0):
        for _ in range(int(seconds / every)):
            await passing(every)
            loop = self._operator.loop
            if loop is not None and loop.last is not self._last:
                self._last = loop.last
                self.kept.append((*self._last, save_snapshot(self._last[0])))


def stops(result):
    return [each for each in result.decisions if isinstance(each, Evict | Pause | Resume)]


async def test_a_snapshot_of_an_earlier_tick_stays_as_it_was_and_replays_to_the_same_decisions():
    async with world() as it, operator(it) as running:
        it.budget(hours="0.3", grace=60)
        it.pod("small", 1, terminationGracePeriodSeconds=5)
        it.pod("large", 2, runs="20m", terminationGracePeriodSeconds=5)
        seen = Recorder(running)
        await seen.watch(300)
        it.pod("later", 1, runs="1m")
        await seen.watch(50)
        # The tick that decides an eviction is followed by others at once.
        await seen.watch(80, every=0.02)
        await seen.watch(200)

    assert len(seen.kept) > 20
    decided = Counter(type(each) for _, result, _ in seen.kept for each in result.decisions)
    assert decided[Evict] >= 1, "enforcement is part of what is replayed"
    for snapshot, result, saved in seen.kept:
        assert save_snapshot(snapshot) == saved
        again = tick(snapshot)
        assert again.decisions == result.decisions
        assert (again.requeue_at, again.requeue_now) == (result.requeue_at, result.requeue_now)
        assert stops(tick(load_snapshot(saved))) == stops(result)
