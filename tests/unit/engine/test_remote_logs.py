"""Which lines of a remote pod's log are shown, where they come from, and what is said where there are none."""

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace

import pytest

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import MANAGED_MARK, VIRTUAL_NODE
from forebay.engine.virtual_node.log_tails import LogTails
from forebay.engine.virtual_node.remote_logs import RemoteLogs
from forebay.model.sources import Delivery
from forebay.model.workloads import Phase
from forebay.offload.exit_code import nonce_of
from forebay.offload.log_view import LogQuery, LogRefused
from forebay.offload.record_progress import ReportedExit
from forebay.providers.base import InstanceGone, LogLine, ProviderError
from tests.unit.demand.builders import NOW, record, running


def at(seconds):
    return NOW + timedelta(seconds=seconds)


def said(*texts, since=0):
    """Lines, one a second."""
    return [LogLine(text=text, at=at(since + number)) for number, text in enumerate(texts)]


class Provider:
    """Has these lines of each container; sends those that it is asked for, as providers do, and notes what that was."""

    def __init__(self, logs: Mapping[str, list]):
        self.logs_of, self.asked = logs, []

    async def logs(self, instance, *, follow, since, tail):
        self.asked.append((instance, follow, since, tail))
        if instance not in self.logs_of:
            raise InstanceGone(f"{instance} is gone.")
        lines = [each for each in self.logs_of[instance] if since is None or each.at is None or each.at >= since]
        for each in lines[len(lines) - min(tail, len(lines)) :] if tail is not None else lines:
            if isinstance(each, ProviderError):
                raise each
            yield each


class Breaks(ProviderError):
    """In the place of a line: the stream breaks off there."""

    at = None


class World:
    """A pod on the virtual node with one container, whose log the provider has."""

    def __init__(self, lines=(), *, pod=None, told=None, container="i-1", ordered=True, **status):
        self.pod = pod or running("train", node=VIRTUAL_NODE)
        self.provider = Provider({"i-1": list(lines)})
        self.now = NOW
        self.tails = LogTails(lambda: self.now)
        self.reports = {} if told is None else {"uid-of-c1": told}
        refs = (self.pod,) if ordered else ()
        state = status.pop("state", InstanceState.RUNNING)
        self.records = {
            ("", "c1"): record("c1", state, pods=refs, delivers=Delivery.CONTAINER, instance_id=container, **status)
        }
        views = SimpleNamespace(pods={("default", "train"): self.pod}, instances=self.records)
        self.logs = RemoteLogs(views, lambda _: self.provider, self.tails, lambda: self.reports)

    def kept(self, *texts):
        """These lines were read for the exit code, and are kept."""
        self.tails.begin(self.pod.uid)
        for line in said(*texts):
            self.tails.add(self.pod.uid, line)
        self.now = at(60)

    async def of(self, name="train", **query):
        chunks = await self.logs.open("default", name, "main", LogQuery(**query))
        return b"".join([each async for each in chunks]).decode()

    async def refusal(self, name="train", **query):
        with pytest.raises(LogRefused) as refused:
            await self.of(name, **query)
        return int(refused.value.status), str(refused.value)


