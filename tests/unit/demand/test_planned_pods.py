"""The nodes that were launched for a pod."""

from forebay.api.gpu_instance import InstanceState as State
from forebay.demand.planned_pods import is_leaving, planned_nodes
from tests.unit.demand.builders import NOW, pod, record


def test_planned_nodes_are_those_that_stay_for_the_given_pods_only():
    one, other = pod("one"), pod("other")
    records = [
        record("a", State.LAUNCHED, pods=[one, other]),
        record("b", State.READY, pods=[one]),
        record("c", State.DRAINING, pods=[one]),
        record("d", State.GONE, pods=[one]),
    ]
    assert planned_nodes(records, {one.uid}) == {one.uid: {"a", "b"}}
    assert planned_nodes(records, set()) == {}


def test_a_record_is_leaving_from_its_drain_or_deletion_until_it_is_gone():
    leaving = [state for state in State if is_leaving(record("n1", state))]
    assert leaving == [State.FINISHED, State.DRAINING, State.TERMINATING]
    deleted = [state for state in State if is_leaving(record("n1", state, deleted=NOW))]
    assert deleted == [state for state in State if state is not State.GONE]
