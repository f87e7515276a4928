"""How `forebay budgets` prints and plots budgets."""

from msgspec.structs import replace

from forebay.cli.budgets.command import show
from forebay.cli.budgets.plot import plots, sparkline
from tests.unit.reporting.budget_objects import paid, reported_exceeded, used


def test_a_sparkline_shows_when_in_the_window_gpus_were_used():
    line = sparkline([float(each.gpu_hours) for each in used((-23, -22), (-2, -1)).history])

    assert line == "  ██" + " " * 40 + "██  "


def test_an_unused_budget_has_no_sparkline():
    assert sparkline([float(each.gpu_hours) for each in used().history]) == ""


def test_the_plot_rises_to_the_used_amount_below_the_line_of_the_quota():
    ((title, *lines),) = plots(used((-20, -15), (-10, -5)))

    assert title == "  GPU-h in the last 24h, quota 10"
    assert len(lines) == 9
    assert lines[0].endswith("─ quota")
    assert max(map(len, lines)) <= 80
    assert lines[-2].lstrip() != ""
    assert lines[-1].split() == ["-24h", "now"]
    heights = [
        sum(line[2 + column] not in " ─" for line in lines[:-1] if len(line) > 2 + column) for column in (0, 20, 47)
    ]
    assert heights == sorted(heights)
    assert heights[0] == 0
    assert heights[-1] == 8


def test_a_budget_of_dollars_has_the_line_of_its_quota():
    ((title, *lines),) = plots(paid())

    assert title == "  dollars in the last 24h, quota $100.00"
    assert lines[0].endswith("─ quota")


def test_a_budget_with_two_quotas_has_two_plots(capsys):
    show([paid(hours="10", gpus=1)], "", with_plot=True)

    printed = capsys.readouterr().out
    assert "\n\n  GPU-h in the last 24h, quota 10\n" in printed
    assert "\n\n  dollars in the last 24h, quota $100.00\n" in printed
    assert printed.count("-24h") == 2


def test_of_a_budget_that_is_used_up_the_plot_is_followed_by_when_it_has_room_again(capsys):
    show([used((-20, -10))], "", with_plot=True)
    show([used((-20, -11))], "", with_plot=True)

    said = " ".join(capsys.readouterr().out.split())
    assert said.count("room again") == 1
    assert "default/team-a is used up, and has room again not before 20" in said
    assert "raise spec.quota" in said


def test_without_ledgers_the_table_is_followed_by_a_note(capsys):
    show([reported_exceeded()], "Usage is as the operator last reported it.", with_plot=True)

    printed = capsys.readouterr().out
    assert "default/team-a" in printed
    assert "Usage is as the operator last reported it." in printed


def test_each_amount_has_the_unit_of_what_its_budget_counts(capsys):
    resources = {"nvidia.com/gpu": "2 GPU-h", "cpu": "2 core-h", "example.com/tpu": "2 example.com/tpu-h"}
    show([replace(used((-3, -1)), resource=each) for each in resources], "", with_plot=False)

    header, *rows = capsys.readouterr().out.splitlines()
    assert "CONSUMED" in header
    for row, amount in zip(rows, resources.values(), strict=True):
        assert f"   {amount}   " in row
        assert "   24h   " in row


def test_without_budgets_the_output_says_so(capsys):
    show([], "", with_plot=False)

    assert capsys.readouterr().out == (
        "No budgets found. A GPUWorkloadBudget limits GPU-hours or dollars: docs/budgets.md\n"
    )
