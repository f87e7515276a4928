"""Machines whose pool was deleted or whose configuration moved, published environments, and nodes unlike their plan."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_node_class import MOST_MACHINES, GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec
from forebay.api.machines import Machine
from forebay.api.meta import ObjectMeta
from forebay.api.names import MAINTENANCE_ANNOTATION
from forebay.api.parts import Condition, NodeClassRef, TaintEffect, TaintEntry, Truth
from forebay.demand.assessment import NotDemand
from forebay.demand.reservation import Reservations
from forebay.lifecycle.revocation import POOL_GONE_AFTER
from forebay.model.kept import KeptTuple
from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelSelector, Taint
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.reconcile.deleted_pools import deleted_pools
from forebay.reconcile.environment_class import of_this_operator, with_environment
from forebay.reconcile.moved_machines import CurrentRecords
from forebay.reconcile.node_changes import out_of_service, record_refusals, sync_nodes
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, node, pod, record, running

S = InstanceState


def pool(name="p", class_name="c", weight=10, namespace="team"):
    return GPUNodePool(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name=class_name), weight=weight),
    )


def of_class(made, node_class="c"):
    return replace(made, spec=replace(made.spec, node_class_name=node_class))


# Deleted pools


def left(*records, **fields):
    return deleted_pools(Snapshot(now=NOW, records=tuple(map(of_class, records)), **fields))


def test_a_class_says_which_machines_a_deleted_pool_has_left_and_what_becomes_of_them():
    found = left(
        record("b", S.DRAINING, pool="old"),
        record("a", pool="old"),
        record("gone", S.GONE, pool="old"),
        record("bare"),
        record("kept", pool="p"),
        record("stuck", S.TERMINATING, pool="old", reason=Reason.TERMINATION_FAILED),
        pools=(pool(),),
        pods_by_node={"a": (running(),), "b": (running("x"), running("y", deleted=NOW))},
    )

    assert set(found) == {"c"}
    assert (found["c"].status, found["c"].reason) == (Truth.TRUE, Reason.POOL_GONE)
    assert found["c"].sentence == (
        "GPUNodePool team/old was deleted, and has left a (Ready with default/train), b (Draining default/x), stuck "
        "(Terminating; its provider fails to end it)."
    )


def test_what_keeps_a_machine_of_a_deleted_pool_and_when_it_goes_is_said():
    marked = node("a", annotations={MAINTENANCE_ANNOTATION: "Ann"})
    lost = Condition(type="PoolExists", status=Truth.FALSE, reason="PoolGone", last_transition_time=NOW)
    seen = left(
        record("a", pool="old"),
        record("b", S.DRAINING, pool="old"),
        record("c", pool="old", conditions=(lost,)),
        record("d", pool="old", conditions=(replace(lost, status=Truth.TRUE),)),
        nodes={"a": marked},
        pods_by_node={"b": (running("x", deleted=NOW),), "c": (running("y"),)},
    )

    assert seen["c"].sentence == (
        f"GPUNodePool team/old was deleted, and has left a (Ready; kept, because node a has the annotation "
        f"{MAINTENANCE_ANNOTATION}: Ann), b (Draining), c (Ready with default/y; drained and powered off from "
        f"{NOW + POOL_GONE_AFTER:%H:%M:%S} UTC on, unless the pool is back), d (Ready)."
    )


def test_a_draining_machine_of_a_deleted_pool_says_what_blocks_it():
    keeps = PodDisruptionBudget(
        namespace="default", name="keep", uid="u", resource_version=1, selector=LabelSelector({}), allowed=0
    )
    seen = left(record("b", S.DRAINING, pool="old"), pods_by_node={"b": (running("x"),)})
    assert "b (Draining default/x)." in seen["c"].sentence
    seen = left(
        record("b", S.DRAINING, pool="old"), pods_by_node={"b": (running("x"),)}, pod_disruption_budgets=(keeps,)
    )
    assert "b (Draining default/x; blocked: " in seen["c"].sentence


def test_a_pool_that_cannot_be_read_is_not_deleted_and_when_none_is_left_that_is_said_once_told():
    assert left(record("a", pool="p"), unreadable_pools=frozenset({("team", "p")})) == {}
    assert left(record("a", pool="p"), pools=(pool(),)) == {}


# Moved machines


def sources(*found):
    """Sources by class, with the machines that each offers."""
    return {
        (key := SourceKey(node_class, "webhook")): Source(
            key=key,
            capabilities=Capabilities(deliveries=(Delivery.POWER,)),
            offers=tuple(
                Offer(
                    provider="webhook",
                    instance_type=name,
                    node_name=name,
                    price=UsdPerHour(0),
                    allocatable=Resources(),
                )
                for name in names
            ),
        )
        for node_class, names in found
    }


def test_a_machine_belongs_to_the_class_and_the_heaviest_pool_that_name_it_today():
    moved = of_class(record("m1", pool="old"), "before")
    pools = (pool("light", "after", 1), pool("b", "after"), pool("a", "after"), pool("other", "x", 100))

    (shown,) = CurrentRecords().current((moved,), sources(("after", ["m1"])), pools)

    assert shown.spec.node_class_name == "after"
    assert (shown.spec.pool_ref.namespace, shown.spec.pool_ref.name) == ("team", "a")
    (alone,) = CurrentRecords().current((moved,), sources(("after", ["m1"])), ())
    assert alone.spec.pool_ref is None
    (stays,) = CurrentRecords().current((moved,), sources(("before", ["m1"]), ("after", ["m2"])), pools)
    assert stays is moved


def test_what_has_not_changed_stays_the_same_object_and_a_changed_configuration_counts_at_once():
    current = CurrentRecords()
    records = KeptTuple((of_class(record("m1", pool="old"), "before"),))
    first = current.current(records, sources(("before", ["m1"])), ())
    assert current.current(records, sources(("before", ["m1"])), ()) is first
    assert first[0] is records[0]

    moved = current.current(records, sources(("after", ["m1"])), ())
    assert moved[0].spec.node_class_name == "after"
    assert current.current(tuple(records), sources(("after", ["m1"])), ())[0] is moved[0]
    draining = KeptTuple((of_class(record("m1", S.DRAINING, pool="old"), "before"),))
    assert current.current(draining, sources(("after", ["m1"])), ())[0].state is S.DRAINING


# The environment's class and pool


def entry(count=1, **fields):
    machines = tuple(Machine(name=f"m{number}", gpu_count=1, **fields) for number in range(count))
    return ProviderEntry(name="webhook", machines=machines)


def published(entries, classes=(), pools=(), delay=timedelta(minutes=5)):
    return with_environment(entries, "ops", delay, classes, pools)


def test_the_machines_of_the_environment_are_a_class_and_a_pool_like_others():
    others = GPUNodeClass(metadata=ObjectMeta(name="mine"), spec=GPUNodeClassSpec(providers=()))

    found = published((entry(2),), (others,), (pool(),))

    assert [each.metadata.name for each in found.classes] == ["mine", "environment-ops"]
    assert [each.key for each in found.pools] == [("team", "p"), ("ops", "environment")]
    assert found.machines == {"environment-ops": frozenset({"m0", "m1"})}
    assert found.pools[1].spec.node_class_ref.name == "environment-ops"
    assert [type(each).__name__ for each in found.decisions] == ["Publish", "Publish"]
    assert all(each.published is None for each in found.decisions)


def test_what_is_published_and_as_wanted_is_not_written_again_and_a_change_is_set_back():
    first = published((entry(),))
    again = published((entry(),), first.classes, first.pools)
    assert again.decisions == ()
    assert [each.metadata.name for each in again.classes] == ["environment-ops"]

    changed = replace(first.pools[0], spec=replace(first.pools[0].spec, weight=99))
    (decision,) = published((entry(),), first.classes, (changed,)).decisions
    assert decision.wanted.spec == first.pools[0].spec
    assert published((entry(),), first.classes, (changed,)).pools[0].spec == first.pools[0].spec
    deleted = replace(changed, metadata=replace(changed.metadata, deletion_timestamp=NOW))
    gone = published((entry(),), first.classes, (deleted,))
    assert gone.decisions == (), "it is written again when it is gone"
    assert gone.pools[0].metadata.deletion_timestamp is None


def test_without_machines_what_was_published_is_taken_away():
    first = published((entry(),))

    found = published((), first.classes, first.pools)
    assert (found.classes, found.pools, found.machines) == ((), (), {})
    assert [type(each).__name__ for each in found.decisions] == ["Unpublish", "Unpublish"]
    leaving = tuple(replace(each, metadata=replace(each.metadata, deletion_timestamp=NOW)) for each in first.classes)
    assert len(published((), leaving, first.pools).decisions) == 1


def test_more_machines_than_a_class_may_list_are_several_classes_and_names_that_are_taken_are_passed_over():
    taken = GPUNodeClass(metadata=ObjectMeta(name="environment-ops-2"), spec=GPUNodeClassSpec(providers=()))
    small = ProviderEntry(name="other", machines=(Machine(name="x", gpu_count=1),))

    found = published((entry(MOST_MACHINES + 1), small), (taken,))

    names = [each.metadata.name for each in found.classes]
    assert names == ["environment-ops-2", "environment-ops", "environment-ops-3"]
    assert [len(each) for each in found.machines.values()] == [MOST_MACHINES + 1, 1]
    assert [each.metadata.name for each in found.pools] == ["environment", "environment-2"]
    full = published((entry(MOST_MACHINES),))
    assert len(full.classes) == 1


def test_what_another_operator_publishes_is_not_ours_and_a_copy_under_another_name_is_not_published():
    ours, theirs = published((entry(),)), with_environment((entry(),), "theirs", timedelta(minutes=1), (), ())
    copy = replace(ours.classes[0], metadata=replace(ours.classes[0].metadata, name="copy"))

    found = published((entry(),), (*theirs.classes, copy), theirs.pools)

    assert [each.metadata.name for each in found.classes] == ["copy", "environment-ops"]
    assert list(of_this_operator((*ours.pools, *theirs.pools), "ops")) == list(ours.pools)


@pytest.mark.parametrize(
    ("delay", "text"),
    [
        (timedelta(minutes=5), "300s"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(seconds=9_999_999), "9999999s"),
        (timedelta(seconds=10**7), "2777h"),
    ],
)
def test_the_idle_delay_and_the_dearest_machine_are_what_the_pool_says(delay, text):
    (made,) = published((entry(hourly_price="123.45"),), delay=delay).pools

    assert made.spec.disruption.consolidate_after == text
    assert made.spec.max_hourly_price == "123.45"
    (cheap,) = published((entry(hourly_price="0.01"),)).pools
    assert cheap.spec.max_hourly_price == pool().spec.max_hourly_price


# Nodes that are not as planned


PLANNED = {
    "labels": {"team": "a", "forebay.dev/pool": "p"},
    "taints": (
        TaintEntry(key="dedicated", value="ml", effect=TaintEffect.NO_SCHEDULE),
        TaintEntry(key="evicts", effect=TaintEffect.NO_EXECUTE),
    ),
}


def synced(made, seen, besides=()):
    return sync_nodes(Snapshot(now=NOW, nodes={seen.name: seen}), (made,), besides)


def test_a_node_gets_the_labels_and_taints_of_its_plan_and_keeps_what_others_changed():
    mine = record("n1", S.JOINED, planned=PLANNED)

    (found,) = synced(mine, node(labels={"team": "changed", "forebay.dev/pool": "stale"})).decisions
    assert (found.labels, found.taints) == ({"forebay.dev/pool": "p"}, (Taint("dedicated", "ml", "NoSchedule"),))
    (fresh,) = synced(mine, node(labels={})).decisions
    assert fresh.labels == PLANNED["labels"]
    as_planned = node(labels=PLANNED["labels"], taints=(Taint("dedicated", "other", "NoSchedule"),))
    assert synced(mine, as_planned) == ((), frozenset())


@pytest.mark.parametrize(
    ("made", "seen", "besides", "pending"),
    [
        (record("n1", S.LAUNCHED, planned=PLANNED), node(labels={}), (), set()),
        (record("n1", S.READY, planned=PLANNED), node(labels={}, ready=False), (), set()),
        (record("n1", S.READY, planned=PLANNED), node(labels={}), {"n1"}, {"n1"}),
        (record("n1", S.READY, planned=PLANNED), node("n2", labels={}), (), set()),
        (record("n1", S.READY, planned=PLANNED, node_name="other"), node(labels=PLANNED["labels"]), {"x"}, {"n1"}),
    ],
    ids=["not registered", "not ready", "being changed", "another node", "under another name"],
)
def test_a_node_is_not_changed_while_it_cannot_be(made, seen, besides, pending):
    found = synced(made, seen, besides)

    assert [each for each in found.decisions if made.node_name == "n1"] == []
    assert found.pending >= pending


def test_nodes_that_cannot_be_changed_yet_keep_no_other_as_it_is():
    records = (
        record("launched", S.LAUNCHED, planned=PLANNED),
        replace(record("unplanned"), spec=replace(record("unplanned").spec, node=None)),
        record("absent", planned=PLANNED),
        record("unready", planned=PLANNED),
        record("first", S.JOINED, planned=PLANNED),
        record("second", planned=PLANNED),
    )
    nodes = [node("unready", labels={}, ready=False), *(node(name, labels={}) for name in ("first", "second"))]

    found = sync_nodes(Snapshot(now=NOW, nodes={each.name: each for each in nodes}), records)

    assert [each.node.name for each in found.decisions] == ["first", "second"]


def test_annotations_are_written_once():
    mine = record("n1", planned={"annotations": {"b": "2", "a": "1"}})

    (found,) = synced(mine, node()).decisions
    assert {"a": "1", "b": "2"}.items() <= found.annotations.items()
    assert synced(mine, node(annotations=found.annotations)).decisions == ()
    (changed,) = synced(
        record("n1", planned={"annotations": {"a": "2"}}), node(annotations=found.annotations)
    ).decisions
    assert changed.annotations["a"] == "2"


def taken_out(*records, nodes=(), pods=()):
    snapshot = Snapshot(
        now=NOW,
        records=KeptTuple(records),
        nodes={each.name: each for each in nodes},
        pods_by_node={"n1": tuple(pods)},
    )
    return [(each.node.name, each.taints, each.remove) for each in out_of_service(snapshot)]


def test_a_node_whose_machine_is_proven_off_under_its_pods_is_out_of_service_until_it_is_back():
    gone, off = record("n1", S.GONE), node(ready=False)

    (found,) = taken_out(gone, nodes=[off], pods=[running()])
    assert (found[0], found[1][0].key) == ("n1", "node.kubernetes.io/out-of-service")
    ours = replace(off, taints=found[1])
    assert taken_out(gone, nodes=[ours], pods=[running()]) == []
    assert taken_out(gone, nodes=[replace(ours, ready=True)]) == [("n1", (), found[1])]
    assert taken_out(gone, nodes=[off]) == []
    assert taken_out(gone, nodes=[node()], pods=[running()]) == []
    assert taken_out(gone, record("again", node_name="n1"), nodes=[off], pods=[running()]) == []
    assert taken_out(record("n1", S.GONE, delivers=Delivery.NODE), nodes=[off], pods=[running()]) == []


def test_a_refusal_is_recorded_once_and_taken_back_when_it_holds_no_more():
    new, known, over = pod("new"), pod("known", refusal="No."), pod("over", refusal="No.")
    mute = pod("mute", unschedulable_message=None)
    refused = tuple(NotDemand(pod=each, reason=Reason.UNSCHEDULABLE, sentence="s") for each in (new, known, mute))
    snapshot = Snapshot(now=NOW, pending=(new, known, over, mute, pod("other")))

    found = record_refusals(snapshot, Reservations(refused=refused))

    assert [(each.pod.name, each.message) for each in found if each.pod.name != "over"] == [
        ("new", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."),
        ("mute", ""),
    ]