END = f"forebay-exit {nonce_of('uid-of-c1')} 0"
AGAIN = f"forebay-restart {nonce_of('uid-of-c1')} 1"


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, "one\ntwo\nthree\n"),
        ({"follow": True}, "one\ntwo\nthree\n"),
        ({"tail": 0}, ""),
        ({"tail": 2}, "two\nthree\n"),
        ({"tail": 9}, "one\ntwo\nthree\n"),
        ({"since": at(1)}, "two\nthree\n"),
        ({"limit_bytes": 0}, ""),
        ({"limit_bytes": 6}, "one\ntw"),
        ({"limit_bytes": 99}, "one\ntwo\nthree\n"),
        ({"limit_bytes": 6, "follow": True}, "one\ntw"),
        ({"limit_bytes": 4, "follow": True}, "one\n"),
        ({"timestamps": True, "tail": 1}, "2026-03-02T12:00:02.000000Z three\n"),
    ],
)
@pytest.mark.parametrize("read", [False, True], ids=["at the provider", "kept"])
async def test_the_lines_that_were_asked_for_are_shown_wherever_they_come_from(query, shown, read):
    world = World(said("one", "two", "three"))
    if read:
        world.kept("one", "two", "three")
        if query.get("follow"):
            reading = await world.logs.open("default", "train", "main", LogQuery(**query))
            world.tails.end(world.pod.uid)
            assert b"".join([each async for each in reading]).decode() == shown
        else:
            assert await world.of(**query) == shown
        assert world.provider.asked == [], "what is read anyway costs no request"
    else:
        assert await world.of(**query) == shown
        assert len(world.provider.asked) == 1


async def test_the_end_of_a_log_that_has_ended_is_asked_for_with_the_lines_of_the_shell():
    world = World(said("one", "two", "", END), told=ReportedExit(exit_code=0, at=at(3)))
    assert await world.of(tail=1, follow=True) == "two\n"
    assert world.provider.asked == [("i-1", False, None, 3)], "nobody follows what has ended"
    assert await world.of() == "one\ntwo\n"
    assert world.provider.asked[1:] == [("i-1", False, None, None)]


async def test_a_log_that_ended_is_shown_from_memory_when_it_is_not_followed_any_more():
    world = World(said("one"), told=ReportedExit(exit_code=0, at=at(3)))
    world.kept("one", "kept", "", END)
    world.tails.end(world.pod.uid)
    assert await world.of() == "one\nkept\n"
    assert world.provider.asked == []


@pytest.mark.parametrize(
    ("told", "query", "asked", "shown"),
    [
        (ReportedExit(restarts=1, restarted=(at(2),)), {}, (at(3), None), "b1\nb2\n"),
        (ReportedExit(restarts=1, restarted=(at(2),)), {"tail": 1}, (at(3), 1), "b2\n"),
        (ReportedExit(restarts=1, restarted=(at(2),)), {"since": at(14)}, (at(14), None), "b2\n"),
        (ReportedExit(restarts=1, restarted=(at(2),)), {"since": at(1)}, (at(3), None), "b1\nb2\n"),
        # Where the run before begins, only the lines before it tell.
        (ReportedExit(restarts=1, restarted=(at(2),)), {"previous": True}, (None, None), "a1\n"),
        (ReportedExit(restarts=1), {}, (None, None), "b1\nb2\n"),
        (ReportedExit(restarts=1), {"tail": 1}, (None, None), "b2\n"),
        (ReportedExit(restarts=2, restarted=(at(16),)), {}, (None, None), "c1\n"),
        (ReportedExit(restarts=2, restarted=(at(2), at(16))), {}, (at(17), None), "c1\n"),
        (ReportedExit(restarts=2, restarted=(at(2), at(16))), {"previous": True}, (at(3), None), "b1\nb2\n"),
        (ReportedExit(restarts=2, restarted=(at(2), at(16))), {"previous": True, "tail": 1}, (at(3), None), "b2\n"),
        (ReportedExit(restarts=3, restarted=(at(2), at(16))), {}, (at(17), None), "c1\n"),
    ],
)
async def test_of_a_command_that_was_started_again_one_run_is_shown_and_only_that_is_asked_for(
    told, query, asked, shown
):
    runs = [*said("a1", "", AGAIN), *said("b1", "b2", "", AGAIN, since=13), *said("c1", since=27)]
    world = World(runs if told.restarts > 1 else runs[:5], told=told)
    assert await world.of(**query) == shown
    assert world.provider.asked == [("i-1", False, *asked)]


async def test_the_run_before_the_first_is_none():
    assert await World(said("one")).refusal(previous=True) == (
        400,
        'previous terminated container "main" in pod "train" not found',
    )


