"""Calls keep to the pace of their provider; what a source has refused once is not tried for every offer of it."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.lifecycle.steps import Launch, Terminate, WriteStatus
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery, FailureScope, Source, SourceKey
from forebay.reconcile.call_pace import postponed_calls
from forebay.reconcile.due_steps import due_steps
from forebay.reconcile.snapshot import OperatorRules, Snapshot
from tests.unit.demand.builders import pod as waiting
from tests.unit.lifecycle.builders import NOW, R, S, fresh_record, listed, record, rented_spec, seconds

KEY = SourceKey("cheap", "simulated")


def fresh(number, **fields):
    spec = rented_spec(f"gi-{number:02}")
    return fresh_record(name=f"gi-{number:02}", since=NOW - seconds(60 - number), spec=spec, **fields)


def snapshot(*records, now=NOW, busy=(), revision=None, **capabilities):
    capable = Capabilities(deliveries=(Delivery.NODE,), **capabilities)
    source = Source(
        key=KEY, capabilities=capable, offers=(), listing=listed(asked=NOW - seconds(5)), revision=revision or {}
    )
    return Snapshot(
        now=now,
        sources={KEY: source},
        records=records,
        pending=(replace(waiting("train"), uid="uid-train"),),
        unreadable_classes=frozenset({"cheap"}),
        calls_in_flight=frozenset(busy),
    )


def going(seen):
    return [(type(step), step.record.metadata.name) for step in due_steps(seen, {}).allowed]


def test_only_so_many_calls_of_a_source_are_in_flight_and_terminations_go_first():
    records = [fresh(number) for number in range(5)]
    leaving = record(S.TERMINATING, name="gi-99", since=NOW, instance_id="i-99", billed_from=NOW)
    seen = snapshot(*records, leaving, record(S.LAUNCHING, name="gi-98"), max_calls=3, busy=["gi-98"])

    assert going(seen) == [(Launch, "gi-00"), (Terminate, "gi-99")]
    assert going(replace(seen, calls_in_flight=frozenset()))[:1] == [(Launch, "gi-00")]


def test_launches_keep_the_interval_of_their_provider_and_the_oldest_goes_first():
    records = [fresh(number) for number in (3, 1, 2)]
    seen = snapshot(*records, launch_interval=timedelta(seconds=12))

    assert going(seen) == [(Launch, "gi-01")]
    assert due_steps(seen, {}).requeue_at == NOW + seconds(13), "a second more, because records have whole seconds"
    called = record(S.GONE, name="gi-00", because=R.NO_CAPACITY, spec=rented_spec(node_class_name="cheap", offer=None))
    called = replace(called, status=replace(called.status, attempted_at=NOW - seconds(5), instance_id=None))
    later = snapshot(*records, called, launch_interval=timedelta(seconds=12))
    assert going(later) == []
    assert due_steps(later, {}).requeue_at == NOW + seconds(8)


def refused(scope, **fields):
    return record(
        S.GONE,
        name="refused",
        because=R.BAD_CREDENTIALS,
        spec=rented_spec("refused"),
        failures=1,
        failure_scope=scope,
        instance_id=None,
        **fields,
    )


@pytest.mark.parametrize("scope", sorted(set(FailureScope) - {FailureScope.ORDER}))
def test_what_failed_for_one_record_is_not_tried_for_the_next(scope):
    (step,) = (each for each in due_steps(snapshot(fresh(1), refused(scope)), {}).allowed)

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.reason) == (InstanceState.GONE, Reason.COOLING_DOWN)
    assert "refused failed at 12:00:00 UTC (BadCredentials)" in step.sentence
    assert not step.status.failures, "nothing was tried"


def test_an_order_that_was_refused_says_nothing_about_the_next():
    assert going(snapshot(fresh(1), refused(FailureScope.ORDER))) == [(Launch, "gi-01")]


def test_when_the_secret_has_changed_it_is_tried_again_at_once():
    failed = refused(FailureScope.SOURCE, failure_revision={"Secret forebay/key": "7"})

    assert going(snapshot(fresh(1), failed, revision={"Secret forebay/key": "7"}))[0][0] is WriteStatus
    assert going(snapshot(fresh(1), failed, revision={"Secret forebay/key": "8"})) == [(Launch, "gi-01")]


def owned(number, called=None, state=S.REQUESTED, **fields):
    made = record(state, owned=True, name=f"box-{number}", since=NOW - seconds(60 - number), **fields)
    return made if called is None else replace(made, status=replace(made.status, attempted_at=called))


def power_ons(*records, interval=30, launches=()):
    rules = OperatorRules(power_on_interval=seconds(interval))
    steps = [Launch(record=each, reason=Reason.LAUNCH_STARTED, sentence="s", status=each.status) for each in launches]
    return postponed_calls(Snapshot(now=NOW, records=records, rules=rules), steps)


def test_owned_machines_are_powered_on_one_after_the_other_the_oldest_first():
    boxes = [owned(number) for number in (3, 1, 2)]

    assert power_ons(*boxes, launches=boxes) == ({"box-2", "box-3"}, NOW + seconds(30))
    assert power_ons(*boxes, launches=boxes, interval=0) == (set(), None)
    assert power_ons(*boxes) == (set(), None)


def test_a_power_on_waits_for_the_interval_since_the_last_one_and_a_power_off_is_none():
    on = owned(7, NOW - seconds(10), S.LAUNCHING)
    earlier = owned(8, NOW - seconds(200), S.READY)
    off = owned(9, NOW - seconds(1), S.TERMINATING, termination_attempts=1)
    new = owned(1)

    assert power_ons(new, earlier, on, off, launches=[new]) == ({"box-1"}, NOW + seconds(20))
    assert power_ons(new, earlier, off, launches=[new]) == (set(), NOW + seconds(30))
    due = owned(7, NOW - seconds(30), S.LAUNCHING)
    assert power_ons(new, due, launches=[new]) == (set(), NOW + seconds(30))


def test_without_room_for_a_call_none_goes_however_many_are_under_way():
    busy = [record(S.LAUNCHING, name=f"gi-9{number}") for number in range(3)]
    seen = snapshot(fresh(1), *busy, max_calls=2, busy=[each.metadata.name for each in busy])

    assert going(seen) == []


def test_the_last_launch_is_the_latest_of_its_own_source_and_no_termination():
    def called(name, ago, **fields):
        spec = rented_spec(name, **fields.pop("spec", {}))
        return record(S.LAUNCHED, name=name, spec=spec, attempted_at=NOW - seconds(ago), **fields)

    first, last = called("a", 30), called("b", 10)
    other = called("c", 1, spec={"node_class_name": "other"})
    ended = called("d", 2, termination_attempts=1)
    seen = snapshot(fresh(1), first, last, other, ended, launch_interval=seconds(12))

    assert postponed_calls(seen, _launches(seen)) == ({"gi-01"}, NOW + seconds(3))


def _launches(seen):
    return [
        Launch(record=each, reason=Reason.LAUNCH_STARTED, sentence="s", status=each.status)
        for each in seen.records
        if each.metadata.name == "gi-01"
    ]
