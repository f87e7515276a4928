"""Machines you own, switched off: only what is idle, in order, and never under somebody's feet."""

import asyncio
from datetime import timedelta
from itertools import pairwise

from forebay.api.names import CORDONED_ANNOTATION
from forebay.embedded.api import kinds
from forebay.simulate.power import Power, PowerCall, Powered
from forebay.simulate.power_faults import refuses
from tests.engine.power_world import lab, operator

SMALL = Powered(name="small", gpus=1, boot=10, labels={"box": "small"})
MIDDLE = Powered(name="middle", gpus=2, boot=10, labels={"box": "middle"})
LARGE = Powered(name="large", gpus=4, boot=10, labels={"box": "large"})


async def test_machines_that_are_off_are_left_alone():
    async with lab(SMALL, MIDDLE, LARGE) as world, operator(world):
        await asyncio.sleep(3600)
        assert world.power.calls == []
        assert world.states() == {}


async def test_the_largest_idle_machine_goes_first_and_one_in_each_cycle():
    async with lab(SMALL, MIDDLE, LARGE) as world:
        named = {name: {"labels": {"box": name}} for name in world.power.machines}
        async with operator(world, machines=world.configured(**named)):
            for name in named:
                world.pod(name, 1, runs="60s", nodeSelector={"box": name})
            await asyncio.sleep(20)
            assert world.power.on == frozenset(named)
            await asyncio.sleep(200)
        stops = [call for call in world.power.calls if call.asked == "stop"]
        assert [call.machine for call in stops] == ["large", "middle", "small"]
        gaps = [later.at - earlier.at for earlier, later in pairwise(stops)]
        assert min(gaps) >= timedelta(seconds=9)
        assert world.power.on == frozenset()


async def test_a_small_idle_machine_goes_off_while_a_larger_one_works():
    async with lab(SMALL, LARGE) as world, operator(world):
        world.pod("long", 4, runs="1h")
        world.pod("short", 1, runs="30s")
        await asyncio.sleep(300)
        assert world.asked("stop") == ["small"]
        assert world.power.on == {"large"}
        assert world.phase("long") == "Running"


async def test_an_idle_delay_is_waited_out_and_begins_anew_with_each_pod():
    async with lab(SMALL) as world, operator(world, idle_delay=timedelta(minutes=5)):
        world.pod("first", 1, runs="30s")
        await asyncio.sleep(240)
        assert world.phase("first") == "Succeeded"
        world.pod("second", 1, runs="30s")
        await asyncio.sleep(300)
        assert world.phase("second") == "Succeeded"
        assert world.asked("stop") == []
        await asyncio.sleep(120)
        assert world.asked("stop") == ["small"]
        assert world.asked("start") == ["small"]


async def test_the_node_of_a_machine_that_was_idle_has_nothing_of_that_when_it_is_off():
    async with lab(SMALL, LARGE) as world, operator(world, idle_delay=timedelta(minutes=5)):
        world.pod("long", 4, runs="1h")
        world.pod("short", 1, runs="30s")
        await asyncio.sleep(120)
        (taint,) = world.node("small")["spec"]["taints"]
        assert (taint["value"], taint["effect"]) == ("idle", "PreferNoSchedule")
        await asyncio.sleep(400)
        assert world.asked("stop") == ["small"]
        left = [each["key"] for each in world.node("small")["spec"].get("taints", ())]
        assert [each for each in left if each.startswith("forebay.dev/")] == []


async def test_the_node_is_cordoned_before_it_goes_and_opened_when_it_has_gone():
    async with lab(SMALL) as world, operator(world):
        world.pod("train", 1, runs="30s")
        seen = []
        world.store.subscribe(
            kinds.NODE_KIND, lambda change: seen.append(bool(change.new["spec"].get("unschedulable")))
        )
        cordoned_at_stop = []
        answer = world.power.answer

        async def look(request):
            if request.url.endswith("/stop"):
                cordoned_at_stop.append(world.is_cordoned("small"))
            return await answer(request)

        world.power.answer = look
        await asyncio.sleep(120)
        assert cordoned_at_stop == [True]
        assert True in seen
        assert not world.is_cordoned("small")
        assert CORDONED_ANNOTATION not in world.node("small")["metadata"].get("annotations", {})


