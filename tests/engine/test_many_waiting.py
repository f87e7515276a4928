"""Many pods that wait: each is told why, although events are written one after the other through a short queue."""

import asyncio

from forebay.embedded.api import kinds
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

#: More than the queue of events holds.
PODS = 1300


async def test_every_one_of_many_waiting_pods_is_told_why():
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world):
        for number in range(PODS):
            world.pod(f"giant-{number}", 16)
        await asyncio.sleep(300)
        told = {
            each["involvedObject"]["name"]
            for each in world.store.list(kinds.EVENT_KIND, "default")
            if each["reason"] == "NoOfferFits"
        }
        assert len(told) == PODS
