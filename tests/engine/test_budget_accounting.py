"""Usage that budgets count while pods come and go, and the status that shows it."""

from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from forebay.embedded.api import kinds
from forebay.net import clock
from forebay.simulate.power import Powered
from tests.engine.budget_world import LABELS, hours, operator, passing, used, world


async def test_a_new_budget_has_all_conditions_and_figures():
    async with world() as it, operator(it):
        it.budget(hours="100")
        await passing(5)
        assert it.condition("Ready") == ("True", "Reconciled")
        assert it.condition("QuotaExceeded") == ("False", "WithinBudget")
        assert it.condition("Degraded") == ("False", "ReconcileSucceeded")
        assert it.status()["observedGeneration"] == 1
        assert (used(it.status()), it.status()["remainingGpuHours"], it.status()["trackedPods"]) == (0, "100", 0)


async def test_usage_is_counted_while_pods_run_and_after():
    async with world() as it, operator(it):
        it.budget(hours="100")
        it.pod("train", 2, runs="30m")
        await passing(900)
        assert used(it.status()) == pytest.approx(hours(it.running_for("train"), 2), abs=hours(6, 2))
        assert it.status()["trackedPods"] == 1
        await passing(1800)
        assert it.phase("train") == "Succeeded"
        assert used(it.status()) == pytest.approx(hours(it.ran("train"), 2), abs=0.0005)


async def test_figures_are_written_every_five_seconds_while_they_change():
    async with world() as it, operator(it):
        it.budget(hours="100")
        it.pod("train", 1)
        await passing(60)
        versions = set()
        for _ in range(100):
            versions.add(it.the_budget()["metadata"]["resourceVersion"])
            assert used(it.status()) == pytest.approx(hours(it.running_for("train")), abs=hours(6) + 0.0005)
            await passing(1)
        assert 20 <= len(versions) <= 21


async def test_the_final_usage_is_written_soon_after_the_last_pod_has_ended():
    async with world() as it, operator(it):
        it.budget(hours="1000")
        it.pod("train", 1, runs="100s")
        await passing(110)
        assert it.phase("train") == "Succeeded"
        assert used(it.status()) == pytest.approx(hours(it.ran("train")), abs=0.0005)


async def test_a_pod_that_was_deleted_still_counts():
    async with world() as it, operator(it):
        it.budget(hours="100")
        it.pod("train", 1, runs="20m")
        await passing(1300)
        ran = it.ran("train")
        it.delete_pod("train")
        await passing(120)
        assert not it.is_there("train")
        assert used(it.status()) == pytest.approx(hours(ran), abs=0.0005)
        assert it.status()["trackedPods"] == 1


async def test_a_pod_that_is_deleted_while_it_runs_counts_until_its_end():
    async with world() as it, operator(it):
        it.budget(hours="100")
        it.pod("train", 1)
        await passing(1200)
        ran = it.running_for("train")
        it.delete_pod("train")
        await passing(120)
        assert not it.is_there("train")
        assert hours(ran) - 0.0005 <= used(it.status()) <= hours(ran + 32)


async def test_another_operator_continues_where_the_first_ended():
    async with world() as it:
        it.budget(hours="100")
        async with operator(it, "a"):
            it.pod("short", 1, runs="10m")
            it.pod("long", 1)
            await passing(700)
            ran = it.ran("short")
            it.delete_pod("short")
            await passing(10)
        assert len(it.ledgers()) == 1
        async with operator(it, "b"):
            await passing(300)
            assert used(it.status()) == pytest.approx(hours(ran + it.running_for("long")), abs=hours(62))
            assert it.status()["trackedPods"] == 2


