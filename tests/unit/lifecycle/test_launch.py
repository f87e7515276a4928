"""Launch: the record comes before the call, and one record never brings two instances."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import ResourceLifetime, SecondaryResource
from forebay.lifecycle.cooldown import cooldowns
from forebay.lifecycle.steps import Launch, WriteStatus
from forebay.model.sources import FailureScope, InstancePhase, SourceKey
from tests.unit.lifecycle.builders import (
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
    next_step,
    owned_spec,
    record,
    requeue_at,
    seconds,
)


def test_a_request_is_launched_at_once():
    step = next_step(facts(fresh_record()), NOW)

    assert isinstance(step, Launch)
    status = step.status
    assert (status.state, status.attempt, status.attempted_at) == (S.LAUNCHING, 1, NOW)
    assert status.billed_from == NOW, "from the first call on it may cost money"
    assert status.deadline == NOW + RENTED.launch_deadline
    assert [each.state for each in status.transitions] == [S.REQUESTED, S.LAUNCHING]
    assert "Launching a100x2 in us-east at simulated" in step.sentence
    assert "team/train" in step.sentence


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"wanted": False}, R.NOT_NEEDED, id="no pod is pending any more"),
        pytest.param({"pool_exists": False}, R.POOL_GONE, id="its pool is gone"),
    ],
)
def test_a_request_that_is_not_needed_any_more_ends_before_anything_is_launched(fields, reason):
    step = next_step(facts(fresh_record(), **fields), NOW)

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.status.reason) == (S.GONE, reason)
    assert step.status.billed_from is None
    assert "before anything was started" in step.sentence


def test_a_deleted_request_ends_even_when_its_provider_is_no_longer_configured():
    step = next_step(replace(facts(fresh_record(deleting=True)), capabilities=None), NOW)

    assert (step.status.state, step.status.reason) == (S.GONE, R.DELETED)


def test_after_a_transient_failure_the_launch_waits_for_its_backoff():
    waiting = facts(record(not_before=NOW + seconds(10), attempt=1))

    assert next_step(waiting, NOW) is None
    assert requeue_at(waiting, NOW) == NOW + seconds(10)
    again = next_step(waiting, NOW + seconds(10))
    assert isinstance(again, Launch)
    assert again.status.attempt == 2


def test_the_record_of_an_adopted_instance_is_never_launched():
    """A crash kept its status from being written just after it was created."""
    bare = fresh_record()
    bare = replace(bare, spec=replace(bare.spec, pods=(), offer=None))

    assert next_step(facts(bare, wanted=False), NOW) is None


def test_a_lost_answer_is_resolved_by_the_listing_and_the_instance_adopted():
    lost = record(S.LAUNCHING, since=NOW - minutes(1))
    made = instance("i-9", InstancePhase.STARTING, created=NOW - seconds(50))

    step = next_step(facts(lost, listing=listed(made)), NOW)

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.status.reason) == (S.LAUNCHED, R.ADOPTED)
    assert step.status.instance_id == "i-9"
    assert step.status.hourly_price == "1.29"


def test_of_two_instances_of_one_record_the_oldest_is_adopted():
    lost = record(S.LAUNCHING, since=NOW - minutes(1))
    two = (instance("i-b", created=NOW - seconds(20)), instance("i-a", created=NOW - seconds(30)))

    step = next_step(facts(lost, listing=listed(*two)), NOW)

    assert step.status.instance_id == "i-a"


def test_an_instance_of_another_record_is_not_adopted():
    lost = record(S.LAUNCHING, since=NOW - minutes(1))

    assert next_step(facts(lost, listing=listed(instance(owner="uid-other"))), NOW) is None


def test_a_launch_that_no_listing_shows_is_repeated_only_after_the_settle_time():
    lost = record(S.LAUNCHING, since=NOW)
    settled = NOW + RENTED.settle_time

    too_early = facts(lost, listing=listed(asked=settled - seconds(1)))
    late_enough = facts(lost, listing=listed(asked=settled + seconds(1)))

    assert next_step(too_early, settled + seconds(5)) is None, "the listing is older than the settle time"
    assert next_step(facts(lost, listing=None), settled + seconds(5)) is None, "no listing is not an empty listing"
    again = next_step(late_enough, settled + seconds(5))
    assert isinstance(again, Launch)
    assert again.status.attempt == 2
    assert again.status.billed_from == settled + seconds(5), "the first call started nothing, so it cost nothing"


def test_the_settle_time_of_a_repeated_launch_counts_from_its_own_call():
    repeated = NOW + RENTED.settle_time
    lost = record(S.LAUNCHING, since=NOW, attempt=2, attempted_at=repeated)
    too_early = facts(lost, listing=listed(asked=repeated + seconds(1)))

    assert next_step(too_early, repeated + seconds(2)) is None, "a listing so soon need not show the machine yet"


def test_after_two_lost_answers_the_pods_of_a_rented_machine_are_served_by_another_provider():
    """Each takes minutes to find out about; the offers of the same provider would take as long."""
    lost = record(S.LAUNCHING, since=NOW)
    for call in (1, 2):
        asked = NOW + call * (RENTED.settle_time + seconds(2))
        step = next_step(facts(lost, listing=listed(asked=asked)), asked)
        lost = after(step)

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.status.reason, step.status.attempt) == (S.TERMINATING, R.LAUNCH_FAILED, 2)
    assert (step.status.failures, step.status.failure_scope) == (1, FailureScope.SOURCE)
    source = SourceKey(lost.spec.node_class_name or "", lost.spec.provider)
    assert cooldowns([lost], asked)[source].until == NOW + minutes(5), "counted from the first call"


def test_an_idempotent_launch_is_repeated_after_a_backoff_and_not_for_ever():
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
    assert "3 calls without a known outcome" in step.sentence


def test_an_idempotent_launch_is_not_repeated_before_its_backoff():
    lost = record(S.LAUNCHING, since=NOW)

    assert next_step(facts(lost, IDEMPOTENT), NOW + seconds(4)) is None
    repeated = next_step(facts(lost, IDEMPOTENT), NOW + seconds(30))
    assert repeated.status.billed_from == NOW, "the first call may have started it"
    assert requeue_at(facts(lost, IDEMPOTENT), NOW) == NOW + seconds(5)


def test_a_launch_with_join_credentials_is_resolved_by_listing_although_it_is_idempotent():
    """The machine of the first call has the first call's credentials, which a second call would revoke."""
    token = SecondaryResource(kind="BootstrapToken", name="abcdef", attempt=1, until=ResourceLifetime.JOINED)
    lost = record(S.LAUNCHING, since=NOW, attempt=1, secondary_resources=(token,))
    settled = NOW + IDEMPOTENT.settle_time

    assert next_step(facts(lost, IDEMPOTENT), NOW + seconds(30)) is None
    found = next_step(facts(lost, IDEMPOTENT, listing=listed(instance(), asked=NOW + seconds(5))), NOW + seconds(6))
    assert (found.status.state, found.status.reason, found.status.attempt) == (S.LAUNCHED, R.ADOPTED, 1)
    again = next_step(facts(lost, IDEMPOTENT, listing=listed(asked=settled + seconds(1))), settled + seconds(2))
    assert isinstance(again, Launch)
    assert again.status.attempt == 2


