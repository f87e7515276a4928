"""What a machine is expected to cost an hour, by its terms of billing and the risk that its provider takes it back."""

from datetime import timedelta

import pytest

from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Billing
from forebay.planning.candidate_groups import price_candidates
from forebay.planning.plan import Preferences
from tests.unit.planning.worlds import candidate

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def expected(price="3", **offer):
    (priced,) = price_candidates([candidate(1, price, **offer)], (), Preferences(expected_run=HOUR, redo=30 * MINUTE))
    return UsdPerHour.from_units(priced.expected)


@pytest.mark.parametrize(
    ("billing", "cost"),
    [
        (Billing(), "3"),
        (Billing(minimum=30 * MINUTE), "3"),
        (Billing(minimum=HOUR), "3"),
        (Billing(minimum=3 * HOUR), "9"),
        (Billing(increment=HOUR), "3"),
        (Billing(increment=2 * HOUR), "6"),
        (Billing(increment=40 * MINUTE), "4"),
        (Billing(minimum=MINUTE, increment=40 * MINUTE), "4"),
        (Billing(minimum=5 * HOUR, increment=2 * HOUR), "15"),
    ],
)
def test_the_least_that_is_billed_counts_for_the_run_that_is_expected(billing, cost):
    assert expected(billing=billing) == UsdPerHour(cost)


@pytest.mark.parametrize(("reclaims", "cost"), [(0, "3"), (1_000_000, "4.5"), (200_000, "3.3")])
def test_work_that_is_lost_when_a_machine_is_taken_back_counts_with_its_probability(reclaims, cost):
    assert expected(reclaims_per_million_hours=reclaims) == UsdPerHour(cost)


def test_both_count_together():
    assert expected(billing=Billing(minimum=2 * HOUR), reclaims_per_million_hours=1_000_000) == UsdPerHour("9")
