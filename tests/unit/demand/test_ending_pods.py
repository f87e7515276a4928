"""Pods that end in a moment: whose room is free for the pods that their node was launched for."""

from datetime import timedelta

import pytest

from forebay.api.gpu_instance import InstanceState as State
from forebay.demand.ending_pods import ENDED_WITHIN, soon_used
from forebay.demand.reservation import SCHEDULER_GRACE
from forebay.model.quantities import Resources
from tests.unit.demand.builders import GPU, NOW, ago, node, pod, record, running

WAITING = pod("new", gpus=8)
USED = {"n1": Resources({GPU: 8})}
JUST = ago(seconds=5)


def used_soon(*there, state=State.READY, on=None, planned=(WAITING,), now=NOW):
    on = on or node(ready_since=JUST)
    records = [record(state=state, pods=planned)]
    return soon_used(USED, records, [WAITING], {"n1": on}, pods_by_node={"n1": there}, now=now)


def old(**fields):
    """A pod of the previous run, which has 30 s to end as far as the API server knows."""
    return running("old", gpus=8, **{"created": ago(hours=2), "deleted": NOW + timedelta(seconds=20), **fields})


@pytest.mark.parametrize("state", [State.LAUNCHED, State.JOINED, State.READY])
def test_pods_that_went_down_with_a_node_take_no_room_once_it_is_ready_again(state):
    found = used_soon(old(), state=state)
    assert found.by_node["n1"].amount(GPU) == 0
    assert found.until == JUST + ENDED_WITHIN
    assert USED["n1"].amount(GPU) == 8


def test_a_pod_that_has_not_ended_in_time_counts_again_before_the_scheduler_counts_as_refusing():
    assert used_soon(old(), now=JUST + ENDED_WITHIN) == (USED, None)
    assert ENDED_WITHIN < SCHEDULER_GRACE


@pytest.mark.parametrize(
    "there",
    [running("runs", gpus=8, created=ago(hours=2)), old(created=ago(seconds=1))],
    ids=["nobody deletes it", "it came after the node was ready, and is in its grace period"],
)
def test_pods_that_may_run_on_count(there):
    assert used_soon(there) == (USED, None)


def test_only_nodes_that_were_launched_for_waiting_pods_and_are_ready_are_looked_at():
    assert used_soon(old(), planned=[pod("another")]) == (USED, None)
    assert used_soon(old(), planned=[pod("another"), WAITING]).by_node["n1"].amount(GPU) == 0
    assert used_soon(old(), on=node(ready=False)) == (USED, None)
    assert used_soon(old(), state=State.DRAINING) == (USED, None)
