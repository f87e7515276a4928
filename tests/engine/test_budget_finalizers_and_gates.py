"""The usage finalizer of exact budgets, and the scheduling gate of budgets."""

import pytest

from forebay.embedded.api import kinds
from tests.engine.budget_world import hours, operator, passing, used, world

USAGE = "forebay.dev/usage"
GATE = "forebay.dev/budget"


def _finalizers(it, name):
    return it.the_pod(name)["metadata"].get("finalizers", [])


async def test_pods_of_an_exact_budget_keep_the_finalizer_until_their_usage_is_stored():
    async with world() as it, operator(it):
        it.budget(accounting="Exact")
        it.pod("train", 1, runs="5m")
        it.pod("other", 1, runs="5m", labels={"team": "b"})
        await passing(60)
        assert _finalizers(it, "train") == [USAGE]
        assert _finalizers(it, "other") == []
        await passing(300)
        assert it.phase("train") == "Succeeded"
        assert _finalizers(it, "train") == []


async def test_a_pod_that_ends_and_is_deleted_while_forebay_is_down_is_counted_to_the_second():
    async with world() as it:
        it.budget(accounting="Exact")
        async with operator(it, "a"):
            it.pod("train", 1, runs="10m")
            await passing(60)
        await passing(700)
        ran = it.ran("train")
        it.delete_pod("train")
        await passing(60)
        assert it.is_there("train")
        async with operator(it, "b"):
            await passing(60)
            assert not it.is_there("train")
            assert used(it.status()) == pytest.approx(hours(ran), abs=0.0005)


async def test_a_budget_that_is_no_longer_exact_removes_the_finalizers():
    async with world() as it, operator(it):
        it.budget(accounting="Exact")
        it.pod("train", 1)
        await passing(60)
        assert _finalizers(it, "train") == [USAGE]
        it.change(it.kind, "team-a", lambda each: each["spec"].update(accounting="Observed"), "default")
        await passing(10)
        assert _finalizers(it, "train") == []


async def test_a_pod_that_never_ran_loses_the_finalizer():
    async with world(nodes=()) as it, operator(it):
        it.budget(accounting="Exact")
        it.pod("train", 1)
        await passing(10)
        assert _finalizers(it, "train") == [USAGE]
        it.delete_pod("train")
        await passing(10)
        assert not it.is_there("train")


async def test_the_finalizer_is_removed_when_the_budget_is_deleted():
    async with world() as it, operator(it):
        it.budget(accounting="Exact")
        it.pod("train", 1)
        await passing(60)
        it.store.delete(it.kind, "default", "team-a")
        await passing(10)
        assert _finalizers(it, "train") == []


async def test_other_finalizers_stay():
    async with world() as it, operator(it):
        it.budget(accounting="Exact")
        it.lab.pod("train", 1, runs="1m", metadata={"labels": {"team": "a"}, "finalizers": ["example.com/mine"]})
        await passing(30)
        assert set(_finalizers(it, "train")) == {"example.com/mine", USAGE}
        await passing(120)
        assert _finalizers(it, "train") == ["example.com/mine"]


def _gated(it, name, gpus=1, **more):
    return it.pod(name, gpus, schedulingGates=[{"name": GATE}], **more)


def _gates(it, name):
    return [each["name"] for each in it.the_pod(name)["spec"].get("schedulingGates", ())]


async def test_pods_at_the_gate_are_released_oldest_first_as_the_window_frees_room():
    """As the admission policy leaves them: the cluster of this test stores policies and does not run them."""
    async with world() as it, operator(it):
        it.budget(hours="0.2", window=1, action="Pause", grace=100_000)
        it.pod("first", 1, runs="13m")
        await passing(900)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        _gated(it, "second", runs="10m")
        await passing(5)
        _gated(it, "third", runs="10m")
        await passing(60)
        assert _gates(it, "second") == _gates(it, "third") == [GATE]
        assert "not before" in it.told("second", "HeldByBudget")[0]
        assert it.told("second", "Gated") == []
        assert it.status()["heldPods"] == 2
        await passing(3400)
        assert _gates(it, "second") == []
        assert it.told("second", "ReleasedByBudget")
        assert it.phase("second") in {"Running", "Succeeded"}


async def test_the_gate_of_a_pod_without_budgets_is_removed():
    async with world() as it, operator(it):
        _gated(it, "lone")
        await passing(10)
        assert _gates(it, "lone") == []
        assert it.phase("lone") in {"Pending", "Running"}


async def test_a_gated_pod_is_released_when_the_quota_is_raised():
    async with world() as it, operator(it):
        it.budget(hours="0.1", window=24, action="Pause", grace=100_000)
        it.pod("first", 1, runs="8m")
        await passing(600)
        _gated(it, "second")
        await passing(30)
        assert _gates(it, "second") == [GATE]
        it.change(it.kind, "team-a", lambda each: each["spec"]["quota"].update(gpuHours="10"), "default")
        await passing(10)
        assert _gates(it, "second") == []


async def test_a_gated_pod_can_be_deleted():
    async with world() as it, operator(it):
        it.budget(hours="0.1", window=24, action="Pause", grace=100_000, accounting="Exact")
        it.pod("first", 1, runs="8m")
        await passing(600)
        _gated(it, "second")
        await passing(30)
        it.store.delete(kinds.POD_KIND, "default", "second")
        await passing(10)
        assert not it.is_there("second")


async def test_new_pods_are_gated_while_a_pod_waits_although_the_quota_is_not_used_up():
    async with world() as it, operator(it):
        it.budget(hours="1", window=24, action="Pause", grace=100_000)
        it.pod("first", 1, runs="30m")
        await passing(120)
        assert "forebay.dev/exceeded" not in it.labels()
        _gated(it, "second", 8)
        await passing(30)
        assert it.condition("QuotaExceeded") == ("False", "WithinBudget")
        assert _gates(it, "second") == [GATE]
        assert it.labels()["forebay.dev/exceeded"] == "true"
        it.delete_pod("second")
        await passing(30)
        assert "forebay.dev/exceeded" not in it.labels()


async def test_a_pod_that_no_node_could_run_does_not_hold_back_those_behind_it():
    async with world() as it, operator(it):
        it.budget(hours="1", window=24, action="Pause", grace=100_000)
        it.pod("first", 1, runs="30m")
        await passing(2000)
        _gated(it, "huge", 64)
        await passing(10)
        _gated(it, "small", 1)
        await passing(30)
        assert _gates(it, "huge") == [GATE]
        assert _gates(it, "small") == []
