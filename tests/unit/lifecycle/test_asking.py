"""Requested and Launching: intent before money, and never two for one need."""

import pytest
from msgspec.structs import replace

from forebay.lifecycle.next_step import look_again, next_step
from forebay.lifecycle.steps import Launch, WriteStatus
from forebay.model.sources import InstancePhase
from tests.unit.lifecycle.scenes import (
    IDEMPOTENT,
    NOW,
    RENTED,
    R,
    S,
    after,
    facts,
    fresh_record,
    instance,
    listed,
    minutes,
    record,
    seconds,
)


def test_an_intent_is_acted_on_at_once():
    step = next_step(facts(fresh_record()), NOW)

    assert isinstance(step, Launch)
    status = step.status
    assert (status.state, status.attempt, status.attempted_at) == (S.LAUNCHING, 1, NOW)
    assert status.billed_from == NOW, "from the first call on it may cost money"
    assert status.deadline == NOW + RENTED.launch_deadline
    assert [each.state for each in status.transitions] == [S.REQUESTED, S.LAUNCHING]
    assert "a100x2 in us-east of simulated" in step.sentence
    assert "team/train" in step.sentence


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"wanted": False}, R.NOT_NEEDED, id="nobody waits any more"),
        pytest.param({"pool_exists": False}, R.POOL_GONE, id="its pool is gone"),
    ],
)
def test_an_intent_without_a_future_ends_before_anything_was_asked(fields, reason):
    step = next_step(facts(fresh_record(), **fields), NOW)

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.status.reason) == (S.GONE, reason)
    assert step.status.billed_from is None
    assert "before anything was started" in step.sentence


def test_a_deleted_intent_ends_even_when_its_provider_is_no_longer_configured():
    step = next_step(replace(facts(fresh_record(deleting=True)), capabilities=None), NOW)

    assert (step.status.state, step.status.reason) == (S.GONE, R.DELETED)


def test_after_a_refusal_that_passes_the_provider_is_left_in_peace_for_a_while():
    resting = facts(record(not_before=NOW + seconds(10), attempt=1))

    assert next_step(resting, NOW) is None
    assert look_again(resting, NOW) == NOW + seconds(10)
    again = next_step(resting, NOW + seconds(10))
    assert isinstance(again, Launch)
    assert again.status.attempt == 2


def test_a_record_of_something_found_is_never_launched():
    """It was created a moment before the crash that kept its status from being written."""
    bare = fresh_record()
    bare.spec = replace(bare.spec, pods=(), offer=None)

    assert next_step(facts(bare, wanted=False), NOW) is None


def test_a_lost_answer_is_resolved_by_the_list_and_the_instance_taken_over():
    lost = record(S.LAUNCHING, since=NOW - minutes(1))
    made = instance("i-9", InstancePhase.STARTING, created=NOW - seconds(50))

    step = next_step(facts(lost, listing=listed(made)), NOW)

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.status.reason) == (S.LAUNCHED, R.ADOPTED)
    assert step.status.instance_id == "i-9"
    assert step.status.hourly_price == "1.29"


def test_of_two_for_one_need_the_oldest_is_kept():
    lost = record(S.LAUNCHING, since=NOW - minutes(1))
    two = (instance("i-b", created=NOW - seconds(20)), instance("i-a", created=NOW - seconds(30)))

    step = next_step(facts(lost, listing=listed(*two)), NOW)

    assert step.status.instance_id == "i-a"


def test_somebody_elses_instance_is_not_taken_over():
    lost = record(S.LAUNCHING, since=NOW - minutes(1))

    assert next_step(facts(lost, listing=listed(instance(owner="uid-other"))), NOW) is None


def test_a_launch_that_no_list_shows_is_asked_for_again_only_after_the_settle_time():
    lost = record(S.LAUNCHING, since=NOW)
    settled = NOW + RENTED.settle_time

    too_early = facts(lost, listing=listed(asked=settled - seconds(1)))
    late_enough = facts(lost, listing=listed(asked=settled + seconds(1)))

    assert next_step(too_early, settled + seconds(5)) is None, "the list was asked for before it had to show anything"
    assert next_step(facts(lost, listing=None), settled + seconds(5)) is None, "no list is not an empty list"
    again = next_step(late_enough, settled + seconds(5))
    assert isinstance(again, Launch)
    assert again.status.attempt == 2
    assert again.status.billed_from == NOW, "the first call may have cost something"


