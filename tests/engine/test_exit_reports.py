"""Exit codes come back through the logs of a provider, whatever becomes of the streams."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState
from forebay.api.meta import ObjectMeta
from forebay.engine.virtual_node.exit_reports import ExitReports
from forebay.model.sources import Delivery
from forebay.net.clock import now
from forebay.offload.exit_code import nonce_of, wrapped
from forebay.offload.record_progress import ReportedExit
from forebay.providers.base import InstanceGone
from forebay.simulate.market_goods import EXIT_CODE, RUN_TIME
from tests.contract.providers.runpod.harness import CONTAINER, RunpodHarness

NONCE = nonce_of("uid-1")


def record(pod, state=InstanceState.RUNNING, uid="uid-1"):
    return GPUInstance(
        metadata=ObjectMeta(name="gpu-1", uid=uid),
        spec=GPUInstanceSpec(provider="runpod", delivers=Delivery.CONTAINER),
        status=GPUInstanceStatus(state=state, instance_id=pod),
    )


@asynccontextmanager
async def followed(run_time="30s", exit_code="7"):
    """A container that ends by itself, and the reports of its log."""
    container = replace(CONTAINER, command=wrapped(("train",), NONCE), env={RUN_TIME: run_time, EXIT_CODE: exit_code})
    async with RunpodHarness().open() as harness:
        made = await harness.provider.launch(await harness.request(container=container))
        changes = []
        reports = ExitReports(lambda _: harness.provider, now, lambda: changes.append(now()))
        try:
            yield harness, made.id, reports, changes
        finally:
            await reports.close()


async def test_the_exit_code_is_known_as_soon_as_it_is_written():
    async with followed() as (_harness, pod, reports, changes):
        reports.follow([record(pod)])
        await asyncio.sleep(29)
        assert reports.reports == {}
        before = now()
        await asyncio.sleep(3)
        assert reports.reports["uid-1"].exit_code == 7
        assert len(changes) == 1
        assert (changes[0] - before).total_seconds() <= 2


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param([b"data: {\n\n"], id="half an event"),
        pytest.param([b"id: 1\ndata: null\n\n", b"data: []\n\n", b'data: {"line": 7}\n\n'], id="no lines"),
        pytest.param([b"<html>gateway</html>\n\n"], id="a page"),
        pytest.param([b"\xff\xfe\x00\n\n", b"data: \xff\n\n"], id="bytes"),
        pytest.param([b'data: {"line": "x", "ts": "2026-01-01T00:00:00"}\n\n'], id="a time without a zone"),
        pytest.param([b'data: {"line": "x", "ts": {"when": "late"}}\n\n'], id="no time"),
        pytest.param([b"data: " + b"x" * 65536] + [b"x" * 65536] * 100 + [b"\r", b"\n\r\n"], id="a line without end"),
    ],
)
async def test_a_line_that_cannot_be_read_hides_no_exit_code(garbage):
    async with followed() as (harness, pod, reports, _changes):
        harness.world.log_garbage = garbage
        reports.follow([record(pod)])
        await asyncio.sleep(32)
        assert reports.reports["uid-1"].exit_code == 7
        assert harness.world.log_streams == 1


async def test_lines_of_another_container_and_of_the_program_are_no_reports():
    async with followed() as (harness, pod, reports, _changes):
        reports.follow([record(pod)])
        await asyncio.sleep(5)
        harness.world.write(pod, f"forebay-exit {nonce_of('other')} 0")
        harness.world.write(pod, "forebay-exit 0")
        await asyncio.sleep(5)
        assert reports.reports == {}


async def test_a_stream_that_breaks_off_is_opened_again_and_nothing_counts_twice(capsys):
    async with followed() as (harness, pod, reports, _changes):
        reports.follow([record(pod)])
        await asyncio.sleep(5)
        harness.world.write(pod, f"forebay-restart {NONCE} 3")
        await asyncio.sleep(1)
        await reports.close()
        harness.world.cut_logs = 2
        reports.follow([record(pod)])
        await asyncio.sleep(60)
        found = reports.reports["uid-1"]
        assert (found.restarts, found.last_exit_code, found.exit_code) == (1, 3, 7)
        assert "log not followed" in capsys.readouterr().out


async def test_a_log_that_there_was_not_before_the_container_ran_is_opened_as_soon_as_it_runs():
    class WithoutEarlyLogs:
        def __init__(self, provider):
            self.provider, self.runs, self.asked = provider, False, 0

        async def logs(self, instance_id, **options):
            self.asked += 1
            if not self.runs:
                raise InstanceGone("no log yet")
            async for line in self.provider.logs(instance_id, **options):
                yield line

    async with followed("10h") as (harness, pod, _, _changes):
        provider = WithoutEarlyLogs(harness.provider)
        reports = ExitReports(lambda _: provider, now, lambda: None)
        reports.follow([record(pod, InstanceState.LAUNCHED)])
        await asyncio.sleep(600)
        assert provider.asked < 20
        assert reports.unreadable["uid-1"].error == "no log yet"
        reports.follow([record(pod, InstanceState.LAUNCHED)])
        provider.runs, before = True, provider.asked
        reports.follow([record(pod)])
        harness.world.exits(pod, 7)
        await asyncio.sleep(1)
        assert provider.asked == before + 1
        assert reports.reports["uid-1"].exit_code == 7
        assert reports.unreadable == {}
        await reports.close()


async def test_the_next_leader_finds_the_same():
    async with followed() as (harness, pod, reports, _changes):
        await asyncio.sleep(40)
        reports.follow([record(pod)])
        await asyncio.sleep(1)
        later = ExitReports(lambda _: harness.provider, now, lambda: None)
        later.follow([record(pod)])
        await asyncio.sleep(1)
        assert later.reports == reports.reports
        assert isinstance(later.reports["uid-1"], ReportedExit)
        await later.close()


async def test_containers_that_are_gone_are_followed_no_more():
    async with followed("1000h") as (_harness, pod, reports, _changes):
        reports.follow([record(pod)])
        await asyncio.sleep(1)
        assert len(reports._tasks) == 1
        reports.follow([])
        assert reports._tasks == {}
        reports.follow([record(pod, InstanceState.TERMINATING)])
        assert reports._tasks == {}


async def test_one_container_costs_one_request_however_long_it_runs():
    async with followed("10h") as (harness, pod, reports, _changes):
        seen = []
        harness.plan = seen.append
        for _ in range(100):
            reports.follow([record(pod)])
            await asyncio.sleep(10)
        assert len(seen) == 1


class SlowProvider:
    """Answers after a second, and its containers write nothing."""

    def __init__(self):
        self.waiting = self.most_waiting = self.open = 0

    async def logs(self, _instance, *, opened, **_options):
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            await asyncio.sleep(1)
        finally:
            self.waiting -= 1
        self.open += 1
        opened()
        await asyncio.Event().wait()
        yield


async def test_a_new_leader_opens_a_crowd_of_logs_a_few_at_a_time():
    provider = SlowProvider()
    reports = ExitReports(lambda _: provider, now, lambda: None)
    reports.follow([record(f"pod-{number}", uid=f"uid-{number}") for number in range(100)])
    await asyncio.sleep(5.5)
    assert (provider.most_waiting, provider.open) == (8, 40)
    await asyncio.sleep(10)
    assert provider.open == 100, "silent ones do not keep others waiting"
    await reports.close()


class SlowLogs:
    """A provider of which each log takes a second to open, as where few requests a minute are allowed."""

    def __init__(self, provider):
        self._provider = provider
        self.opened = []

    def idle_containers(self):
        return self._provider.idle_containers()

    async def logs(self, instance_id, *, follow, opened, turn):
        await asyncio.sleep(1)
        self.opened.append(instance_id)
        opened()
        async for line in self._provider.logs(instance_id, follow=follow, turn=turn):
            yield line


async def test_a_new_leader_opens_the_logs_of_idle_containers_before_those_of_busy_ones():
    async with RunpodHarness().open() as harness:
        container = replace(CONTAINER, command=wrapped(("train",), NONCE), env={RUN_TIME: "10h"})
        pods = [
            (await harness.provider.launch(await harness.request(f"uid-{number}", container=container))).id
            for number in range(30)
        ]
        await asyncio.sleep(120)
        harness.world.exits(pods[-1], 0)
        await harness.provider.instances()
        assert set(harness.provider.idle_containers()) == {pods[-1]}
        slow = SlowLogs(harness.provider)
        reports = ExitReports(lambda _: slow, now, lambda: None)
        reports.follow([record(pod, uid=f"uid-{number}") for number, pod in enumerate(pods)])
        await asyncio.sleep(10)
        await reports.close()
        assert slow.opened.index(pods[-1]) < 16, "after those that were being opened already"
        assert set(slow.opened) == set(pods)
