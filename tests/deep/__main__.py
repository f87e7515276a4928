"""The command: runs the slices that have not passed yet, and says how many worlds of which law were run."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from tests.deep import SLICES
from tests.deep.plugin import Counts, table

_ROOT = Path(__file__).parents[2]
_STATE = _ROOT / ".deep"
#: What pytest is told to run: where the random worlds of `worlds_in_deep` are, and all laws elsewhere.
_RANDOM_WORLDS = sorted(str(path.relative_to(_ROOT)) for path in (_ROOT / "tests/crash").glob("test_random_*.py"))
_PARTS = {"worlds": _RANDOM_WORLDS, "laws": ["tests", *(f"--ignore={path}" for path in _RANDOM_WORLDS)]}


class Slice(msgspec.Struct):
    commit: str
    passed: bool
    counts: Counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="make deep", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the run; another one runs other worlds (default: by chance)")
    parser.add_argument("--slice", type=_slices, default=range(1, SLICES + 1), help="such as 3, or 3-5 (default: all)")
    parser.add_argument("--part", choices=_PARTS, help="only the 10,000 random crash worlds, or only all other laws")
    parser.add_argument("--law", default="", help="only laws whose names contain this; nothing is noted")
    parser.add_argument("--workers", default="1")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1, 10**6) if options.seed is None else options.seed
    part = f" PART={options.part}" if options.part else ""
    print(f"Seed {seed}. To go on after a break, or to see the same again: make deep SEED={seed}{part}", flush=True)
    path = _STATE / (f"seed-{seed}-{options.part}.json" if options.part else f"seed-{seed}.json")
    done = msgspec.json.decode(path.read_bytes(), type=dict[int, Slice]) if path.exists() else {}
    began = done if not options.law else {}
    for number in options.slice:
        if number in began and began[number].passed:
            print(f"Slice {number} of {SLICES} has passed on {began[number].commit}.", flush=True)
            continue
        began[number] = _run(seed, number, [*_PARTS.get(options.part, ()), *_named(options.law)], options.workers)
        if not options.law:
            _STATE.mkdir(exist_ok=True)
            path.write_bytes(msgspec.json.encode(began))
    return _report(seed, began)


def _run(seed: int, number: int, chosen: list[str], workers: str) -> Slice:
    # Of different runs and slices, no two are the same.
    of_slice = seed * 100 + number
    print(f"Slice {number} of {SLICES}, seed {of_slice}, from {time.strftime('%H:%M:%S')}.", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        counts = Path(directory) / "counts.json"
        environment = {
            **os.environ,
            "HYPOTHESIS_PROFILE": "deep",
            "FOREBAY_DEEP_SEED": str(of_slice),
            "FOREBAY_DEEP_COUNTS": str(counts),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-n", workers, "-m", "law", f"--hypothesis-seed={of_slice}"]
        ended = subprocess.run([*command, *chosen], cwd=_ROOT, env=environment, check=False)
        found = msgspec.json.decode(counts.read_bytes(), type=Counts) if counts.exists() else Counts()
    return Slice(_commit(), ended.returncode == 0, found)


def _report(seed: int, slices: dict[int, Slice]) -> int:
    worlds: dict[str, int] = {}
    for each in slices.values():
        for law, count in each.counts.worlds.items():
            worlds[law] = worlds.get(law, 0) + count
    print(f"\nCrash worlds of slices {', '.join(map(str, sorted(slices)))} of the run with seed {seed}:")
    print("\n".join(table(worlds)))
    others = max((each.counts.others for each in slices.values()), default=0)
    print(f"Beside these, {others} laws that tell of no crash world.")
    for number, each in sorted(slices.items()):
        for failed in each.counts.failed:
            law = failed.rpartition("::")[2].partition("[")[0]
            print(f"FAILED in slice {number}: {failed}. Again: make deep SEED={seed} SLICE={number} LAW={law}")
    return 0 if all(each.passed for each in slices.values()) else 1


def _named(law: str) -> list[str]:
    return ["-k", law] if law else []


def _slices(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _commit() -> str:
    described = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return (
        subprocess.run(described, cwd=_ROOT, capture_output=True, text=True, check=False).stdout.strip() or "no commit"
    )


if __name__ == "__main__":
    sys.exit(main())
