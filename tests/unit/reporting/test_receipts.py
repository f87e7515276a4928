"""Receipts of a dry run: each day has its own hours and dollars, exactly."""

from datetime import UTC, date, datetime, timedelta

import pytest

from forebay.model.quantities import UsdPerHour
from forebay.reconcile.shadow_fleet import MachineTime
from forebay.reporting.receipts import MOST_DAYS, receipt, receipt_days

MIDNIGHT = datetime(2030, 1, 2, tzinfo=UTC)
DAY = MIDNIGHT.date()


def machine(since, until=None, *, name="m", price="2", pods=1):
    """Hours from midnight."""
    moments = [None if hour is None else MIDNIGHT + timedelta(hours=hour) for hour in (since, until)]
    return MachineTime(
        name=name,
        pool="team/a",
        provider="cloud",
        instance_type="four",
        price=UsdPerHour(price),
        since=moments[0],
        until=moments[1],
        pods=pods,
    )


def at(hour):
    return MIDNIGHT + timedelta(hours=hour)


@pytest.mark.parametrize(
    ("span", "day", "bought", "cost"),
    [
        pytest.param((1, 3), DAY, 1, "4.000000", id="within the day"),
        pytest.param((-2, 1), DAY, 0, "2.000000", id="bought the day before"),
        pytest.param((-2, 1), date(2030, 1, 1), 1, "4.000000", id="and on that day"),
        pytest.param((20, None), DAY, 1, "4.000000", id="still on at ten in the evening"),
        pytest.param((23, 30), DAY, 1, "0.000000", id="after now"),
    ],
)
def test_a_machine_counts_on_each_day_for_its_hours_of_that_day(span, day, bought, cost):
    found = receipt([machine(*span)], [], day, at(22))
    assert (found.bought, found.cost) == (bought, cost)


def test_lines_add_up_by_pool_and_type_and_saved_is_apart():
    found = receipt([machine(0, 1, name="a"), machine(0, 2, name="b")], [machine(3, 4, price="1")], DAY, at(12))
    assert [(each.what, each.machines, each.hours, each.dollars) for each in found.lines] == [
        ("bought", 2, "3.000000", "6.000000"),
        ("saved", 1, "1.000000", "1.000000"),
    ]
    assert found.sentence == (
        "Would have bought 2 machines for 2 pods: 3.00 machine-hours, $6.00. Would have terminated or powered off "
        "machines that ran for 1.00 h after that, and saved $1.00."
    )


def test_thirds_of_a_dollar_are_not_lost():
    found = receipt([machine(0, 1, price="0.333333333333")] * 3, [], DAY, at(12))
    assert found.lines[0].dollars_exact == "999999999999/1000000000000"


def test_there_is_a_receipt_for_each_day_and_for_a_month_at_most():
    assert receipt_days(at(-30), at(1)) == [DAY, date(2030, 1, 1), date(2029, 12, 31)]
    assert len(receipt_days(at(-24 * 90), at(1))) == MOST_DAYS
    assert receipt_days(at(48), at(1)) == [DAY], "the clock went back"
    assert receipt((), (), DAY, at(1)).sentence.startswith("Would have bought nothing new")