def _replaced(it, name="team-a", **metadata):
    """The budget deleted and created again, as `kubectl replace --force` does."""
    old = it.the_budget(name)
    it.store.delete(it.kind, "default", name)
    return it.store.create(
        it.kind, {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": old["spec"]}
    )


async def test_a_budget_that_is_deleted_and_created_again_keeps_its_usage_also_over_a_restart():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            it.pod("ended", 1, runs="10m")
            await passing(700)
            it.delete_pod("ended")
            it.pod("long", 1)
            await passing(300)
            ran = it.running_for("long")
            it.store.delete(it.kind, "default", "team-a")
            await passing(30)
            it.delete_pod("long")
            await passing(60)
            it.budget()
            await passing(30)
            assert used(it.status()) == pytest.approx(hours(600 + ran), abs=0.001)
            _replaced(it)
            await passing(30)
            assert used(it.status()) == pytest.approx(hours(600 + ran), abs=0.001)
        async with operator(it, "b"):
            await passing(30)
            assert used(it.status()) == pytest.approx(hours(600 + ran), abs=0.001)
            assert len(it.ledgers()) == 1


async def test_a_budget_created_again_while_forebay_was_down_keeps_its_usage():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            it.pod("ended", 1, runs="10m")
            await passing(700)
            it.delete_pod("ended")
            await passing(10)
        _replaced(it)
        async with operator(it, "b"):
            await passing(30)
            assert used(it.status()) == pytest.approx(hours(600), abs=0.0005)


@pytest.mark.parametrize("away", [False, True])
async def test_a_budget_created_again_for_another_resource_begins_at_zero(away):
    async with world() as it, AsyncExitStack() as stack:
        await stack.enter_async_context(operator(it, "a"))
        it.budget()
        it.pod("ended", 1, runs="10m")
        await passing(700)
        it.delete_pod("ended")
        await passing(10)
        if away:
            await stack.aclose()
        it.store.delete(it.kind, "default", "team-a")
        it.budget(gpuResourceName="cpu")
        if away:
            await stack.enter_async_context(operator(it, "b"))
        await passing(30)
        assert used(it.status()) == 0
        await passing(60)
        assert it.ledgers() == []


async def test_a_budget_created_again_with_the_annotation_begins_at_zero_and_the_earlier_ledger_is_deleted():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            it.pod("ended", 1, runs="10m")
            await passing(700)
            it.delete_pod("ended")
            await passing(10)
            _replaced(it, annotations={"forebay.dev/reset-usage": "true"})
            await passing(30)
            assert used(it.status()) == 0
            assert it.ledgers() == []
        async with operator(it, "b"):
            it.pod("next", 1, runs="1m")
            await passing(120)
            assert used(it.status()) == pytest.approx(hours(60), abs=0.0005)


async def test_ledgers_are_deleted_with_the_namespace_of_their_budget_only():
    async with world() as it:
        it.budget("team-b", labels={"team": "b"})
        it.store.create(kinds.NAMESPACE_KIND, {"metadata": {"name": "gone"}})
        spec = it.the_budget("team-b")["spec"]
        for name in ("one", "two"):
            it.store.create(it.kind, {"metadata": {"name": name, "namespace": "gone"}, "spec": spec})
        async with operator(it, "a"):
            it.lab.pod("in-ns", 1, namespace="gone", runs="1m", metadata={"labels": {"team": "b"}})
            it.pod("two", 1, runs="1m", labels={"team": "b"})
            await passing(120)
            assert len(it.ledgers()) == 3
            it.store.delete(it.kind, "gone", "one")
            await passing(10)
            assert len(it.ledgers()) == 3
        it.store.delete(it.kind, "gone", "two")
        async with operator(it, "b"):
            await passing(70)
            assert len(it.ledgers()) == 3
            it.store.delete(kinds.POD_KIND, "gone", "in-ns", grace=0)
            it.store.delete(kinds.NAMESPACE_KIND, None, "gone")
            it.pod("three", 1, runs="1m", labels={"team": "b"})
            await passing(120)
            assert [each["metadata"]["annotations"]["forebay.dev/budget"] for each in it.ledgers()] == [
                "default/team-b"
            ]


async def _one_pod_that_is_gone(it):
    """Seconds that a pod ran before it was deleted, and the chunk that says so."""
    it.pod("one", 1, runs="10m")
    await passing(700)
    ran = it.ran("one")
    it.delete_pod("one")
    await passing(10)
    (chunk,) = it.ledgers()
    return ran, chunk


async def test_a_damaged_ledger_is_reported_not_touched_and_forgotten_when_it_is_deleted():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            _, chunk = await _one_pod_that_is_gone(it)
        it.store.update(kinds.CONFIG_MAP_KIND, {**chunk, "binaryData": {"chunk": "Z2FyYmFnZQ=="}})
        async with operator(it, "b"):
            it.pod("two", 1, runs="1m")
            await passing(120)
            assert it.condition("Degraded") == ("True", "LedgerDamaged")
            assert it.told("team-a", "LedgerDamaged")
            assert used(it.status()) == pytest.approx(hours(it.ran("two")), abs=0.0005)
            assert "Z2FyYmFnZQ==" in [each["binaryData"]["chunk"] for each in it.ledgers()]
            it.store.delete(kinds.CONFIG_MAP_KIND, "kube-system", chunk["metadata"]["name"])
            await passing(120)
            assert it.condition("Degraded") == ("False", "ReconcileSucceeded")
            assert used(it.status()) == pytest.approx(hours(it.ran("two")), abs=0.0005)


async def test_a_ledger_that_somebody_deletes_is_written_again_and_reported():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            ran, chunk = await _one_pod_that_is_gone(it)
            it.store.delete(kinds.CONFIG_MAP_KIND, "kube-system", chunk["metadata"]["name"])
            await passing(65)
            assert [each["metadata"]["name"] for each in it.ledgers()] == [chunk["metadata"]["name"]]
            assert it.condition("Degraded") == ("True", "LedgerRewritten")
            assert it.told("team-a", "LedgerRewritten")
            await passing(65)
            assert it.condition("Degraded") == ("False", "ReconcileSucceeded")
        async with operator(it, "b"):
            await passing(30)
            assert used(it.status()) == pytest.approx(hours(ran), abs=0.0005)


async def test_a_ledger_that_is_deleted_just_before_a_shutdown_is_written_again():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            ran, chunk = await _one_pod_that_is_gone(it)
            it.store.delete(kinds.CONFIG_MAP_KIND, "kube-system", chunk["metadata"]["name"])
        async with operator(it, "b"):
            await passing(30)
            assert used(it.status()) == pytest.approx(hours(ran), abs=0.0005)


def _unlabel(it, chunk):
    it.change(
        kinds.CONFIG_MAP_KIND, chunk["metadata"]["name"], lambda each: each["metadata"].pop("labels"), "kube-system"
    )


async def test_a_ledger_that_lost_its_labels_counts_is_stored_and_gets_them_back():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            _, chunk = await _one_pod_that_is_gone(it)
            _unlabel(it, chunk)
        async with operator(it, "b"):
            it.pod("two", 1, runs="10m")
            await passing(700)
            assert used(it.status()) == pytest.approx(hours(1200), abs=0.0005)
            assert it.condition("Degraded") == ("False", "ReconcileSucceeded")
            assert len(it.ledgers()) == 1
            _unlabel(it, chunk)
            it.delete_pod("two")
            await passing(65)
            assert len(it.ledgers()) == 1
            assert it.condition("Degraded") == ("False", "ReconcileSucceeded")
        async with operator(it, "c"):
            await passing(30)
            assert used(it.status()) == pytest.approx(hours(1200), abs=0.0005)


async def test_a_clock_that_is_ahead_for_a_while_erases_nothing():
    ahead = timedelta()
    async with world() as it, operator(it, now=lambda: clock.now() + ahead):
        it.budget(window=24)
        it.pod("one", 1, runs="30m")
        await passing(2000)
        it.delete_pod("one")
        await passing(60)
        ahead = timedelta(hours=26)
        await passing(720)
        ahead = timedelta()
        await passing(120)
        assert used(it.status()) == pytest.approx(hours(1800), abs=0.0005)


async def test_what_the_ledger_stores_of_pods_that_are_gone_is_compacted_after_a_day():
    async with world() as it, operator(it):
        it.budget(window=240)
        for number in range(30):
            it.pod(f"p{number}", 0 if number % 2 else 1, runs="2m")
            await passing(10)
        await passing(300)
        for number in range(30):
            it.delete_pod(f"p{number}")
        await passing(600)

        def stored():
            return sum(len(text) for each in it.ledgers() for text in (each.get("binaryData") or each["data"]).values())

        before, consumed = stored(), used(it.status())
        await passing(25 * 3600)
        assert stored() < before / 2
        assert used(it.status()) == pytest.approx(consumed, abs=0.0005)


async def test_a_budget_of_cores_counts_pods_without_gpus():
    async with world() as it, operator(it):
        it.budget("cores", hours="10", gpuResourceName="cpu")
        container = {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "500m"}}}
        it.pod("sim", 0, runs="20m", containers=[container])
        await passing(1300)
        assert it.phase("sim") == "Succeeded"
        assert used(it.status("cores")) == pytest.approx(hours(it.ran("sim")) / 2, abs=0.0005)


