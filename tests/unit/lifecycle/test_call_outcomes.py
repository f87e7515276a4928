"""What a provider's answer means for the record."""

import pytest
from msgspec.structs import replace

from forebay.api.parts import Truth
from forebay.lifecycle.call_outcomes import (
    instance_found,
    launch_failed,
    launch_prevented,
    launch_succeeded,
    termination_accepted,
    termination_failed,
)
from forebay.model.sources import Capabilities, Delivery, Failure, FailureKind, InstancePhase
from tests.unit.lifecycle.builders import (
    IDEMPOTENT,
    NOW,
    OWNED,
    RENTED,
    R,
    S,
    condition_of,
    instance,
    minutes,
    record,
    seconds,
)

LATER = NOW + seconds(7)


def failure(kind, **fields):
    return Failure(kind=kind, sentence="The provider condition_of so.", **fields)


def test_an_accepted_launch_is_known_by_its_id_and_price():
    status = launch_succeeded(
        record(S.LAUNCHING), instance(phase=InstancePhase.STARTING, provider_id="sim://i-1"), LATER, RENTED
    )

    assert (status.state, status.reason) == (S.LAUNCHED, R.LAUNCH_ACCEPTED)
    assert (status.instance_id, status.provider_id, status.hourly_price) == ("i-1", "sim://i-1", "1.29")
    assert status.billed_from == NOW, "from the call on"
    assert status.node_name == "pool-abc"
    assert status.deadline == LATER + RENTED.launch_deadline


def test_a_machine_found_in_a_listing_is_the_node_that_it_was_told_to_register_as():
    """Google's names begin with a letter, and Lambda may list an address as the host name: the node has neither."""
    found = instance(node_name="n-4090-pool-abc")
    status = instance_found(record(S.LAUNCHING), found, R.ADOPTED, "Found.", LATER, RENTED)
    assert status.node_name == "pool-abc"


def test_a_launch_that_runs_at_once_has_the_whole_time_to_register():
    status = launch_succeeded(record(S.LAUNCHING), instance(), LATER, IDEMPOTENT)

    assert condition_of(status, "MachineRunning").status is Truth.TRUE
    assert status.deadline == LATER + IDEMPOTENT.join_deadline


def test_a_machines_boot_deadline_counts_from_the_power_on_call():
    status = launch_succeeded(record(S.LAUNCHING, owned=True), instance("gpu-1", InstancePhase.STARTING), LATER, OWNED)

    assert status.deadline == NOW + minutes(15)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FailureKind.NO_CAPACITY, R.NO_CAPACITY),
        (FailureKind.REJECTED, R.LAUNCH_REJECTED),
        (FailureKind.BAD_CREDENTIALS, R.BAD_CREDENTIALS),
        (FailureKind.GONE, R.LAUNCH_REJECTED),
    ],
)
def test_a_refusal_ends_the_record_and_nothing_was_billed(kind, reason):
    status = launch_failed(record(S.LAUNCHING, failures=1), failure(kind), LATER)

    assert (status.state, status.reason, status.failures) == (S.GONE, reason, 2)
    assert (status.billed_from, status.billed_until) == (None, None)
    assert status.message.startswith("Launch of a100x2 in us-east at simulated failed: The provider condition_of so.")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(FailureKind.RATE_LIMITED, R.RATE_LIMITED), (FailureKind.UNAVAILABLE, R.PROVIDER_UNAVAILABLE)],
)
def test_a_transient_failure_is_retried_and_after_three_attempts_ends_the_record(kind, reason):
    first = launch_failed(record(S.LAUNCHING), failure(kind), NOW)
    slowed = launch_failed(record(S.LAUNCHING), failure(kind, retry_after=minutes(1)), NOW)
    released = launch_failed(record(S.LAUNCHING), failure(kind, retry_after=seconds(61)), NOW)
    third = launch_failed(record(S.LAUNCHING, attempt=3), failure(kind), NOW)

    assert (first.state, first.reason, first.not_before) == (S.REQUESTED, reason, NOW + seconds(5))
    assert first.billed_from is None
    assert slowed.not_before == NOW + minutes(1), "as the provider asks"
    assert (released.state, released.reason, released.failures) == (S.GONE, reason, 1), "pods do not wait so long"
    assert "the provider asks to wait for 61s" in released.message
    assert (third.state, third.reason, third.failures) == (S.GONE, reason, 1)


def test_an_unknown_outcome_leaves_the_record_in_launching():
    status = launch_failed(record(S.LAUNCHING), failure(FailureKind.OUTCOME_UNKNOWN), NOW)

    assert (status.state, status.reason) == (S.LAUNCHING, R.OUTCOME_UNKNOWN)
    assert status.billed_from == NOW, "it may cost money"
    assert status.not_before == NOW + seconds(5)


def test_an_answer_that_comes_after_the_timeout_still_tells_what_to_terminate():
    lost = record(S.TERMINATING, because=R.LAUNCH_FAILED, instance_id=None)

    status = launch_succeeded(lost, instance("i-late"), LATER)

    assert (status.state, status.instance_id) == (S.TERMINATING, "i-late")


