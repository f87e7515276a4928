"""Since when a machine is idle, kept on its record."""

from datetime import timedelta

from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.parts import Condition, Truth
from forebay.demand.assessment import NotDemand
from forebay.demand.planned_pods import idle_condition
from forebay.demand.reservation import Reservation, Reservations
from forebay.disruption.machine_use import MachineUse, idle_marks, machine_uses
from forebay.model.reasons import Reason
from tests.unit.demand.builders import NOW, node, pod, record, running

LATER = NOW + timedelta(minutes=3, microseconds=5)


def marked(machine, now=NOW):
    """The machine after its mark has been written."""
    (mark,) = idle_marks([machine], now)
    return replace(machine, record=replace(machine.record, status=mark.status))


def mark_of(machine):
    found = idle_condition(machine.record)
    return found.status, found.reason, found.last_transition_time


IDLE = MachineUse(record=record(), node=node())
BUSY = replace(IDLE, pods=(running(),))


def test_a_machine_is_marked_idle_once_and_keeps_since_when():
    idle = marked(IDLE)
    assert mark_of(idle) == (Truth.TRUE, Reason.IDLE, NOW)
    assert idle.idle_since == NOW
    assert idle_marks([idle], LATER) == ()


def test_work_ends_the_idleness_and_the_next_time_begins_anew():
    busy = marked(replace(marked(IDLE), pods=(running(),)), LATER)
    assert mark_of(busy) == (Truth.FALSE, Reason.IN_USE, LATER.replace(microsecond=0))
    assert busy.idle_since is None
    assert mark_of(marked(replace(busy, pods=()), LATER + timedelta(hours=1)))[2] > LATER


def test_waiting_for_pods_is_not_idle_and_work_after_it_is_no_new_time():
    awaited = marked(replace(IDLE, awaited_by="default/train"))
    assert mark_of(awaited) == (Truth.FALSE, Reason.AWAITED, NOW)
    assert mark_of(marked(replace(awaited, awaited_by=None, pods=(running(),)), LATER)) == (
        Truth.FALSE,
        Reason.IN_USE,
        NOW,
    )


def test_other_conditions_and_the_rest_of_the_status_stay():
    other = Condition(type="Healthy", status=Truth.TRUE, reason="Fine", last_transition_time=NOW)
    machine = MachineUse(record=record(conditions=(other,), attempt=3), node=node())
    (mark,) = idle_marks([machine], NOW)
    assert mark.status.conditions[0] == other
    assert mark.status.attempt == 3
    assert mark.status.state is State.READY


def test_a_machine_that_is_not_in_service_is_not_marked():
    for machine in (
        MachineUse(record=record(), node=None),
        MachineUse(record=record(), node=node(ready=False)),
        MachineUse(record=record(state=State.DRAINING), node=node()),
        MachineUse(record=record(state=None), node=node()),
    ):
        assert idle_marks([machine], NOW) == ()
        assert not machine.idle


def test_machines_know_who_waits_for_them_and_whom_the_scheduler_refuses():
    waiting, refused, tenant = pod("waiting"), pod("refused"), running()
    reservations = Reservations(
        placed={waiting.uid: Reservation(node="n1", reason=Reason.FITS_EXISTING, sentence="")},
        refused=(NotDemand(pod=refused, reason=Reason.SCHEDULER_REFUSES, sentence=""),),
    )
    records = [record("n1"), record("n2", pods=[refused]), record("n3")]
    nodes = {name: node(name) for name in ("n1", "n2", "n3")}
    awaited, vain, busy = machine_uses(records, nodes, {"n3": (tenant,)}, reservations, [waiting, refused])
    assert awaited.awaited_by == "default/waiting"
    assert not awaited.idle
    assert vain.idle
    assert mark_of(marked(vain))[1] == Reason.SCHEDULER_REFUSES
    assert busy.pods == (tenant,)
    assert not busy.idle


def test_a_pod_that_the_scheduler_has_not_tried_yet_keeps_the_machines_it_may_be_put_on():
    fresh = pod("fresh", 4, unschedulable_since=None)
    foreign = pod("foreign", 1, unschedulable_since=None, scheduler_name="volcano")
    gated = pod("gated", 1, unschedulable_since=None, scheduling_gates=("a/b",))
    records = [record("large"), record("small", gpus=2), record("off")]
    nodes = {"large": node("large", 8), "small": node("small", 2)}
    large, small, off = machine_uses(records, nodes, {}, Reservations(), [gated, foreign, fresh])
    assert large.awaited_by == "default/fresh"
    assert small.idle
    assert off.node is None
