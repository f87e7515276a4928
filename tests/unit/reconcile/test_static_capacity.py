"""What a pool says of its minNodes when it has none any more."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from forebay.api.gpu_instance import InstanceState, Purpose
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER
from forebay.api.parts import NodeClassRef
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.reconcile.isolation import Faults
from forebay.reconcile.snapshot import OperatorRules, Snapshot
from forebay.reconcile.static_capacity import StaticCapacity, static_capacity
from tests.unit.demand.builders import node, record

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("conditions", "told"), [([], []), (["Ready"], []), (["Ready", "MinNodes"], [Reason.NOT_NEEDED])]
)
def test_only_a_pool_that_had_a_minimum_is_told_that_it_has_none(conditions, told):
    fields = {"status": "True", "reason": "Known", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    pool = msgspec.convert(
        {
            "metadata": {"name": "pool", "namespace": "team"},
            "spec": {"nodeClassRef": {"name": "gpu"}},
            "status": {"conditions": [{"type": each, **fields} for each in conditions]},
        },
        GPUNodePool,
    )

    found = static_capacity(Snapshot(now=NOW, pools=(pool,)), (), Faults())

    assert [each.reason for each in found.facts.get(("team", "pool"), ())] == told


CLASS = GPUNodeClass(
    metadata=ObjectMeta(name="gpu", uid="u", finalizers=[CLASS_FINALIZER]),
    spec=GPUNodeClassSpec(providers=(ProviderEntry(name="x"),)),
)
SOURCE = Source(
    key=SourceKey("gpu", "x"),
    capabilities=Capabilities(deliveries=(Delivery.NODE,)),
    offers=(
        Offer(
            provider="x",
            instance_type="a",
            gpu_count=1,
            price=UsdPerHour(1),
            allocatable=Resources({"cpu": 8000, "memory": 2**36, "nvidia.com/gpu": 1, "pods": 110}),
        ),
    ),
)


def sized(least=2, name="pool", **metadata):
    return GPUNodePool(
        metadata=ObjectMeta(name=name, namespace="team", **metadata),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="gpu"), min_nodes=least),
    )


def member(name, state=InstanceState.READY, **fields):
    return record(name, state, pool="pool", **fields)


def sized_by(*records, pools=None, others=(), nodes=(), sources=(SOURCE,), **fields):
    snapshot = Snapshot(
        now=NOW,
        pools=(sized(),) if pools is None else pools,
        records=records,
        nodes={each.name: each for each in nodes},
        classes=(CLASS,),
        sources={each.key: each for each in sources},
        rules=OperatorRules(namespace="team"),
        **fields,
    )
    return static_capacity(snapshot, others, Faults())


def created(found):
    return [type(each).__name__ for each in found.decisions]


def told(found, name="pool"):
    (fact,) = found.facts["team", name]
    return fact.status.value, fact.reason, fact.sentence


def test_a_pool_gets_as_many_nodes_as_it_lacks_and_says_what_it_waits_for():
    found = sized_by()
    assert created(found) == ["CreateInstance", "CreateInstance"]
    assert {each.spec.purpose for each in found.decisions} == {Purpose.STATIC}
    assert "minNodes of GPUNodePool team/pool is 2" in found.decisions[0].sentence
    assert told(found) == ("False", Reason.CAPACITY_LAUNCHING, "0 of 2 nodes are Ready. To be launched: 2.")

    booting = member("b", InstanceState.LAUNCHED, message="It boots.")
    found = sized_by(member("a"), booting, nodes=[node("a")])
    assert (created(found), found.requeue_at) == ([], None)
    assert told(found)[2] == "1 of 2 nodes are Ready. b: Launched. It boots."
    lost = sized_by(member("a"), member("b"), nodes=[node("a"), node("b", ready=False)])
    assert told(lost)[2] == "1 of 2 nodes are Ready. b: Ready."

    full = sized_by(member("a"), member("b"), member("c"), nodes=[node(name) for name in "abc"])
    assert told(full) == ("True", Reason.NODE_READY, "3 nodes are Ready; spec.minNodes is 2.")
    one = sized_by(member("a"), pools=(sized(1),), nodes=[node("a")])
    assert told(one)[2] == "1 node is Ready; spec.minNodes is 1."


def test_nodes_that_leave_do_not_count_and_neither_do_those_of_others():
    leaving, gone = member("a", InstanceState.TERMINATING), member("b", InstanceState.GONE)

    assert len(created(sized_by(leaving, gone, record("c"), record("d", pool="other")))) == 2


def test_nothing_is_launched_in_a_tick_that_buys_for_pods_nor_for_a_pool_that_is_deleted():
    bought = sized_by().decisions
    waits = sized_by(others=bought)
    assert created(waits) == []
    assert told(waits)[2] == "0 of 2 nodes are Ready. To be launched: 2."
    assert sized_by(pools=(sized(deletion_timestamp=NOW),)).decisions == ()
    assert sized_by(pools=(sized(0),)) == StaticCapacity()


def test_nothing_is_launched_before_every_source_has_told_its_first_offers():
    silent = msgspec.structs.replace(SOURCE, key=SourceKey("gpu", "slow"), offers=None, since=NOW)
    found = sized_by(sources=(SOURCE, silent))
    assert (created(found), found.requeue_at) == ([], NOW + timedelta(seconds=5))
    late = msgspec.structs.replace(silent, since=NOW - timedelta(seconds=5))
    assert len(created(sized_by(sources=(SOURCE, late)))) == 2


def test_one_pool_has_its_turn_after_the_other_and_what_cannot_be_had_is_said():
    found = sized_by(pools=(sized(1, "b"), sized(1, "a")))
    assert [each.spec.pool_ref.name for each in found.decisions] == ["a"]
    assert set(found.facts) == {("team", "a"), ("team", "b")}

    snapshot = Snapshot(now=NOW, pools=(sized(),), classes=(CLASS,), rules=OperatorRules(namespace="team"))
    none = static_capacity(snapshot, (), Faults())
    assert none.decisions == ()
    assert told(none)[:2] == ("False", Reason.NO_CAPACITY)
    assert "Not launched: 2, because " in told(none)[2]


def test_machines_of_pools_that_are_alike_in_two_clusters_have_names_of_their_own():
    """One account or tailnet may serve both: a name there belongs to one machine."""

    def names(uid):
        return {each.name for each in sized_by(pools=(sized(uid=uid),)).decisions}

    assert names("one") == names("one")
    assert names("one").isdisjoint(names("two"))
