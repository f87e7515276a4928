"""Gangs: pods that are of use only together. Either all of a gang get capacity, or nothing is launched for it."""

import asyncio

from forebay.embedded.api import kinds
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

MEMBERS = tuple(f"train-{number}" for number in range(4))
BOXES = tuple(Powered(name=f"box-{number}", gpus=8, boot=30) for number in range(4))


def member(world, name, **annotations):
    given = {f"forebay.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    world.pod(name, 8, runs=None, metadata={"annotations": {"forebay.dev/pod-group": "train", **given}})


def why(world, name):
    """Reason and message of the condition that says why the pod waits."""
    conditions = world.store.get(kinds.POD_KIND, "default", name)["status"]["conditions"]
    found = next(each for each in conditions if each["type"] == "forebay.dev/Capacity")
    return found["reason"], found["message"]


async def test_nothing_is_launched_for_a_gang_until_there_is_capacity_for_all_of_it():
    async with lab(*BOXES) as world:
        async with operator(world, machines=world.configured()[:2]) as replica:
            for name in MEMBERS:
                member(world, name)
            await asyncio.sleep(30)
            for name in MEMBERS:
                reason, message = why(world, name)
                assert reason == "GangIncomplete"
                assert "there is capacity for 2 of its 4 pods; 2 more must fit" in message
            ticks = replica.counts.ticks
            await asyncio.sleep(600)
            assert replica.counts.ticks - ticks < 100
            assert world.asked("start") == []
            assert world.records() == {}
        async with operator(world):
            await asyncio.sleep(120)
            assert sorted(map(world.where, MEMBERS)) == [box.name for box in BOXES]


async def test_members_that_the_scheduler_has_not_tried_yet_belong_to_the_gang_as_well():
    """A controller creates pods one after the other: nothing is launched for the first that are unschedulable."""
    async with lab(*BOXES, without={"scheduler"}) as world, operator(world, machines=world.configured()[:2]):
        for name in MEMBERS:
            member(world, name)
        for name in MEMBERS:
            pod = world.store.get(kinds.POD_KIND, "default", name)
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            condition |= {"message": "0/0 nodes are available", "lastTransitionTime": world.store.timestamp()}
            status = {**pod["status"], "conditions": [condition]}
            world.store.update(kinds.POD_KIND, {**pod, "status": status}, subresource="status")
            await asyncio.sleep(5)
        assert world.asked("start") == []


async def test_a_member_with_room_on_a_launching_machine_counts_towards_the_least_size_of_its_gang():
    async with lab(Powered(name="large", gpus=16, boot=60), *BOXES[:3]) as world, operator(world):
        world.pod("other", 4, runs=None, nodeSelector={"kubernetes.io/hostname": "large"})
        await asyncio.sleep(20)
        assert world.asked("start") == ["large"]
        for name in MEMBERS:
            member(world, name, pod_group_min_count="4")
        await asyncio.sleep(20)
        assert sorted(world.asked("start")) == ["box-0", "box-1", "box-2", "large"], "before the member runs there"
        await asyncio.sleep(120)
        assert sorted(map(world.where, MEMBERS)) == ["box-0", "box-1", "box-2", "large"]
