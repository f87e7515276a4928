"""The command."""

import argparse
import difflib
import os
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutants.covering import ROOT, SOURCE, WORLDS, measure
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import Mutant, PossibleMutant, mutants
from tests.mutants.judging import ASKED, ASKED_OF_WORLDS, NOTICED, PATIENCE, Outcome, Verdict, judge
from tests.mutants.rooms import ROOMS

#: Mutants that the last run did not see noticed: by path, line and what is changed.
_SURVIVORS = ROOT / ".mutants" / "survivors"


class Sample(NamedTuple):
    room: str
    chosen: list[Mutant]
    #: Passed over on the way, with the reason.
    equivalent: list[tuple[Mutant, str]]
    possible: int


def sample(room: str, each: int | None, seed: int, modules: Sequence[str]) -> Sample:
    """Of a room, or of these modules of it; None: all of them."""
    every: list[PossibleMutant] = []
    for path in sorted((SOURCE / "forebay" / room).rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        if not modules or name in modules:
            every += mutants(name, path.read_text())
    random.Random(f"{seed} {room}").shuffle(every)
    found = Sample(room, [], [], len(every))
    for mutant in filter(None, (possible.made() for possible in every)):
        if len(found.chosen) == each:
            break
        if (reason := _why_equivalent(mutant)) is None:
            found.chosen.append(mutant)
        else:
            found.equivalent.append((mutant, reason))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--each", type=int, default=25, help="mutants per room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this room; may be repeated")
    parser.add_argument("--module", action="append", help="every mutant of it, as forebay/net/tls.py; may be repeated")
    parser.add_argument("--only", action="append", help="tests to ask (default: those that need no cluster)")
    parser.add_argument("--measure-again", action="store_true", help="measure every test file, as the source is now")
    parser.add_argument("--survivors", action="store_true", help="of the sample, only what the last run saw survive")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--bar", type=float, default=0.9, help="the least share that must be noticed in each room")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        only = arguments.only or ["tests/unit", "tests/engine", *WORLDS]
        tests = measure(only, scratch, arguments.workers, again=arguments.measure_again)
        modules = arguments.module or ()
        rooms = arguments.room or [
            room for room in ROOMS if not modules or room in {each.split("/")[1] for each in modules}
        ]
        samples = [sample(room, None if modules else arguments.each, arguments.seed, modules) for room in rooms]
        say_how_drawn(samples, arguments.seed)
        chosen = [(each.room, mutant) for each in samples for mutant in each.chosen]
        if arguments.survivors:
            survivors = set(_SURVIVORS.read_text().splitlines())
            chosen = [each for each in chosen if _place(each[1]) in survivors]
        # A fault that is none: whoever notices it would notice anything.
        control = [(room, mutant._replace(source=(SOURCE / mutant.path).read_text())) for room, mutant in chosen[:1]]
        if any(each.outcome in NOTICED for each in judge(control, tests, scratch / "control", 1)):
            sys.exit("the tests fail without any fault as well; mutants would prove nothing")
        verdicts = judge(chosen, tests, scratch / "mutants", arguments.workers, tell)
    _SURVIVORS.parent.mkdir(exist_ok=True)
    _SURVIVORS.write_text("".join(f"{_place(each.mutant)}\n" for each in verdicts if each.outcome not in NOTICED))
    return report(verdicts, arguments.bar)


def say_how_drawn(samples: Sequence[Sample], seed: int) -> None:
    print(f"sample: of every room all possible mutants, shuffled by seed {seed} and the room's name, from the front.")
    print(
        "No mutants: types, declarations, assertions, debug logging, what `faults.py` names; and, with the reasons of"
    )
    print("`equivalent.py`, these that were drawn:")
    for each in samples:
        for mutant, reason in each.equivalent:
            print(f"    {mutant.path}:{mutant.line} {mutant.what}: {reason}")
    drawn = ", ".join(f"{each.room} {len(each.chosen)} of {each.possible}" for each in samples)
    print(f"drawn: {drawn}")
    print(f"asked: the tests that run the line, quickest first, {ASKED:.0f} s of them at most, then those of")
    print(f"{' and '.join(WORLDS)}, {ASKED_OF_WORLDS:.0f} s at most; a mutant whose tests use five times")
    print(f"their CPU and {PATIENCE} s more hangs, which is noticed.", flush=True)


def _why_equivalent(mutant: Mutant) -> str | None:
    line = (SOURCE / mutant.path).read_text().splitlines()[mutant.line - 1].strip()
    return EQUIVALENT.get((mutant.path, mutant.what), EQUIVALENT.get((mutant.path, mutant.what, line)))


def _place(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} {mutant.what}".replace("\n", " ")


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
        noticed, total = sum(counts[each] for each in NOTICED), counts.total()
        missed = missed or noticed < bar * total
        print(f"{room:<12}{total:>8}{noticed:>8}{noticed / total:>8.0%}{counts[Outcome.UNREACHED]:>11}")
    return int(missed)


sys.exit(main())
