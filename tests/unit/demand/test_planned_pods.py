"""The nodes that were launched for a pod."""

from forebay.api.gpu_instance import InstanceState as State
from forebay.demand.planned_pods import is_leaving, live_containers, planned_nodes
from forebay.model.sources import Delivery
from tests.unit.demand.builders import NOW, ago, pod, record


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


def test_a_pod_has_a_container_until_that_is_proven_gone_and_no_node_is_one():
    one = pod("one")

    def live(*records):
        return {uid: found.metadata.name for uid, found in live_containers(records).items()}

    container = record("c", State.RUNNING, delivers=Delivery.CONTAINER, pods=[one])
    assert live(record("n", State.READY, pods=[one]), container) == {one.uid: "c"}
    assert live(record("n", State.READY, pods=[one])) == {}
    assert live(record("c", State.TERMINATING, delivers=Delivery.CONTAINER, pods=[one])) == {one.uid: "c"}
    assert live(record("c", State.GONE, delivers=Delivery.CONTAINER, pods=[one])) == {}


def test_of_two_containers_of_a_pod_the_one_that_was_ordered_counts_then_the_oldest():
    one = pod("one")

    def container(name, **fields):
        return record(name, State.REQUESTED, delivers=Delivery.CONTAINER, pods=[one], **fields)

    old, new = container("old", born=ago(hours=2)), container("new", born=ago(hours=1))
    ordered = container("ordered", born=NOW, attempt=1)
    assert live_containers([new, old])[one.uid] is old
    assert live_containers([old, new])[one.uid] is old
    assert live_containers([old, ordered, new])[one.uid] is ordered
    without_status = record("older", None, delivers=Delivery.CONTAINER, pods=[one], born=ago(hours=3))
    assert live_containers([old, without_status, ordered])[one.uid] is ordered
    assert live_containers([old, without_status])[one.uid] is without_status
