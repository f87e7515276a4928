"""Times that were written by a clock which was ahead: nothing is billed, and nobody waits, until that hour comes."""

from forebay.lifecycle.call_outcomes import termination_accepted, termination_failed
from forebay.lifecycle.cooldown import cooldowns
from forebay.lifecycle.next_step import step_or_wait
from forebay.lifecycle.steps import Launch, Terminate, WriteStatus
from forebay.model.sources import Failure, FailureKind
from tests.unit.lifecycle.builders import NOW, R, S, after, facts, minutes, next_step, record, requeue_at, seconds

AHEAD = minutes(3 * 60)
BROKEN = Failure(kind=FailureKind.UNAVAILABLE, sentence="The cloud answered 500.")


def written(of, status):
    return after(WriteStatus(record=of, reason=R.TERMINATED, sentence="", status=status))


def test_a_termination_that_was_accepted_in_three_hours_is_called_again_and_counts_from_now_on():
    leaving = record(S.TERMINATING)
    later = written(leaving, termination_accepted(leaving, NOW + AHEAD))
    again = next_step(facts(later), NOW)
    assert isinstance(again, Terminate)
    assert again.status.termination_accepted_at is None


def test_a_termination_that_failed_in_three_hours_is_repeated_at_once():
    leaving = record(S.TERMINATING)
    later = written(leaving, termination_failed(leaving, BROKEN, NOW + AHEAD))
    assert isinstance(next_step(facts(later), NOW), Terminate)


def test_the_clock_of_a_replica_that_is_seconds_ahead_changes_nothing():
    leaving = record(S.TERMINATING)
    told = termination_accepted(leaving, NOW + seconds(20))
    assert not isinstance(next_step(facts(written(leaving, told)), NOW), Terminate)
    assert requeue_at(facts(written(leaving, told)), NOW) == told.not_before


def test_a_launch_that_was_to_be_repeated_in_three_hours_is_repeated_now():
    waiting = record(S.REQUESTED, not_before=NOW + AHEAD)
    assert isinstance(step_or_wait(facts(waiting), NOW)[0], Launch)
    soon = record(S.REQUESTED, not_before=NOW + minutes(5))
    assert step_or_wait(facts(soon), NOW) == (None, NOW + minutes(5))


def test_a_failure_of_three_hours_ahead_cools_nothing_down():
    failed = record(S.GONE, because=R.LAUNCH_REJECTED, failures=1, since=NOW + AHEAD)
    assert cooldowns([failed], NOW) == {}
    assert cooldowns([failed], NOW + AHEAD) != {}
