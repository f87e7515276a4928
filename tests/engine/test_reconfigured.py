"""Machines that are taken out of the configuration, or put into another, while something is done about them."""

import asyncio

from forebay.embedded.api import kinds
from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import Boot, refuses
from tests.engine.power_world import lab, operator

FIRST = Powered(name="first", gpus=1, boot=60)
SECOND = Powered(name="second", gpus=1, boot=60)


def only_second(world):
    return tuple(machine for machine in world.configured() if machine.name == "second")


async def test_a_machine_that_is_no_longer_configured_is_not_taken_for_gone():
    async with lab(FIRST, SECOND) as world:
        world.power.script_boots("first", Boot(joins=False))
        async with operator(world, machines=world.configured(every={"boot_timeout": "5m"})):
            world.pod("train", 1, runs=None)
            await asyncio.sleep(30)
            assert world.power.on == {"first"}
        async with operator(world, machines=only_second(world)):
            await asyncio.sleep(3600)
            assert world.power.on >= {"first"}, "nobody can switch it off"
            assert world.state("first") == "Launched", "so that its record is not let go"
            said = world.record("first")["status"]
            assert said["reason"] == "ProviderNotConfigured"
            assert "Configure the machine again" in said["message"]
        async with operator(world):
            await asyncio.sleep(600)
            assert world.state("first") == "Gone"
            assert "first" not in world.power.on


async def test_a_machine_that_works_and_is_no_longer_configured_is_left_as_it_is():
    async with lab(FIRST, SECOND) as world:
        async with operator(world):
            world.pod("train", 1, runs="300s")
            await asyncio.sleep(90)
            assert world.where("train") == "first"
        async with operator(world, machines=only_second(world)):
            await asyncio.sleep(3600)
            assert world.phase("train") == "Succeeded"
            assert world.state("first") == "Ready"
            assert not world.is_cordoned("first"), "it cannot be switched off, so that it stays of use"
            world.pod("next", 1, runs="30s")
            await asyncio.sleep(60)
            assert world.phase("next") == "Succeeded"
            assert world.asked("start") == ["first"]
        async with operator(world):
            await asyncio.sleep(300)
            assert world.state("first") == "Gone"
            assert world.power.on == frozenset()


async def test_pods_do_not_wait_for_a_machine_that_was_taken_away_before_it_was_asked_for():
    async with lab(FIRST, SECOND) as world:
        world.power.script("first", PowerCall.ON, *[refuses(429, headers={"Retry-After": "60"})] * 9)
        async with operator(world):
            world.pod("train", 1, runs="30s")
            await asyncio.sleep(10)
            assert world.state("first") == "Requested"
        async with operator(world, machines=only_second(world)):
            await asyncio.sleep(180)
            assert world.state("first") == "Gone"
            assert world.phase("train") == "Succeeded"
            assert world.asked("start")[-1] == "second"


async def test_a_first_status_that_somebody_has_spoilt_stops_nobody_else():
    async with lab(FIRST, SECOND) as world:
        world.power.power_on_by_hand("first")
        await asyncio.sleep(70)
        kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        spec = {"provider": "webhook", "delivers": "Power"}
        spoilt = {"name": "spoilt", "annotations": {"forebay.dev/first-status": "{"}}
        world.store.create(kind, {"metadata": spoilt, "spec": spec})
        async with operator(world):
            world.pod("train", 1, runs="30s", nodeSelector={"kubernetes.io/hostname": "second"})
            await asyncio.sleep(150)
            assert world.store.get(kinds.POD_KIND, "default", "train")["status"]["phase"] == "Succeeded"
