"""Counts the crash worlds that each law runs; at the end of a deep run says how many, and writes it for the command."""

from collections import Counter
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from tests.deep import COUNTS, DEEP, SEED

_PROPERTY = "worlds"
#: Since the process began. Whoever runs a world adds it here.
worlds_run = Counter[str]()


class Counts(msgspec.Struct):
    #: By law.
    worlds: dict[str, int] = {}
    #: Laws that tell of something else than worlds.
    others: int = 0
    failed: list[str] = []


_counts = Counts()


def count_world() -> None:
    worlds_run["all"] += 1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    before = worlds_run["all"]
    try:
        return (yield)
    finally:
        if item.get_closest_marker("law") is not None:
            item.user_properties.append((_PROPERTY, worlds_run["all"] - before))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _counts.failed.append(report.nodeid)
    if report.when != "call":
        return
    law = report.nodeid.partition("[")[0]
    for name, value in report.user_properties:
        if name == _PROPERTY and isinstance(value, int) and value:
            _counts.worlds[law] = _counts.worlds.get(law, 0) + value
        elif name == _PROPERTY:
            _counts.others += 1


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not DEEP or hasattr(config, "workerinput"):
        return
    terminalreporter.section(f"crash worlds of the slice with seed {SEED}")
    for line in table(_counts.worlds):
        terminalreporter.write_line(line)
    if COUNTS is not None:
        Path(COUNTS).write_bytes(msgspec.json.encode(_counts))


def table(worlds: dict[str, int]) -> list[str]:
    rows = [f"{count:>7,}  {law}" for law, count in sorted(worlds.items())]
    return [*rows, f"{sum(worlds.values()):>7,}  in all"]
