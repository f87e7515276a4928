"""Metrics of budgets, exact at the moment of the scrape."""

import pytest
from prometheus_client import CollectorRegistry

from forebay.engine.budget_metrics import BudgetCollector
from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
from forebay.kube.pods import PODS
from forebay.net import clock
from forebay.simulate.power import Powered
from tests.engine.budget_world import hours, operator, passing, world


def _value(registry, name, budget="team-a", **labels):
    return registry.get_sample_value(name, {"namespace": "default", "name": budget, **labels})


async def test_figures_are_exact_at_the_scrape():
    async with world() as it, operator(it) as made:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BudgetCollector(lambda: made.budget_accounting, clock.now))
        it.budget(hours="0.2", grace=0)
        it.pod("train", 2, terminationGracePeriodSeconds=5)
        await passing(100)
        now = hours(it.running_for("train"), 2)
        assert _value(registry, "gwb_consumed_gpu_hours") == pytest.approx(now, abs=1e-9)
        assert _value(registry, "gwb_remaining_gpu_hours") == pytest.approx(0.2 - now, abs=1e-9)
        assert _value(registry, "gwb_tracked_pods") == 1
        assert _value(registry, "gwb_burn_gpus") == 2
        assert _value(registry, "gwb_exceeded") == 0
        assert _value(registry, "gwb_consumed_usd") == 0
        assert _value(registry, "gwb_remaining_usd") is None
        assert _value(registry, "gwb_forecast_exhausted_timestamp_seconds") > clock.now().timestamp()
        await passing(400)
        assert _value(registry, "gwb_exceeded") == 1
        assert _value(registry, "gwb_enforcement_actions_total", action="Evict") == 1
        assert registry.get_sample_value("forebay_ledger_lag_seconds") == 0


async def test_costs_of_machines_are_exported_by_namespace_pool_and_class():
    async with world(Powered(name="box-1", gpus=2, boot=60, hourly_price="3.60"), nodes=()) as it, operator(it) as made:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BudgetCollector(lambda: made.budget_accounting, clock.now))
        it.budget(hours=None, quota={"usd": "5"})
        it.pod("train", 2)
        await passing(700)
        cost = it.seconds(it.record("box-1")["status"]["billedFrom"]) / 1000
        assert _value(registry, "gwb_consumed_usd") == pytest.approx(cost, abs=1e-9)
        assert _value(registry, "gwb_remaining_usd") == pytest.approx(5 - cost, abs=1e-9)
        assert _value(registry, "gwb_burn_usd_per_hour") == 3.6
        labels = {"namespace": "default", "pool": "kube-system/environment", "class": "environment-kube-system"}
        assert registry.get_sample_value("forebay_spent_usd", labels) == pytest.approx(cost, abs=1e-9)
        assert registry.get_sample_value("forebay_spend_usd_per_hour", labels) == 3.6


def _registry(made):
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BudgetCollector(lambda: made.budget_accounting, clock.now))
    return registry


async def _accuracy(it, made, after=700):
    await passing(after)
    return _value(_registry(made), "gwb_accounting_accuracy_ratio")


async def test_accuracy_compares_the_ledger_with_the_pods_of_the_api_server():
    async with world() as it, operator(it) as made:
        it.budget()
        it.pod("done", 1, runs="3m")
        it.pod("going", 3)
        assert await _accuracy(it, made) == 1.0
        assert await _accuracy(it, made, 3600) == 1.0


async def test_a_ledger_that_lost_a_run_is_found_out():
    async with world() as it, operator(it) as made:
        it.budget()
        it.pod("lost", 1)
        it.pod("kept", 3)
        await passing(300)
        made.budget_accounting.accounts.get(("default", "team-a")).ledger.end(
            it.the_pod("lost")["metadata"]["uid"], int(clock.now().timestamp()) - 300
        )
        assert await _accuracy(it, made, 400) == pytest.approx(0.75, abs=0.02)


async def test_a_run_in_the_ledger_that_no_pod_has_any_more_is_found_out():
    async with world() as it, operator(it) as made:
        it.budget()
        it.pod("kept", 1)
        await passing(300)
        ledger = made.budget_accounting.accounts.get(("default", "team-a")).ledger
        ledger.begin("ghost", int(clock.now().timestamp()), 1000, int(clock.now().timestamp()))
        assert await _accuracy(it, made, 400) == 1.0, "perhaps deleted at this moment"
        assert await _accuracy(it, made, 650) == float("inf")


async def test_labels_that_were_changed_raise_no_false_alarm():
    async with world() as it, operator(it) as made:
        it.budget()
        it.pod("early", 1)
        it.pod("late", 4, labels={"team": "b"})
        await passing(400)
        await it.apply(PODS, "late", {"metadata": {"name": "late", "labels": {"team": "a"}}})
        assert await _accuracy(it, made, 300) == 1.0


async def test_a_selector_that_was_changed_raises_no_false_alarm():
    async with world() as it, operator(it) as made:
        it.budget(labels={"team": "b"})
        it.pod("going", 1)
        await passing(400)
        await it.apply(GPU_WORKLOAD_BUDGETS, "team-a", {"spec": {"selector": {"matchLabels": {"team": "a"}}}})
        assert await _accuracy(it, made, 300) is None, "nothing that began under this selector"


async def test_a_budget_that_cannot_be_listed_has_no_accuracy_until_it_can():
    async with world() as it, operator(it) as made:
        it.budget()
        it.pod("going", 1)
        assert await _accuracy(it, made) == 1.0
        it.store.delete(it.kind, "default", "team-a")
        assert await _accuracy(it, made) is None


async def test_a_process_that_does_not_lead_exports_no_budgets():
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BudgetCollector(lambda: None, clock.now))
    assert _value(registry, "gwb_consumed_gpu_hours") is None
