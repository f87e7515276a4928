"""The nodes that were launched for a pod."""

from forebay.api.gpu_instance import InstanceState as State
from forebay.demand.planned_pods import planned_nodes
from tests.unit.demand.builders import pod, record


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
