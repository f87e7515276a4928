"""Machines you own that misbehave: calls that fail, boots that come to nothing, power that goes."""

import asyncio
from datetime import timedelta
from itertools import groupby, pairwise

import pytest

from forebay.embedded.api import kinds
from forebay.embedded.api.conditions import with_status_condition
from forebay.kube.own_kinds import GPU_INSTANCES
from forebay.simulate.power import Power, PowerCall, Powered
from forebay.simulate.power_faults import (
    Boot,
    breaks_off,
    fails_after_acting,
    lies,
    redirects,
    refuses,
    silent,
)
from tests.engine.power_world import lab, operator

FIRST = Powered(name="first", gpus=1, boot=60)
SECOND = Powered(name="second", gpus=2, boot=60)


def powered_on(world):
    """Machines in the order they were powered on, without the repetitions of a call."""
    return [machine for machine, _ in groupby(world.asked("start"))]


async def test_a_machine_that_never_joins_is_switched_off_and_left_alone_and_another_is_tried():
    async with lab(FIRST, Powered(name="second", gpus=1, boot=60)) as world:
        world.power.script_boots("first", Boot(joins=False))
        async with operator(world, machines=world.configured(every={"boot_timeout": "5m"})):
            world.pod("train", 1, runs="1h")
            await asyncio.sleep(290)
            assert powered_on(world) == ["first"]
            await asyncio.sleep(100)
            assert world.asked("stop") == ["first"]
            assert world.power.power("first") is Power.OFF
            assert world.where("train") == "second"
            assert ("Pod", "train", "JoinTimeout") in world.events()
            # Another pod does not bring it back at once; when it has rested, it has another chance.
            world.pod("other", 1, runs="60s")
            await asyncio.sleep(60)
            assert powered_on(world) == ["first", "second"]
            assert world.told("other", "CoolingDown")
            await asyncio.sleep(600)
            assert powered_on(world) == ["first", "second", "first"]
            assert world.phase("other") == "Succeeded"


async def test_a_cooldown_ends_when_its_record_is_deleted():
    async with lab(FIRST) as world:
        world.power.script_boots("first", Boot(joins=False))
        async with operator(world, machines=world.configured(every={"boot_timeout": "1m"})):
            world.pod("train", 1, runs="60s")
            await asyncio.sleep(120)
            assert world.asked("start") == ["first"]
            assert world.told("train", "CoolingDown")
            assert world.states() == {"first": "Gone"}
            await world.user.delete(GPU_INSTANCES, "first")
            await asyncio.sleep(10)
            assert world.asked("start") == ["first", "first"]


async def test_the_count_of_failures_on_a_new_record_is_no_event():
    async with lab(FIRST) as world:
        world.power.script_boots("first", Boot(joins=False))
        async with operator(world, machines=world.configured(every={"boot_timeout": "1m"})):
            world.pod("train", 1, runs="60s")
            await asyncio.sleep(600)
            assert world.asked("start") == ["first", "first"]
            notes = [each.get("message", "") for each in world.store.list(kinds.EVENT_KIND, "default")]
            assert len([each for each in notes if "was chosen" in each or "fits" in each]) >= 2
            assert not [each for each in notes if "Initial status" in each]


