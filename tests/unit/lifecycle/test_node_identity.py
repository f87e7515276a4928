"""A node belongs to a rented machine by its chosen name and providerID, and goes with it."""

import pytest
from msgspec.structs import replace

from forebay.lifecycle.next_step import step_or_wait
from forebay.lifecycle.steps import DeleteNode, DeleteRecord, Drain, Uncordon
from forebay.model.sources import Capabilities, Delivery, Source, SourceKey
from forebay.reconcile.due_steps import due_steps
from forebay.reconcile.snapshot import Snapshot
from tests.unit.lifecycle.builders import (
    NOW,
    R,
    S,
    after,
    facts,
    instance,
    listed,
    minutes,
    next_step,
    node,
    pod,
    record,
    rented_spec,
)

KEY = SourceKey("cheap", "simulated")
LATER = NOW + minutes(1)
MUCH_LATER = NOW + minutes(30)


def of_cluster(*nodes, of, pods=()):
    source = Source(
        key=KEY,
        capabilities=Capabilities(deliveries=(Delivery.NODE,)),
        listing=listed(instance(), asked=LATER),
    )
    seen = Snapshot(
        now=LATER,
        sources={KEY: source},
        records=(of,),
        nodes={each.name: each for each in nodes},
        pods_by_node={each.name: tuple(pods) for each in nodes},
        unreadable_classes=frozenset({"cheap"}),
    )
    return next(iter(due_steps(seen, {}).steps), None)


def test_the_node_of_a_machine_that_is_gone_is_deleted_with_it():
    gone = record(S.GONE)
    step = next_step(facts(gone, node=node(ready=False, cordoned=NOW)), LATER)

    assert isinstance(step, DeleteNode)
    assert step.node.name == "pool-abc"


@pytest.mark.parametrize(
    ("of", "its_node"),
    [
        (record(S.GONE), node()),
        (record(S.GONE), node(ready=False, deleted=NOW)),
        (record(S.GONE, instance_id=None), node(ready=False)),
        (record(S.GONE, provider_id="cloud://i-1"), node(ready=False, provider_id="cloud://i-2")),
        (record(S.GONE, spec=rented_spec(node=None)), node(ready=False)),
    ],
    ids=["it is Ready", "it is being deleted", "nothing was launched", "another machine", "found, and not planned"],
)
def test_no_other_node_is_deleted(of, its_node):
    assert not isinstance(next_step(facts(of, node=its_node), LATER), DeleteNode)


@pytest.mark.parametrize(
    ("node_is", "waits"),
    [
        ({"ready": True}, True),
        ({"ready": False, "deleted": NOW}, True),
        ({"ready": True, "provider_id": "cloud://i-2"}, False),
        (None, False),
    ],
    ids=["still Ready", "being deleted", "another machine", "no node"],
)
def test_a_record_that_a_person_deletes_stays_until_the_node_of_its_machine_can_go_as_well(node_is, waits):
    gone = record(S.GONE, deleting=True, provider_id="cloud://i-1")
    found = node(**{"provider_id": "cloud://i-1", **node_is}) if node_is is not None else None
    step, due = step_or_wait(facts(gone, node=found), LATER)
    assert (step is None and due is not None) if waits else isinstance(step, DeleteRecord)
    much_later = NOW + minutes(61)
    assert isinstance(next_step(facts(gone, node=found), much_later), DeleteRecord), "it is not held for ever"


def second_machine(asked=MUCH_LATER, present=(), **fields):
    """Of a launch on which the provider acted twice: it joined under the name of the first, and both are gone."""
    gone = record(S.GONE, provider_id="cloud://west/i-1")
    copy = node(**{"ready": False, "provider_id": "cloud://west/i-2", **fields})
    return facts(gone, stranger=copy, listing=listed(*present, asked=asked))


def test_the_node_of_a_second_machine_of_the_same_launch_is_deleted_when_no_listing_shows_it():
    step = next_step(second_machine(), MUCH_LATER)
    assert isinstance(step, DeleteNode)
    assert step.node.provider_id == "cloud://west/i-2"


@pytest.mark.parametrize(
    "fields",
    [
        {"asked": NOW},
        {"present": (instance("i-2", provider_id="cloud://west/i-2"),)},
        {"present": (instance("i-3"),)},
        {"ready": True},
        {"deleted": NOW},
        {"provider_id": "cloud://east/i-2"},
        {"provider_id": "metal://i-2"},
    ],
    ids=["listed before", "listed", "another of the launch is", "Ready", "being deleted", "elsewhere", "not theirs"],
)
def test_it_stays_while_it_may_be_there_or_somebody_elses(fields):
    assert not isinstance(next_step(second_machine(**fields), MUCH_LATER), DeleteNode)


def test_the_node_of_something_that_was_found_goes_by_its_provider_id():
    found = record(S.GONE, spec=rented_spec(node=None), provider_id="cloud://i-1")
    assert isinstance(next_step(facts(found, node=node(ready=False, provider_id="cloud://i-1")), LATER), DeleteNode)


def test_the_node_of_an_owned_machine_stays():
    off = record(S.GONE, owned=True)

    assert isinstance(next_step(facts(off, node=node("gpu-1", ready=False, cordoned=NOW)), LATER), Uncordon)
    deleting = record(S.GONE, owned=True, deleting=True)
    assert isinstance(next_step(facts(deleting, node=node("gpu-1", ready=False)), LATER), DeleteRecord)


def test_a_node_of_the_planned_name_that_is_another_machine_is_refused_and_reported():
    waits = record(S.LAUNCHED, provider_id="cloud://i-1")
    stranger = node(provider_id="cloud://i-666")

    drain = of_cluster(stranger, of=waits, pods=(pod(),))
    assert isinstance(drain, Drain)
    assert (drain.node, drain.evict, drain.reason) == (stranger, (), R.NODE_IDENTITY_MISMATCH)
    told = of_cluster(replace(stranger, unschedulable=True), of=waits)
    assert (told.status.state, told.status.reason) == (S.LAUNCHED, R.NODE_IDENTITY_MISMATCH)
    assert "cloud://i-666" in told.status.message
    again = of_cluster(replace(stranger, unschedulable=True), of=after(told))
    assert again is None or again.reason is not R.NODE_IDENTITY_MISMATCH


def test_its_own_node_is_the_one_with_its_provider_id_or_without_any():
    waits = record(S.LAUNCHED, provider_id="cloud://i-1")
    for own in (node(provider_id="cloud://i-1"), node()):
        assert of_cluster(own, of=waits).status.state is S.JOINED


def test_a_node_left_by_an_earlier_run_of_the_same_name_is_not_taken_for_the_new_machine():
    waits = record(S.LAUNCHED)
    old = replace(node(ready=False), created=NOW - minutes(30))

    assert of_cluster(old, of=waits).status.state is S.LAUNCHED
    assert of_cluster(replace(old, ready=True), of=waits).status.state is S.JOINED
