"""How a budget is drawn: what was used, the line of the quota, and what is to come."""

from forebay.budgets.accounts import Account
from forebay.budgets.assessment import Assessor
from forebay.cli.budgets.command import show
from forebay.cli.budgets.plot import plot, sparkline
from forebay.reporting.budget_views import AHEAD, PAST, view
from tests.unit.budgets.factories import at, budget

HOUR = 3600


def counted(*pieces, running=None, **fields):
    """With pods of one GPU, by hours."""
    made = budget(hours="10", window=24, **fields)
    account = Account(made)
    for number, (start, end) in enumerate(pieces):
        account.ledger.record(f"pod-{number}", _second(start), _second(end), 1000)
    if running is not None:
        account.ledger.begin("running", _second(running), 1000, _second(0))
    return made, account


def _second(hours):
    return int((at(hours * HOUR)).timestamp())


def seen(*pieces, running=None, **fields):
    made, account = counted(*pieces, running=running, **fields)
    return view(made, account, Assessor(), at(0))


def test_use_is_shown_where_in_the_window_it_was():
    shown = seen((-23, -22), (-2, -1))
    line = sparkline([float(each.gpu_hours) for each in shown.history])
    assert len(line) == PAST
    assert line == "  ██" + " " * 40 + "██  "
    assert (shown.consumed, shown.remaining) == ("2.000000", "8.000000")


def test_a_budget_that_nobody_uses_has_no_line():
    assert sparkline([float(each.gpu_hours) for each in seen().history]) == ""


def test_the_forecast_goes_on_from_what_runs_and_forgets_what_leaves_the_window():
    shown = seen((-24, -23), running=-2)
    ahead = [float(each) for each in shown.forecast]
    assert len(ahead) == AHEAD
    assert float(shown.consumed) == 3.0
    assert ahead[:3] == [3.0, 3.0, 3.5], "an hour leaves while an hour comes; then it grows"


def test_the_plot_rises_to_what_is_used_under_the_line_of_the_quota():
    lines = plot(seen((-20, -15), (-10, -5)))
    assert len(lines) == 9
    assert "quota 10.000000" in lines[0]
    assert lines[-2].lstrip() != ""
    assert lines[-1].split() == ["-24h", "now"]
    heights = [
        sum(line[2 + column] not in " ─" for line in lines[:-1] if len(line) > 2 + column) for column in (0, 20, 47)
    ]
    assert heights == sorted(heights)
    assert heights[0] == 0
    assert heights[-1] == 8


def test_without_a_ledger_the_status_speaks(capsys):
    shown = view(budget(hours="10", since=at(-60)), None, Assessor(), at(0))
    assert shown.exceeded
    assert shown.history == []
    show([shown], "Figures are those of the last report.", with_plot=True)
    printed = capsys.readouterr().out
    assert "default/team-a" in printed
    assert "Figures are those of the last report." in printed


def test_a_cluster_without_budgets_is_said_to_have_none(capsys):
    show([], "", with_plot=False)
    assert capsys.readouterr().out == "There are no budgets.\n"
