"""How a remote container ended decides what becomes of its Job: nothing that broke off counts as done."""

import asyncio
import itertools
from datetime import timedelta

import pytest

from forebay.net.transport import Headers, Response
from forebay.simulate.market import by_host
from tests.engine.market_world import cloud_operator
from tests.engine.offload_world import A40, RTX, offload
from tests.engine.test_markets import until
from tests.engine.test_offload import WORK, settled, train
from tests.net.faults import Answer, Faulty

PLAIN = {key: each for key, each in WORK.items() if key != "command"}


def terminated(far):
    return [each["status"]["containerStatuses"][0]["state"]["terminated"] for each in far.pods("train")]


def conditions(far):
    return {each["type"] for pod in far.pods("train") for each in pod["status"]["conditions"]}


@pytest.mark.parametrize("stream_ends", [True, False])
async def test_a_container_that_is_stopped_before_its_command_has_ended_is_a_failure(stream_ends):
    async with train(runs="10h") as far:
        far.runpod.stopped_logs_end = stream_ends
        (pod,) = far.runpod.instances
        far.runpod.stop_pod(pod)
        await until(lambda: far.ended("train") is not None, 120)
        assert far.ended("train") == "Failed"
        (end,) = terminated(far)
        assert (end["exitCode"], end["reason"]) == (137, "ContainerStatusUnknown")
        assert "has not reported an exit code" in end["message"]
        # It may have used up its memory: a policy that ignores disruptions would start it for ever.
        assert "DisruptionTarget" not in conditions(far)


async def test_a_command_that_ended_before_its_container_was_stopped_keeps_its_exit_code_however_late_it_is_read():
    unreadable = True

    def no_logs(request):
        return Answer(503) if unreadable and "/logs" in request.url else None

    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="10h")
            await until(lambda: far.phase("train") == "Running")
        (pod,) = far.runpod.instances
        far.runpod.exits(pod, 3)
        far.runpod.stop_pod(pod)
        async with cloud_operator(far.cloud, "b", wrap=lambda transport: Faulty(transport, no_logs)):
            await until(lambda: "Finished" in far.world.states().values())
            await asyncio.sleep(5)
            assert far.ended("train") is None, "nobody knows yet"
            unreadable = False
            await until(lambda: far.ended("train") is not None)
            assert far.ended("train") == "Failed"
            assert [each["exitCode"] for each in terminated(far)] == [3]
            await until(lambda: far.is_idle)


async def test_a_container_without_a_command_that_is_stopped_counts_as_done():
    async with train(runs="10h", pod={"containers": [PLAIN]}) as far:
        (pod,) = far.runpod.instances
        far.runpod.stop_pod(pod)
        await until(lambda: far.ended("train") is not None)
        assert far.ended("train") == "Complete"


async def test_the_log_of_a_container_that_was_terminated_is_not_asked_for_again():
    async with train(runs="10h") as far:
        asked, found = [], far.runpod._found
        far.runpod._found = lambda pod: asked.append(pod) or found(pod)
        far.delete_job("train")
        await until(lambda: far.is_idle and not far.pods())
        before = len(asked)
        await asyncio.sleep(3600)
        assert len(asked) == before


async def test_pods_of_others_that_cannot_be_read_hide_none_of_ours():
    async with train(runs="60s") as far:
        other = far.runpod.create(name="by hand")
        odd = {"cost": "NaN", "env": None, "createdAt": "yesterday", "name": None, "status": "REBOOTING", "runtime": 7}
        shown = far.runpod._shown
        far.runpod._shown = lambda rented: {**shown(rented), **(odd if rented.id == other else {})}
        await until(lambda: far.ended("train") == "Complete")
        await until(lambda: set(far.world.states().values()) == {"Gone"})
        assert far.runpod.running == {other}
        assert far.world.events("ProviderUnavailable") == []
        # By the specification RunPod would not have said that.
        assert far.runpod.violations
        far.runpod.violations.clear()
        far.runpod._shown = shown
        del far.runpod.instances[other]


async def test_a_log_that_went_dead_without_a_word_is_opened_again_once_its_container_idles():
    async with train(runs="10h") as far:
        await asyncio.sleep(60)
        far.runpod.lose_logs()
        (pod,) = far.runpod.instances
        far.runpod.exits(pod, 0)
        await until(lambda: far.ended("train") == "Complete", 420)


async def test_where_runpod_does_not_tell_what_idles_a_dead_log_costs_an_hour_at_most():
    async with train(runs="10h") as far:
        await asyncio.sleep(60)
        far.runpod.lose_logs()
        (pod,) = far.runpod.instances
        far.runpod.exits(pod, 0)
        far.runpod.idle.clear()
        await until(lambda: far.ended("train") == "Complete", 3700)


