"""Machines with fewer GPUs than were declared for them."""

import asyncio

import msgspec

from forebay.embedded.api import kinds
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

ONE_FAILED = Powered(name="box", gpus=8, failed_gpus=1, boot=30)
FOUR = Powered(name="box", gpus=4, boot=30)


def declared(world, count):
    return world.configured(every={"gpu_count": count})


def lose_gpus(world):
    """The device plugin ends before the machine does, so that no GPU is allocatable while it is off."""
    node = world.node("box")
    allocatable = {**node["status"]["allocatable"], "nvidia.com/gpu": "0"}
    status = {**node["status"], "allocatable": allocatable}
    world.store.update(kinds.NODE_KIND, {**node, "status": status}, subresource="status")


async def test_a_machine_with_a_failed_gpu_serves_with_the_others():
    async with lab(ONE_FAILED) as world, operator(world):
        world.pod("train", 1, runs="60s")
        await asyncio.sleep(300)
        assert world.phase("train") == "Succeeded"
        told = world.told("box", "NodeReady")[-1]
        assert "7 of 8 nvidia.com/gpu" in told
        assert "have failed" in told
        await asyncio.sleep(120)
        assert world.power.on == frozenset()


async def test_a_machine_with_a_failed_gpu_is_not_powered_on_again_and_again_for_a_pod_that_needs_all_of_them():
    async with lab(ONE_FAILED) as world, operator(world):
        world.pod("wide", 8, runs="60s")
        await asyncio.sleep(600)
        assert world.power.on == frozenset()
        lose_gpus(world)
        await asyncio.sleep(3 * 3600)
        assert world.asked("start") == ["box"]
        world.pod("train", 7, runs="60s")
        await asyncio.sleep(300)
        assert world.phase("train") == "Succeeded"


async def test_a_wrong_gpu_count_names_the_variable_and_both_numbers():
    async with lab(FOUR) as world, operator(world, machines=declared(world, 8)):
        world.pod("train", 1, runs="60s")
        await asyncio.sleep(300)
        assert world.phase("train") == "Succeeded"
        told = world.told("box", "NodeReady")[-1]
        assert "The node has 4 nvidia.com/gpu, but environment variable BOX_GPU_COUNT says 8" in told


async def test_a_gpu_count_that_is_too_low_is_named_too():
    async with lab(FOUR) as world, operator(world, machines=declared(world, 2)):
        world.pod("train", 1, runs="60s")
        await asyncio.sleep(60)
        assert "The node has 4 nvidia.com/gpu" in world.told("box", "NodeReady")[-1]


async def test_a_wrong_gpu_count_of_a_class_names_the_class():
    async with lab(FOUR) as world, operator(world, machines=()):
        kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")
        entry = {"name": "webhook", "machines": msgspec.to_builtins(declared(world, 8))}
        world.store.create(kind, {"metadata": {"name": "owned"}, "spec": {"providers": [entry]}})
        kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        pool = {"metadata": {"name": "gpus", "namespace": "kube-system"}, "spec": {"nodeClassRef": {"name": "owned"}}}
        world.store.create(kind, pool)
        world.pod("train", 1, runs="60s")
        await asyncio.sleep(300)
        assert "gpuCount of machine box in GPUNodeClass owned says 8" in world.told("box", "NodeReady")[-1]


async def test_a_driver_that_takes_long_is_waited_for():
    slow = Powered(name="box", gpus=8, boot=30, driver=300)
    async with lab(slow) as world, operator(world):
        world.pod("wide", 8, runs="60s")
        await asyncio.sleep(600)
        assert world.phase("wide") == "Succeeded"