async def test_cores_used_while_forebay_was_down_are_counted_before_finalizers_are_removed():
    """A new process first reads pods without the run times of CPU-only ones: it must not take these for unused."""
    container = {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "500m"}}}
    async with world() as it:
        it.budget("cores", hours="10", gpuResourceName="cpu", accounting="Exact")
        async with operator(it, "a"):
            it.pod("seen", 0, runs="10m", containers=[container])
            await passing(60)
        kept = {"labels": {"team": "a"}, "finalizers": ["forebay.dev/usage"]}
        it.lab.pod("unseen", 0, runs="5m", containers=[container], metadata=kept)
        it.lab.pod("long", 0, runs="100h", containers=[container], metadata=kept)
        await passing(700)
        ran = it.ran("seen") + it.ran("unseen")
        for name in ("seen", "unseen"):
            it.delete_pod(name)
        async with operator(it, "b"):
            await passing(60)
            assert not it.is_there("seen")
            assert not it.is_there("unseen")
            running = it.running_for("long")
            assert used(it.status("cores")) == pytest.approx(hours(ran + running) / 2, abs=hours(31))


async def test_a_budget_of_cores_created_later_counts_from_the_start_of_pods():
    container = {"name": "main", "image": "work:1", "resources": {"requests": {"cpu": "500m"}}}
    async with world() as it, operator(it):
        it.pod("sim", 0, runs="5m", containers=[container])
        await passing(600)
        it.budget("cores", hours="10", gpuResourceName="cpu")
        await passing(10)
        assert used(it.status("cores")) == pytest.approx(hours(it.ran("sim")) / 2, abs=0.0005)


