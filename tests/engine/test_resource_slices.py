"""Machines whose GPUs come from ResourceSlices, not from a device plugin: the Node object shows none of them."""

import asyncio

import pytest

from forebay.embedded.api import kinds
from forebay.embedded.api.subresources import bind_pod
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

#: Its node never has GPUs of a device plugin.
BOX = Powered(name="box", gpus=2, boot=10, driver=10**6)
GPU_CLASS = {
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}],
        "extendedResourceName": "nvidia.com/gpu",
    },
}


def publish(world, node="box", driver="gpu.nvidia.com"):
    """As the DRA driver does when it starts on the node."""
    spec = {
        "driver": driver,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "nodeName": node,
        "devices": [{"name": f"gpu-{number}"} for number in range(2)],
    }
    world.store.create(kinds.RESOURCE_SLICE_KIND, {"metadata": {"name": f"{node}-gpus"}, "spec": spec})


def machines(world):
    return world.configured(every={"boot_timeout": "2m"})


async def test_a_machine_with_its_gpus_in_a_slice_is_ready_and_its_pod_runs_undisturbed():
    async with lab(BOX) as world, operator(world, machines=machines(world)):
        world.store.create(kinds.DEVICE_CLASS_KIND, GPU_CLASS)
        world.pod("train", 2, runs="30m")
        await asyncio.sleep(20)
        assert world.state("box") == "Joined"
        publish(world)
        await asyncio.sleep(10)
        assert (world.state("box"), world.where("train")) == ("Ready", "box")
        await asyncio.sleep(1200)
        assert (world.state("box"), world.phase("train")) == ("Ready", "Running")
        assert world.asked("start") == ["box"]
        world.pod("more", 1)
        await asyncio.sleep(60)
        assert world.where("more") is None, "both GPUs are in use"


async def test_devices_that_its_class_does_not_select_are_no_gpus():
    async with lab(BOX) as world, operator(world, machines=machines(world)):
        world.store.create(kinds.DEVICE_CLASS_KIND, GPU_CLASS)
        world.pod("train", 2, runs=None)
        await asyncio.sleep(20)
        publish(world, driver="nic.example.com")
        await asyncio.sleep(150)
        assert ("GPUInstance", "box", "GPUsMissing") in world.events()


@pytest.mark.parametrize("when", [20, 119])
async def test_a_node_on_which_a_gpu_pod_runs_is_never_failed_though_no_gpus_are_seen(when):
    """Whoever brought its GPUs there: the scheduler has placed the pod, and the kubelet runs it."""
    async with lab(BOX, without={"scheduler"}) as world, operator(world, machines=machines(world)):
        world.pod("train", 2, runs="30m")
        pod = world.store.get(kinds.POD_KIND, "default", "train")
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        unschedulable |= {"message": "0/0 nodes are available", "lastTransitionTime": world.store.timestamp()}
        world.store.update(
            kinds.POD_KIND, {**pod, "status": {**pod["status"], "conditions": [unschedulable]}}, subresource="status"
        )
        await asyncio.sleep(when)
        assert world.state("box") == "Joined"
        bind_pod(world.store, "default", "train", {"metadata": {}, "target": {"kind": "Node", "name": "box"}})
        await asyncio.sleep(1200)
        assert (world.state("box"), world.phase("train")) == ("Ready", "Running")
        assert world.asked("stop") == []
