"""Tables of the command line."""

import json

import pytest
import structlog
import yaml

from forebay.cli import main
from forebay.cli.output import print_document, print_line, print_long_table, print_paragraph, print_table
from forebay.cli.plan.view import _print, console
from forebay.settings import Settings
from forebay.wiring.logs import configure_logging


def test_a_table_is_neither_truncated_nor_wrapped_where_a_program_reads_it(capsys):
    print_table(("A", "WHY"), [("x", "word " * 60)])

    assert len(capsys.readouterr().out.splitlines()) == 2


HOSTILE = "x\x1b[2J\x1b]52;c;cm0=\x07\u202ey"


@pytest.mark.parametrize(
    "output",
    [
        lambda: print_table((HOSTILE, "B"), [(HOSTILE, HOSTILE)]),
        lambda: print_paragraph(HOSTILE, indent=2),
        lambda: print_line(HOSTILE),
        lambda: print_line(HOSTILE, error=True),
    ],
)
def test_nothing_that_others_wrote_reaches_the_terminal_as_an_escape(output, capsys):
    output()

    out, err = capsys.readouterr()
    assert "xy" in out + err
    assert not set(out + err) & set("\x1b\x07\u202e")


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_documents_for_scripts_hold_the_same_values_and_no_escapes(output, read, capsys):
    document = {"name": HOSTILE, "price": "2.49", "nothing": None, "list": [1, {"long": "word " * 60}]}

    print_document(document, output)

    out = capsys.readouterr().out
    assert read(out) == document
    assert not set(out) & set("\x1b\x07\u202e")


def test_a_plan_shows_names_without_escapes_and_markup(capsys):
    _print(console(), f"[red]{HOSTILE}[/red] :smile:")

    assert capsys.readouterr().out == "[red]xy[/red] :smile:\n"


def test_log_lines_as_text_have_no_escapes_of_others(capsys):
    try:
        configure_logging(Settings(log_format="text"))
        structlog.get_logger("test").warning("pod ignored", scheduler=HOSTILE)
    finally:
        structlog.reset_defaults()

    assert "scheduler=xy" in capsys.readouterr().err


def test_an_error_is_shown_without_the_escapes_of_its_cause(capsys):
    assert main(["explain", f"pod/{HOSTILE}/{HOSTILE}/{HOSTILE}"]) == 2

    assert not set(capsys.readouterr().err) & set("\x1b\x07\u202e")


def on_a_terminal(monkeypatch):
    """Has standard output be a terminal with colours, as far as the program can tell."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


ROWS = [("gpu-1", "Ready", "True", "NodeClassFound: It exists."), ("gpu-2", "Gone", "False", "no operator yet")]


def test_on_a_terminal_states_and_reasons_stand_out_and_columns_stay_aligned(monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    print_table(("NAME", "STATE", "READY", "WHY"), ROWS)

    header, first, second = capsys.readouterr().out.splitlines()
    assert header.startswith("\x1b[1mNAME\x1b[0m")
    assert "\x1b[32mReady\x1b[0m   \x1b[32mTrue\x1b[0m    \x1b[1mNodeClassFound\x1b[0m: It exists." in first
    assert "\x1b[2mGone\x1b[0m    \x1b[31mFalse\x1b[0m   no operator yet" in second


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_user_who_wants_no_colours_gets_none(name, value, monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    monkeypatch.setenv(name, value)

    print_table(("NAME", "STATE", "READY", "WHY"), ROWS)

    assert "\x1b" not in capsys.readouterr().out


def test_a_program_that_reads_the_output_gets_no_colours(capsys, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")

    print_table(("NAME", "STATE", "READY", "WHY"), ROWS)

    assert "\x1b" not in capsys.readouterr().out


def test_what_others_wrote_stays_inert_on_a_terminal_with_colours(monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    print_table(("A", "B"), [(HOSTILE, HOSTILE)])

    assert "\x1b[2J" not in capsys.readouterr().out


NAME, MESSAGE = (
    "lambda-trial-89576d324a",
    "Launch of gpu_1x_a10 in us-east-1 accepted. Next: the machine must register.",
)


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_table_fits_on_any_terminal_and_nothing_is_cut(columns, monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(columns))

    print_table(("INSTANCE", "STATE", "PRICE", "NODE", "MESSAGE"), [(NAME, "Launched", "$0.75/h", "-", MESSAGE)] * 2)

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= columns
    shown = " ".join(" ".join(lines).split())
    assert all(word in shown for word in (NAME, "Launched", "$0.75/h", *MESSAGE.split()))
    assert lines[0].startswith("INSTANCE ")


def test_a_row_that_does_not_fit_is_a_paragraph_without_cells_that_say_nothing(monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "50")

    print_table(("  AT", "STATE", "NODE", "MESSAGE"), [("  18:30:03", "Launched", "-", MESSAGE)])

    assert capsys.readouterr().out.splitlines() == [
        "  AT 18:30:03   STATE Launched",
        "    MESSAGE Launch of gpu_1x_a10 in us-east-1",
        "      accepted. Next: the machine must register.",
    ]


def test_columns_move_together_before_rows_are_broken(monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "16")

    print_table(("A", "B", "C"), [("one", "two", "three")])

    assert capsys.readouterr().out.splitlines() == ["A    B    C", "one  two  three"]


def test_paragraphs_are_broken_between_words_and_names_stay_whole(monkeypatch, capsys):
    on_a_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "30")

    print_paragraph(f"Forebay terminates {NAME}-and-more until it is gone.", indent=2)

    assert capsys.readouterr().out.splitlines() == [
        "  Forebay terminates",
        f"  {NAME}-and-more",
        "  until it is gone.",
    ]


def test_of_a_long_table_a_terminal_shows_the_beginning_and_a_pipe_gets_all(monkeypatch, capsys):
    rows = [(f"pod-{number}", "NoCapacity: none") for number in range(10_000)]
    print_long_table(("WAITING POD", "REASON"), rows, "waiting pods")
    assert len(capsys.readouterr().out.splitlines()) == 10_001

    on_a_terminal(monkeypatch)
    print_long_table(("WAITING POD", "REASON"), rows, "waiting pods")
    *_, last, more = capsys.readouterr().out.splitlines()
    assert last.startswith("pod-49 ")
    assert more == "9,950 more waiting pods: pipe the output into less, or see --output json"
