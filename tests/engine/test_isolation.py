"""One object that nobody could foresee: its owner is told, and everybody else goes on."""

from forebay.engine.budget_metrics import BudgetCollector
from forebay.net import clock
from forebay.simulate.power import Powered
from forebay.web.metrics import metrics_page
from tests.engine.budget_world import operator, passing, world


async def test_a_quota_edited_to_more_than_anything_stops_nobody():
    async with world() as it, operator(it) as made:
        it.budget("other", hours="0.1", grace=0, labels={"team": "b"})
        it.budget("team-a")
        it.pod("train", 1, labels={"team": "b"}, terminationGracePeriodSeconds=5)
        await passing(30)
        edited = it.the_budget("team-a")
        it.store.update(
            it.kind, {**edited, "spec": {**edited["spec"], "quota": {"gpuHours": "1e101", "windowHours": 24}}}
        )
        await passing(600)
        page, _ = metrics_page(BudgetCollector(lambda: made.budget_accounting, clock.now))()

        assert not it.is_there("train")
        assert made.counts.internal_errors == 0
        assert it.condition("Ready", "team-a") == ("True", "Reconciled")
        assert b'gwb_consumed_gpu_hours{name="team-a"' in page


async def test_ticks_that_fail_again_and_again_fail_readiness_and_then_liveness():
    # A setting that is the fault of no object, and that no tick can apply once a machine is idle.
    machine = Powered(name="box-1", gpus=4, boot=60)
    async with world(machine, nodes=()) as it, operator(it, scale_down_interval="soon") as made:
        it.pod("train", 2, runs="2m")
        await passing(160)
        assert made.error() is None
        await passing(60)
        assert "ticks failed (TypeError" in made.error()
        assert made.counts.internal_errors >= 2
        assert made.fatal_error() is None
        await passing(90)
        assert "ticks failed (TypeError" in made.fatal_error()
        it.pod("next", 4, runs="10m")
        await passing(30)
        assert made.error() is made.fatal_error() is None
