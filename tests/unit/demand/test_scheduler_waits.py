"""Pods wait for their scheduler, and never endlessly: for its first report, and for room that it preempts."""

from datetime import timedelta

import pytest

from forebay.demand.scheduler_waits import FIRST_REPORT, PREEMPTION, SchedulerWaits, is_unreported, scheduler_waits
from forebay.model.workloads import Phase
from tests.unit.demand.builders import NOW, pod

SECOND = timedelta(seconds=1)
NONE = SchedulerWaits()


def silent(**fields):
    return pod(unschedulable_since=None, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"node": "n1"}, False),
        ({"deleted": NOW}, False),
        ({"phase": Phase.SUCCEEDED}, False),
        ({"unschedulable_since": NOW}, False),
        ({"scheduling_gates": ("hold",)}, False),
    ],
    ids=["new", "bound", "deleted", "ended", "reported", "gated"],
)
def test_a_pod_is_unreported_until_its_scheduler_has_said_anything_of_it(fields, expected):
    assert is_unreported(pod(**{"unschedulable_since": None, **fields})) is expected


def test_the_first_report_is_expected_for_a_while_from_when_the_pod_was_first_seen():
    waits = scheduler_waits(NONE, [silent()], NOW)
    assert NONE.expected(silent(), NOW), "a pod that is new in this tick"
    assert waits.expected(silent(), NOW + FIRST_REPORT - SECOND)
    assert not waits.expected(silent(), NOW + FIRST_REPORT)
    assert not waits.expected(pod(), NOW), "it was reported"

    later = scheduler_waits(waits, [silent()], NOW + FIRST_REPORT - SECOND)
    assert not later.expected(silent(), NOW + FIRST_REPORT), "the time goes on from tick to tick"
    assert scheduler_waits(waits, [pod()], NOW) == NONE
    assert scheduler_waits(waits, [], NOW) == NONE


def test_a_pod_gives_up_the_node_that_it_is_nominated_to_after_a_while():
    nominated = pod(nominated_node="n1")
    waits = scheduler_waits(NONE, [nominated], NOW)
    assert not NONE.gives_up(nominated, NOW + PREEMPTION)
    assert not waits.gives_up(nominated, NOW + PREEMPTION - SECOND)
    assert waits.gives_up(nominated, NOW + PREEMPTION)

    on = scheduler_waits(waits, [nominated], NOW + PREEMPTION - SECOND)
    assert on.gives_up(nominated, NOW + PREEMPTION), "the time goes on from tick to tick"


def test_another_nomination_has_its_own_time():
    first, second = pod(nominated_node="n1"), pod(nominated_node="n2")
    waits = scheduler_waits(NONE, [first], NOW)
    assert not waits.gives_up(second, NOW + PREEMPTION)
    changed = scheduler_waits(waits, [second], NOW + SECOND)
    assert not changed.gives_up(second, NOW + PREEMPTION)
    assert changed.gives_up(second, NOW + SECOND + PREEMPTION)
    assert not waits.gives_up(pod(), NOW + PREEMPTION), "it is nominated no more"
    assert scheduler_waits(waits, [pod(nominated_node="n1", node="n1")], NOW).nominated == {}
    assert scheduler_waits(waits, [pod()], NOW).nominated == {}