async def test_the_wait_doubles_for_a_machine_that_fails_again():
    async with lab(FIRST) as world:
        world.power.script_boots("first", *[Boot(joins=False)] * 3, Boot(after=30))
        async with operator(world, machines=world.configured(every={"boot_timeout": "1m"})):
            world.pod("train", 1, runs="60s")
            await asyncio.sleep(3600)
            assert world.phase("train") == "Succeeded"
            starts = [call.at for call in world.power.calls if call.asked is PowerCall.ON]
            gaps = [later - earlier for earlier, later in pairwise(starts)]
            assert [round(gap / timedelta(minutes=1)) for gap in gaps] == [6, 11, 21]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (refuses(500), "OutcomeUnknown"),
        (fails_after_acting(503), "OutcomeUnknown"),
        (redirects("http://power/elsewhere"), "LaunchRejected"),
        (redirects("http://power/elsewhere", 302), "OutcomeUnknown"),
        (refuses(401), "BadCredentials"),
        (refuses(404), "LaunchRejected"),
        (silent(acts=False), "OutcomeUnknown"),
        (breaks_off(acts=True), "OutcomeUnknown"),
    ],
    ids=["500", "503-acts", "301", "302", "401", "404", "silence", "breaks-off"],
)
async def test_a_power_api_that_fails_is_told_on_the_pod_and_another_machine_is_tried(fault, reason):
    async with lab(FIRST, SECOND) as world:
        world.power.script("first", PowerCall.ON, *[fault] * 10)
        world.power.script_boots("first", *[Boot(joins=False)] * 10)
        async with operator(world):
            world.pod("train", 1, runs="60s")
            await asyncio.sleep(300)
            assert world.phase("train") == "Succeeded"
            told = world.told("train", reason)
            assert told
            assert "first" in told[0]
            assert len(world.asked("start")) <= 4
            await asyncio.sleep(300)
            assert world.power.on == frozenset()


async def test_a_passing_failure_is_tried_again_under_the_same_key():
    async with lab(FIRST) as world:
        world.power.script("first", PowerCall.ON, refuses(500), refuses(429, headers={"Retry-After": "30"}))
        async with operator(world):
            world.pod("train", 1, runs="60s")
            await asyncio.sleep(240)
            assert world.phase("train") == "Succeeded"
            keys = [call.key for call in world.power.calls if call.asked is PowerCall.ON]
            assert keys == [world.record("first")["metadata"]["uid"]] * 3


async def test_a_machine_that_cannot_be_switched_off_is_asked_for_as_long_as_it_takes():
    async with lab(FIRST) as world:
        world.power.script("first", PowerCall.OFF, *[refuses(500)] * 6)
        async with operator(world):
            world.pod("train", 1, runs="30s")
            await asyncio.sleep(130)
            assert world.state("first") == "Terminating"
            assert ("GPUInstance", "first", "TerminationFailed") in world.events()
            await asyncio.sleep(1200)
            assert world.power.on == frozenset()
            assert world.state("first") == "Gone"
            assert 7 <= len(world.asked("stop")) <= 9


async def test_a_power_api_that_lies_about_switching_off_is_not_believed():
    async with lab(FIRST) as world:
        world.power.script("first", PowerCall.OFF, lies(), lies())
        async with operator(world):
            world.pod("train", 1, runs="30s")
            await asyncio.sleep(200)
            assert world.state("first") == "Terminating"
            assert world.power.power("first") is Power.ON
            await asyncio.sleep(600)
            assert world.power.on == frozenset()
            assert world.state("first") == "Gone"


async def test_a_machine_whose_gpus_do_not_show_is_given_back():
    slow = Powered(name="first", gpus=1, boot=60, driver=30)
    async with lab(slow, SECOND) as world:
        world.power.script_boots("first", Boot(gpus_appear=False))
        async with operator(world, machines=world.configured(every={"boot_timeout": "5m"})):
            world.pod("train", 1, runs="60s")
            await asyncio.sleep(600)
            assert world.phase("train") == "Succeeded"
            assert ("Node", "first", "GPUsMissing") in world.events()
            assert world.asked("stop")[0] == "first"


async def test_what_ran_on_a_machine_that_lost_its_power_is_demand_again():
    async with lab(FIRST, SECOND) as world, operator(world):
        world.job("train", 1, runs="600s")
        await asyncio.sleep(120)
        assert world.power.on == {"first"}
        world.power.lose_power("first")
        await asyncio.sleep(3600)
        job = world.store.get(kinds.JOB_KIND, "default", "train")
        assert job["status"].get("succeeded") == 1
        assert world.power.on == frozenset()
        assert set(world.states().values()) <= {"Gone"}


