"""Machines found on: which pool they belong to from then on, and what is said about them."""

from datetime import timedelta

from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.parts import LabelSelectorEntry, NodeClassRef
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import (
    Capabilities,
    Delivery,
    Found,
    Instance,
    InstancePhase,
    Listing,
    Offer,
    Source,
    SourceKey,
)
from forebay.reconcile.adoption import adopt_orphans
from forebay.reconcile.snapshot import Memory, OperatorRules, Snapshot
from tests.unit.demand.builders import GPU, NOW, node, record


def source(node_class, delivers=Delivery.POWER):
    offer = Offer(
        provider="webhook",
        instance_type="box",
        node_name="box",
        gpu_count=8,
        price=UsdPerHour(0),
        allocatable=Resources({GPU: 8}),
    )
    return Source(
        key=SourceKey(node_class, "webhook"),
        capabilities=Capabilities(deliveries=(delivers,), idempotent_launch=True),
        offers=(offer,),
        listing=Listing(
            asked=NOW, found=Found(instances=(Instance(id="box", phase=InstancePhase.RUNNING, node_name="box"),))
        ),
    )


def pool(name, weight):
    return GPUNodePool(
        metadata=ObjectMeta(name=name, namespace="team", uid=f"uid-{name}"),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="rack"), weight=weight),
    )


def orphans(node_class, *pools, unreadable=(), delivers=Delivery.POWER, records=(), **rules):
    seen = source(node_class, delivers)
    spec = GPUNodeClassSpec(providers=(), allowed_namespaces=LabelSelectorEntry())
    classes = (GPUNodeClass(metadata=ObjectMeta(name="rack"), spec=spec),)
    snapshot = Snapshot(
        now=NOW,
        sources={seen.key: seen},
        pools=pools,
        classes=classes,
        nodes={"box": node("box")},
        records=records,
        rules=OperatorRules(**rules),
        unreadable_records=dict.fromkeys(unreadable, "a field"),
    )
    if delivers is Delivery.NODE:
        # An instance that was launched a moment ago may have a record that is not seen yet.
        snapshot = replace(snapshot, memory=Memory(orphans=adopt_orphans(snapshot)[1]), now=NOW + timedelta(hours=1))
    return adopt_orphans(snapshot)[0]


def adopted(node_class, *pools, **rules):
    (found,) = orphans(node_class, *pools, **rules)
    return found


def test_a_machine_found_on_belongs_to_the_pool_that_would_buy_it():
    found = adopted("rack", pool("light", 10), pool("heavy", 50))
    assert (found.spec.pool_ref.namespace, found.spec.pool_ref.name) == ("team", "heavy")
    assert found.spec.node.labels["forebay.dev/nodepool"] == "heavy"
    assert found.status.message == found.sentence == found.spec.why
    assert "GPUNodePool team/heavy says when it is powered off." in found.sentence


def test_within_the_grace_it_is_not_powered_off_and_the_sentence_says_so():
    found = adopted("rack", pool("light", 10), adoption_grace=timedelta(minutes=10))
    assert found.sentence.endswith("GPUNodePool team/light says when it is powered off, not within 10m.")


def test_without_a_pool_the_sentence_says_what_comes_next():
    found = adopted("rack")
    assert found.spec.pool_ref is None
    assert found.sentence.endswith("No GPUNodePool of class rack uses it, so Forebay does not power it off.")


def test_what_may_belong_to_a_record_that_cannot_be_read_is_not_adopted():
    assert orphans("rack", unreadable=["box"]) == ()
    assert [each.name for each in orphans("rack", unreadable=["another"])] == ["box"]


def test_that_a_late_call_powered_it_on_is_known_when_its_new_record_could_not_be_created():
    """The former record, which says so, must be deleted first; the new one is created in a later tick."""
    former = record("box", InstanceState.GONE, delivers=Delivery.POWER, attempt=2, instance_id=None)
    seen = source("rack")
    snapshot = Snapshot(now=NOW, sources={seen.key: seen}, nodes={"box": node("box")}, records=(former,))
    (deleted, found), memory = adopt_orphans(snapshot)
    assert (deleted.record, found.name) == (former, "box")
    assert "taken effect late" in found.sentence

    later = replace(snapshot, records=(), memory=Memory(orphans=memory))
    (again,), memory = adopt_orphans(later)
    assert again.sentence == found.sentence
    off = replace(later, nodes={}, sources={}, memory=Memory(orphans=memory))
    assert adopt_orphans(off)[1].powered_on_late == frozenset(), "whoever powers it on next may be anybody"


def test_a_machine_that_a_lost_power_on_call_has_powered_on_late_is_forebays_own():
    """Its node must come within the time of a launch, or it is powered off: nobody else has powered it on."""
    lost = record("box", InstanceState.GONE, delivers=Delivery.POWER, attempt=1, instance_id=None)
    confirmed = record("box", InstanceState.GONE, delivers=Delivery.POWER, attempt=1, instance_id="box")

    deleted, found = orphans("rack", records=(lost,))
    assert (deleted.record, deleted.reason) == (lost, Reason.ADOPTED)
    assert found.status.attempt == 1, "one call was made"
    assert "a power-on call of Forebay's whose outcome was unknown seems to have taken effect late" in found.sentence
    assert found.status.message == found.status.transitions[-1].message == found.spec.why == found.sentence

    _, by_hand = orphans("rack", records=(confirmed,))
    assert by_hand.status.attempt is None
