"""The command."""

import argparse
import difflib
import os
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from tests.mutants.covering import SOURCE, measure
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import Mutant, PossibleMutant, mutants
from tests.mutants.judging import Outcome, Verdict, judge
from tests.mutants.rooms import ROOMS


def sample(room: str, each: int, seed: int) -> list[Mutant]:
    every: list[PossibleMutant] = []
    for path in sorted((SOURCE / "forebay" / room).rglob("*.py")):
        every += mutants(str(path.relative_to(SOURCE)), path.read_text())
    random.Random(f"{seed} {room}").shuffle(every)
    return list(islice(filter(None, (possible.made() for possible in every)), each))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--each", type=int, default=25, help="mutants per room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this room; may be repeated")
    parser.add_argument("--only", action="append", help="tests to ask (default: tests/unit and tests/engine)")
    parser.add_argument("--as-measured", action="store_true", help="measure only new and changed test files again")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--bar", type=float, default=0.9, help="the least share that must be noticed in each room")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        only = arguments.only or ["tests/unit", "tests/engine"]
        tests = measure(only, scratch, arguments.workers, as_measured=arguments.as_measured)
        rooms = arguments.room or ROOMS
        sampled = [(room, mutant) for room in rooms for mutant in sample(room, arguments.each, arguments.seed)]
        chosen = [each for each in sampled if not _is_equivalent(each[1])]
        # A fault that is none: whoever notices it would notice anything.
        control = [(room, mutant._replace(source=(SOURCE / mutant.path).read_text())) for room, mutant in chosen[:1]]
        if any(each.outcome is Outcome.NOTICED for each in judge(control, tests, scratch / "control", 1)):
            sys.exit("the tests fail without any fault as well; mutants would prove nothing")
        verdicts = judge(chosen, tests, scratch / "mutants", arguments.workers, tell)
    return report(verdicts, arguments.bar)


def _is_equivalent(mutant: Mutant) -> bool:
    line = (SOURCE / mutant.path).read_text().splitlines()[mutant.line - 1].strip()
    return not EQUIVALENT.keys().isdisjoint({(mutant.path, mutant.what), (mutant.path, mutant.what, line)})


def tell(verdict: Verdict) -> None:
    mutant = verdict.mutant
    if verdict.outcome is Outcome.NOTICED:
        return
    print(f"{mutant.path}:{mutant.line} {verdict.outcome.value}: {mutant.what}")
    before = (SOURCE / mutant.path).read_text().splitlines()
    diff = difflib.unified_diff(before, mutant.source.splitlines(), n=0, lineterm="")
    print("".join(f"    {line}\n" for line in list(diff)[3:]), end="", flush=True)


def report(verdicts: Sequence[Verdict], bar: float) -> int:
    by_room: defaultdict[str, Counter[Outcome]] = defaultdict(Counter)
    for each in verdicts:
        by_room[each.room][each.outcome] += 1
    print(f"{'room':<12}{'mutants':>8}{'noticed':>8}{'share':>8}{'unreached':>11}")
    missed = False
    for room, counts in by_room.items():
        noticed, total = counts[Outcome.NOTICED], counts.total()
        missed = missed or noticed < bar * total
        print(f"{room:<12}{total:>8}{noticed:>8}{noticed / total:>8.0%}{counts[Outcome.UNREACHED]:>11}")
    return int(missed)


sys.exit(main())