def test_an_idempotent_launch_is_asked_for_again_after_a_pause_and_not_for_ever():
    lost = record(S.LAUNCHING, since=NOW)
    calls = 1
    now = NOW
    for _ in range(20):
        now += seconds(30)
        step = next_step(facts(lost, IDEMPOTENT), now)
        if not isinstance(step, Launch):
            break
        calls += 1
        lost = after(step)

    assert calls == 3
    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.LAUNCH_FAILED)
    assert step.status.failures == 1
    assert "Whatever may have been started is ended" in step.sentence


def test_an_idempotent_launch_waits_before_it_is_repeated():
    lost = record(S.LAUNCHING, since=NOW)

    assert next_step(facts(lost, IDEMPOTENT), NOW + seconds(4)) is None
    assert look_again(facts(lost, IDEMPOTENT), NOW) == NOW + seconds(5)


def test_a_launch_that_cannot_be_found_out_about_is_given_up_in_time_and_watched_for():
    lost = record(S.LAUNCHING, since=NOW)
    late = NOW + RENTED.launch_deadline

    assert next_step(facts(lost), late - seconds(1)) is None
    step = next_step(facts(lost), late)

    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.LAUNCH_TIMEOUT)
    assert step.status.failures == 1


@pytest.mark.parametrize(
    ("deleting", "fields", "reason"),
    [
        pytest.param(True, {}, R.DELETED, id="deleted"),
        pytest.param(False, {"wanted": False}, R.NOT_NEEDED, id="not wanted"),
        pytest.param(False, {"pool_exists": False}, R.POOL_GONE, id="pool gone"),
    ],
)
def test_what_may_have_been_started_is_made_sure_of_before_it_is_forgotten(deleting, fields, reason):
    step = next_step(facts(record(S.LAUNCHING, deleting=deleting), **fields), NOW)

    assert (step.status.state, step.status.reason) == (S.TERMINATING, reason)


def test_an_owned_machine_that_is_on_already_is_not_switched_on_again():
    wanted = record(owned=True)
    on = listed(instance("gpu-1", owner=None))

    step = next_step(facts(wanted, listing=on), NOW + seconds(30))

    assert (step.status.state, step.status.reason) == (S.LAUNCHED, R.ADOPTED)


def test_an_old_list_is_no_sign_that_a_machine_is_still_on():
    wanted = record(owned=True)
    long_ago = listed(instance("gpu-1", owner=None), asked=NOW - minutes(30))

    assert isinstance(next_step(facts(wanted, listing=long_ago), NOW), Launch)


def test_a_machine_that_is_just_going_off_is_waited_for():
    wanted = record(owned=True)
    ending = listed(instance("gpu-1", InstancePhase.ENDING, owner=None))

    assert next_step(facts(wanted, listing=ending), NOW) is None
    assert look_again(facts(wanted, listing=ending), NOW) == NOW + seconds(5)


def test_a_machine_that_is_off_is_switched_on():
    off = listed(instance("gpu-1", InstancePhase.STOPPED, owner=None))

    assert isinstance(next_step(facts(record(owned=True), listing=off), NOW), Launch)


@pytest.mark.parametrize("owned", [True, False])
def test_what_was_not_asked_for_yet_is_not_waited_for_when_its_provider_is_taken_away(owned):
    step = next_step(replace(facts(record(owned=owned)), capabilities=None), NOW)

    assert (step.status.state, step.status.reason) == (S.GONE, R.PROVIDER_NOT_CONFIGURED)
    assert step.status.failures is None, "it may be asked for as soon as it is configured again"


@pytest.mark.parametrize("state", [S.LAUNCHING, S.LAUNCHED, S.READY, S.DRAINING, S.TERMINATING])
def test_without_its_provider_a_record_says_once_what_to_do_and_moves_no_further(state):
    orphaned = replace(facts(record(state), drain_settle=seconds(0)), capabilities=None)

    step = next_step(orphaned, NOW + minutes(60))

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.status.reason) == (state, R.PROVIDER_NOT_CONFIGURED)
    assert "GPUNodeClass cheap is no longer configured" in step.sentence
    assert "Configure it again" in step.sentence
    told = replace(orphaned, record=after(step))
    assert next_step(told, NOW + minutes(90)) is None
    back = next_step(replace(told, capabilities=RENTED), NOW + minutes(91))
    assert back.status.reason == orphaned.record.status.reason, "and the remark goes when the provider is back"