async def test_a_budget_warns_before_it_is_used_up_and_when_it_is():
    async with world() as it, operator(it):
        it.budget(hours="0.4", window=1, action="AlertOnly")
        it.pod("train", 1)
        await passing(900)
        assert it.told("team-a", "QuotaForecast") == []
        assert it.status()["forecastExhaustedAt"]
        await passing(400)
        assert len(it.told("team-a", "QuotaForecast")) == 1
        assert it.told("team-a", "QuotaExceeded") == []
        await passing(300)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        assert len(it.told("team-a", "QuotaExceeded")) == 1
        assert len(it.told("team-a", "QuotaForecast")) == 1
        assert it.phase("train") == "Running"


async def test_the_condition_changes_within_seconds_of_the_quota_being_reached():
    async with world() as it, operator(it):
        it.budget(hours="0.2", action="AlertOnly")
        it.pod("train", 1)
        await passing(30)
        await passing(720 - it.running_for("train") - 2)
        assert it.condition("QuotaExceeded") == ("False", "WithinBudget")
        await passing(4)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")


async def test_usage_that_leaves_the_window_counts_no_more():
    async with world() as it, operator(it):
        it.budget(hours="0.1", window=1, action="AlertOnly")
        it.pod("train", 1, runs="8m")
        await passing(500)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        await passing(3700)
        assert it.condition("QuotaExceeded") == ("False", "WithinBudget")
        assert used(it.status()) == 0
        assert it.told("team-a", "WithinBudget")


async def test_admission_policies_find_budgets_by_labels():
    async with world() as it, operator(it):
        it.budget("exact", accounting="Exact")
        it.budget("spent", hours="0.1", grace=10000)
        it.budget("alert", hours="0.1", action="AlertOnly")
        it.pod("train", 1)
        await passing(600)
        assert it.labels("exact") == {"forebay.dev/accounting": "Exact"}
        assert it.labels("spent") == {"forebay.dev/exceeded": "true"}
        assert it.labels("alert") == {}
        assert it.condition("QuotaExceeded", "alert") == ("True", "QuotaReached")


def _taints(it, name):
    return [each["key"] for each in it.lab.node(name)["spec"].get("taints", ())]


