"""Boundary of the operator's tasks."""

import asyncio

import pytest
from structlog.testing import capture_logs

from forebay.engine.boundary import LoggedBugs
from forebay.engine.counts import Counts


def test_a_bug_is_logged_with_its_traceback_and_counted():
    counts = Counts()
    with capture_logs() as lines, LoggedBugs("budget not audited", counts, budget="team-a"):
        raise ZeroDivisionError("division by zero")
    (line,) = lines
    assert (line["event"], line["budget"], line["log_level"]) == ("budget not audited", "team-a", "error")
    assert isinstance(line["exc_info"], ZeroDivisionError)
    assert counts.internal_errors == 1


def test_work_without_a_bug_is_neither_logged_nor_counted():
    counts = Counts()
    with capture_logs() as lines, LoggedBugs("budget not audited", counts):
        pass
    assert (lines, counts.internal_errors) == ([], 0)


async def test_a_task_that_is_cancelled_ends():
    with pytest.raises(asyncio.CancelledError), LoggedBugs("budget not audited", Counts()):
        raise asyncio.CancelledError
