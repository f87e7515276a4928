"""Intervals of one pod in a ledger: rates that change, and what the pod has used in a window."""

from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import Interval
from tests.unit.budgets.factories import MICRO


def test_a_new_rate_counts_from_the_change_and_never_from_before_the_start():
    ledger = Ledger("owner")
    ledger.begin("pod", 50, 1000, 50)

    ledger.begin("pod", 50, 2000, 40)
    assert ledger.intervals("pod") == (Interval(50, None, 2000),), "the change was seen by a clock that was behind"

    ledger.begin("pod", 50, 3000, 80)
    assert ledger.intervals("pod") == (Interval(50, 80, 2000), Interval(80, None, 3000))


def test_a_pod_has_used_what_lies_in_the_window_up_to_now():
    ledger = Ledger("owner")
    ledger.record("pod", 100, 200, 1000)
    ledger.record("other", 100, 200, 1000)
    ledger.begin("pod", 300, 2000, 300)

    def used(now, window):
        return ledger.consumed_by("pod", now * MICRO, window * MICRO) / MICRO

    assert used(310, 1000) == 100 * 1000 + 10 * 2000
    assert used(310, 150) == 40 * 1000 + 10 * 2000
    assert used(150, 1000) == 50 * 1000
    assert used(50, 1000) == 0
    assert ledger.consumed_by("nobody", 310 * MICRO, 1000 * MICRO) == 0


def test_a_copy_brings_what_is_not_stored_yet():
    mine, other = Ledger("budget"), Ledger("budget")
    mine.record("a", 0, 10, 1000)
    other.record("a", 0, 10, 1000)
    other.set_provisional("b", (Interval(20, 30, 1000),))
    mine.merge(other)
    assert mine.consumed(100 * MICRO, 100 * MICRO) == 20 * 1000 * MICRO


def test_a_copy_brings_the_run_that_began_when_the_last_one_ended():
    mine, other = Ledger("budget"), Ledger("budget")
    for each in (mine, other):
        each.record("a", 0, 10, 1000)
    other.begin("a", 10, 1000, 10)
    mine.merge(other)
    mine.merge(other)
    assert mine.consumed(100 * MICRO, 100 * MICRO) == 100 * 1000 * MICRO