async def test_a_pod_on_a_machine_that_is_proven_off_counts_no_longer():
    async with world(Powered(name="only", gpus=8, boot=10), nodes=()) as it:
        it.budget(hours="1000", window=100)
        async with operator(it, "a"):
            it.pod("train", 8)
            await passing(600)
            assert it.state("only") == "Ready"
            it.lab.power.lose_power("only")
            await passing(2400)
            assert it.state("only") == "Gone"
            assert it.phase("train") == "Running"
            assert "node.kubernetes.io/out-of-service" in _taints(it, "only")
            counted = used(it.status())
            assert counted < hours(3000, 8)
            # The GPUInstance is deleted after an hour.
            await passing(4000)
            assert it.state("only") is None
            assert used(it.status()) == pytest.approx(counted, abs=0.001)
        async with operator(it, "b"):
            await passing(600)
            assert used(it.status()) == pytest.approx(counted, abs=0.001)
            it.lab.power.power_on_by_hand("only")
            await passing(60)
            assert "node.kubernetes.io/out-of-service" not in _taints(it, "only")


async def test_a_window_that_is_made_longer_holds_at_once_what_it_holds_after_a_restart():
    async with world() as it:
        it.budget(hours="100", window=1)
        async with operator(it, "a"):
            it.pod("ended", 2, runs="30m")
            it.pod("running", 1)
            await passing(3 * 3600)
            it.delete_pod("ended")
            await passing(60)
            assert used(it.status()) == pytest.approx(1, abs=0.001)
            it.change(it.kind, "team-a", lambda budget: budget["spec"]["quota"].update(windowHours=24), "default")
            await passing(60)
            expected = hours(1800, 2) + hours(it.running_for("running"))
            assert used(it.status()) == pytest.approx(expected, abs=0.003)
            assert it.status()["trackedPods"] == 2
        async with operator(it, "b"):
            await passing(60)
            expected = hours(1800, 2) + hours(it.running_for("running"))
            assert used(it.status()) == pytest.approx(expected, abs=0.003)


async def test_pods_that_ended_before_the_budget_selected_them_count_nothing_after_a_restart_either():
    async with world() as it:
        it.budget(hours="100", labels={"team": "x"})
        async with operator(it, "a"):
            it.pod("train", 2, runs="30m")
            await passing(2400)
            it.change(
                it.kind, "team-a", lambda budget: budget["spec"].update(selector={"matchLabels": LABELS}), "default"
            )
            await passing(60)
            assert used(it.status()) == 0
        async with operator(it, "b"):
            await passing(60)
            assert used(it.status()) == 0
            assert it.status()["trackedPods"] == 0
            it.pod("next", 2, runs="30m")
            await passing(2400)
            assert used(it.status()) == pytest.approx(hours(1800, 2), abs=0.001)


async def test_a_pod_that_lost_its_machine_does_not_count_while_the_machine_boots_again():
    async with world(Powered(name="only", gpus=8, boot=600), nodes=()) as it, operator(it, "a"):
        it.budget(hours="1000", window=100)
        it.pod("train", 8)
        await passing(1200)
        it.lab.power.lose_power("only")
        await passing(1600)
        assert it.state("only") == "Gone"
        counted = used(it.status())
        it.pod("next", 8)
        await passing(600)
        assert (it.state("only"), it.phase("train")) == ("Launched", "Running")
        assert used(it.status()) == counted
        await passing(900)
        assert used(it.status()) - counted == pytest.approx(hours(it.running_for("next"), 8), abs=hours(30, 8))


async def test_the_ledger_of_a_deleted_budget_is_deleted_after_a_month():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            it.pod("train", 1, runs="60s")
            await passing(200)
            it.delete_pod("train")
            it.store.delete(it.kind, "default", "team-a")
            await passing(60)
        (kept,) = it.ledgers()
        # Nobody watches meanwhile: a month of an operator's life takes minutes, also in virtual time.
        await passing(timedelta(days=30).total_seconds())
        async with operator(it, "b"):
            await passing(120)
            assert [each["metadata"]["uid"] for each in it.ledgers()] == [kept["metadata"]["uid"]]
        await passing(timedelta(days=1).total_seconds())
        async with operator(it, "c"):
            await passing(120)
            assert it.ledgers() == []
