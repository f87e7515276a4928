"""The log of the operator: each transition, provider call, refusal and enforcement; a standby names the leader."""

import asyncio

from structlog.testing import capture_logs

from forebay.simulate.power import Powered
from tests.engine.budget_world import operator as budget_operator
from tests.engine.budget_world import passing
from tests.engine.budget_world import world as budget_world
from tests.engine.power_world import lab, operator

BOX = Powered(name="box", gpus=2, boot=60)


def lines(logged, event):
    return [each for each in logged if each["event"] == event]


async def test_the_life_of_a_machine_can_be_read_in_the_log():
    with capture_logs() as logged:
        async with lab(BOX) as world, operator(world):
            world.pod("train", 1, runs="60s")
            await asyncio.sleep(400)

    states = [each["state"] for each in lines(logged, "instance transition") if each["instance"] == "box"]
    assert list(dict.fromkeys(states)) == [
        "Requested", "Launching", "Launched", "Joined", "Ready", "Draining", "Terminating", "Gone",
    ]  # fmt: skip
    calls = [(each["call"], each["provider"], each["instance"]) for each in lines(logged, "provider call accepted")]
    assert calls == [("launch", "webhook", "box"), ("terminate", "webhook", "box")]
    assert all(each["message"] and each["reason"] for each in lines(logged, "instance transition"))
    assert [each["provider"] for each in lines(logged, "source configured")] == ["webhook"]


async def test_a_pod_that_nothing_can_serve_is_logged_with_the_reason():
    with capture_logs() as logged:
        async with lab(BOX) as world, operator(world):
            world.pod("giant", 16)
            await asyncio.sleep(60)

    (refused,) = lines(logged, "pod event")
    assert (refused["pod"], refused["reason"], refused["log_level"]) == ("default/giant", "NoOfferFits", "warning")


async def test_enforcement_is_logged():
    with capture_logs() as logged:
        async with budget_world(nodes=("n1",)) as it, budget_operator(it):
            it.budget(hours="0.2", window=1, action="Evict", grace=0)
            it.pod("first", 1, runs="60m")
            await passing(1000)

    reasons = {(each["kind"], each["reason"]) for each in lines(logged, "object event")}
    assert ("GPUWorkloadBudget", "QuotaExceeded") in reasons
    assert [each for each in reasons if each[0] == "Pod"]


async def test_a_standby_says_for_whom_it_waits():
    with capture_logs() as logged:
        async with lab(BOX) as world, operator(world, "first"):
            await asyncio.sleep(5)
            async with operator(world, "second"):
                await asyncio.sleep(5)

    (waiting,) = lines(logged, "standby")
    assert (waiting["leader"], waiting["identity"]) == ("first", "second")
