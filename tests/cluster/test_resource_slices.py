"""A machine whose GPUs come from a ResourceSlice (dynamic resource allocation), on a real control plane."""

import asyncio

import pytest

from forebay.simulate.power import Powered
from tests.cluster.operators import until
from tests.cluster.powered import Administrator, gpu_pod, power_api
from tests.cluster.worlds import FOREBAY, world
from tests.rig.binaries import NEWEST, minor
from tests.rig.parts import PLAY

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]

DRA = "/apis/resource.k8s.io/v1"
DRIVER = "gpu.example.com"
#: Seconds; the shortest after which a machine without GPUs would fail.
BOOT_TIMEOUT = 20


def device_class():
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    spec = {"selectors": selectors, "extendedResourceName": "nvidia.com/gpu"}
    return {"metadata": {"name": DRIVER}, "spec": spec}


def resource_slice(node):
    """As the driver on the node publishes it."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(2)]
    return {
        "metadata": {"name": f"{node}-gpus"},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices},
    }


# The field is alpha there, and dropped: no scheduler could give the pod its devices.
@pytest.mark.skipif(minor() != NEWEST, reason="a server before 1.36 drops extendedResourceName of a DeviceClass")
async def test_a_machine_with_its_gpus_in_a_slice_serves_its_pod_undisturbed(whole_rig):
    async with world(whole_rig) as made:
        # The node never gets GPUs of a device plugin.
        machine = Powered(name=f"{made.name}-box", gpus=2, boot=1, shutdown=0.5, driver=10**6)
        administrator = Administrator(whole_rig)
        administrator.call("POST", f"{DRA}/deviceclasses", device_class())
        async with power_api(whole_rig, [machine]) as (power, base):
            environment = {**power.environment(base), "GPU_NODE_1_BOOT_TIMEOUT": f"{BOOT_TIMEOUT}s"}

            def seen(path):
                async def found():
                    return await asyncio.to_thread(_found, administrator, path)

                return found

            pods = f"/api/v1/namespaces/{made.name}/pods"

            async def runs():
                pod = await asyncio.to_thread(administrator.call, "GET", f"{pods}/train")
                return pod["spec"].get("nodeName") == machine.name and pod["status"].get("phase") == "Running"

            async def ready():
                record = await asyncio.to_thread(administrator.call, "GET", f"{FOREBAY}/gpuinstances/{machine.name}")
                return record["status"].get("state") == "Ready"

            async with made.operator("a", environment=environment) as operator:
                await until(operator.is_ready, "the operator is ready")
                administrator.call("POST", pods, gpu_pod("train", 2, **{PLAY["RUN_FOR"]: "10m"}))
                await until(seen(f"/api/v1/nodes/{machine.name}"), "the machine's node is there")
                administrator.call("POST", f"{DRA}/resourceslices", resource_slice(machine.name))
                await until(runs, "the pod runs on the machine")
                await until(ready, "the GPUInstance is Ready")
                await asyncio.sleep(BOOT_TIMEOUT + 5)
                assert await runs()
                assert await ready()
                assert [call.asked for call in power.calls] == ["start"]
                events = administrator.call("GET", "/api/v1/events")["items"]
                assert not [each for each in events if each["reason"] == "GPUsMissing"]
                await operator.leave()
            administrator.call("DELETE", f"{pods}/train", {"gracePeriodSeconds": 0})
        administrator.call("DELETE", f"{DRA}/resourceslices/{machine.name}-gpus")
        administrator.close()


def _found(administrator, path):
    name = path.rpartition("/")[2]
    listed = administrator.call("GET", path.rpartition("/")[0])["items"]
    return any(each["metadata"]["name"] == name for each in listed)
