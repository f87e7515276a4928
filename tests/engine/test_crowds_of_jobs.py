"""Many marked Jobs at once: RunPod's 60 requests a minute delay them, and fail none of them."""

import asyncio
from collections import Counter

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
