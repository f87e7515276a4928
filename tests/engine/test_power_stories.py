"""Machines you own: switched on for pods that wait, off when nothing needs them."""

import asyncio

from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator


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