async def test_many_nodes_that_turn_unhealthy_at_once_are_not_given_up():
    machines = [Powered(name=f"m{number}", gpus=1, boot=60) for number in range(6)]
    async with lab(*machines) as world, operator(world):
        # Otherwise the cluster itself would end pods on nodes that it does not hear of.
        for_hours = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 36000}]
        for number in range(6):
            world.pod(f"p{number}", 1, runs="4h", tolerations=for_hours)
        await asyncio.sleep(120)
        assert len(world.power.on) == 6

        def unreachable(name, status):
            node = world.node(name)
            said = {"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "no word"}
            told = with_status_condition(node["status"], said, world.store.timestamp())
            dead = {"embedded.forebay.dev/kubelet": "dead"} if status != "True" else {}
            kept = {
                key: value for key, value in (node["metadata"].get("annotations") or {}).items() if "kubelet" not in key
            }
            world.store.update(
                kinds.NODE_KIND, {**node, "metadata": {**node["metadata"], "annotations": {**kept, **dead}}}
            )
            world.store.update(kinds.NODE_KIND, {**world.node(name), "status": told}, subresource="status")

        for number in range(5):
            unreachable(f"m{number}", "Unknown")
        await asyncio.sleep(3000)
        assert world.asked("stop") == []
        assert ("GPUInstance", "m0", "DisruptionPaused") in world.events() or world.record("m0")["status"][
            "reason"
        ] == "DisruptionPaused"
        for number in range(5):
            unreachable(f"m{number}", "True")
        await asyncio.sleep(120)
        assert set(world.states().values()) == {"Ready"}
        assert world.asked("stop") == []


async def test_a_slow_power_api_holds_up_nobody_else():
    async with lab(FIRST, SECOND) as world:
        world.power.script("first", PowerCall.ON, silent(acts=False), silent(acts=False), silent(acts=False))
        async with operator(world, machines=world.configured(every={"timeout": "50s"})):
            world.pod("one", 1, runs="60s")
            await asyncio.sleep(2)
            world.pod("two", 2, runs="60s")
            await asyncio.sleep(1)
            assert world.asked("start") == ["first", "second"]


async def test_an_endpoint_that_asks_to_wait_for_a_day_does_not_hold_the_pod():
    async with lab(FIRST, SECOND) as world:
        world.power.script("first", PowerCall.ON, *[refuses(429, headers={"Retry-After": "86400"})] * 5)
        async with operator(world):
            world.pod("train", 1, runs="60s")
            await asyncio.sleep(90)
            assert world.where("train") == "second"
            assert world.asked("start") == ["first", "second"]


async def test_power_off_is_repeated_within_minutes_although_the_endpoint_asks_to_wait_for_a_day():
    async with lab(FIRST) as world:
        world.power.script("first", PowerCall.OFF, *[refuses(429, headers={"Retry-After": "86400"})] * 2)
        async with operator(world):
            world.pod("train", 1, runs="30s")
            await asyncio.sleep(100 + 2 * 300 + 30)
            assert world.power.on == frozenset()
            assert len(world.asked("stop")) == 3


async def test_a_power_on_call_that_is_lost_in_the_shutdown_is_repeated_under_the_same_key():
    box = Powered(name="box", gpus=1, boot=30, shutdown=60, ignores_calls_while_stopping=True)
    async with lab(box) as world, operator(world):
        world.pod("first", 1, runs="30s")
        await asyncio.sleep(75)
        assert world.power.power("box") is Power.STOPPING
        world.pod("second", 1, runs="30s")
        await asyncio.sleep(240)
        assert world.phase("second") == "Succeeded"
        keys = [call.key for call in world.power.calls if call.asked is PowerCall.ON]
        assert len(keys) == 3
        assert keys[1] == keys[2]
