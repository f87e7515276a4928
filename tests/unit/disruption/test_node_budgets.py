"""Disruption budgets: how many nodes of a pool may be disrupted at a time."""

from datetime import timedelta

import pytest

from forebay.api.gpu_node_pool import DisruptionBudget, DisruptionReason
from forebay.disruption.node_budgets import allowed_disruptions, budget_error
from tests.unit.demand.builders import NOW

IDLE = DisruptionReason.IDLE
#: 12:00 on a Monday.
OFFICE_HOURS = DisruptionBudget(nodes=0, schedule="0 9 * * 1-5", duration="8h")


def allowed(*budgets, reason=IDLE, nodes=20, disrupted=0, now=NOW):
    return allowed_disruptions(budgets, reason, nodes, disrupted, now)


@pytest.mark.parametrize(
    ("written", "nodes", "most"),
    [(3, 20, 3), ("3", 20, 3), ("10%", 20, 2), ("10%", 21, 3), ("10%", 1, 1), ("0%", 20, 0), ("100%", 7, 7), (0, 9, 0)],
)
def test_a_share_of_the_pool_is_rounded_up(written, nodes, most):
    assert allowed(DisruptionBudget(nodes=written), nodes=nodes) == most


def test_a_share_is_of_a_hundred():
    assert allowed(DisruptionBudget(nodes="1%"), nodes=100) == 1
    assert allowed(DisruptionBudget(nodes="1%"), nodes=101) == 2


def test_nodes_that_are_disrupted_already_count():
    assert allowed(DisruptionBudget(nodes=3), disrupted=2) == 1
    assert allowed(DisruptionBudget(nodes=3), disrupted=9) == 0


def test_the_strictest_budget_decides_and_without_one_there_is_no_limit():
    assert allowed(DisruptionBudget(nodes=5), DisruptionBudget(nodes="5%")) == 1
    assert allowed() is None


def test_a_budget_for_another_reason_does_not_count():
    only_expired = DisruptionBudget(nodes=0, reasons=(DisruptionReason.EXPIRED,))
    assert allowed(only_expired) is None
    assert allowed(only_expired, reason=DisruptionReason.EXPIRED) == 0


@pytest.mark.parametrize(
    ("hours", "most"), [(-3.01, None), (-3, 0), (0, 0), (4.99, 0), (5, None), (24, 0), (24 * 5, None)]
)
def test_a_budget_with_a_schedule_is_active_from_each_start_for_its_duration(hours, most):
    assert allowed(OFFICE_HOURS, now=NOW + timedelta(hours=hours)) == most


def test_a_budget_with_an_invalid_schedule_is_always_active_and_reported():
    wrong = DisruptionBudget(nodes=0, schedule="0 25 * * *", duration="1h")
    assert allowed(wrong) == 0
    assert '"25" is not valid for the hour' in budget_error([OFFICE_HOURS, wrong])
    assert budget_error([OFFICE_HOURS, DisruptionBudget()]) is None


@pytest.mark.parametrize("schedule", ["0 0 31 2 *", "@yearly"])
def test_the_longest_duration_that_the_api_server_admits_breaks_nothing(schedule):
    endless = DisruptionBudget(nodes=0, schedule=schedule, duration="9999999h9999999h9999999h")

    assert allowed(endless) == (0 if schedule == "@yearly" else None)
