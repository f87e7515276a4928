"""The command: coverage by test once, then a process for each mutant, two at a time."""

import argparse
import difflib
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.mutants.faults import Mutant, mutants

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
#: Pure rooms, and the shell that decides what is written.
CORE = "model api demand budgets planning lifecycle disruption reconcile reporting"
ROOMS = (*CORE.split(), "net", "kube", "engine")
#: A test that hangs has noticed.
PATIENCE = 120
#: So many of the tests that run the line, the quickest first, are asked before the rest.
FIRST_ASKED = 40

Lines = Mapping[str, Mapping[int, Sequence[str]]]


class Verdict(NamedTuple):
    room: str
    mutant: Mutant
    noticed: bool
    #: No test runs the line.
    unreached: bool = False


def cover(only: Sequence[str], scratch: Path) -> tuple[Lines, Mapping[str, float]]:
    """By file and line the tests that run it, and how long each test takes."""
    data, times = scratch / "coverage", scratch / "times"
    command = [sys.executable, "-m", "coverage", "run", f"--data-file={data}", "--source=forebay", "-m", "pytest"]
    command += ["-q", "-p", "no:randomly", "-p", "tests.mutants.contexts", "-m", "not cluster", *only]
    environment = os.environ | {"MUTANTS_TIMES": str(times), "COVERAGE_CORE": "ctrace"}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the tests do not pass as they are; mutants would prove nothing:\n{done.stdout[-3000:]}")
    from coverage import CoverageData

    found = CoverageData(str(data))
    found.read()
    lines = {str(Path(name).relative_to(SOURCE)): found.contexts_by_lineno(name) for name in found.measured_files()}
    took = dict(line.rsplit(" ", 1) for line in times.read_text().splitlines())
    return lines, {name: float(seconds) for name, seconds in took.items()}


def sample(room: str, each: int, seed: int) -> list[Mutant]:
    every = []
    for path in sorted((SOURCE / "forebay" / room).rglob("*.py")):
        every += mutants(str(path.relative_to(SOURCE)), path.read_text())
    return random.Random(f"{seed} {room}").sample(every, min(each, len(every)))


def judge(room: str, mutant: Mutant, lines: Lines, times: Mapping[str, float], trees: "queue.Queue[Path]") -> Verdict:
    of_module = lines.get(mutant.path, {})
    runs = of_module.get(mutant.line, ())
    tests = [name for name in runs if name]
    if runs and not tests:  # a constant, read at import: whatever runs the module may notice
        tests = sorted({name for others in of_module.values() for name in others if name})
    if not tests:
        return Verdict(room, mutant, noticed=False, unreached=True)
    tests.sort(key=lambda name: times.get(name, 0.0))
    tree = trees.get()
    target = tree / mutant.path
    original = target.read_text()
    target.write_text(mutant.source)
    try:
        noticed = any(fails(tree, part) for part in (tests[:FIRST_ASKED], tests[FIRST_ASKED:]) if part)
    finally:
        target.write_text(original)
        trees.put(tree)
    return Verdict(room, mutant, noticed)


def fails(tree: Path, tests: Sequence[str]) -> bool:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-n",
        "0",
        *tests,
    ]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--each", type=int, default=25, help="mutants per room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this room; may be repeated")
    parser.add_argument("--only", action="append", help="tests to ask (default: tests/unit and tests/engine)")
    parser.add_argument("--bar", type=float, default=0.9, help="the least share that must be noticed in each room")
    arguments = parser.parse_args()
    rooms = arguments.room or ROOMS
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        lines, times = cover(arguments.only or ["tests/unit", "tests/engine"], scratch)
        trees: queue.Queue[Path] = queue.Queue()
        workers = os.cpu_count() or 1
        for number in range(workers):
            tree = scratch / f"tree-{number}"
            shutil.copytree(SOURCE, tree, ignore=shutil.ignore_patterns("__pycache__"))
            trees.put(tree)
        chosen = [(room, mutant) for room in rooms for mutant in sample(room, arguments.each, arguments.seed)]
        with ThreadPoolExecutor(workers) as pool:
            verdicts = list(pool.map(lambda pair: judge(*pair, lines, times, trees), chosen))
    return report(verdicts, arguments.bar)


def report(verdicts: Sequence[Verdict], bar: float) -> int:
    by_room: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for room, mutant, noticed, unreached in verdicts:
        by_room[room]["mutants"] += 1
        by_room[room]["noticed"] += noticed
        by_room[room]["unreached"] += unreached
        if not noticed:
            before = (SOURCE / mutant.path).read_text().splitlines()
            print(f"{mutant.path}:{mutant.line} {'no test runs it' if unreached else 'not noticed'}: {mutant.what}")
            diff = difflib.unified_diff(before, mutant.source.splitlines(), n=0, lineterm="")
            print("".join(f"    {line}\n" for line in list(diff)[3:]), end="")
    print(f"{'room':<12}{'mutants':>8}{'noticed':>8}{'share':>8}{'unreached':>11}")
    missed = False
    for room, counts in by_room.items():
        share = counts["noticed"] / counts["mutants"]
        missed = missed or share < bar
        print(f"{room:<12}{counts['mutants']:>8}{counts['noticed']:>8}{share:>8.0%}{counts['unreached']:>11}")
    return int(missed)


sys.exit(main())