async def test_of_many_logs_that_are_closed_at_once_those_of_idle_containers_are_opened_first():
    async with offload() as far:
        far.pool(limits={"maxNodes": 60, "maxHourlyCost": "1000"})
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="10h", parallelism=60, completions=60)
            await until(lambda: [each["status"]["phase"] for each in far.pods("train")] == ["Running"] * 60, 3600)
            await until(lambda: far.runpod.log_streams >= 60, 3600)
            await asyncio.sleep(120)
            far.runpod.close_logs()
            far.runpod.exits(max(far.runpod.instances), 0)
            await until(lambda: far.the_job("train")["status"].get("succeeded") == 1, 20)


async def test_listings_that_leave_containers_out_for_a_while_lose_none_of_them():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="10h", parallelism=6, completions=6)
            await until(lambda: [each["status"]["phase"] for each in far.pods("train")] == ["Running"] * 6)
            await asyncio.sleep(10)
            far.runpod.unlisted |= set(far.runpod.instances)
            await asyncio.sleep(120)
            assert [each["status"]["phase"] for each in far.pods("train")] == ["Running"] * 6
            # One that has ended meanwhile is known by its log.
            first = min(far.runpod.instances)
            far.runpod.exits(first, 0)
            await until(lambda: far.the_job("train")["status"].get("succeeded") == 1)
            far.runpod.unlisted.clear()
            far.runpod.vanish(sorted(far.runpod.instances)[1])
            await until(lambda: far.the_job("train")["status"].get("failed", 0) >= 1)
        assert len(far.runpod.instances) == 6


@pytest.mark.parametrize("seconds", [-3600, -30, 30, 3600])
async def test_a_wrong_clock_at_runpod_changes_no_bill(seconds):
    async with offload() as far:
        far.pool()
        shown = far.runpod._shown

        def skewed(rented):
            created = rented.line.created + timedelta(seconds=seconds)
            return {**shown(rented), "createdAt": created.isoformat()}

        far.runpod._shown = skewed
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="90s")
            await until(lambda: far.ended("train") == "Complete")
            await until(lambda: far.is_idle)
        assert settled(far)


async def test_a_gpu_type_that_cannot_be_read_hides_none_of_the_others():
    async with offload() as far:
        far.pool()
        shown, odd = far.runpod._gpu_type, itertools.cycle(["NaN", 1e300, -1, None, "free"])

        def garbled(name, skus, zone):
            found = shown(name, skus, zone)
            return {**found, "price": {"secure": next(odd), "community": "NaN"}} if name == A40 else found

        far.runpod._gpu_type = garbled
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train")
            await until(lambda: far.ended("train") == "Complete")
            assert [each["gpu"]["id"] for each in far.runpod.orders.values()] == [RTX]
            assert far.runpod.violations
            far.runpod.violations.clear()


@pytest.mark.parametrize("status", [403, 404, 500])
async def test_a_log_that_cannot_be_read_is_told_because_the_end_of_the_command_shows_nowhere_else(status):
    async with offload() as far:
        far.pool()
        answer, refuses = far.runpod.answer, True

        async def answered(request):
            if "/logs" not in request.url or not refuses:
                return await answer(request)
            fault = far.runpod.refusal(status, "no logs for you")
            return Response(fault.status, Headers(fault.headers), fault.body)

        far.cloud.answer = by_host({"runpod": answered})
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="60s")
            await until(lambda: far.phase("train") == "Running")
            await asyncio.sleep(120)
            assert far.world.events("LogUnreadable") == []
            await asyncio.sleep(300)
            (told,) = far.world.told(far.the_pod("train")["metadata"]["name"], "LogUnreadable")
            assert "the pod counts as running and its container is billed" in told
            refuses = False
            await until(lambda: far.ended("train") == "Complete", 200)
            await until(lambda: far.is_idle)


@pytest.mark.parametrize(("container", "phase"), [(PLAIN, "Succeeded"), (WORK, "Failed")])
async def test_a_container_that_runpod_starts_again_has_ended_and_is_not_billed_for_ever(container, phase):
    endless = {**container, "env": []}
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", pod={"containers": [endless]})
            await until(lambda: far.phase("train") == "Running")
            await asyncio.sleep(300)
            assert far.phase("train") == "Running"
            (pod,) = far.runpod.instances
            far.runpod.restart_pod(pod)
            await until(lambda: far.phase("train") == phase, 120)
            await until(lambda: far.is_idle)
        assert settled(far)
