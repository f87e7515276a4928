"""Keys of stored costs, and costs by the hour."""

import pytest

from forebay.budgets.bill_keys import HOUR, BillKey, hour_key, merge_adjacent, record_by_hour
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import Interval


@pytest.mark.parametrize(
    "key", [BillKey("team", "lab", "owned"), BillKey("", "", ""), BillKey("team", "", "owned")], ids=str
)
def test_a_key_is_read_from_the_owner_of_its_ledger(key):
    assert BillKey.parse(key.owner) == key


@pytest.mark.parametrize("owner", ["spend team lab", "spend team lab owned more", "uid-of-team-a", "", "usage a b c"])
def test_the_owner_of_another_ledger_is_no_key(owner):
    assert BillKey.parse(owner) is None


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 10, [(0, 0, 10)]),
        (HOUR - 1, HOUR + 1, [(0, HOUR - 1, HOUR), (1, HOUR, HOUR + 1)]),
        (0, 2 * HOUR, [(0, 0, HOUR), (1, HOUR, 2 * HOUR)]),
        (2 * HOUR + 5, 2 * HOUR + 5, []),
    ],
)
def test_the_cost_of_a_machine_is_recorded_in_whole_hours_of_the_clock(start, end, expected):
    ledger = Ledger("owner")

    record_by_hour(ledger, "m1", Interval(start, end, 7))

    for hour in range(4):
        mine = tuple(Interval(begun, ended, 7) for at, begun, ended in expected if at == hour)
        assert ledger.intervals(hour_key("m1", hour)) == mine


def test_intervals_that_go_on_at_the_same_rate_are_one():
    rates = {(20, None): 5, (0, 10): 5, (10, 20): 5, (30, 40): 6}
    assert merge_adjacent(rates) == [Interval(0, None, 5), Interval(30, 40, 6)]
    assert merge_adjacent({(0, 10): 5, (10, 20): 6, (25, 30): 6}) == [(0, 10, 5), (10, 20, 6), (25, 30, 6)]
