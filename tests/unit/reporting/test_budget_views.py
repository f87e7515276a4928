"""Usage, history and forecast of a budget."""

from forebay.budgets.accounts import Accounts
from forebay.budgets.assessment import Assessor
from forebay.reconcile.snapshot import BudgetState, Snapshot
from forebay.reporting.budget_views import FORECAST_SLICES, HISTORY_SLICES, budget_view, closest_to_quota
from tests.unit.budgets.factories import at, budget
from tests.unit.reporting.budget_objects import reported_exceeded, second, used


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
