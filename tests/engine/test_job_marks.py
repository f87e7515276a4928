"""Annotations of remote Jobs are written seldom: each write makes the Job's own controller decide again."""

import asyncio

from forebay.embedded.api.kinds import JOB_KIND
from tests.engine.market_world import cloud_operator
from tests.engine.offload_world import offload
from tests.engine.test_markets import until


async def test_a_job_of_many_pods_is_marked_a_few_times_and_keeps_the_container_of_its_latest_pod():
    async with offload() as far:
        far.pool()
        marks = []

        def seen(change):
            found = change.new["metadata"]["annotations"] if change.new is not None else {}
            if "runpod.io/pod-id" in found and found != (marks or [None])[-1]:
                marks.append(found)

        far.store.subscribe(JOB_KIND, seen)
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="10h", parallelism=8, completions=8)
            await until(lambda: far.the_job("train").get("status", {}).get("ready") == 8, 600)
            for container in sorted(far.runpod.instances):
                far.runpod.exits(container, 0)
                await asyncio.sleep(40)
            await until(lambda: far.ended("train") == "Complete", 600)
            await until(lambda: far.is_idle, 600)
            await asyncio.sleep(60)
        assert len(marks) <= 3
        records = sorted(far.world.records().values(), key=lambda each: each["metadata"]["creationTimestamp"])
        latest = {
            each["status"]["instanceID"]
            for each in records
            if each["metadata"]["creationTimestamp"] == records[-1]["metadata"]["creationTimestamp"]
        }
        assert marks[-1]["runpod.io/pod-id"] in latest


async def test_a_job_is_not_changed_when_its_deadline_is_near():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="10h", activeDeadlineSeconds=9)
            await asyncio.sleep(8)
            assert len(far.runpod.instances) == 1
            assert "runpod.io/pod-id" not in far.the_job("train")["metadata"]["annotations"]
            await until(lambda: far.ended("train") == "Failed", 60)
            assert "runpod.io/pod-id" not in far.the_job("train")["metadata"]["annotations"]
            await until(lambda: far.is_idle, 600)


async def test_a_new_job_is_not_changed_while_its_controller_writes_its_first_statuses():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="10h")
            await asyncio.sleep(4)
            assert len(far.runpod.instances) == 1
            assert "runpod.io/pod-id" not in far.the_job("train")["metadata"]["annotations"]
            await until(lambda: "runpod.io/pod-id" in far.the_job("train")["metadata"]["annotations"], 40)
            far.delete_job("train")
            await until(lambda: far.is_idle, 600)
