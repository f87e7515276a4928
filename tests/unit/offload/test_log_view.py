"""What `kubectl logs` shows of a remote container's log."""

from datetime import UTC, datetime, timedelta

import pytest

from forebay.offload.exit_code import nonce_of
from forebay.offload.log_view import LogQuery, LogView

NONCE = nonce_of("uid")
OTHER = nonce_of("another")
NOW = datetime(2026, 11, 17, 12, 0, 0, 250_000, tzinfo=UTC)


def shown(lines, query=LogQuery(), restarts=0):  # noqa: B008 (immutable)
    view = LogView(query, NONCE, restarts=restarts)
    found = [each for number, line in enumerate(lines) for each in view.line(line, NOW + timedelta(seconds=number))]
    return b"".join([*found, *view.rest()]).decode()


def exit_line(code=0, nonce=NONCE):
    return f"forebay-exit {nonce} {code}"


def restart(code=1):
    return f"forebay-restart {NONCE} {code}"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["a", "b"], "a\nb\n"),
        (["a", "", "b", ""], "a\n\nb\n\n"),
        # The shell begins its report on a new line, which leaves an empty one where the command had ended its own.
        (["a", "", exit_line()], "a\n"),
        (["a", "", "", exit_line()], "a\n\n"),
        (["a", exit_line(), "after"], "a\n"),
        # A report of somebody else is not shown either, and ends nothing.
        (["a", exit_line(nonce=OTHER), "b"], "a\nb\n"),
    ],
)
def test_lines_of_the_command_are_shown_and_those_of_the_shell_are_not(lines, text):
    assert shown(lines) == text


def test_of_several_runs_the_last_one_is_shown_and_the_one_before_on_request():
    lines = ["one", "", restart(), "two", "", restart(), "three", "", exit_line()]

    assert shown(lines, restarts=2) == "three\n"
    assert shown(lines, LogQuery(previous=True), restarts=2) == "two\n"
    assert shown(lines, LogQuery(previous=True), restarts=1) == "one\n"


def test_timestamps_are_those_of_the_provider():
    assert shown(["a"], LogQuery(timestamps=True)) == "2026-11-17T12:00:00.250000Z a\n"


def test_lines_before_since_are_left_out_but_their_restarts_count():
    query = LogQuery(since=NOW + timedelta(seconds=3))

    assert shown(["a", restart(), "b", "c"], query, restarts=1) == "c\n"
