"""A pytest plugin: writes down which blocks of our source each test runs, and how long it takes.

Our modules are compiled with a mark at the beginning of each block, which is far quicker than tracing every line.
"""

import ast
import builtins
import importlib.machinery
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.blocks import BlockName, blocks
from tests.mutants.rooms import ROOMS

_SOURCE = str(Path(__file__).parents[2] / "src") + os.sep
_ROOMS = tuple(f"forebay/{room}/" for room in ROOMS)
_MARKS = "__blocks_that_run__"

#: A byte for each block, not zero when it has run since the test began; and path and name of the block.
_RUN = bytearray()
_BLOCKS: list[tuple[str, BlockName]] = []
_RUN_BY_TEST: dict[str, frozenset[tuple[str, BlockName]]] = {}
_TIMES: dict[str, float] = {}
_FAILED: list[str] = []
_get_code = importlib.machinery.SourceFileLoader.get_code


def _marked(loader: importlib.machinery.SourceFileLoader, name: str) -> object:
    path = loader.path.removeprefix(_SOURCE)
    if not path.startswith(_ROOMS):
        return _get_code(loader, name)
    tree = ast.parse(loader.get_data(loader.path))
    # From the end, so that earlier positions stay what they are.
    for block in reversed(list(blocks(tree))):
        mark = ast.parse(f"{_MARKS}[{len(_BLOCKS)}] = 1").body[0]
        _BLOCKS.append((path, block.name))
        for node in ast.walk(mark):
            ast.copy_location(node, block.first)
        block.statements.insert(block.at, mark)
    _RUN.extend(bytes(len(_BLOCKS) - len(_RUN)))
    return compile(ast.fix_missing_locations(tree), loader.path, "exec", dont_inherit=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _RUN[:] = bytes(len(_RUN))
    yield
    _RUN_BY_TEST[item.nodeid] = frozenset(block for block, runs in zip(_BLOCKS, _RUN, strict=True) if runs)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _TIMES[report.nodeid] = report.duration
    if report.failed:
        _TIMES.pop(report.nodeid, None)
        _FAILED.append(report.nodeid)


def pytest_sessionfinish() -> None:
    Path(os.environ["MUTANTS_MEASURED"]).write_bytes(pickle.dumps((_RUN_BY_TEST, _TIMES, _FAILED)))


setattr(builtins, _MARKS, _RUN)
importlib.machinery.SourceFileLoader.get_code = _marked  # type: ignore[method-assign,assignment]
