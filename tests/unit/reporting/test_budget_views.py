"""Usage, history and forecast of a budget."""

from forebay.budgets.assessment import Assessor
from forebay.reporting.budget_views import FORECAST_SLICES, HISTORY_SLICES, budget_view
from tests.unit.budgets.factories import at, budget
from tests.unit.reporting.budget_objects import reported_exceeded, used


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


def test_without_a_ledger_the_view_is_by_the_status():
    view = reported_exceeded()

    assert view.exceeded
    assert view.history == []


def test_a_quota_that_cannot_be_read_is_named_instead_of_hiding_every_budget():
    view = budget_view(budget(hours="lots"), None, Assessor(), at(0))

    assert (view.quota, view.burn, view.history) == (None, "", [])
    assert view.error.startswith('"lots" is not a Kubernetes quantity')
