"""The groups of a NodeProvisioner grow and shrink to their target: one kind of change a pass, and no pod moves."""

import tracemalloc
from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState, Transition
from forebay.api.names import MAINTENANCE_ANNOTATION, SCALE_DOWN_TAINT
from forebay.demand.reservation import Reservations
from forebay.lifecycle.steps import WriteStatus
from forebay.model.reasons import Reason
from forebay.model.requirements import Effect, Taint
from forebay.model.sources import Instance, InstancePhase
from forebay.model.workloads import Owner
from forebay.reconcile.decisions import CreateInstance, SyncNode
from forebay.reconcile.group_growth import GroupGrowth, GrowthForPods
from forebay.reconcile.group_sizing import adopt_members, size_groups
from forebay.reconcile.isolation import Faults
from forebay.reconcile.snapshot import Memory, Snapshot
from tests.unit.demand.builders import NOW, ago, node, running
from tests.unit.reconcile.test_group_growth import KEY, TWO, member, provisioner, source

S = InstanceState
MINUTE = timedelta(minutes=1)


def taint(at, effect=Effect.PREFER_NO_SCHEDULE):
    return Taint(SCALE_DOWN_TAINT, at.strftime("%Y%m%dT%H%M%SZ"), effect)


class Groups:
    """A NodeProvisioner with members and their nodes, and what one pass decides."""

    def __init__(self, *members, nodes=None, pods=None, found=None, ready=0, **spec):
        self.snapshot = Snapshot(
            now=NOW,
            records=members,
            provisioners=(provisioner(min_unutilized_gpu_nodes=ready, **spec),),
            sources={KEY: found if found is not None else source(**TWO)},
            nodes={each.name: each for each in (nodes if nodes is not None else [node(m.node_name) for m in members])},
            pods_by_node=pods or {},
            # Looked at a moment ago, so that no pass defragments.
            memory=Memory(defragmented=NOW),
        )

    def decided(self, *, growth=None, with_step=(), reservations=None):
        grown = GrowthForPods(by_provisioner={} if growth is None else {"gpus": GroupGrowth(nodes=growth)})
        return size_groups(self.snapshot, reservations or Reservations(), grown, with_step, Faults())

    def created(self, **fields):
        return [each for each in self.decided(**fields).decisions if isinstance(each, CreateInstance)]

    def drained(self, **fields):
        found = [each for each in self.decided(**fields).decisions if isinstance(each, WriteStatus)]
        return [each.record.metadata.name for each in found]

    def synced(self, **fields):
        found = [each for each in self.decided(**fields).decisions if isinstance(each, SyncNode)]
        return {each.node.name: (each.taints, each.remove) for each in found}


def test_nodes_that_are_to_be_ready_are_created_in_the_cheapest_group():
    found = Groups(ready=2).created()

    assert len({each.name for each in found}) == 2
    assert [each.spec.provisioner_ref.group for each in found] == ["b", "b"]
    assert found[0].reason is Reason.GROUP_TARGET
    assert "NodeProvisioner gpus has 0 nodes and needs 2" in found[0].sentence
    assert "one more member of instance group b (t1, $1.00/h)." in found[0].sentence
    assert found[0].status is None


def test_groups_that_waiting_pods_need_grow_first():
    found = Groups(ready=1).created(growth={"a": 1})
    assert sorted(each.spec.provisioner_ref.group for each in found) == ["a", "b"]


def test_a_new_member_goes_on_with_the_failures_of_the_last_one():
    step = Transition(state=S.GONE, at=ago(hours=2), reason=Reason.NO_CAPACITY)
    last = member("gone", S.GONE, "b", failures=2, transitions=(step,))
    offer = replace(last.spec.offer, instance_type="t1")
    (made,) = Groups(replace(last, spec=replace(last.spec, offer=offer)), nodes=[], ready=1).created()
    assert (made.status.state, made.status.failures) == (S.REQUESTED, 2)


