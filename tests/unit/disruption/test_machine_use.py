"""How nodes are used, and the Idle condition of their records."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.parts import Condition, Truth
from forebay.demand.assessment import NotDemand
from forebay.demand.planned_pods import idle_condition
from forebay.demand.reservation import Reservation, Reservations
from forebay.demand.scheduler_waits import FIRST_REPORT, SchedulerWaits, scheduler_waits
from forebay.disruption.machine_use import MachineUse, idle_updates, machine_uses
from forebay.model.kept import KeptMapping, KeptTuple
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Phase
from tests.unit.demand.builders import NOW, ago, node, pod, record, running

LATER = NOW + timedelta(minutes=3, microseconds=5)


def updated(machine, now=NOW):
    """The machine after its Idle condition has been written."""
    (update,) = idle_updates([machine], now)
    return replace(machine, record=replace(machine.record, status=update.status))


def idle_of(machine):
    found = idle_condition(machine.record)
    return found.status, found.reason, found.last_transition_time


IDLE = MachineUse(record=record(), node=node())
BUSY = replace(IDLE, pods=(running(),))


def test_the_idle_condition_is_written_once_and_keeps_since_when():
    idle = updated(IDLE)
    assert idle_of(idle) == (Truth.TRUE, Reason.IDLE, NOW)
    assert idle.idle_since == NOW
    assert idle_updates([idle], LATER) == ()


def test_a_pod_ends_the_idleness_and_the_next_one_counts_from_its_own_start():
    busy = updated(replace(updated(IDLE), pods=(running(),)), LATER)
    assert idle_of(busy) == (Truth.FALSE, Reason.IN_USE, LATER.replace(microsecond=0))
    assert busy.idle_since is None
    assert idle_of(updated(replace(busy, pods=()), LATER + timedelta(hours=1)))[2] > LATER


def test_a_node_reserved_for_pods_is_not_idle_and_pods_on_it_do_not_change_since_when():
    awaited = updated(replace(IDLE, awaited_by="default/train"))
    assert idle_of(awaited) == (Truth.FALSE, Reason.AWAITED, NOW)
    assert idle_of(updated(replace(awaited, awaited_by=None, pods=(running(),)), LATER)) == (
        Truth.FALSE,
        Reason.IN_USE,
        NOW,
    )


def test_other_conditions_and_the_rest_of_the_status_stay():
    other = Condition(type="Healthy", status=Truth.TRUE, reason="Fine", last_transition_time=NOW)
    machine = MachineUse(record=record(conditions=(other,), attempt=3), node=node())
    (update,) = idle_updates([machine], NOW)
    assert update.status.conditions[0] == other
    assert update.status.attempt == 3
    assert update.status.state is State.READY


def test_a_machine_that_is_not_in_service_gets_no_idle_condition():
    for machine in (
        MachineUse(record=record(), node=None),
        MachineUse(record=record(), node=node(ready=False)),
        MachineUse(record=record(state=State.DRAINING), node=node()),
        MachineUse(record=record(state=None), node=node()),
    ):
        assert idle_updates([machine], NOW) == ()
        assert not machine.idle


def booting(**fields):
    """A rented machine that has not registered."""
    return record("r1", State.LAUNCHED, **{"delivers": Delivery.NODE, "pods": [pod()], **fields})


def use_of(of, wanted):
    (use,) = machine_uses(
        [of], {}, {}, Reservations(placed={}, refused=()), [], now=NOW, wanted=lambda _: wanted
    ).machines
    return use


def test_a_machine_that_boots_for_nobody_is_unneeded_unless_it_is_being_deleted_anyway():
    assert use_of(booting(), wanted=False).unneeded
    assert not use_of(booting(), wanted=True).unneeded
    assert not use_of(booting(deleted=NOW), wanted=False).unneeded


@pytest.mark.parametrize("delivers", [Delivery.POWER, Delivery.CONTAINER])
def test_an_owned_machine_that_boots_for_nobody_comes_up_first_and_a_container_ends_with_its_pod(delivers):
    assert not use_of(booting(delivers=delivers), wanted=False).unneeded


def test_a_machine_that_boots_and_is_wanted_again_is_not_idle_any_more():
    unneeded = updated(use_of(booting(), wanted=False))
    assert idle_of(unneeded)[0] is Truth.TRUE

    assert idle_of(updated(use_of(unneeded.record, wanted=True), LATER))[0] is Truth.FALSE
    assert idle_updates([use_of(booting(), wanted=True)], NOW) == (), "it was never said to be idle"


def test_pods_that_are_expected_or_that_the_scheduler_refuses_are_found():
    waiting, refused, bound = pod("waiting"), pod("refused"), running()
    reservations = Reservations(
        placed={waiting.uid: Reservation(node="n1", reason=Reason.FITS_EXISTING, sentence="")},
        refused=(NotDemand(pod=refused, reason=Reason.SCHEDULER_REFUSES, sentence=""),),
    )
    records = [record("n1"), record("n2", pods=[refused]), record("n3")]
    nodes = {name: node(name) for name in ("n1", "n2", "n3")}
    awaited, unused, busy = machine_uses(
        records, nodes, {"n3": (bound,)}, reservations, [waiting, refused], now=NOW
    ).machines
    assert awaited.awaited_by == "default/waiting"
    assert not awaited.idle
    assert unused.idle
    assert idle_of(updated(unused))[1] == Reason.SCHEDULER_REFUSES
    assert busy.pods == (bound,)
    assert not busy.idle


@pytest.mark.parametrize(("messages", "recorded"), [([None], False), (["no"], True), (["no", None], False)])
def test_a_refusal_is_recorded_when_every_pod_of_the_node_says_so(messages, recorded):
    pods = [pod(f"p{number}", refusal=message) for number, message in enumerate(messages)]
    refused = tuple(NotDemand(pod=each, reason=Reason.SCHEDULER_REFUSES, sentence="") for each in pods)
    (use,) = machine_uses(
        [record("n1", pods=pods)], {"n1": node("n1")}, {}, Reservations(refused=refused), pods, now=NOW
    ).machines
    assert (use.refused, use.refusal_recorded) == ("default/p0", recorded)


def test_a_pod_that_the_scheduler_has_not_tried_yet_keeps_the_nodes_that_it_fits():
    fresh = pod("fresh", 4, unschedulable_since=None)
    foreign = pod("foreign", 1, unschedulable_since=None, scheduler_name="volcano")
    gated = pod("gated", 1, unschedulable_since=None, scheduling_gates=("a/b",))
    records = [record("large"), record("small", gpus=2), record("off")]
    nodes = {"large": node("large", 8), "small": node("small", 2)}
    large, small, off = machine_uses(records, nodes, {}, Reservations(), [gated, foreign, fresh], now=NOW).machines
    assert large.awaited_by == "default/fresh"
    assert small.idle
    assert off.node is None


@pytest.mark.parametrize("over", [{"phase": Phase.FAILED}, {"deleted": NOW}], ids=["ended", "deleted"])
def test_a_pod_that_is_over_before_it_was_tried_keeps_nothing(over):
    gone = pod(unschedulable_since=None, **over)
    (use,) = machine_uses([record("n1")], {"n1": node("n1")}, {}, Reservations(), [gone], now=NOW).machines
    assert use.idle


@pytest.mark.parametrize(("since", "awaited"), [(ago(seconds=119), "default/train"), (ago(minutes=2), None)])
def test_a_pod_that_the_scheduler_fails_to_try_is_expected_for_two_minutes(since, awaited):
    failing = pod(unschedulable_since=None, scheduler_error_since=since)
    (use,) = machine_uses([record("n1")], {"n1": node("n1")}, {}, Reservations(), [failing], now=NOW).machines
    assert use.awaited_by == awaited


def test_a_pod_that_the_scheduler_never_reports_on_is_expected_for_ten_minutes():
    silent = pod(unschedulable_since=None)
    waits = scheduler_waits(SchedulerWaits(), [silent], NOW - FIRST_REPORT)

    def awaited_by(waits, now):
        (use,) = machine_uses(
            [record("n1")], {"n1": node("n1")}, {}, Reservations(), [silent], now=now, waits=waits
        ).machines
        return use.awaited_by

    assert awaited_by(waits, NOW - timedelta(seconds=1)) == "default/train"
    waits = scheduler_waits(waits, [silent], NOW)
    assert awaited_by(waits, NOW) is None
    gated = pod(unschedulable_since=None, scheduling_gates=("a/b",))
    waits = scheduler_waits(scheduler_waits(waits, [gated], NOW), [silent], NOW)
    assert awaited_by(waits, NOW) == "default/train", "it was held by a gate until now"


def test_what_was_found_in_an_earlier_tick_holds_only_while_nobody_waits_and_nothing_went():
    records, nodes, pods = KeptTuple((record("n1"),)), KeptMapping({"n1": node("n1")}), KeptMapping({})

    def used(before, *pending, of=nodes):
        return machine_uses(records, of, pods, Reservations(), pending, now=NOW, before=before)

    quiet = used(None)
    assert used(quiet) is quiet
    (awaited,) = used(quiet, pod("new", unschedulable_since=None)).machines
    assert awaited.awaited_by == "default/new"
    (lost,) = used(quiet, of=KeptMapping({})).machines
    assert lost.node is None, "its node is gone"


def test_a_machine_that_boots_is_needed_as_long_as_its_pods_are_whatever_was_known_before():
    boots = record("n1", State.LAUNCHED, delivers=Delivery.NODE, pods=[pod()])
    records, nodes, pods = KeptTuple((boots,)), KeptMapping({}), KeptMapping({})
    before, seen = None, []
    for wanted in (True, False, False, True):
        before = machine_uses(
            records, nodes, pods, Reservations(), (), now=NOW, wanted=lambda _, it=wanted: it, before=before
        )
        (use,) = before.machines
        seen.append((use.wanted, use.unneeded))
    assert seen == [(True, False), (False, True), (False, True), (True, False)]


def test_a_machine_that_boots_is_awaited_by_the_pod_that_will_be_moved_there_and_by_none_before():
    boots = record("n1", State.LAUNCHED, delivers=Delivery.NODE)
    records, before, seen = KeptTuple((boots,)), None, []
    for moving in ({}, {"n1": "default/train"}, {}):
        before = machine_uses(
            records, KeptMapping({}), KeptMapping({}), Reservations(), (), now=NOW, moving=moving, before=before
        )
        seen.append(before.machines[0].awaited_by)
    assert seen == [None, "default/train", None]


def test_plain_collections_may_change_between_two_ticks():
    pods = {}
    before = machine_uses([record("n1")], {"n1": node("n1")}, pods, Reservations(), (), now=NOW)
    assert before.machines[0].idle
    records, nodes = [before.machines[0].record], {"n1": before.machines[0].node}
    before = machine_uses(records, nodes, pods, Reservations(), (), now=NOW, before=before)
    pods["n1"] = (running(node="n1"),)
    assert not machine_uses(records, nodes, pods, Reservations(), (), now=NOW, before=before).machines[0].idle
