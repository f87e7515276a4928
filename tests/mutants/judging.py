"""Judges mutants: each in a process forked from one that has imported pytest and the libraries, but nothing of ours."""

import compileall
import contextlib
import importlib
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.mutants.covering import ROOT, SOURCE, WORLDS, Tests
from tests.mutants.faults import Mutant

_FORK: Final = multiprocessing.get_context("fork")
#: Imported before the fork, as most tests need them.
_LIBRARIES: Final = ("hypothesis", "aiohttp", "msgspec", "structlog", "yaml", "numpy", "prometheus_client", "rich")
#: Seconds of tests, as measured, that are asked about one mutant, and then of tests of `WORLDS`. A mutant that none of
#: them notices counts as not noticed.
ASKED: Final = 40.0
ASKED_OF_WORLDS: Final = 60.0
#: Seconds of tests after which a process asks the next ones: test files are imported only when they are needed.
_AT_A_TIME: Final = (2.0, 8.0)
#: Seconds of CPU beyond five times what the tests took: then one of them is caught in a loop, and has noticed. CPU, not
#: time, so that a busy machine notices nothing; a test that waits without working is ended after ten times as long.
PATIENCE: Final = 30
_WAITING: Final = 10
_LOOK: Final = 0.05


class Outcome(Enum):
    NOTICED = "noticed"
    HANGS = "noticed, by the time limit"
    NOT_NOTICED = "not noticed"
    UNREACHED = "no test runs it"


NOTICED: Final = frozenset({Outcome.NOTICED, Outcome.HANGS})


class Verdict(NamedTuple):
    room: str
    mutant: Mutant
    outcome: Outcome


class _Run(NamedTuple):
    room: str
    mutant: Mutant
    tree: Path
    process: "multiprocessing.context.ForkProcess"
    deadline: float


def judge(
    chosen: Sequence[tuple[str, Mutant]],
    tests: Tests,
    scratch: Path,
    workers: int,
    told: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Verdicts in the order of the mutants; each is also told as it comes."""
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    trees = [_tree(scratch / f"tree-{number}") for number in range(min(workers, len(chosen)))]
    verdicts: dict[int, Verdict] = {}
    running: dict[int, _Run] = {}
    waiting = list(enumerate(chosen))[::-1]

    def over(number: int, verdict: Verdict) -> None:
        verdicts[number] = verdict
        if told is not None:
            told(verdict)

    while waiting or running:
        while waiting and trees:
            number, (room, mutant) = waiting.pop()
            asked, seconds = _asked(tests, mutant)
            if asked:
                limit = PATIENCE + math.ceil(5 * seconds)
                process = _start(tree := trees.pop(), mutant, asked, limit)
                running[number] = _Run(room, mutant, tree, process, time.monotonic() + _WAITING * limit)
            else:
                over(number, Verdict(room, mutant, Outcome.UNREACHED))
        for number, run in list(running.items()):
            if (outcome := _outcome(run)) is not None:
                del running[number]
                _restore(run.tree, run.mutant)
                trees.append(run.tree)
                over(number, Verdict(run.room, run.mutant, outcome))
        time.sleep(_LOOK)
    return [verdicts[number] for number in sorted(verdicts)]


def _tree(path: Path) -> Path:
    """A copy of the source with what was compiled of it: else every process compiles all of it."""
    compileall.compile_dir(SOURCE, quiet=1)
    return Path(shutil.copytree(SOURCE, path))


def _asked(tests: Tests, mutant: Mutant) -> tuple[list[list[str]], float]:
    """Tests to ask, the quickest first, in the parts in which they are asked, and how long all take."""
    asked: list[list[str]] = []
    total, ends, limit = 0.0, 0.0, ASKED
    parts = iter((*_AT_A_TIME, ASKED))
    for name in tests.of(mutant.path, mutant.line):
        if name.startswith(WORLDS) and limit == ASKED:
            limit, ends = total + ASKED_OF_WORLDS, total
        if asked and total + tests.times[name] > limit:
            continue
        if total >= ends:
            asked.append([])
            ends = next(parts, limit)
        asked[-1].append(name)
        total += tests.times[name]
    return asked, total


def _start(tree: Path, mutant: Mutant, asked: list[list[str]], limit: int) -> "multiprocessing.context.ForkProcess":
    (tree / mutant.path).write_text(mutant.source)
    process = _FORK.Process(target=_ask, args=(tree, asked, limit))
    process.start()
    return process


def _restore(tree: Path, mutant: Mutant) -> None:
    """With its time, so that what was compiled is used again."""
    shutil.copy2(SOURCE / mutant.path, tree / mutant.path)


def _outcome(run: _Run) -> Outcome | None:
    """None: the tests still run."""
    if run.process.is_alive():
        if time.monotonic() < run.deadline:
            return None
        _kill(run.process.pid)
        run.process.join()
        return Outcome.HANGS
    run.process.join()
    match run.process.exitcode:
        case 0:
            return Outcome.NOT_NOTICED
        case code if code == -signal.SIGXCPU:
            return Outcome.HANGS
        case _:
            return Outcome.NOTICED


def _kill(group: int | None) -> None:
    if group is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, 9)


def _ask(tree: Path, tests: list[list[str]], limit: int) -> None:
    os.setpgid(0, 0)  # so that what a test starts ends with it
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    os.chdir(ROOT)
    sys.path.insert(0, str(tree))
    sys.dont_write_bytecode = True
    # Hypothesis keeps what a mutant fails on apart from what the code failed on.
    examples = str(tree.parent / "hypothesis")
    os.environ |= {
        "PYTHONPATH": str(tree),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": examples,
    }
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    options = [
        "-q",
        "-x",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
    ]
    failed = any(pytest.main([*options, *part]) for part in tests)
    os._exit(int(failed))
