"""Machines you own, switched on for pods that wait: which one, when, and how often."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

from forebay.api.parts import TaintEffect, TaintEntry
from forebay.embedded.api import kinds
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

SMALL = Powered(name="small", gpus=1, boot=60)
MIDDLE = Powered(name="middle", gpus=2, boot=60)
LARGE = Powered(name="large", gpus=4, boot=60)


async def test_a_pod_that_waits_gets_a_machine_and_the_machine_goes_off_afterwards():
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world):
        await asyncio.sleep(5)
        assert world.power.on == frozenset()
        world.pod("train", 1, runs="120s")
        await asyncio.sleep(5)
        assert world.asked("start") == ["box"]
        await asyncio.sleep(65)
        assert world.where("train") == "box"
        assert world.states() == {"box": "Ready"}
        await asyncio.sleep(300)
        assert world.phase("train") == "Succeeded"
        assert world.asked("stop") == ["box"]
        assert world.power.on == frozenset()
        assert world.states() == {"box": "Gone"}


async def test_a_pod_that_waits_for_hours_can_always_be_asked_why():
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world):
        world.pod("giant", 16)
        for number in range(20):
            await asyncio.sleep(600)
            # The embedded cluster looks for expired events when a new one is written.
            world.pod(f"other-{number}", 16)
            await asyncio.sleep(5)
            # Events expire after an hour. One that was repeated is there twice for a while, never more often.
            assert 1 <= len(world.told("giant", "NoOfferFits")) <= 2


async def test_the_story_is_told_on_the_pod_the_node_and_the_record():
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world):
        world.pod("train", 1, runs="60s")
        await asyncio.sleep(300)
        told = world.events()
        for reason in ("CapacityNeeded", "LaunchStarted", "LaunchAccepted"):
            assert ("Pod", "train", reason) in told
            assert ("GPUInstance", "box", reason) in told
        assert ("Node", "box", "NodeReady") in told
        assert ("Node", "box", "Idle") in told
        assert [step["state"] for step in world.record("box")["status"]["transitions"]] == [
            "Requested",
            "Launching",
            "Launched",
            "Joined",
            "Ready",
            "Draining",
            "Terminating",
            "Gone",
        ]


@pytest.mark.parametrize(("gpus", "machine"), [(1, "small"), (2, "middle"), (3, "large"), (4, "large")])
async def test_the_smallest_machine_that_can_take_the_pod_is_switched_on(gpus, machine):
    async with lab(LARGE, SMALL, MIDDLE) as world, operator(world):
        world.pod("train", gpus)
        await asyncio.sleep(5)
        assert world.asked("start") == [machine]


async def test_several_small_machines_do_not_make_a_large_one():
    async with lab(SMALL, MIDDLE) as world, operator(world):
        world.pod("wide", 3)
        await asyncio.sleep(600)
        assert world.asked("start") == []
        assert world.told("wide", "DoesNotFit") or world.told("wide", "NoCapacityFits") or world.events()


@pytest.mark.parametrize(
    ("status", "calls"), [(True, 1), (False, 3)], ids=["it says that it starts", "it says nothing"]
)
async def test_a_machine_that_boots_is_powered_on_under_one_key_and_not_again_and_again(status, calls):
    async with lab(Powered(name="box", gpus=2, boot=300)) as world, operator(world, status=status):
        world.pod("train", 1, runs="30s")
        await asyncio.sleep(290)
        assert world.asked("start") == ["box"] * calls
        world.pod("more", 1, runs="30s")
        await asyncio.sleep(120)
        assert {world.phase("train"), world.phase("more")} == {"Succeeded"}
        assert world.asked("start") == ["box"] * calls
        assert len({call.key for call in world.power.calls if call.asked == "start"}) == 1


async def test_a_machine_whose_pod_has_gone_while_it_booted_is_not_asked_again_but_goes_off():
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world):
        world.pod("train", 1)
        await asyncio.sleep(20)
        world.store.delete(kinds.POD_KIND, "default", "train")
        await asyncio.sleep(120)
        assert world.asked("start") == ["box"]
        assert world.asked("stop") == ["box"]
        assert world.states() == {"box": "Gone"}


async def test_one_pod_that_nothing_can_serve_blocks_neither_others_nor_the_way_down():
    async with lab(SMALL, LARGE) as world, operator(world):
        world.pod("impossible", 64)
        await asyncio.sleep(30)
        world.pod("train", 1, runs="60s")
        await asyncio.sleep(300)
        assert world.phase("train") == "Succeeded"
        assert world.power.on == frozenset()
        said = [kind for kind in world.events() if kind[:2] == ("Pod", "impossible")]
        assert said
        assert all(reason != "CapacityNeeded" for _, _, reason in said)


async def test_a_pod_with_a_selector_gets_a_machine_that_has_the_label():
    async with lab(SMALL, MIDDLE) as world:
        machines = world.configured(middle={"labels": {"gpu": "a100"}})
        async with operator(world, machines=machines):
            world.pod("picky", 1, nodeSelector={"gpu": "a100"})
            world.pod("hopeless", 1, nodeSelector={"gpu": "h100"})
            await asyncio.sleep(30)
            assert world.asked("start") == ["middle"]


async def test_a_tainted_machine_is_for_pods_that_tolerate_it():
    taint = TaintEntry(key="team", value="vision", effect=TaintEffect.NO_SCHEDULE)
    tolerated = [{"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"}]
    async with lab(SMALL, MIDDLE) as world, operator(world, machines=world.configured(small={"taints": (taint,)})):
        world.pod("anybody", 1)
        await asyncio.sleep(5)
        assert world.asked("start") == ["middle"]
        world.pod("next", 1)
        world.pod("vision", 1, tolerations=tolerated)
        await asyncio.sleep(5)
        assert world.asked("start") == ["middle", "small"]


async def test_labels_and_taints_are_learned_from_the_node():
    told = {"labels": {"gpu": "a100"}, "taints": ({"key": "lab", "value": "", "effect": "NoSchedule"},)}
    async with lab(Powered(name="first", gpus=1, boot=60, **told), Powered(name="second", gpus=2, boot=60)) as world:
        world.power.power_on_by_hand("first")
        await asyncio.sleep(70)
        world.power.lose_power("first")
        async with operator(world):
            await asyncio.sleep(5)
            world.pod("plain", 1)
            await asyncio.sleep(5)
            assert world.asked("start") == ["second"]
            world.pod("knows", 1, nodeSelector={"gpu": "a100"}, tolerations=[{"key": "lab", "operator": "Exists"}])
            await asyncio.sleep(5)
            assert world.asked("start") == ["second", "first"]


async def test_pods_that_are_not_demand_switch_nothing_on():
    async with lab(SMALL) as world, operator(world):
        world.pod("held", 1, schedulingGates=[{"name": "example.com/later"}])
        world.pod("cpu", 0)
        world.pod("theirs", 1, schedulerName="other")
        await asyncio.sleep(120)
        assert world.power.calls == []


async def test_a_machine_on_its_way_takes_the_next_pod_too():
    async with lab(MIDDLE, LARGE) as world, operator(world):
        world.pod("first", 1)
        await asyncio.sleep(30)
        world.pod("second", 1)
        await asyncio.sleep(20)
        assert world.asked("start") == ["middle"]
        world.pod("third", 1)
        await asyncio.sleep(5)
        assert world.asked("start") == ["middle", "large"]


async def test_two_clusters_with_one_power_api_switch_their_own_machines_only():
    async with lab(SMALL, MIDDLE) as one, lab() as other:
        other.power = one.power
        mine, theirs = one.configured()
        async with operator(one, machines=(mine,)), operator(other, machines=(theirs,)):
            one.pod("train", 1, runs="60s")
            await asyncio.sleep(10)
            assert one.asked("start") == ["small"]
            other.pod("train", 1, runs="60s")
            await asyncio.sleep(10)
            assert one.asked("start") == ["small", "middle"]
            assert (set(one.states()), set(other.states())) == ({"small"}, {"middle"})


async def test_of_two_replicas_one_switches_and_the_other_goes_on_where_it_left():
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world, "b") as standby:
        async with operator(world, "a"):
            await asyncio.sleep(5)
            world.pod("train", 1, runs="120s")
            await asyncio.sleep(20)
            assert world.asked("start") == ["box"]
        await asyncio.sleep(300)
        assert standby.elector.still_leader()
        assert world.phase("train") == "Succeeded"
        assert world.asked("start") == ["box"]
        assert world.asked("stop") == ["box"]


@pytest.mark.parametrize("key", ["readiness.k8s.io/network", "node.cloudprovider.kubernetes.io/uninitialized"])
async def test_a_node_that_is_ready_but_still_tainted_is_launching_and_nothing_else_is_powered_on(key):
    taint = {"key": key, "effect": "NoSchedule"}
    machines = [Powered(name=f"m{number}", gpus=1, boot=30, taints=(taint,)) for number in range(3)]
    async with lab(*machines) as world, operator(world):
        world.pod("train", 1, runs="60s")
        await asyncio.sleep(120)
        (machine,) = world.asked("start")
        assert world.state(machine) == "Joined"
        world.change(kinds.NODE_KIND, machine, lambda node: node["spec"].update(taints=[]))
        await asyncio.sleep(30)
        assert world.where("train") == machine
        assert world.asked("start") == [machine]


async def test_the_record_is_ready_only_when_the_node_controller_has_removed_its_taint():
    async with lab(Powered(name="box", gpus=1, boot=30)) as world, operator(world):
        world.pod("train", 1, runs="60s")
        await asyncio.sleep(30.4)
        assert world.node("box")["spec"]["taints"][0]["key"] == "node.kubernetes.io/not-ready"
        assert world.state("box") == "Joined"
        await asyncio.sleep(5)
        assert world.state("box") == "Ready"


_CLAIM = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]


async def test_a_pod_with_an_unbound_claim_neither_keeps_a_machine_on_nor_has_it_powered_on_again():
    async with lab(Powered(name="box", gpus=1, boot=60)) as world, operator(world):
        world.pod("train", 1, volumes=_CLAIM)
        await asyncio.sleep(70)
        assert world.state("box") == "Ready"
        await asyncio.sleep(500)
        assert world.asked("stop") == ["box"]
        await asyncio.sleep(8 * 3600)
        assert world.asked("start") == ["box"]
        pod = world.store.get(kinds.POD_KIND, "default", "train")
        assert "nominatedNodeName" not in pod["status"]
        (refused,) = (each for each in pod["status"]["conditions"] if each["type"] == "forebay.dev/Refused")
        assert (refused["status"], refused["reason"]) == ("True", "SchedulerRefuses")
        assert "unbound immediate PersistentVolumeClaims" in refused["message"]
        assert "unbound immediate PersistentVolumeClaims" in world.told("train", "SchedulerRefuses")[0]


async def test_a_pod_whose_claim_is_bound_after_all_gets_its_machine():
    async with lab(Powered(name="box", gpus=1, boot=60)) as world, operator(world):
        world.pod("train", 1, volumes=_CLAIM)
        await asyncio.sleep(1000)
        assert world.power.on == frozenset()
        # As kube-scheduler says it once the claim is bound, with the machine off.
        pod = world.store.get(kinds.POD_KIND, "default", "train")
        message = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
        conditions = [
            {**each, "message": message} if each["type"] == "PodScheduled" else each
            for each in pod["status"]["conditions"]
        ]
        world.store.update(
            kinds.POD_KIND, {**pod, "status": {**pod["status"], "conditions": conditions}}, subresource="status"
        )
        await asyncio.sleep(10)
        assert world.asked("start") == ["box", "box"]


async def test_a_pod_bound_to_a_machine_that_is_off_is_demand_for_that_machine():
    machines = Powered(name="first", gpus=1, boot=60), Powered(name="second", gpus=1, boot=60)
    async with lab(*machines) as world:
        # Both Nodes exist from an earlier life and are NotReady; the scheduler binds what tolerates that.
        for machine in machines:
            world.power.power_on_by_hand(machine.name)
        await asyncio.sleep(61)
        for machine in machines:
            world.power.lose_power(machine.name)
        await asyncio.sleep(60)
        world.pod("agent", 1, runs="60s", tolerations=[{"operator": "Exists"}])
        await asyncio.sleep(5)
        bound = world.where("agent")
        assert bound is not None
        async with operator(world):
            await asyncio.sleep(10)
            assert world.asked("start") == [bound]
            await asyncio.sleep(300)
            assert world.phase("agent") == "Succeeded"
            assert world.power.on == frozenset()
            assert world.asked("start") == [bound]


async def test_machines_are_powered_on_one_after_the_other():
    async with (
        lab(*(Powered(name=f"m{number}", gpus=1, boot=60) for number in range(5))) as world,
        operator(world, power_on_interval=timedelta(seconds=10)),
    ):
        for number in range(5):
            world.pod(f"train-{number}", 1, runs="300s")
        await asyncio.sleep(120)
        starts = [call.at for call in world.power.calls if call.asked == "start"]
        assert len(starts) == 5
        assert all(later - earlier >= timedelta(seconds=9) for earlier, later in pairwise(starts))
        assert max(starts) - min(starts) <= timedelta(seconds=50)
