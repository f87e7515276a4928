"""Budgets of pods that run remotely: they wait their turn, and are counted, whatever the provider's clock says."""

import asyncio
from datetime import datetime, timedelta

import pytest

from forebay.net.clock import now
from forebay.providers.simulated.wire import MarketLogLine
from tests.engine.market_world import cloud_operator
from tests.engine.offload_world import offload
from tests.engine.test_markets import until

GATED = {"schedulingGates": [{"name": "forebay.dev/budget"}]}


def gated(gpus):
    """The spec of a pod that the admission policy of budgets holds."""
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    return {**GATED, "containers": [{"name": "main", "image": "work:1", "command": ["train"], "resources": resources}]}


async def completed(far, name, *, runs):
    """A Job that has run for so long, and is Complete."""
    far.job(name, runs=runs)
    await until(lambda: far.ended(name) == "Complete", 900)


async def test_a_budget_of_dollars_that_is_used_up_refuses_the_next_container():
    async with offload() as far:
        far.pool()
        far.budget(usd="0.08")
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            await completed(far, "first", runs="10m")
            await until(lambda: far.is_idle)
            await asyncio.sleep(60)
            assert far.consumed("consumedUsd") == pytest.approx(float(far.cloud.ledger()), abs=1e-6)
            far.job("second", runs="10m")
            await asyncio.sleep(120)
            assert len(far.runpod.instances) == 1
            reason, sentence = far.capacity("second")
            assert reason == "HeldByBudget"
            assert "left of" in sentence


async def test_a_pod_that_only_remote_containers_can_run_is_not_overtaken_by_smaller_ones():
    async with offload() as far:
        far.pool()
        far.budget(gpuHours="0.25")
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            await completed(far, "before", runs="9m")
            far.job("large", pod=gated(2))
            await asyncio.sleep(5)
            far.job("small", pod=gated(1))
            await asyncio.sleep(60)
            # Six minutes of one GPU are left, three of two.
            assert far.the_pod("large")["spec"]["schedulingGates"]
            assert far.the_pod("small")["spec"]["schedulingGates"]
            # Ten GPUs are not to be had from anybody: such a pod keeps nobody.
            far.delete_job("large")
            far.delete_job("small")
            far.job("huge", pod=gated(10))
            await asyncio.sleep(5)
            far.job("little", pod=gated(1))
            await until(lambda: any("schedulingGates" not in each["spec"] for each in far.pods("little")))
            assert far.the_pod("huge")["spec"]["schedulingGates"]


@pytest.mark.parametrize("seconds", [-3600, -20, 20, 3600])
async def test_usage_is_right_whatever_the_clock_of_the_host_says(seconds):
    def write(pod, text):
        at = now() + timedelta(seconds=seconds)
        far.runpod.instances[pod].log.append(MarketLogLine(at=at, text=text))
        far.runpod._wake()

    async with offload() as far:
        far.pool()
        far.budget(action="AlertOnly", gpuHours="10")
        far.runpod.write = write
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="10m", exit_code=1)
            await until(lambda: far.ended("train") == "Failed", 900)
            failed = now()
            state = far.the_pod("train")["status"]["containerStatuses"][0]["state"]["terminated"]
            # The Job controller waits from then on before it creates the next pod.
            assert timedelta(0) <= failed - datetime.fromisoformat(state["finishedAt"]) < timedelta(seconds=30)
            await asyncio.sleep(3700)
            assert far.consumed("consumedGpuHours") == pytest.approx(1 / 6, abs=0.007)
