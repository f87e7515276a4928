"""A pytest plugin: coverage is told which test runs, and the time of each is written down."""

import os
from pathlib import Path

import coverage
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.switch_context(item.nodeid)
    yield


def pytest_runtest_logreport(report):
    if report.when == "call":
        with Path(os.environ["MUTANTS_TIMES"]).open("a") as file:
            file.write(f"{report.nodeid} {report.duration}\n")