def test_a_group_that_cools_down_is_looked_at_again_when_that_ends():
    step = Transition(state=S.GONE, at=NOW, reason=Reason.NO_CAPACITY)
    last = member("gone", S.GONE, "b", failures=1, transitions=(step,))
    cooling = Groups(
        replace(last, spec=replace(last.spec, offer=replace(last.spec.offer, instance_type="t1"))), ready=1
    )

    assert [each.spec.provisioner_ref.group for each in cooling.created()] == ["a"]
    assert cooling.decided().requeue_at == NOW + 5 * MINUTE


def test_surplus_empty_nodes_are_tainted_with_the_time_of_their_deletion_the_dearest_first():
    both = Groups(member("x", group="b"), member("y", group="a"), ready=1)
    assert both.synced() == {"y": ((taint(NOW + 10 * MINUTE),), ())}
    assert both.drained() == []
    used = Groups(member("x", group="b"), member("y", group="a"), pods={"y": (running(node="y"),)})
    assert set(used.synced()) == {"x"}


def test_a_tainted_node_is_drained_when_its_time_has_come_and_not_before():
    def groups(at, **fields):
        return Groups(member("x"), nodes=[node("x", taints=(taint(at),))], **fields)

    later = groups(NOW + MINUTE)
    assert (later.drained(), later.decided().requeue_at) == ([], NOW + MINUTE)
    assert groups(NOW).drained() == ["x"]
    assert groups(NOW).drained(with_step={"x"}) == [], "this tick has decided about it already"
    (step,) = [each for each in groups(NOW).decided().decisions if isinstance(each, WriteStatus)]
    assert step.sentence == (
        "Node x has been empty and tainted for 10m, and NodeProvisioner gpus needs 0 of 1 nodes. Draining it; a pod "
        "that comes keeps it."
    )
    assert groups(NOW, ready=1).synced() == {"x": ((), (taint(NOW),))}, "it is needed again"


def test_a_node_with_pods_or_that_people_hold_loses_its_taint():
    tainted = node("x", taints=(taint(NOW),))
    held = replace(tainted, annotations={MAINTENANCE_ANNOTATION: ""})
    plain = running(node="x", gpus=0)

    assert Groups(member("x"), nodes=[tainted], pods={"x": (running(node="x"),)}).synced() == {"x": ((), (taint(NOW),))}
    assert Groups(member("x"), nodes=[tainted], pods={"x": (plain,)}).drained() == [], "every pod keeps a member"
    assert Groups(member("x"), nodes=[held]).synced() == {"x": ((), (taint(NOW),))}


@pytest.mark.parametrize(
    ("there", "record", "needed"),
    [
        (node("x"), member("x"), 0),
        (node("x", ready=False), member("x"), 1),
        (node("x", unschedulable=True), member("x"), 1),
        (node("x", deleted=NOW), member("x"), 1),
        (None, member("x", S.LAUNCHED), 0),
        (None, member("x", S.LAUNCHED, reason=Reason.JOIN_TIMEOUT), 1),
        (None, member("x", None), 0),
        (None, member("x", S.TERMINATING), 1),
    ],
    ids=["ready", "NotReady", "cordoned", "deleted", "booting", "late", "just created", "leaving"],
)
def test_a_member_that_takes_no_pods_is_replaced_by_another_one(there, record, needed):
    groups = Groups(record, nodes=[] if there is None else [there], ready=1)
    assert len(groups.created()) == needed


def test_the_figures_of_a_pass_count_every_member_once():
    tainted = node("z", taints=(taint(NOW + MINUTE),))
    groups = Groups(
        member("x"),
        member("y"),
        member("z"),
        nodes=[node("x"), node("y", ready=False), tainted],
        pods={"x": (running(node="x"),)},
        ready=1,
    )
    found = groups.decided().sizes["gpus"]
    assert (found.use.size, found.use.used, found.use.unusable, found.use.ending, found.tainted) == (3, 1, 1, 0, 1)


def test_stray_taints_go_once_every_provisioner_and_record_can_be_read():
    stray = node("old", taints=(taint(NOW), Taint("team")))
    groups = Groups(nodes=[stray])
    assert groups.synced() == {"old": ((), (taint(NOW),))}
    for unknown in ({"unreadable_provisioners": frozenset({"x"})}, {"unreadable_records": {"r": "bad"}}):
        groups.snapshot = replace(groups.snapshot, **unknown)
        assert groups.synced() == {}
        groups.snapshot = replace(groups.snapshot, unreadable_provisioners=frozenset(), unreadable_records={})


