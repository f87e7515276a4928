"""The profile of use over time, after hours that have left every window are dropped."""

import pytest

from forebay.budgets.ledger.profile import Profile
from forebay.budgets.usage import MICROSECONDS

HOUR = 3600


def used(profile, start, end):
    """Between two seconds, in rate-seconds."""
    return profile.between(start * MICROSECONDS, end * MICROSECONDS) / MICROSECONDS


@pytest.fixture
def profile():
    found = Profile()
    found.change(100, 8)
    found.change(5 * HOUR, -3)
    found.ended(2 * HOUR)
    found.ended(7 * HOUR)
    return found


def test_what_runs_on_from_before_the_dropped_hours_still_counts(profile):
    before = used(profile, 3 * HOUR, 8 * HOUR)
    profile.forget_before(3 * HOUR)
    assert used(profile, 3 * HOUR, 8 * HOUR) == before == 8 * 2 * HOUR + 5 * 3 * HOUR
    assert profile.rate(8 * HOUR * MICROSECONDS) == 5
    assert profile.ends_after(3 * HOUR * MICROSECONDS) == 1


def test_what_ended_before_the_dropped_hours_leaves_nothing(profile):
    profile.change(6 * HOUR, -5)
    profile.forget_before(7 * HOUR)
    assert profile.changes == {}
    assert used(profile, 7 * HOUR, 9 * HOUR) == 0


def test_a_change_before_the_dropped_hours_counts_from_their_end(profile):
    profile.forget_before(3 * HOUR)
    profile.change(HOUR, 1)
    assert used(profile, 3 * HOUR, 4 * HOUR) == 9 * HOUR


def test_of_pods_that_ended_at_the_end_of_the_dropped_hours_or_before_only_the_former_count(profile):
    profile.forget_before(3 * HOUR)
    profile.ended(3 * HOUR)
    profile.ended(3 * HOUR - 1)
    assert profile.ends_after((3 * HOUR - 2) * MICROSECONDS) == 2


def test_the_window_holds_most_when_little_leaves_it_while_pods_run_on():
    found = Profile()
    found.change(0, 8)
    found.change(HOUR // 2, -8)
    found.change(9 * HOUR, 4)
    now, window = 10 * HOUR * MICROSECONDS, 10 * HOUR * MICROSECONDS
    # 8 leave for half an hour while 4 come, and then none: half an hour of 8, an hour of 4, and what comes meanwhile.
    held = (8 * HOUR // 2 + 4 * HOUR) * MICROSECONDS
    assert found.peak(now, window, HOUR // 4 * MICROSECONDS) == held
    assert found.peak(now, window, 2 * HOUR * MICROSECONDS) == held + (4 * 2 - 4) * HOUR * MICROSECONDS


@pytest.mark.parametrize(("after", "count"), [(-1, 6), (0, 5), (3, 2), (4, 1), (5, 0)])
def test_ends_are_counted_from_either_side(after, count):
    found = Profile()
    for hour in range(6):
        found.ended(hour * HOUR)
    assert found.ends_after(after * HOUR * MICROSECONDS) == count


def test_a_window_that_holds_exactly_the_amount_falls_below_it_a_second_after_the_first_use_leaves():
    found = Profile()
    found.change(0, 8)
    found.change(HOUR, -8)
    now, window, held = 5 * HOUR * MICROSECONDS, 10 * HOUR * MICROSECONDS, 8 * HOUR * MICROSECONDS
    assert found.falls_below(held, now, window) == (10 * HOUR + 1) * MICROSECONDS
    assert found.falls_below(held + 1, now, window) == now


def test_an_end_that_is_taken_back_is_not_stored():
    found = Profile()
    found.ended(100)
    found.ended(200)
    found.ended(100, -1)
    assert found.ends == {200: 1}
