"""What has just failed is left alone, also after a restart."""

import pytest

from forebay.lifecycle.cooldown import cooldowns, failures_so_far, offer_key
from forebay.model.sources import OfferKey
from tests.unit.lifecycle.scenes import NOW, R, S, minutes, record, seconds

KEY = OfferKey("simulated", "a100x2", "us-east", "", False)


def failed(failures, because=R.LAUNCH_REJECTED, state=S.GONE, **fields):
    return record(state, because=because, failures=failures, **fields)


@pytest.mark.parametrize(("failures", "wait"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (40, 60)])
def test_the_wait_doubles_with_each_failure_up_to_an_hour(failures, wait):
    one = [failed(failures)]

    assert cooldowns(one, NOW)[KEY].until == NOW + minutes(wait)
    assert KEY in cooldowns(one, NOW + minutes(wait) - seconds(1))
    assert cooldowns(one, NOW + minutes(wait)) == {}


def test_missing_stock_says_nothing_about_the_next_time():
    assert cooldowns([failed(6, R.NO_CAPACITY)], NOW)[KEY].until == NOW + minutes(5)


def test_the_wait_begins_with_the_failure_and_not_with_the_proof_that_nothing_is_left():
    going = failed(1, R.JOIN_TIMEOUT, S.TERMINATING)

    assert cooldowns([going], NOW + minutes(4))[KEY].until == NOW + minutes(5)


def test_the_sentence_says_what_failed_when_and_how_long_it_is_left_alone():
    sentence = cooldowns([failed(1)], NOW + minutes(2))[KEY].sentence

    assert sentence == "pool-abc failed 2m ago (LaunchRejected); used again in 3m."


@pytest.mark.parametrize(
    "fine",
    [record(S.READY), record(S.GONE), record(S.LAUNCHING, failures=3), record(S.GONE, failures=2)],
    ids=["ready", "gone after good service", "being tried", "not needed any more"],
)
def test_what_has_not_failed_does_not_cool_down(fine):
    assert cooldowns([fine], NOW) == {}


def test_the_latest_end_of_several_counts():
    both = [failed(1, name="a"), failed(2, name="b")]

    assert cooldowns(both, NOW)[KEY].until == cooldowns(both[::-1], NOW)[KEY].until == NOW + minutes(10)


def test_each_machine_cools_down_by_itself():
    owned = failed(1, owned=True)

    assert set(cooldowns([owned], NOW)) == {OfferKey("webhook", "gpu-1", "", "", False)}


def test_a_new_record_goes_on_counting_where_the_last_one_ended():
    first, second = failed(1, since=NOW - minutes(20), name="a"), failed(2, name="b")

    assert failures_so_far([first, second], KEY) == 2
    assert failures_so_far([first, second, record(S.READY, since=NOW + minutes(1), name="c")], KEY) == 0
    assert failures_so_far([], KEY) == 0
    assert offer_key(first) == KEY
