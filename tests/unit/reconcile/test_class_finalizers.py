"""A GPUNodeClass is kept for as long as it has machines: it says how they are terminated."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER
from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.requirements import LabelSelector
from forebay.model.sources import Capabilities, Delivery, Found, Listing, Source, SourceKey
from forebay.reconcile.class_finalizers import awaited_sources, class_finalizers, deletion_waits_for, may_buy
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, ago, record, running


def node_class(name="cloud", *, held=True, deleting=False, endpoints="Class"):
    finalizers = [CLASS_FINALIZER, "example.com/other"] if held else []
    deleted = NOW if deleting else None
    return GPUNodeClass(
        metadata=ObjectMeta(name=name, finalizers=finalizers, deletion_timestamp=deleted),
        spec=msgspec.convert({"providers": [{"name": "simulated", "endpointsFrom": endpoints}]}, GPUNodeClassSpec),
    )


def machine(state, name="cloud"):
    made = record(state=state)
    return replace(made, spec=replace(made.spec, node_class_name=name))


def decided(*classes, records=()):
    found = class_finalizers(Snapshot(now=NOW, classes=classes, records=tuple(records)))
    return [(each.node_class.metadata.name, each.present) for each in found]


def test_every_class_gets_the_finalizer_once():
    assert decided(node_class("a", held=False), node_class("b"), node_class("c", held=False)) == [
        ("a", True),
        ("c", True),
    ]


def test_a_class_that_is_being_deleted_gets_none():
    assert decided(node_class(held=False, deleting=True)) == []


@pytest.mark.parametrize("state", [None, InstanceState.READY, InstanceState.TERMINATING])
def test_a_deleted_class_stays_while_one_of_its_machines_may_exist(state):
    assert decided(node_class(deleting=True), records=[machine(state)]) == []


def test_a_deleted_class_goes_when_its_last_machine_is_gone():
    others = [machine(InstanceState.GONE), machine(InstanceState.READY, "other")]
    assert decided(node_class(deleting=True), records=others) == [("cloud", False)]


def test_nothing_is_launched_from_a_class_that_could_go_before_its_machines():
    assert may_buy(node_class())
    assert not may_buy(node_class(held=False))
    shown = node_class(held=False, endpoints="Environment")
    assert may_buy(shown), "the operator's variables say how its machines are powered off"
    assert decided(shown) == []


KEY = SourceKey("cloud", "simulated")


def source(*leftovers, asked=NOW, has_leftovers=True, error=None, key=KEY):
    """A provider that keeps things beside machines; `asked` None: it was not listed yet."""
    listing = None if asked is None else Listing(asked=asked, found=Found(instances=(), leftovers=leftovers))
    capabilities = Capabilities(deliveries=(Delivery.NODE,), has_leftovers=has_leftovers)
    return Source(key=key, capabilities=capabilities, listing=listing, error=error)


def seen(*sources, records=(), now=NOW, deleting=True, **fields):
    found = {each.key: each for each in sources}
    return Snapshot(now=now, classes=(node_class(deleting=deleting),), sources=found, records=tuple(records), **fields)


def waits(*sources, **fields):
    """Why the class cannot go, and which of its sources are listed sooner because of that."""
    snapshot = seen(*sources, **fields)
    return deletion_waits_for(snapshot.classes[0], snapshot), list(awaited_sources(snapshot))


MINUTE = timedelta(minutes=1)
OF_ANOTHER = SourceKey("other", "simulated")


def test_what_a_provider_keeps_beside_machines_is_waited_for_but_not_for_long():
    key = source("SSH key forebay", "startup script x")
    until = "Forebay waits for that until 12:10:00 UTC."
    assert waits(key) == (f"simulated still has SSH key forebay, startup script x, to be deleted. {until}", [KEY])
    assert waits(key, now=NOW + 9 * MINUTE)[1] == [KEY]
    assert waits(key, now=NOW + 10 * MINUTE) == (None, [])
    assert waits(source()) == (None, [])
    assert waits(source("x", has_leftovers=False)) == (None, []), "it never makes any"
    assert waits(source("x", key=OF_ANOTHER)) == (None, []), "another class has them"
    assert waits(key, deleting=False)[1] == [], "the class stays"


def test_only_a_listing_since_the_class_and_its_last_machine_have_gone_shows_that_nothing_is_left():
    old = source(asked=NOW - MINUTE)
    sentence, awaited = waits(old, source("x", key=OF_ANOTHER))
    assert sentence.startswith("simulated must be listed once more, to see whether anything is left there. ")
    assert awaited == [KEY]
    sentence, _ = waits(source(asked=None, error="no answer"))
    assert "anything is left there (no answer). Forebay waits" in sentence

    gone = machine(InstanceState.GONE)
    gone = replace(gone, status=replace(gone.status, since=NOW + MINUTE))
    later = {"records": [gone], "now": NOW + 2 * MINUTE}
    assert waits(source(), **later)[1] == [KEY]
    assert waits(source(asked=NOW + MINUTE), **later) == (None, [])
    elsewhere = replace(gone, spec=replace(gone.spec, node_class_name="other"))
    assert waits(source(), **{**later, "records": [elsewhere]}) == (None, [])


def test_machines_that_were_only_just_recorded_are_waited_for_like_others():
    sentence, awaited = waits(source(asked=ago(minutes=1)), records=[machine(None)])
    assert sentence == "Machines of this class are drained and terminated first: n1 (Requested)."
    assert awaited == [KEY]


def test_a_deleted_class_says_which_pod_keeps_its_machine():
    draining = machine(InstanceState.DRAINING)
    pods = {"n1": (running("held", labels={"app": "db"}),)}
    selector = LabelSelector({"app": "db"})
    keeps = PodDisruptionBudget(
        namespace="default", name="keep", uid="u", resource_version=1, selector=selector, allowed=0
    )

    def told(of, **fields):
        return waits(records=[of], pods_by_node=pods, pod_disruption_budgets=(keeps,), **fields)[0]

    assert "Node n1 cannot be drained: " in told(draining)
    assert "keep" in told(draining)
    assert "cannot be drained" not in told(machine(InstanceState.READY)), "nobody has tried"
    leaves = {"n1": (running("held", labels={"app": "db"}, deleted=NOW),)}
    assert "cannot" not in waits(records=[draining], pods_by_node=leaves, pod_disruption_budgets=(keeps,))[0]


def test_records_that_cannot_be_read_keep_every_deleted_class():
    names = {f"odd-{number}": "why" for number in range(7)}
    sentence, _ = waits(unreadable_records=names)
    assert "GPUInstances, which may be machines of this class: odd-0, odd-1, odd-2" in sentence
    assert sentence.endswith("more.")