def test_members_without_a_record_are_adopted_unless_somebody_claims_them_or_records_cannot_be_read():
    there = source([Instance(id="a/new", phase=InstancePhase.RUNNING)], **TWO)
    seen = Groups(found=there).snapshot

    assert [each.name for each in adopt_members(seen)] == ["new"]
    assert adopt_members(seen, {"a/new"}) == ()
    assert adopt_members(replace(seen, unreadable_records={"r": "bad"})) == ()
    going = replace(seen.provisioners[0], metadata=replace(seen.provisioners[0].metadata, deletion_timestamp=NOW))
    assert adopt_members(replace(seen, provisioners=(going,))) == ()


# Members that end at a known time


def ending(at, *others, pods=None, nodes=None, **spec):
    """A member whose provider ends it then, made a day before."""
    made = Instance(id="a/x", phase=InstancePhase.RUNNING, ends_at=at, created=at - timedelta(days=1))
    x = member("x", instance_id="a/x")
    return Groups(
        x,
        *others,
        nodes=nodes if nodes is not None else [node("x"), *(node(each.node_name) for each in others)],
        pods=pods,
        found=source([made], **TWO),
        **spec,
    )


MOVES = running(node="x", owner=Owner("ReplicaSet", "web", "uid-web"))
END = NOW + 20 * MINUTE
MARK = taint(END, Effect.NO_SCHEDULE)


def test_a_member_that_ends_soon_is_marked_and_replaced_and_drained_when_an_empty_node_is_there():
    alone = ending(END, pods={"x": (MOVES,)})
    assert alone.synced() == {"x": ((MARK,), ())}
    assert len(alone.created()) == 1
    assert alone.drained() == []
    marked = [node("x", taints=(MARK,)), node("y")]
    with_other = ending(END, member("y"), nodes=marked, pods={"x": (MOVES,)}, ready=1)
    assert with_other.drained() == ["x"]
    (step,) = [each for each in with_other.decided().decisions if isinstance(each, WriteStatus)]
    assert step.reason is Reason.EXPIRED
    assert step.sentence == (
        "simulated ends x at 12:20:00 UTC: NodeProvisioner gpus replaces it. Its pods move to other nodes, and it is "
        "deleted."
    )
    assert with_other.drained(with_step={"x"}) == []


def test_a_member_whose_end_is_far_is_left_alone_until_half_an_hour_before():
    far = ending(NOW + 31 * MINUTE, pods={"x": (MOVES,)})
    assert (far.synced(), far.created(), far.decided().requeue_at) == ({}, [], NOW + MINUTE)
    near = ending(NOW + 30 * MINUTE, pods={"x": (MOVES,)})
    assert near.synced() != {}
    assert near.decided().requeue_at == NOW + 25 * MINUTE, "then its pods go, with or without another node"


def test_shortly_before_its_end_a_member_is_drained_with_or_without_another_node():
    marked = taint(NOW + 5 * MINUTE, Effect.NO_SCHEDULE)
    late = ending(NOW + 5 * MINUTE, nodes=[node("x", taints=(marked,))], pods={"x": (MOVES,)})
    assert late.drained() == ["x"]
    empty = ending(END, nodes=[node("x", taints=(MARK,))])
    assert empty.drained() == ["x"]
    (step,) = [each for each in empty.decided().decisions if isinstance(each, WriteStatus)]
    assert "It is empty, and it is deleted." in step.sentence


def test_a_member_that_people_hold_is_neither_marked_nor_drained():
    held = replace(node("x"), annotations={MAINTENANCE_ANNOTATION: ""})
    groups = ending(NOW + MINUTE, nodes=[held], pods={"x": (MOVES,)})
    assert (groups.synced(), groups.drained()) == ({}, [])


def test_a_mistyped_number_of_nodes_needs_no_memory_and_makes_five_hundred_members_at_once():
    tracemalloc.start()
    try:
        found = Groups(ready=30_000_000).created(growth={"a": 1})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == 500
    assert peak < 20 * 2**20
