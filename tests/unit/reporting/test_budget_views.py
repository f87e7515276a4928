"""Usage, history and forecast of a budget."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_workload_budget import GPUWorkloadBudgetStatus
from forebay.api.parts import Condition, Truth
from forebay.budgets.accounts import Accounts
from forebay.budgets.assessment import Assessor
from forebay.reconcile.snapshot import BudgetState, Snapshot
from forebay.reporting.budget_views import FORECAST_SLICES, HISTORY_SLICES, budget_view, closest_to_quota
from tests.unit.budgets.factories import at, budget
from tests.unit.reporting.budget_objects import paid, reported_exceeded, second, used


def test_the_history_shows_when_in_the_window_gpus_were_used():
    view = used((-23, -22), (-2, -1))

    hours = [float(each.gpu_hours) for each in view.history]
    assert len(hours) == HISTORY_SLICES
    assert [number for number, each in enumerate(hours) if each] == [2, 3, 44, 45]
    assert (view.consumed, view.remaining) == ("2.000000", "8.000000")


def test_the_forecast_adds_what_runs_and_subtracts_what_leaves_the_window():
    view = used((-24, -23), running=-2)

    ahead = [float(each) for each in view.forecast]
    assert len(ahead) == FORECAST_SLICES
    assert float(view.consumed) == 3.0
    assert ahead[:3] == [3.0, 3.0, 3.5], "one GPU-hour leaves the window while one is added; then usage grows"


def test_at_the_start_of_a_burst_neither_the_plot_nor_the_moment_is_a_false_alarm():
    short, long = used(running=-1 / 60, gpus=8), used(running=-1, gpus=8)

    assert short.exhausted is None
    assert max(map(float, short.forecast)) < float(short.quota), "the plot does not cross the line of the quota either"
    assert long.exhausted is not None
    assert max(map(float, long.forecast)) > float(long.quota)


def test_a_budget_of_dollars_is_plotted_in_dollars_with_its_quota_and_forecast():
    (plotted,) = paid().plots

    assert (plotted.unit, plotted.quota) == ("dollars", 100.0)
    assert sum(plotted.amounts) == pytest.approx(30)
    assert [number for number, each in enumerate(plotted.amounts) if each] == [*range(36, 48)]
    assert plotted.ahead[:2] == pytest.approx([32.5, 35.0])


def test_a_budget_with_two_quotas_has_a_plot_for_each():
    hours, dollars = paid(hours="10", gpus=1).plots

    assert (hours.unit, hours.quota, sum(hours.amounts)) == ("GPU-h", 10.0, pytest.approx(6))
    assert (dollars.unit, dollars.quota, sum(dollars.amounts)) == ("dollars", 100.0, pytest.approx(30))


def test_a_budget_that_is_used_up_has_room_again_when_enough_has_left_the_window():
    full, one_more = used((-20, -10)), used((-20, -9))

    assert full.exceeded
    assert one_more.exceeded
    assert (full.room_at - at(4 * 3600)).total_seconds() == pytest.approx(0, abs=1), "the first second leaves in 4 h"
    assert (one_more.room_at - at(5 * 3600)).total_seconds() == pytest.approx(0, abs=1)
    assert used((-20, -11)).room_at is None


def test_without_a_ledger_the_view_is_by_the_status():
    view = reported_exceeded()

    assert view.exceeded
    assert view.room_at is None, "unknown"
    assert view.history == []


def test_a_quota_that_cannot_be_read_is_named_instead_of_hiding_every_budget():
    view = budget_view(budget(hours="lots"), None, Assessor(), at(0))

    assert (view.quota, view.burn, view.history) == (None, "", [])
    assert view.error.startswith('"lots" is not a Kubernetes quantity')


def test_the_budgets_nearest_to_their_quota_come_first_and_those_that_are_used_up_before_them():
    hours = {"half": "4", "most": "2.5", "spent": "1", "little": "100"}
    budgets = [budget(name, hours=quota, labels={"team": name}) for name, quota in hours.items()]
    accounts = Accounts()
    for each in budgets:
        accounts.open(each, at()).ledger.record("pod", second(-3), second(-1), 1000)
    assessor = Assessor()
    state = BudgetState(accounts=accounts.frozen())
    snapshot = Snapshot(now=at(0), budgets=tuple(budgets), budget_state=state)

    assert [each.name for each in closest_to_quota(snapshot, assessor, 3)] == ["spent", "most", "half"]


def reported(**fields):
    conditions = tuple(
        Condition(type=kind, status=status, reason="R", message=f"{kind}!", last_transition_time=at(0))
        for kind, status in fields.pop("conditions", {}).items()
    )
    return replace(budget(hours="10", usd="5"), status=GPUWorkloadBudgetStatus(conditions=conditions, **fields))


def test_what_the_operator_last_reported_is_shown_where_the_ledger_cannot_be_read():
    status = {"consumed_gpu_hours": "4", "consumed_usd": "1.5", "tracked_pods": 3, "held_pods": 2}
    said = {"Degraded": Truth.TRUE, "QuotaExceeded": Truth.FALSE}

    view = budget_view(reported(**status, conditions=said, forecast_exhausted_at=at(60)), None, Assessor(), at(0))

    assert (view.consumed, view.quota, view.remaining) == ("4.000000", "10.000000", "6.000000")
    assert (view.consumed_usd, view.quota_usd, view.pods, view.held) == ("1.500000", "5.000000", 3, 2)
    assert (view.exceeded, view.error, view.exhausted) == (False, "Degraded!", at(60))
    assert (view.forecast, view.burn) == ([], "")
    fine = budget_view(reported(conditions={"Degraded": Truth.FALSE}), None, Assessor(), at(0))
    assert (fine.error, fine.pods, fine.held, fine.consumed) == ("", 0, 0, "0.000000")


def test_usage_beyond_the_quota_leaves_nothing_and_never_less():
    view = budget_view(reported(consumed_gpu_hours="12"), None, Assessor(), at(0))

    assert view.remaining == "0.000000"


def test_dollars_that_cannot_be_read_are_none():
    assert budget_view(reported(consumed_usd="lots"), None, Assessor(), at(0)).consumed_usd == "0.000000"


def test_without_a_ledger_budgets_are_shown_as_they_are_listed():
    snapshot = Snapshot(now=at(0), budgets=(budget("b"), budget("a")))

    assert [each.name for each in closest_to_quota(snapshot, Assessor(), 1)] == ["b"]
