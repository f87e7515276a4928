"""Which pods are told that the end of their command cannot be seen, and when."""

import pytest

from forebay.api.gpu_instance import InstanceState
from forebay.engine.virtual_node.exit_reports import UnreadableLog
from forebay.engine.virtual_node.unreadable_logs import unreadable_logs
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from tests.unit.demand.builders import NOW, ago, record, running

RUNNING = InstanceState.RUNNING


def container(name="c1", state=RUNNING, *, of=None, **status):
    pods = () if of is None else (of,)
    return record(name, state, pods=pods, delivers=Delivery.CONTAINER, **{"since": ago(hours=1), **status})


def told(*records, pods, since=None, without_command=(), error="No such pod."):
    by_name = {each.key: each for each in pods}
    unreadable = {"uid-of-c1": UnreadableLog(since or ago(minutes=3), error), "uid-of-c9": UnreadableLog(NOW, "x")}
    found = unreadable_logs(
        records, unreadable, lambda *key: by_name.get(key), lambda uid: uid not in without_command, NOW
    )
    return list(found)


TRAIN, OTHER = running("train"), running("other")


def test_the_pod_is_told_since_when_why_and_what_to_do():
    (event,) = told(container(of=TRAIN), pods=[TRAIN])
    assert (event.pod, event.reason, event.warning) == (TRAIN, Reason.LOG_UNREADABLE, True)
    assert "cannot be read since 11:57:00 UTC: No such pod. The exit code" in event.sentence
    assert event.sentence.endswith("or delete the pod.")


@pytest.mark.parametrize(
    ("found", "fields"),
    [
        (container(of=TRAIN), {"since": ago(minutes=3, microseconds=-1)}),
        (container(of=TRAIN, since=ago(minutes=2)), {}),
        (container(state=InstanceState.LAUNCHED, of=TRAIN), {}),
        (container(state=InstanceState.TERMINATING, of=TRAIN), {}),
        (container("c2", of=TRAIN), {}),
        (container(), {}),
        (container(of=TRAIN), {"pods": []}),
        (container(of=TRAIN), {"pods": [running("train", uid="another")]}),
        (container(of=TRAIN), {"without_command": ["uid-train"]}),
    ],
    ids=[
        "a moment ago",
        "it runs since a moment ago",
        "before it runs",
        "it ends",
        "its log can be read",
        "of no pod",
        "its pod is gone",
        "another pod of the name",
        "its exit code does not come by the log",
    ],
)
def test_nobody_is_told_where_nothing_is_missed(found, fields):
    assert told(found, **{"pods": [TRAIN], **fields}) == []


def test_a_container_that_does_not_say_since_when_it_runs_counts_from_the_log():
    assert len(told(container(of=TRAIN, since=None), pods=[TRAIN])) == 1
    assert told(container(of=TRAIN, since=None), pods=[TRAIN], since=ago(minutes=2)) == []


def test_each_record_is_looked_at():
    before = [
        container("c2", of=OTHER),
        container("c3"),
        container("c9", of=OTHER),
        container("c8", InstanceState.GONE, of=OTHER),
    ]
    assert [each.pod for each in told(*before, container(of=TRAIN), pods=[TRAIN, OTHER])] == [TRAIN]


def test_where_all_logs_can_be_read_nobody_is_told():
    found = unreadable_logs([container(of=TRAIN)], {}, lambda *_: TRAIN, lambda _: True, NOW)
    assert list(found) == []
