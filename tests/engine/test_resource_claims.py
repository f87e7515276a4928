"""Pods that get their GPUs by resource claims: budgets count them, and those that wait are told why."""

import asyncio

import pytest

from forebay.embedded.api import kinds
from forebay.engine.ledger.ledger_reader import read_ledgers
from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
from forebay.net import clock
from forebay.simulate.power import Powered
from tests.engine.budget_world import hours, passing, used, world
from tests.engine.power_world import lab, operator

CLAIMS = [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}]
#: No GPU requested: as a manifest written for dynamic resource allocation.
NO_GPU = {"containers": [{"name": "main", "image": "work:1"}], "resourceClaims": CLAIMS}


def allocate(it, pod, *, device_class="gpu.nvidia.com", devices=2, name=None, **metadata):
    """As the resource claim controller and the scheduler do for a pod."""
    uid = it.store.get(kinds.POD_KIND, "default", pod)["metadata"]["uid"]
    claim = it.store.create(
        kinds.RESOURCE_CLAIM_KIND,
        {
            "metadata": {"name": name or f"{pod}-gpus", "namespace": "default", **metadata},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]}},
        },
    )
    results = [
        {"request": "gpu", "driver": device_class, "pool": "n1", "device": f"gpu-{number}"} for number in range(devices)
    ]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}],
    }
    return it.store.update(kinds.RESOURCE_CLAIM_KIND, {**claim, "status": status}, subresource="status")


def release(it, pod):
    claim = it.store.get(kinds.RESOURCE_CLAIM_KIND, "default", f"{pod}-gpus")
    it.store.update(kinds.RESOURCE_CLAIM_KIND, {**claim, "status": {}}, subresource="status")
    it.store.delete(kinds.RESOURCE_CLAIM_KIND, "default", f"{pod}-gpus")


async def test_a_budget_counts_the_gpus_of_claims_until_the_pod_has_ended():
    async with world() as it, operator(it):
        it.budget(hours="100")
        it.pod("train", runs="30m", **NO_GPU)
        await passing(5)
        allocate(it, "train")
        await passing(895)
        assert used(it.status()) == pytest.approx(hours(it.running_for("train"), 2), abs=hours(6, 2))
        found = (await it.user.list_all(GPU_WORKLOAD_BUDGETS)).items
        read = await read_ledgers(it.user, "kube-system", found, clock.now())
        [account] = read.accounts
        assert len(account.ledger.running) == 1, "also by forebay budgets"
        release(it, "train")
        await passing(1800)
        assert it.phase("train") == "Succeeded"
        assert used(it.status()) == pytest.approx(hours(it.ran("train"), 2), abs=0.0005)


async def test_an_exceeded_budget_stops_pods_that_hold_gpus_by_claims():
    async with world() as it, operator(it):
        it.budget(hours="0.5", grace=0)
        it.pod("train", **NO_GPU)
        await passing(2)
        allocate(it, "train")
        await passing(1000)
        assert ("Pod", "train", "Evicted") in it.events()
        assert it.store.find(kinds.POD_KIND, "default", "train") is None


async def test_another_operator_counts_claims_from_the_start_of_the_pod():
    async with world() as it:
        it.budget(hours="100")
        it.pod("train", **NO_GPU)
        await passing(5)
        allocate(it, "train")
        await passing(600)
        async with operator(it):
            await passing(30)
            assert used(it.status()) == pytest.approx(hours(it.running_for("train"), 2), abs=hours(6, 2))


@pytest.mark.parametrize(
    ("device_class", "resource", "annotations", "counted"),
    [
        ("nic.example.com", None, {}, 0),
        ("accelerators", "nvidia.com/gpu", {}, 2),
        # Made by the scheduler for a pod that requests nvidia.com/gpu, which counts already.
        ("gpu.nvidia.com", None, {"resource.kubernetes.io/extended-resource-claim": "true"}, 0),
    ],
)
async def test_devices_count_where_their_class_says_that_they_are_gpus(device_class, resource, annotations, counted):
    async with world() as it, operator(it):
        it.budget(hours="100")
        if resource is not None:
            spec = {"extendedResourceName": resource}
            it.store.create(kinds.DEVICE_CLASS_KIND, {"metadata": {"name": device_class}, "spec": spec})
        it.pod("train", **NO_GPU)
        await passing(5)
        allocate(it, "train", device_class=device_class, annotations=annotations)
        await passing(600)
        expected = hours(it.running_for("train"), counted)
        assert used(it.status()) == pytest.approx(expected, abs=hours(6, 2))


async def test_a_pod_with_claims_only_is_told_that_no_capacity_is_launched_for_it():
    async with lab(Powered(name="box", gpus=2, boot=10)) as world, operator(world):
        world.pod("train", **NO_GPU)
        await asyncio.sleep(120)
        assert world.asked("start") == []
        conditions = world.store.get(kinds.POD_KIND, "default", "train")["status"]["conditions"]
        [told] = [each for each in conditions if each["type"] == "forebay.dev/Capacity"]
        assert told["reason"] == "ClaimsNotServed"
        assert "request the extendedResourceName" in told["message"]
        assert ("Pod", "train", "ClaimsNotServed") in world.events()
