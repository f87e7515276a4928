"""Idle nodes are marked so that the scheduler uses them last, and lose the mark when they stay after all."""

from datetime import timedelta

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import SCALE_DOWN_TAINT
from forebay.disruption.machine_use import MachineUse
from forebay.model.requirements import Effect, Taint
from forebay.model.sources import Delivery
from forebay.reconcile.idle_nodes import IDLE_TAINT, mark_idle_nodes
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, node, record, running

S = InstanceState
SOON = NOW + timedelta(minutes=5)
TEAM = Taint("team", "a")


def machine(name, *, state=S.READY, pods=(), taints=(), awaited_by=None, **fields):
    made = record(name, state, **fields)
    return MachineUse(record=made, node=node(name, 8, taints=taints), pods=tuple(pods), awaited_by=awaited_by)


def changes(machines, *, goes_at=None, besides=(), others=(), **snapshot):
    nodes = {each.name: each for each in (*(each.node for each in machines if each.node is not None), *others)}
    seen = Snapshot(now=NOW, nodes=nodes, records=tuple(each.record for each in machines), **snapshot)
    goes_at = {each.name: SOON for each in machines} if goes_at is None else goes_at
    found = mark_idle_nodes(seen, machines, goes_at, besides)
    return {each.node.name: (each.taints, each.remove) for each in found}


BUSY = machine("busy", pods=[running("p", "busy", 1)])


def test_an_idle_node_that_is_to_go_is_marked_while_another_is_in_use():
    assert changes([machine("idle"), BUSY]) == {"idle": ((IDLE_TAINT,), ())}
    assert Taint(SCALE_DOWN_TAINT, "idle", Effect.PREFER_NO_SCHEDULE) == IDLE_TAINT


def test_a_node_of_somebody_else_is_a_choice_too_if_it_has_gpus_and_is_ready():
    idle = machine("idle")
    assert changes([idle], others=[node("theirs", 4)]) != {}
    assert changes([idle], others=[node("theirs", 0)]) == {}
    assert changes([idle], others=[node("theirs", 4, ready=False)]) == {}
    assert changes([idle, machine("idle-too")]) == {}, "there is no better choice"


def test_a_node_is_not_marked_that_stays_or_goes_at_once_or_is_awaited_or_changed_already():
    idle = machine("idle")
    assert changes([idle, BUSY], goes_at={}) == {}
    assert changes([idle, BUSY], goes_at={"idle": NOW + timedelta(seconds=30)}) == {}
    assert changes([idle, BUSY], goes_at={"idle": NOW + timedelta(seconds=31)}) != {}
    assert changes([machine("idle", awaited_by="team/p"), BUSY]) == {}
    assert changes([idle, BUSY], besides=["idle"]) == {}
    assert changes([machine("idle", taints=(IDLE_TAINT,)), BUSY]) == {}, "it is marked"


def test_the_mark_goes_when_a_gpu_pod_has_come_and_nothing_else_does():
    used = machine("used", pods=[running("p", "used", 1)], taints=(TEAM, IDLE_TAINT))
    assert changes([used]) == {"used": ((), (IDLE_TAINT,))}
    assert changes([used], besides=["used"]) == {}


def test_a_pod_that_may_come_does_not_take_the_mark_away():
    assert changes([machine("idle", taints=(IDLE_TAINT,), awaited_by="team/p"), BUSY]) == {}


def test_the_mark_goes_when_the_node_is_to_stay_and_not_while_it_leaves():
    marked = machine("idle", taints=(IDLE_TAINT,))
    assert changes([marked, BUSY], goes_at={}) == {"idle": ((), (IDLE_TAINT,))}
    for state in (S.DRAINING, S.TERMINATING):
        assert changes([machine("idle", state=state, taints=(IDLE_TAINT,)), BUSY], goes_at={}) == {}


def test_the_mark_goes_from_a_node_that_outlives_its_machine():
    off = machine("off", state=S.GONE, taints=(IDLE_TAINT,), delivers=Delivery.POWER)
    assert changes([off], goes_at={}) == {"off": ((), (IDLE_TAINT,))}
    assert changes([], others=[off.node]) == {"off": ((), (IDLE_TAINT,))}, "its record is gone, too"
    ended = machine("ended", state=S.GONE, taints=(IDLE_TAINT,), delivers=Delivery.NODE)
    assert changes([ended], goes_at={}) == {}, "its Node is deleted"


def test_of_two_records_of_one_machine_the_live_one_counts():
    now, before = machine("box", taints=(IDLE_TAINT,)), machine("box", state=S.GONE, taints=(IDLE_TAINT,))
    assert changes([now, before]) == changes([before, now]) == {}


def test_the_node_of_a_machine_that_is_gone_is_no_choice():
    assert changes([machine("idle"), machine("ended", state=S.GONE, delivers=Delivery.NODE)]) == {}


def test_marks_stay_while_some_records_cannot_be_read():
    unread = {"unread": "spec.offer: no number"}
    marked = node("marked", 8, taints=(IDLE_TAINT,))
    assert changes([], others=[marked], unreadable_records=unread) == {}


def test_taints_of_groups_are_not_touched():
    assert changes([], others=[node("member", 8, taints=(Taint(SCALE_DOWN_TAINT, "defragmenting"),))]) == {}