@pytest.mark.parametrize("state", [S.READY, S.GONE])
def test_an_answer_that_comes_too_late_changes_nothing(state):
    past = record(state)

    assert launch_succeeded(past, instance("i-late"), LATER) == past.status
    assert launch_failed(past, failure(FailureKind.NO_CAPACITY), LATER) == past.status
    assert termination_accepted(past, LATER) == past.status
    assert termination_failed(past, failure(FailureKind.UNAVAILABLE), LATER) == past.status


def test_an_accepted_termination_is_recorded_and_absences_count_from_there():
    going = record(S.TERMINATING, absences=1, absent_since=NOW, absent_at=NOW)

    status = termination_accepted(going, LATER)

    assert (status.state, status.reason) == (S.TERMINATING, R.TERMINATION_STARTED)
    assert status.termination_accepted_at == LATER
    assert status.absences is None
    assert status.billed_until is None
    gone = termination_failed(going, failure(FailureKind.GONE), LATER)
    assert gone == replace(status, absences=1, absent_since=NOW, absent_at=NOW), (
        "nothing left to terminate is as good, and what listings showed before still tells when it ended"
    )


def test_an_instance_that_no_listing_has_shown_may_be_too_new_for_its_provider_to_know_it():
    gone, rented = failure(FailureKind.GONE), Capabilities(deliveries=(Delivery.NODE,))
    fresh = record(S.TERMINATING, because=R.LAUNCH_TIMEOUT, termination_attempts=1)

    told = termination_failed(fresh, gone, NOW + seconds(119), rented)
    assert (told.termination_accepted_at, told.reason) == (None, R.TERMINATION_FAILED)
    assert told.not_before == NOW + seconds(121), "tried again, whoever leads by then"
    assert termination_failed(fresh, gone, NOW + seconds(120), rented).termination_accepted_at is not None
    known = record(S.TERMINATING, because=R.LAUNCH_TIMEOUT, listed_at=NOW)
    assert termination_failed(known, gone, NOW + seconds(5), rented).termination_accepted_at is not None
    registered = record(S.TERMINATING, because=R.IDLE)
    assert termination_failed(registered, gone, NOW + seconds(5), rented).termination_accepted_at is not None
    never = record(S.TERMINATING, because=R.LAUNCH_FAILED, billed_from=None)
    assert termination_failed(never, gone, NOW + seconds(5), rented).termination_accepted_at is not None


@pytest.mark.parametrize(("attempt", "left"), [(None, None), (1, None), (3, 2)])
def test_a_launch_that_was_prevented_does_not_count_as_a_call(attempt, left):
    launching = record(S.LAUNCHING, attempt=attempt)
    assert launch_prevented(launching, "its Secret is missing.", NOW, pod_lost=False).attempt == left
    assert launch_prevented(launching, "its pod is gone.", NOW, pod_lost=True).attempt == left


@pytest.mark.parametrize(("attempts", "wait"), [(None, minutes(2)), (1, minutes(2)), (20, minutes(5))])
def test_a_termination_that_is_accepted_again_and_again_without_effect_is_repeated_more_rarely(attempts, wait):
    status = termination_accepted(record(S.TERMINATING, termination_attempts=attempts), NOW)
    assert status.not_before == NOW + wait


def test_a_failed_termination_says_when_it_is_tried_again():
    going = record(S.TERMINATING, termination_attempts=4)

    status = termination_failed(going, failure(FailureKind.OUTCOME_UNKNOWN), NOW)
    patient = termination_failed(going, failure(FailureKind.RATE_LIMITED, retry_after=minutes(10)), NOW)

    assert status.not_before == NOW + seconds(16)
    assert "Trying again in 16s" in status.message
    assert patient.not_before == NOW + minutes(5), "it costs money meanwhile"
    assert status.termination_accepted_at is None


def test_an_accepted_termination_says_until_when_billing_continues():
    owned = termination_accepted(record(S.TERMINATING, owned=True), NOW)
    rented = termination_accepted(record(S.TERMINATING), NOW)

    assert owned.message == "Power-off of gpu-1 accepted. Billing continues until node gpu-1 is NotReady."
    assert rented.message == (
        "Termination of a100x2 in us-east at simulated accepted. "
        "Billing continues until it is missing from 2 consecutive listings of simulated."
    )


def test_billing_begins_when_the_provider_says_else_with_the_call_else_now():
    first_call = NOW - seconds(40)

    def begins(created, called):
        made = record(S.LAUNCHING, since=first_call, billed_from=called)
        return instance_found(made, instance(created=created), R.ADOPTED, "s", LATER).billed_from

    early, call = NOW - seconds(30), NOW - seconds(10)
    assert begins(early, call) == early, "it was the call before that brought it"
    assert begins(None, call) == call
    assert begins(None, None) == LATER
    # Clocks of providers may be wrong; the end is counted by ours.
    assert begins(first_call - minutes(60), call) == first_call
    assert begins(LATER + minutes(60), call) == LATER