def test_a_launch_whose_outcome_stays_unknown_is_terminated_at_its_deadline():
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
        pytest.param(False, {"class_exists": False}, R.POOL_GONE, id="class gone"),
    ],
)
def test_a_launch_with_an_unknown_outcome_is_terminated_when_it_is_not_needed_any_more(deleting, fields, reason):
    step = next_step(facts(record(S.LAUNCHING, deleting=deleting), **fields), NOW)

    assert (step.status.state, step.status.reason) == (S.TERMINATING, reason)


def test_an_owned_machine_that_is_already_on_is_adopted_and_not_powered_on_again():
    wanted = record(owned=True)
    on = listed(instance("gpu-1", owner=None))

    step = next_step(facts(wanted, listing=on), NOW + seconds(30))

    assert (step.status.state, step.status.reason) == (S.LAUNCHED, R.ADOPTED)
    assert step.sentence.startswith("gpu-1 is already on.")


def test_an_owned_machine_is_called_by_its_own_name_whatever_its_record_is_called():
    wanted = record(owned=True, name="gpu-1-again", spec=owned_spec())

    step = next_step(facts(wanted, listing=listed(instance("gpu-1", owner=None))), NOW + seconds(30))

    assert step.sentence.startswith("gpu-1 is already on.")


def test_an_old_listing_does_not_show_that_a_machine_is_on():
    wanted = record(owned=True)
    long_ago = listed(instance("gpu-1", owner=None), asked=NOW - minutes(30))

    assert isinstance(next_step(facts(wanted, listing=long_ago), NOW), Launch)


def test_a_machine_that_is_powering_off_is_waited_for():
    wanted = record(owned=True)
    ending = listed(instance("gpu-1", InstancePhase.ENDING, owner=None))

    assert next_step(facts(wanted, listing=ending), NOW) is None
    assert requeue_at(facts(wanted, listing=ending), NOW) == NOW + seconds(5)


def test_a_machine_that_is_off_is_powered_on():
    off = listed(instance("gpu-1", InstancePhase.STOPPED, owner=None))

    assert isinstance(next_step(facts(record(owned=True), listing=off), NOW), Launch)


@pytest.mark.parametrize("owned", [True, False])
def test_a_request_ends_when_its_provider_is_no_longer_configured(owned):
    step = next_step(replace(facts(record(owned=owned)), capabilities=None), NOW)

    assert (step.status.state, step.status.reason) == (S.GONE, R.PROVIDER_NOT_CONFIGURED)
    assert step.status.failures is None, "it may be launched as soon as it is configured again"


@pytest.mark.parametrize("state", [S.LAUNCHING, S.LAUNCHED, S.READY, S.DRAINING, S.TERMINATING])
def test_without_its_provider_a_record_says_once_what_to_do_and_keeps_its_state(state):
    unconfigured = replace(facts(record(state), cordon_wait=seconds(0)), capabilities=None)

    step = next_step(unconfigured, NOW + minutes(60))

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.status.reason) == (state, R.PROVIDER_NOT_CONFIGURED)
    assert "GPUNodeClass cheap is no longer configured" in step.sentence
    assert "Configure the provider again" in step.sentence
    written = replace(unconfigured, record=after(step))
    assert next_step(written, NOW + minutes(90)) is None
    back = next_step(replace(written, capabilities=RENTED), NOW + minutes(91))
    assert back.status.reason == unconfigured.record.status.reason, "the message is restored when the provider is back"
