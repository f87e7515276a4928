"""What the logs of containers tell of the end of their commands, line by line and however often they are read."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState
from forebay.api.meta import ObjectMeta
from forebay.api.parts import PodRef
from forebay.engine.virtual_node.exit_reports import ExitReports
from forebay.engine.virtual_node.log_tails import LogTails
from forebay.model.sources import Delivery
from forebay.net.clock import now
from forebay.offload.exit_code import nonce_of
from forebay.providers.base import InstanceGone, LogLine, ProviderError, RateLimited

S = InstanceState
NONCE = nonce_of("uid-1")
AGAIN = f"forebay-restart {NONCE} 3"


def end(code=0):
    return f"forebay-exit {NONCE} {code}"


def record(state=S.RUNNING, *, instance="i-1", uid="uid-1", delivers=Delivery.CONTAINER, **status):
    return GPUInstance(
        metadata=ObjectMeta(name="gpu-1", uid=uid),
        spec=GPUInstanceSpec(
            provider="runpod", delivers=delivers, pods=(PodRef(namespace="default", name="train", uid="pod-1"),)
        ),
        status=GPUInstanceStatus(state=state, instance_id=instance, **status),
    )


class Provider:
    """Has the log of one container. A stream begins at its first line and ends when the container does."""

    def __init__(self):
        self.lines, self.error, self.opened_at = [], None, []
        self._news = asyncio.Event()
        self._over = False

    async def logs(self, _instance, *, follow, opened, **_options):
        assert follow
        self.opened_at.append(asyncio.get_running_loop().time())
        if self.error is not None:
            raise self.error
        opened()
        shown = 0
        while True:
            while shown < len(self.lines):
                shown += 1
                yield self.lines[shown - 1]
            if self.error is not None:
                raise self.error
            if self._over:
                return
            self._news.clear()
            await self._news.wait()

    def write(self, text, at=None):
        self.lines.append(LogLine(text=text, at=at))
        self._news.set()

    def breaks(self, error):
        self.error = error
        self._news.set()

    def ends(self, *, over=True):
        self._over = over
        self._news.set()


class Followed:
    def __init__(self):
        self.provider, self.changes = Provider(), 0
        self.tails = LogTails(now)
        self.reports = ExitReports(lambda _: self.provider, now, self._changed, self.tails)

    def _changed(self):
        self.changes += 1

    @property
    def found(self):
        return self.reports.reports["uid-1"]


@asynccontextmanager
async def followed(*records):
    it = Followed()
    it.reports.follow(records or (record(),))
    await asyncio.sleep(0.1)
    try:
        yield it
    finally:
        await it.reports.close()


@pytest.mark.parametrize(
    ("told", "after", "counts"),
    [
        (None, 0, 0),
        (-3600, 0, -3600),
        (0.5, 0, 0),
        (-29, 6, -29),
        (-31, 6, 0),
        (-31, 4, -31),
    ],
    ids=["no time", "written before", "a clock ahead", "a little behind", "a clock behind", "read up to now"],
)
async def test_a_command_ended_when_its_line_says_unless_the_clock_of_its_host_cannot_be_right(told, after, counts):
    async with followed() as it:
        await asyncio.sleep(after)
        moment = now()
        it.provider.write(end(7), None if told is None else moment + timedelta(seconds=told))
        await asyncio.sleep(0.1)
        assert it.found.exit_code == 7
        assert abs((it.found.at - moment).total_seconds() - counts) < 0.2
        assert it.changes == 1


async def test_restarts_are_counted_as_they_come_and_not_again_when_the_log_is_read_again():
    async with followed() as it:
        times = [now() + timedelta(seconds=number) for number in range(3)]
        for number, at in enumerate(times, 1):
            it.provider.write(AGAIN, at)
            await asyncio.sleep(0.1)
            assert (it.found.restarts, it.changes) == (number, number)
        assert it.found.restarted == tuple(times[1:]), "of the last two"
        it.provider.breaks(ProviderError("Timeout."))
        await asyncio.sleep(1)
        it.provider.error = None
        await asyncio.sleep(5)
        assert len(it.provider.opened_at) == 2
        assert (it.found.restarts, it.changes) == (3, 3)
        it.provider.write(AGAIN)
        await asyncio.sleep(0.1)
        assert (it.found.restarts, it.found.restarted, it.found.last_exit_code) == (4, (), 3)


@pytest.mark.parametrize("state", [S.RUNNING, S.FINISHED])
async def test_a_command_that_was_started_again_is_followed_until_it_ends(state):
    async with followed() as it:
        it.provider.write(AGAIN)
        await asyncio.sleep(1)
        it.reports.follow([record(state)])
        await asyncio.sleep(1)
        it.provider.write(end(5))
        await asyncio.sleep(0.1)
        assert (it.found.exit_code, it.found.restarts) == (5, 1)
        assert len(it.provider.opened_at) == 1


async def test_a_log_that_can_be_read_again_is_unreadable_no_more():
    async with followed() as it:
        it.provider.breaks(ProviderError("Timeout."))
        await asyncio.sleep(1)
        assert it.reports.unreadable
        it.provider.error = None
        await asyncio.sleep(2)
        assert it.reports.unreadable == {}


async def test_a_log_that_ends_without_a_report_was_read_to_its_end_and_is_read_again_where_the_container_runs_on():
    async with followed() as it:
        it.provider.write("Killed")
        it.provider.ends()
        await asyncio.sleep(1)
        assert (it.found.whole, it.found.exit_code, it.changes) == (True, None, 1)
        it.provider.ends(over=False)
        await asyncio.sleep(2)
        assert not it.found.whole
        it.provider.write(end())
        await asyncio.sleep(0.1)
        assert it.found.exit_code == 0


async def test_what_is_known_of_a_restart_stays_when_the_container_ends():
    async with followed() as it:
        it.provider.write(AGAIN)
        it.provider.ends()
        await asyncio.sleep(1)
        assert (it.found.restarts, it.found.whole) == (1, True)


async def test_the_lines_are_kept_for_those_who_ask_and_once_only():
    async with followed() as it:
        it.provider.write("one")
        await asyncio.sleep(1)
        assert [each.text for each in it.tails.tail("pod-1")] == ["one"]
        it.provider.breaks(ProviderError("Timeout."))
        await asyncio.sleep(1)
        assert it.tails.following("pod-1", tail=None, since=None) is None
        it.provider.error = None
        it.provider.write("two")
        await asyncio.sleep(5)
        assert [each.text for each in it.tails.tail("pod-1")] == ["one", "two"]


async def test_a_log_that_cannot_be_opened_is_tried_ever_more_seldom_and_at_once_when_its_state_changes(capsys):
    async with followed() as it:
        first = now()
        it.provider.breaks(ProviderError("Timeout."))
        await asyncio.sleep(0.1)
        it.reports.follow([record(S.LAUNCHED)])
        await asyncio.sleep(400)
        waits = [round(b - a) for a, b in zip(it.provider.opened_at[1:], it.provider.opened_at[2:], strict=False)]
        assert waits == [2, 4, 8, 16, 32, *[60] * (len(waits) - 5)]
        unreadable = it.reports.unreadable["uid-1"]
        assert (unreadable.error, round((unreadable.since - first).total_seconds())) == ("Timeout.", 0)
        assert "log not followed" in capsys.readouterr().out
        it.provider.opened_at.clear()
        it.reports.follow([record(S.RUNNING)])
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1)
        it.reports.follow([record(S.RUNNING)])
        await asyncio.sleep(6)
        assert [round(each - began) for each in it.provider.opened_at] == [0, 2, 6]
        it.reports.follow([record(S.TERMINATING)])
        assert it.reports.unreadable == {}


@pytest.mark.parametrize(
    ("error", "unreadable", "logged"),
    [(RateLimited("Slow down."), False, True), (InstanceGone("No log yet."), True, False)],
)
async def test_a_rate_limit_makes_no_log_unreadable_and_a_missing_one_is_no_line_of_ours(
    error, unreadable, logged, capsys
):
    async with followed() as it:
        it.provider.breaks(error)
        await asyncio.sleep(1)
        assert ("uid-1" in it.reports.unreadable) is unreadable
        assert ("log not followed" in capsys.readouterr().out) is logged


@pytest.mark.parametrize(
    ("found", "streams"),
    [
        (record(S.LAUNCHED), 1),
        (record(S.FINISHED), 1),
        (record(S.FINISHED, exit_code=0), 0),
        (record(S.RUNNING, exit_code=0), 1),
        (record(S.REQUESTED), 0),
        (record(S.TERMINATING), 0),
        (record(instance=None), 0),
        (record(delivers=Delivery.NODE), 0),
    ],
    ids=["launched", "finished", "told by the provider", "runs", "requested", "ending", "no instance", "a machine"],
)
async def test_the_log_is_read_while_it_may_tell_something(found, streams):
    async with followed(found) as it:
        assert len(it.provider.opened_at) == streams


async def test_after_its_end_was_reported_or_read_a_log_is_not_opened_any_more():
    async with followed() as it:
        it.provider.write(end())
        await asyncio.sleep(1)
        for state in (S.RUNNING, S.FINISHED):
            it.reports.follow([record(state)])
            await asyncio.sleep(100)
        assert len(it.provider.opened_at) == 1
    async with followed() as it:
        it.provider.ends()
        await asyncio.sleep(1)
        it.reports.follow([record(S.FINISHED)])
        before = len(it.provider.opened_at)
        await asyncio.sleep(100)
        assert len(it.provider.opened_at) == before
        it.reports.follow([])
        assert it.reports.reports == {}
