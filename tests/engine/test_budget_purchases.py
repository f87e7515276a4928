"""No capacity is added for pods whose budgets have no headroom; running and launching pods count."""

from forebay.simulate.power import Powered
from tests.engine.budget_world import operator, passing, world

BOXES = [Powered(name=f"box-{number}", gpus=1, boot=60) for number in range(1, 4)]


async def test_no_machine_is_powered_on_for_a_pod_whose_budget_is_used_up():
    async with world(*BOXES, nodes=()) as it, operator(it):
        it.budget(hours="0.2", window=1, action="Pause", grace=100_000)
        it.pod("first", 1, runs="15m")
        await passing(1000)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        it.pod("second", 1, runs="5m")
        await passing(300)
        assert it.asked("start") == ["box-1"]
        (message,) = it.told("second", "HeldByBudget")
        assert "GPUWorkloadBudget team-a has too little headroom" in message
        assert "not before" in message
        assert it.status()["heldPods"] == 1
        await passing(3600)
        assert it.asked("start") == ["box-1", "box-1"]
        assert it.phase("second") in {"Running", "Succeeded"}


async def test_a_pod_with_launching_capacity_counts_before_it_runs():
    """The quota is for one of two pods: the first takes the headroom long before it runs."""
    async with world(*BOXES, nodes=()) as it, operator(it):
        it.budget(hours="1", window=24)
        it.pod("first", 1)
        await passing(5)
        it.pod("second", 1)
        await passing(40)
        assert it.asked("start") == ["box-1"]
        assert it.told("second", "HeldByBudget")
        await passing(60)
        assert it.phase("first") == "Running"
        assert it.asked("start") == ["box-1"]


async def test_pods_created_together_share_the_headroom():
    async with world(*BOXES, nodes=()) as it, operator(it):
        it.budget(hours="2", window=24)
        for name in ("one", "two", "three"):
            it.pod(name, 1)
        await passing(60)
        assert len(it.asked("start")) == 2


async def test_pods_of_other_budgets_are_not_held():
    async with world(*BOXES, nodes=()) as it, operator(it):
        it.budget(hours="0.01", window=1, action="Pause", grace=100_000)
        it.budget("alert", hours="0.01", window=1, action="AlertOnly", labels={"team": "b"})
        it.pod("mine", 1, runs="5m")
        await passing(400)
        it.pod("theirs", 1, runs="10m", labels={"team": "b"})
        it.pod("also-mine", 1)
        await passing(300)
        assert it.condition("QuotaExceeded", "alert") == ("True", "QuotaReached")
        it.pod("theirs-again", 1, runs="10m", labels={"team": "b"})
        await passing(60)
        assert len(it.asked("start")) == 3
        assert it.told("also-mine", "HeldByBudget")


async def test_the_strictest_of_several_budgets_holds():
    async with world(*BOXES, nodes=()) as it, operator(it):
        it.budget("wide", hours="1000")
        it.budget("narrow", hours="1")
        it.pod("first", 1)
        it.pod("second", 1)
        await passing(60)
        assert len(it.asked("start")) == 1
        held = next(name for name in ("first", "second") if it.told(name, "HeldByBudget"))
        assert "narrow" in it.told(held, "HeldByBudget")[0]


async def test_raising_the_quota_starts_the_pod():
    async with world(*BOXES, nodes=()) as it, operator(it):
        it.budget(hours="1")
        it.pod("first", 1)
        it.pod("second", 1)
        await passing(60)
        assert len(it.asked("start")) == 1
        it.change(it.kind, "team-a", lambda each: each["spec"]["quota"].update(gpuHours="10"), "default")
        await passing(10)
        assert len(it.asked("start")) == 2


async def test_a_pod_that_no_machine_fits_takes_no_headroom_from_others():
    """The huge pod is the oldest, and the budget has headroom for one pod."""
    async with world(*BOXES, nodes=()) as it, operator(it):
        it.budget(hours="0.1")
        it.pod("huge", 4)
        await passing(5)
        it.pod("small", 1)
        await passing(30)
        assert it.asked("start") == ["box-1"]
        assert it.told("huge", "NoOfferFits")


async def test_nothing_is_bought_for_the_other_pods_of_a_held_gang():
    async with world(*BOXES, nodes=()) as it, operator(it):
        it.budget(hours="0.01", window=1, action="Pause", grace=100_000)
        it.pod("before", 1, runs="5m")
        await passing(500)
        assert it.condition("QuotaExceeded") == ("True", "QuotaReached")
        started = len(it.asked("start"))
        gang = {"forebay.dev/pod-group": "pair"}
        it.pod("one", 1, annotations=gang)
        it.pod("two", 1, annotations=gang, labels={"team": "without-a-budget"})
        await passing(120)
        assert len(it.asked("start")) == started
        assert it.told("one", "HeldByBudget")
        assert it.told("two", "HeldByBudget")