async def test_a_pod_of_another_node_has_no_log_here():
    for world, name in ((World(pod=running("train", node="n1")), "train"), (World(), "other")):
        assert await world.refusal(name) == (404, f'pod "{name}" not found on node {VIRTUAL_NODE}')


async def test_a_provider_that_does_not_send_the_log_is_quoted():
    world = World([Breaks("Rate limit.")])
    assert await world.refusal() == (503, "The provider did not return the log: Rate limit.")
    assert await world.refusal(follow=True) == (503, "The provider did not return the log: Rate limit.")
    world = World([*said("one"), Breaks("Timeout.")])
    assert await world.refusal() == (503, "The log broke off: Timeout.")
    assert await world.of(follow=True) == "one\n", "as with any kubelet"


WAITING = 'container "main" in pod "train" is waiting to start: '


@pytest.mark.parametrize(
    ("world", "refusal"),
    [
        (
            World(container="i-2", pod=running("train", node=VIRTUAL_NODE, phase=Phase.SUCCEEDED)),
            (404, "The provider has deleted the log together with its container, and this Forebay has not read it."),
        ),
        (World(container="i-2", message="Booting."), (400, f"{WAITING}ContainerCreating (Booting.)")),
        (World(container="i-2"), (400, f"{WAITING}ContainerCreating (not launched yet)")),
        (World(ordered=False), (400, f"{WAITING}NotSupported")),
        (
            World(ordered=False, pod=running("train", node=VIRTUAL_NODE, labels={MANAGED_MARK: "true"})),
            (400, f"{WAITING}ContainerCreating (not launched yet)"),
        ),
    ],
    ids=["ended", "launching", "unsaid", "of no Job", "before its record"],
)
async def test_a_pod_without_a_log_says_why(world, refusal):
    assert await world.refusal() == refusal


@pytest.mark.parametrize(
    "world",
    [World(said("one"), state=None), World(said("one"), container=None), World(container="i-2")],
    ids=["no status", "no instance", "gone"],
)
async def test_what_was_read_is_shown_where_the_provider_has_no_log(world):
    assert (await world.refusal())[0] == 400
    world.kept("last", "words")
    world.tails.end(world.pod.uid)
    assert await world.of() == "last\nwords\n"
    assert await world.of(tail=1) == "words\n"
    assert [each for each, *_ in world.provider.asked if each != "i-2"] == []


async def test_the_log_of_a_provider_that_is_not_configured_any_more_is_shown_from_memory():
    world = World(said("one"))
    world.provider = None
    world.kept("last")
    world.tails.end(world.pod.uid)
    assert await world.of() == "last\n"


async def test_the_first_bytes_of_a_log_that_goes_on_end():
    world = World()
    world.kept("one")
    assert await world.of(follow=True, limit_bytes=4) == "one\n"


async def test_an_empty_line_at_the_end_is_shown_if_the_shell_did_not_write_it():
    assert await World(said("one", "")).of() == "one\n\n"
    assert await World(said("one", "")).of(follow=True) == "one\n\n"
    assert await World(said("one", "", END)).of() == "one\n"


async def test_the_container_of_a_pod_is_told_from_machines_and_from_those_of_other_pods():
    world = World(said("one"))
    machine = record("m1", pods=(world.pod,), delivers=Delivery.NODE, instance_id="i-0")
    other = record("c0", pods=(running("other"),), delivers=Delivery.CONTAINER, instance_id="i-0")
    world.records |= {("", "m1"): machine, ("", "c0"): other}
    assert await world.of() == "one\n"
    where = world.logs.unsupported("kubectl exec", "default", "train")
    assert where.startswith("kubectl exec is not supported by this provider")
    assert "container i-1 at " in where


@pytest.mark.parametrize(
    "world", [World(container=None), World(state=None), World(ordered=False)], ids=["instance", "status", "record"]
)
def test_without_a_container_no_address_is_given(world):
    assert world.logs.unsupported("kubectl exec", "default", "train").endswith("container. kubectl logs works.")
