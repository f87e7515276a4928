"""Many marked Jobs at once: RunPod's 60 requests a minute delay them, and fail none of them."""

import asyncio
from collections import Counter

import pytest

from forebay.api.names import VIRTUAL_NODE
from forebay.embedded.api.kinds import NODE_KIND
from tests.engine.market_world import cloud_operator
from tests.engine.offload_world import offload
from tests.engine.test_markets import until

CROWD = 30


async def test_a_crowd_of_jobs_waits_for_the_rate_limit_and_no_launch_counts_as_failed():
    async with offload(enforces_limits=True) as far:
        far.pool(limits={"maxNodes": CROWD, "maxHourlyCost": "100"})
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            for number in range(CROWD):
                far.job(f"train-{number}", runs="30s")
            await until(lambda: all(far.ended(f"train-{number}") == "Complete" for number in range(CROWD)), 300)
            await until(lambda: far.is_idle)
            steps = Counter(
                step["reason"] for record in far.world.records().values() for step in record["status"]["transitions"]
            )
            assert (steps["LaunchStarted"], steps["LaunchAccepted"]) == (CROWD, CROWD)
            assert steps["ProviderUnavailable"] == steps["CoolingDown"] == 0
        # The ledger has whole seconds: a little more than the bill, never less.
        assert 0 <= far.overcharge() <= 2


def cordon(far):
    far.world.change(NODE_KIND, VIRTUAL_NODE, lambda node: node["spec"].update(unschedulable=True))


def lower_limit(far):
    kind = far.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
    far.world.change(kind, "runpod", lambda pool: pool["spec"].update(limits={"maxNodes": 1}), "kube-system")


@pytest.mark.parametrize(("brake", "reason"), [(cordon, "NotAllowed"), (lower_limit, "LimitReached")])
async def test_of_a_crowd_that_waits_for_its_turn_none_leaves_once_it_is_not_to_any_more(brake, reason):
    async with offload(enforces_limits=True) as far:
        far.pool(limits={"maxNodes": 100, "maxHourlyCost": "100"})
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            for number in range(60):
                far.job(f"train-{number}", runs="30m")
            await asyncio.sleep(30)
            brake(far)
            await asyncio.sleep(10)
            launched = len(far.runpod.instances)
            assert launched < 40
            await asyncio.sleep(300)
            # Eight calls were under way.
            assert len(far.runpod.instances) <= launched + 8
            waiting = [number for number in range(60) if far.phase(f"train-{number}") == "Pending"]
            assert len(waiting) == 60 - len(far.runpod.instances)
            assert {far.capacity(f"train-{number}")[0] for number in waiting} == {reason}


async def test_a_crowd_that_leaves_is_terminated_before_others_are_launched():
    async with offload(enforces_limits=True) as far:
        far.pool(limits={"maxNodes": CROWD, "maxHourlyCost": "100"})
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            for number in range(12):
                far.job(f"first-{number}", runs="1h")
            await until(lambda: all(far.phase(f"first-{number}") == "Running" for number in range(12)), 300)
            first = far.runpod.running
            for number in range(12):
                far.delete_job(f"first-{number}")
                far.job(f"then-{number}", runs="30s")
            await until(lambda: not far.runpod.running & first, 30)
            assert len(far.runpod.instances) < 24, "some of the others still wait for their turn"
            await until(lambda: all(far.ended(f"then-{number}") == "Complete" for number in range(12)), 300)
            await until(lambda: far.is_idle)
