"""What RunPod bills is told by its answer, not by its catalogue: caps hold all the same."""

import asyncio

from forebay.providers.registry import read_environment
from tests.engine.market_world import cloud_operator
from tests.engine.offload_world import A40, KEY, MANAGED, RTX, offload
from tests.engine.test_markets import until
from tests.net.faults import Faulty, LoseAnswer, When


def launches(request):
    return request.method == "POST" and request.url.endswith("/v2/pods")


async def test_a_container_that_costs_more_than_the_job_may_cost_is_ended_at_once_and_the_next_one_runs():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            # After the catalogue was read: it says $0.39/h.
            far.runpod.reprice(A40, "0.60")
            far.job("train")
            await until(lambda: far.ended("train") == "Complete", 300)
            assert [far.runpod.orders[each]["gpu"]["id"] for each in far.runpod.instances] == [A40, RTX]
            # The same pod: nothing had run for it.
            assert len(far.pods("train")) == 1
            (told,) = far.world.told(far.the_pod("train")["metadata"]["name"], "PriceRaised")
            assert "bills $0.60/h" in told
            assert "offered at $0.39/h" in told
            assert "allowed $0.50/h" in told
            far.job("other")
            await until(lambda: far.ended("other") == "Complete", 300)
            assert len(far.runpod.instances) == 3, "the next Job does not try it again"
            await until(lambda: far.is_idle)
        first = next(iter(far.runpod.instances.values()))
        assert first.line.billed_seconds(first.line.ended) <= 3
        assert 0 <= far.overcharge() <= 4


async def test_the_cap_of_the_pool_counts_too_and_where_nothing_else_will_do_the_pod_is_told():
    async with offload() as far:
        far.pool(price="0.40")
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.runpod.reprice(A40, "0.41")
            far.job("train")
            await asyncio.sleep(60)
            reason, sentence = far.capacity("train")
            assert reason == "CoolingDown"
            assert sentence.endswith("UTC (PriceRaised).")
            assert len(far.runpod.instances) == 1
            # The catalogue is read again. The RTX 4090 of the community cloud is cheaper, and nobody asked for it.
            await asyncio.sleep(120)
            reason, sentence = far.capacity("train")
            assert (reason, "NVIDIA A40 of runpod: costs more than $0.40/h" in sentence) == ("PriceTooHigh", True)
            far.runpod.reprice(A40, "0.39")
            await until(lambda: far.ended("train") == "Complete", 900)


async def test_with_the_key_in_the_environment_a_job_costs_what_its_mark_allows_and_no_pool_is_in_the_way():
    configured = read_environment({"RUNPOD_KEY": KEY, "RUNPOD_ENDPOINT": "http://runpod"})
    async with offload() as far:
        far.runpod.reprice(A40, "12.50")
        far.runpod.restock(RTX, 0)
        async with cloud_operator(far.cloud, configured=configured) as operator:
            await until(lambda: operator.error() is None)
            far.job("dear", marks={**MANAGED, "runpod.io/max-price": "13"})
            far.job("usual")
            await until(lambda: far.ended("dear") == "Complete", 300)
            reason, sentence = far.capacity("usual")
            assert reason == "PriceTooHigh"
            assert "the Job may cost $0.50/h (--max-gpu-price)" in sentence
            far.job("low", marks={**MANAGED, "runpod.io/max-price": "2"})
            await until(lambda: far.pods("low") and far.capacity("low"))
            assert "the Job may cost $2.00/h (runpod.io/max-price)" in far.capacity("low")[1]
            await until(lambda: far.is_idle)


async def test_a_container_that_costs_more_than_it_was_offered_for_and_no_more_than_allowed_runs_and_says_so():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.runpod.reprice(A40, "0.45")
            far.job("train")
            await until(lambda: far.phase("train") == "Running")
            pod = far.the_pod("train")["metadata"]
            assert pod["annotations"]["runpod.io/cost-per-hr"] == "0.45"
            (told,) = far.world.told(pod["name"], "LaunchAccepted")
            assert "at $0.45/h, which was offered at $0.39/h" in told
            await until(lambda: far.ended("train") == "Complete" and far.is_idle, 300)
            assert list(far.runpod.orders) == list(far.runpod.instances)
        assert len(far.runpod.instances) == 1


async def test_one_that_runs_before_its_price_is_known_is_lost_to_its_pod_and_the_job_gets_another():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud, wrap=lambda transport: Faulty(transport, When(launches, LoseAnswer()))):
            await asyncio.sleep(10)
            far.runpod.reprice(A40, "0.60")
            far.runpod.unlisted = {"runpod-1"}
            far.job("train", backoff=1)
            await asyncio.sleep(30)
            assert far.runpod.running
            far.runpod.unlisted = set()
            await until(lambda: far.ended("train") == "Complete", 600)
            failed = [each for each in far.pods("train") if each["status"]["phase"] == "Failed"]
            assert len(failed) == 1
            assert "DisruptionTarget" in {each["type"] for each in failed[0]["status"]["conditions"]}
            await until(lambda: far.is_idle)
