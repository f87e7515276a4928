"""Which tests run which lines, and how long each takes: measured once, kept by test file."""

import ast
import hashlib
import os
import pickle
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.mutants.blocks import Block, block_of, blocks

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
_KEPT = ROOT / ".mutants" / "covering"
#: Test files that one process measures: what is measured is kept even if a later part is interrupted.
_AT_A_TIME = 8


class Covering(NamedTuple):
    """Of one test file: its tests by path and first line of a block that they run, their seconds, and digests."""

    lines: dict[str, dict[int, list[str]]]
    times: dict[str, float]
    digests: dict[str, str]


class Tests:
    """Tests by line, of all test files that were asked for."""

    def __init__(self, files: Iterable[Covering]) -> None:
        self._lines: defaultdict[str, defaultdict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        self.times: dict[str, float] = {}
        for file in files:
            self.times |= file.times
            for path, lines in file.lines.items():
                for line, tests in lines.items():
                    self._lines[path][line] += tests

    def of(self, path: str, line: int) -> list[str]:
        """Tests that run a line: those of its room's own unit tests first, then of every other test file the quickest,
        of every file the next, and so on, so that as many subjects as possible are asked in the time there is.

        Of a line that runs at import: all that run the module, and the unit tests of its room, because what is only
        declared (a field, a limit) runs in no test.
        """
        lines = self._lines.get(path, {})
        block = block_of(_blocks(path), line)
        room = f"tests/unit/{Path(path).parts[1]}/"
        if block is not None:
            tests = set(lines.get(block, ()))
        else:
            tests = {each for others in lines.values() for each in others}
            tests |= {each for each in self.times if each.startswith(room)}
        turns: Counter[str] = Counter()
        order: dict[str, tuple[int, float]] = {}
        for name in sorted(tests, key=lambda name: (self.times.get(name, 0.0), name)):
            file = name.partition("::")[0]
            order[name] = (0 if name.startswith(room) else turns[file] + 1, self.times.get(name, 0.0))
            turns[file] += 1
        return sorted(order, key=lambda name: (order[name], name))


@cache
def _blocks(path: str) -> list[Block]:
    return list(blocks(ast.parse((SOURCE / path).read_text())))


def measure(only: Sequence[str], scratch: Path, workers: int, *, as_measured: bool = False) -> Tests:
    """`as_measured`: what an earlier run measured holds, though the source has changed since. Tests that were measured
    are then asked by the lines of that time, which is near enough while one writes tests for the mutants of a room.
    """
    files = sorted(str(file.relative_to(ROOT)) for file in {file for each in only for file in _test_files(ROOT / each)})
    kept: dict[str, Covering] = pickle.loads(_KEPT.read_bytes()) if _KEPT.exists() else {}
    stale = [name for name in files if name not in kept or not _is_current(name, kept[name], as_measured=as_measured)]
    parts = [stale[begin : begin + _AT_A_TIME] for begin in range(0, len(stale), _AT_A_TIME)]
    with ThreadPoolExecutor(workers) as pool:
        runs = {pool.submit(_run, part, scratch / f"part-{number}"): part for number, part in enumerate(parts)}
        for run in as_completed(runs):
            kept |= run.result()
            print(f"measured which lines {len(runs[run])} of {len(files)} test files run", flush=True)
            _KEPT.parent.mkdir(exist_ok=True)
            _KEPT.write_bytes(pickle.dumps(kept))
    return Tests(kept[name] for name in files)


def _test_files(path: Path) -> Iterable[Path]:
    # Tests of the image and the chart run the whole program, for minutes.
    return [path] if path.is_file() else (each for each in path.rglob("test_*.py") if each.parent.name != "deploy")


def _is_current(test_file: str, covering: Covering, *, as_measured: bool) -> bool:
    compared = {test_file} if as_measured else covering.digests.keys()
    return all((ROOT / path).exists() and _digest(path) == covering.digests[path] for path in compared)


def _digest(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()


def _run(files: Sequence[str], scratch: Path) -> dict[str, Covering]:
    scratch.mkdir()
    measured = scratch / "measured"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "tests.mutants.contexts", "-n", "0"]
    command += ["-m", "not cluster and not kubectl", *files]
    environment = os.environ | {"MUTANTS_MEASURED": str(measured)}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in {0, 5}:  # 5: all tests of these files are of tiers that are left out
        sys.exit(f"the tests do not pass as they are; mutants would prove nothing:\n{done.stdout[-3000:]}")
    run, times = pickle.loads(measured.read_bytes())
    lines: defaultdict[str, dict[str, dict[int, list[str]]]] = defaultdict(dict)
    for test, found in run.items():
        for path, line in found:
            lines[test.partition("::")[0]].setdefault(path, {}).setdefault(line, []).append(test)
    took: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for test, seconds in times.items():
        took[test.partition("::")[0]][test] = seconds
    return {
        name: Covering(
            lines[name],
            took[name],
            {each: _digest(each) for each in (name, *(str(Path("src") / path) for path in lines[name]))},
        )
        for name in files
    }
