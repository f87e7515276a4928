"""Offers that failed cool down, also after a restart."""

import pytest

from forebay.lifecycle.cooldown import cooldowns, failures_so_far, offer_key
from forebay.model.sources import OfferKey
from tests.unit.lifecycle.builders import NOW, R, S, minutes, record, seconds

KEY = OfferKey("simulated", "a100x2", "us-east", "", False)


def failed(failures, because=R.LAUNCH_REJECTED, state=S.GONE, **fields):
    return record(state, because=because, failures=failures, **fields)


@pytest.mark.parametrize(("failures", "wait"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (40, 60)])
def test_the_cooldown_doubles_with_each_failure_up_to_an_hour(failures, wait):
    one = [failed(failures)]

    assert cooldowns(one, NOW)[KEY].until == NOW + minutes(wait)
    assert KEY in cooldowns(one, NOW + minutes(wait) - seconds(1))
    assert cooldowns(one, NOW + minutes(wait)) == {}


def test_missing_capacity_does_not_make_the_cooldown_grow():
    assert cooldowns([failed(6, R.NO_CAPACITY)], NOW)[KEY].until == NOW + minutes(5)


def test_the_cooldown_begins_with_the_failure_and_not_with_the_proof_of_absence():
    terminating = failed(1, R.JOIN_TIMEOUT, S.TERMINATING)

    assert cooldowns([terminating], NOW + minutes(4))[KEY].until == NOW + minutes(5)


def test_the_sentence_says_what_failed_when_and_when_the_next_attempt_is():
    sentence = cooldowns([failed(1)], NOW + minutes(2))[KEY].sentence

    assert sentence == "pool-abc failed 2m ago (LaunchRejected); next attempt in 3m."


@pytest.mark.parametrize(
    "fine",
    [record(S.READY), record(S.GONE), record(S.LAUNCHING, failures=3), record(S.GONE, failures=2)],
    ids=["ready", "terminated when idle", "launching", "gone for another reason"],
)
def test_an_offer_that_has_not_failed_does_not_cool_down(fine):
    assert cooldowns([fine], NOW) == {}


def test_of_several_cooldowns_the_latest_end_counts():
    both = [failed(1, name="a"), failed(2, name="b")]

    assert cooldowns(both, NOW)[KEY].until == cooldowns(both[::-1], NOW)[KEY].until == NOW + minutes(10)


def test_each_machine_cools_down_by_itself():
    owned = failed(1, owned=True)

    assert set(cooldowns([owned], NOW)) == {OfferKey("webhook", "gpu-1", "", "", False)}


def test_a_new_record_starts_with_the_failures_of_the_last_one():
    first, second = failed(1, since=NOW - minutes(20), name="a"), failed(2, name="b")

    assert failures_so_far([first, second], KEY) == 2
    assert failures_so_far([first, second, record(S.READY, since=NOW + minutes(1), name="c")], KEY) == 0
    assert failures_so_far([], KEY) == 0
    assert offer_key(first) == KEY
