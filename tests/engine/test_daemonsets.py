"""DaemonSets take their part of each machine that is rented: once."""

import asyncio

from tests.engine.market_world import cloud_operator, clouds, market, needs, run_daemonset
from tests.engine.test_markets import CHEAP, until


async def test_a_pod_that_comes_while_a_machine_boots_has_the_room_that_daemonsets_leave_there():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        run_daemonset(cloud, "12")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            for name in ("first", "second"):
                cloud.world.pod(name, runs="300s", containers=needs("9", 1))
            await asyncio.sleep(20)
            assert set(cloud.world.states().values()) == {"Launched"}
            cloud.world.pod("third", runs="300s", containers=needs("2", 1))
            for name in ("first", "second", "third"):
                await until(lambda name=name: cloud.world.phase(name) == "Running")
            assert len(cloud.running) == 1