async def test_a_pod_that_is_placed_in_the_last_moment_keeps_the_machine():
    async with lab(SMALL) as world, operator(world):
        world.pod("train", 1, runs="30s")
        while world.state("small") != "Draining":  # noqa: ASYNC110 (virtual time)
            await asyncio.sleep(0.5)
        # As a scheduler does that has chosen the node a moment before the cordon.
        world.pod("late", 1, runs="60s", nodeName="small")
        await asyncio.sleep(30)
        assert world.asked("stop") == []
        assert world.state("small") == "Ready"
        assert not world.is_cordoned("small")
        await asyncio.sleep(120)
        assert world.phase("late") == "Succeeded"
        assert world.asked("stop") == ["small"]


async def test_daemonsets_and_static_pods_do_not_keep_a_machine():
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "uid": "d-1", "controller": True}
    async with lab(SMALL) as world, operator(world):
        world.pod("train", 1, runs="30s")
        await asyncio.sleep(15)
        every = [{"operator": "Exists"}]
        world.pod("exporter", 0, runs=None, nodeName="small", tolerations=every, metadata={"ownerReferences": [owner]})
        mirror = {"annotations": {"kubernetes.io/config.mirror": "abc"}}
        world.pod("static", 0, runs=None, nodeName="small", tolerations=every, metadata=mirror)
        await asyncio.sleep(120)
        assert world.asked("stop") == ["small"]


async def test_deleting_a_gpuinstance_moves_its_pods_and_gives_the_machine_back():
    async with lab(SMALL, MIDDLE) as world, operator(world):
        world.pod("train", 1, runs=None)
        await asyncio.sleep(30)
        assert world.where("train") == "small"
        world.give_back("small")
        await asyncio.sleep(60)
        assert world.asked("stop") == ["small"]
        assert "small" not in world.states()
        assert world.power.powered_off_in_use() == ()


async def test_a_disruption_budget_holds_up_a_drain_until_it_allows_it():
    async with lab(SMALL) as world, operator(world):
        world.pod("train", 1, runs=None, metadata={"labels": {"app": "train"}})
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
        named = {"name": "train", "namespace": "default"}
        world.store.create(kinds.DISRUPTION_BUDGET_KIND, {"metadata": named, "spec": budget})
        await asyncio.sleep(30)
        world.give_back("small")
        await asyncio.sleep(600)
        assert world.phase("train") == "Running"
        assert world.asked("stop") == []
        assert world.state("small") == "Draining"
        assert ("Node", "small", "EvictionBlocked") in world.events()
        world.store.delete(kinds.DISRUPTION_BUDGET_KIND, "default", "train")
        await asyncio.sleep(60)
        assert world.asked("stop") == ["small"]
        assert world.states() == {}


async def test_a_machine_switched_on_by_hand_is_taken_over_and_goes_off_when_idle():
    async with lab(SMALL) as world, operator(world, idle_delay=timedelta(minutes=2)):
        world.power.power_on_by_hand("small")
        await asyncio.sleep(60)
        assert world.state("small") == "Ready"
        await asyncio.sleep(200)
        assert world.power.power("small") is Power.OFF
        assert world.asked("start") == []


async def test_a_machine_that_cannot_be_powered_off_serves_the_next_pod():
    async with lab(Powered(name="box", gpus=1, boot=10)) as world, operator(world):
        world.power.script("box", PowerCall.OFF, *[refuses(404)] * 50)
        world.pod("first", 1, runs="30s")
        await asyncio.sleep(400)
        assert world.state("box") == "Terminating"
        assert world.is_cordoned("box")
        world.pod("second", 1, runs="30s")
        await asyncio.sleep(120)
        assert world.phase("second") == "Succeeded"
        assert world.asked("start") == ["box"]
        assert world.power.powered_off_in_use() == ()
        assert ("GPUInstance", "box", "BackInUse") in world.events()
