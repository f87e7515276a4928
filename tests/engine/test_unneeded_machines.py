"""Rented machines whose pods are gone before they have booted."""

import asyncio
from datetime import timedelta
from fractions import Fraction

from forebay.embedded.api import kinds
from forebay.simulate.market_goods import Sku
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import until

SLOW = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", boot=240, driver=10)
HOURLY = Sku(
    instance_type="l40s.4x",
    gpus=4,
    gpu_type="L40S",
    hourly_price="2.40",
    boot=240,
    driver=10,
    minimum=0,
    increment=3600,
)


async def booting(cloud, pod="wait"):
    """The record of the machine that is launched for the pod."""
    await asyncio.sleep(10)
    cloud.world.pod(pod, 4)
    await until(lambda: set(cloud.world.states().values()) == {"Launched"}, 60)
    (name,) = cloud.world.states()
    return name


def delete(cloud, pod):
    cloud.store.delete(kinds.POD_KIND, "default", pod)


async def test_a_machine_whose_pod_is_deleted_while_it_boots_is_terminated_after_consolidate_after():
    async with clouds(market("alpha", SLOW)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            name = await booting(cloud)
            delete(cloud, "wait")
            await asyncio.sleep(20)
            assert cloud.world.state(name) == "Launched", "its pods may come back within 30 s"
            (idle,) = [each for each in cloud.world.record(name)["status"]["conditions"] if each["type"] == "Idle"]
            assert (idle["status"], idle["reason"]) == ("True", "NotNeeded")
            await until(lambda: not cloud.running, 60)
            await until(lambda: cloud.world.state(name) == "Gone", 120)
            ended = next(
                each for each in cloud.world.record(name)["status"]["transitions"] if each["state"] == "Terminating"
            )
            assert ended["reason"] == "NotNeeded"
            assert "still boots, but none of its pods has been pending for" in ended["message"]
            assert ("GPUInstance", name, "NotNeeded") in cloud.world.events()
        assert cloud.ledger() == cloud.bill() < Fraction("0.10")


async def test_a_machine_that_boots_for_nobody_takes_the_next_pod():
    async with clouds(market("alpha", SLOW)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            name = await booting(cloud)
            delete(cloud, "wait")
            await asyncio.sleep(15)
            cloud.world.pod("next", 4, runs="60s")
            await until(lambda: cloud.world.phase("next") == "Succeeded", 1200)
            assert list(cloud.world.states()) == [name]


async def test_a_machine_that_boots_for_nobody_is_kept_while_its_time_is_paid():
    async with clouds(market("alpha", HOURLY)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            name = await booting(cloud)
            delete(cloud, "wait")
            await asyncio.sleep(120)
            assert cloud.world.state(name) == "Launched"
            (idle,) = [each for each in cloud.world.record(name)["status"]["conditions"] if each["type"] == "Idle"]
            assert "It is paid until" in idle["message"]
            await until(lambda: not cloud.running, 3600)
        assert cloud.bill() == Fraction("2.40"), "one hour, not two"


async def test_a_pool_that_never_consolidates_keeps_a_machine_that_boots_for_nobody():
    async with clouds(market("alpha", SLOW)) as cloud:
        cloud.pool("alpha", disruption={"consolidationPolicy": "Never"})
        async with cloud_operator(cloud):
            name = await booting(cloud)
            delete(cloud, "wait")
            await asyncio.sleep(timedelta(minutes=20).total_seconds())
            assert cloud.world.state(name) == "Ready"
