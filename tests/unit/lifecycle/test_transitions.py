"""The transition table, and what each transition writes into the record."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from docs.lifecycle_diagram import STATES, lifecycle_diagram
from forebay.api.parts import Truth
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.rule import RuleContext
from forebay.lifecycle.transitions import TABLE, IllegalTransition, cause, restore_message, transition, with_message
from tests.unit.lifecycle.builders import NOW, RENTED, R, S, condition_of, fresh_record, minutes, record


def test_a_transition_records_state_reason_message_and_time():
    later = NOW + timedelta(seconds=9, microseconds=123)

    status = transition(record(S.JOINED).status, S.READY, R.NODE_READY, "Node n is ready.", later, failures=None)

    assert (status.state, status.reason, status.message) == (S.READY, R.NODE_READY, "Node n is ready.")
    assert status.since == NOW + timedelta(seconds=9), "the API keeps whole seconds"
    assert status.transitions[-1].at == status.since
    assert condition_of(status, "Ready").status is Truth.TRUE
    assert status.instance_id == "i-1", "other fields are kept"


def test_fields_of_the_state_before_are_cleared():
    waiting = record(S.LAUNCHING, deadline=NOW, not_before=NOW)

    status = transition(waiting.status, S.LAUNCHED, R.LAUNCH_ACCEPTED, "Accepted.", NOW)

    assert status.deadline is None
    assert status.not_before is None


@pytest.mark.parametrize(
    ("before", "to", "reason"),
    [
        pytest.param(S.GONE, S.LAUNCHING, R.LAUNCH_STARTED, id="Gone is final"),
        pytest.param(S.TERMINATING, S.READY, R.NODE_READY, id="a termination is not taken back for a healthy node"),
        pytest.param(S.READY, S.GONE, R.TERMINATED, id="not Gone without a termination call"),
        pytest.param(S.READY, S.DRAINING, R.NODE_READY, id="not for any reason"),
        pytest.param(S.READY, S.LAUNCHING, R.LAUNCH_STARTED, id="never launched twice"),
    ],
)
def test_a_transition_that_is_not_in_the_table_raises(before, to, reason):
    with pytest.raises(IllegalTransition, match=f"from {before} to {to}"):
        transition(record(before).status, to, reason, "", NOW)


def test_a_record_without_a_status_counts_as_requested():
    assert transition(None, S.LAUNCHING, R.LAUNCH_STARTED, "", NOW).state is S.LAUNCHING
    with pytest.raises(IllegalTransition):
        transition(None, S.LAUNCHED, R.LAUNCH_ACCEPTED, "", NOW)


def test_of_many_transitions_the_first_and_the_latest_are_kept():
    status = record(S.READY).status
    for turn in range(100):
        at = NOW + timedelta(minutes=turn)
        status = transition(status, S.DRAINING, R.IDLE, f"idle {turn}", at)
        status = transition(status, S.READY, R.BACK_IN_USE, f"back {turn}", at)

    assert len(status.transitions) == 64
    assert status.transitions[0].state is S.REQUESTED
    assert status.transitions[-1].message == "back 99"


def test_a_condition_keeps_its_transition_time_while_it_holds():
    status = record(S.READY).status
    later = NOW + timedelta(hours=1)

    status = transition(status, S.DRAINING, R.IDLE, "", later)
    status = transition(status, S.TERMINATING, R.IDLE, "", later + timedelta(minutes=1))

    assert condition_of(status, "Ready").status is Truth.FALSE
    assert condition_of(status, "Ready").last_transition_time == later


def test_a_message_changes_no_state_and_can_be_restored():
    before = record(S.READY).status

    status = with_message(before, R.DISRUPTION_PAUSED, "Too many at once.")

    assert (status.state, status.reason) == (S.READY, R.DISRUPTION_PAUSED)
    assert status.transitions == before.transitions
    assert cause(status) == R.NODE_READY, "the reason of the transition is kept"
    assert restore_message(status) == before


def test_a_long_error_of_a_provider_is_shortened():
    assert len(transition(None, S.REQUESTED, R.CAPACITY_NEEDED, "x" * 10_000, NOW).message) == 2048


def test_every_state_leads_to_gone():
    reaching = {S.GONE}
    while True:
        more = {state for state, steps in TABLE.items() if state is not None and steps.keys() & reaching} - reaching
        if not more:
            break
        reaching |= more

    assert reaching == set(S)


def test_the_diagram_shows_every_transition():
    page = lifecycle_diagram()

    assert STATES.keys() == set(S), "each state is explained"
    for before, steps in TABLE.items():
        for to, reasons in steps.items():
            assert f"    {before or '[*]'} --> {to}\n" in page
            assert all(f"`{reason}`" in page for reason in reasons)


def test_a_state_lasts_since_it_was_recorded_else_since_the_creation_else_since_now():
    earlier, later = NOW - minutes(9), NOW - minutes(4)
    recorded, created = record(since=later), fresh_record(since=earlier)
    bare = replace(created, metadata=replace(created.metadata, creation_timestamp=None))

    ages = [
        RuleContext(Facts(record=each, capabilities=RENTED), RENTED, NOW).since for each in (recorded, created, bare)
    ]

    assert ages == [later, earlier, NOW]
