"""Which tests run which blocks, and how long each takes: measured once a test file, kept in the user's cache."""

import ast
import hashlib
import os
import pickle
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.blocks import Block, BlockName, block_of, blocks

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
#: Test files that one process measures: what is measured is kept even if a later part is interrupted.
_AT_A_TIME = 4
#: Tiers of whole worlds, whose tests are slow: asked about what the others did not notice.
WORLDS: Final = ("tests/contract/", "tests/crash/")


class Covering(NamedTuple):
    """Of one test file: its passing tests by path and block that they run, their seconds, and digests of the source."""

    blocks: dict[str, dict[BlockName, list[str]]]
    times: dict[str, float]
    digests: dict[str, str]

    def of(self, path: str, block: BlockName | None) -> set[str]:
        """Tests that run a block, or any of the module for None.

        Source may have changed since: tests that ran a block of the same function hold for a function that was changed,
        tests that ran the module for a function that is new. Both are more than would be measured now, never fewer.
        """
        found = self.blocks.get(path, {})
        if block is not None:
            if block in found or self.digests.get(path) == _digest(SOURCE / path):
                return set(found.get(block, ()))
            same = [tests for name, tests in found.items() if name.function == block.function]
            if same:
                return {test for tests in same for test in tests}
        return {test for tests in found.values() for test in tests}


class Tests:
    """Tests by block, of all test files that were asked for."""

    def __init__(self, files: Iterable[Covering]) -> None:
        self._files = list(files)
        self.times = {test: seconds for file in self._files for test, seconds in file.times.items()}

    def of(self, path: str, line: int) -> list[str]:
        """Tests that run a line: those of its room's own unit tests first, then those of every other test file, the
        quickest first and each file for the same time, so that as many tests of as many subjects as possible are asked
        in the time there is. Those of `WORLDS` come last.

        Of a room's own test files that run the module, the other tests are asked as well, next: what one test has run,
        and the module has cached, the tests after it only use. Of a line that runs at import: all that run the module,
        and the unit tests of its room, because what is only declared (a field, a limit) runs in no test.
        """
        block = block_of(_blocks(path), line)
        room = f"tests/unit/{Path(path).parts[1]}/"
        tests = {test for file in self._files for test in file.of(path, block) if test in file.times}
        if block is None:
            tests |= {each for each in self.times if each.startswith(room)}
        beside = {
            test for file in self._files if path in file.blocks for test in file.times if test.startswith(room)
        } - tests
        spent: defaultdict[str, float] = defaultdict(float)
        order: dict[str, tuple[int, float]] = {}
        for name in sorted(tests, key=lambda name: (self.times[name], name)):
            file = name.partition("::")[0]
            spent[file] += self.times[name]
            order[name] = (0, self.times[name]) if name.startswith(room) else (2 + name.startswith(WORLDS), spent[file])
        order |= {name: (1, self.times[name]) for name in beside}
        return sorted(order, key=lambda name: (order[name], name))


@cache
def _blocks(path: str) -> list[Block]:
    return list(blocks(ast.parse((SOURCE / path).read_text())))


def measure(only: Sequence[str], scratch: Path, workers: int, *, again: bool = False) -> Tests:
    """Measures what no earlier run did, in this checkout or another; `again`: everything, as the source is now."""
    files = sorted(str(file.relative_to(ROOT)) for file in {file for each in only for file in _test_files(ROOT / each)})
    missing = [name for name in files if again or not _kept(name).exists()]
    print(f"coverage: {len(files)} test files, {len(files) - len(missing)} of them measured before", flush=True)
    parts = [missing[begin : begin + _AT_A_TIME] for begin in range(0, len(missing), _AT_A_TIME)]
    measured: dict[str, Covering] = {}
    with ThreadPoolExecutor(workers) as pool:
        runs = {pool.submit(_run, part, scratch / f"part-{number}"): part for number, part in enumerate(parts)}
        for done, run in enumerate(as_completed(runs), 1):
            part = run.result()
            measured |= part.files
            for name in part.files.keys() - part.failed.keys():
                keep(name, part.files[name])
            for name, tests in part.failed.items():
                print(f"coverage: {name}: {len(tests)} tests fail as they are and are not asked: {', '.join(tests)}")
            print(f"coverage: part {done} of {len(parts)} measured", flush=True)
    return Tests(measured.get(name) or pickle.loads(_kept(name).read_bytes()) for name in files)


def keep(test_file: str, covering: Covering) -> None:
    kept = _kept(test_file)
    kept.parent.mkdir(parents=True, exist_ok=True)
    written = kept.with_suffix(f".{os.getpid()}")
    written.write_bytes(pickle.dumps(covering))
    written.replace(kept)


def _kept(test_file: str) -> Path:
    """By the text of the test file, so that checkouts share what any of them measured."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    named = hashlib.sha256(f"{test_file} {_digest(ROOT / test_file)}".encode()).hexdigest()
    return Path(base) / "forebay" / "mutants" / named[:32]


def _test_files(path: Path) -> Iterable[Path]:
    # Tests of the image and the chart run the whole program, for minutes.
    return [path] if path.is_file() else (each for each in path.rglob("test_*.py") if each.parent.name != "deploy")


@cache
def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class _Measured(NamedTuple):
    files: dict[str, Covering]
    #: Tests that did not pass, by file: measured again the next time, because a busy machine may be the cause.
    failed: dict[str, list[str]]


def _run(files: Sequence[str], scratch: Path) -> _Measured:
    scratch.mkdir()
    path = scratch / "measured"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "tests.mutants.contexts", "-n", "0"]
    command += ["-m", "not cluster and not kubectl", *files]
    environment = os.environ | {"MUTANTS_MEASURED": str(path)}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in {0, 1, 5}:  # 1: some failed; 5: all tests of these files are of tiers that are left out
        sys.exit(f"these tests cannot be measured: {', '.join(files)}\n{done.stdout[-3000:]}")
    run, times, failures = pickle.loads(path.read_bytes())
    found: defaultdict[str, dict[str, dict[BlockName, list[str]]]] = defaultdict(dict)
    for test, names in run.items():
        for module, block in names:
            found[test.partition("::")[0]].setdefault(module, {}).setdefault(block, []).append(test)
    took: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for test, seconds in times.items():
        took[test.partition("::")[0]][test] = seconds
    failed: defaultdict[str, list[str]] = defaultdict(list)
    for test in failures:
        failed[test.partition("::")[0]].append(test)
    digests = {name: {each: _digest(SOURCE / each) for each in found[name]} for name in files}
    return _Measured({name: Covering(found[name], took[name], digests[name]) for name in files}, failed)
