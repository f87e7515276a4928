"""The leader test, many times in a row: `python -m tests.cluster.soak [RUNS]`. The first failure ends it."""

import asyncio
import statistics
import sys
import time

from tests.cluster.leadership import DURATION, TAKEOVER, Figures, a_leader_is_paused_and_wakes_up
from tests.rig import Rig, RigMissing, Tier


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def soak(runs: int) -> None:
    done: list[Figures] = []
    began = time.monotonic()
    with Rig.start(Tier.API) as rig:
        say(f"rig: the control plane started in {rig.started_in:.1f} s")
        for run in range(1, runs + 1):
            try:
                figures = asyncio.run(a_leader_is_paused_and_wakes_up(rig))
            except BaseException:
                say(f"run {run} of {runs}: FAILED, after {len(done)} that passed")
                raise
            done.append(figures)
            say(
                f"run {run} of {runs}: takeover {figures.takeover:.2f} s (lease {DURATION:g} s, bar {TAKEOVER:g} s), "
                f"starved {figures.starved:.2f} s, back after {figures.back:.2f} s"
            )
    for name, values in (
        ("takeover", [each.takeover for each in done]),
        ("back", [each.back for each in done]),
        ("starved", [each.starved for each in done]),
    ):
        say(f"{name}: min {min(values):.2f} s, median {statistics.median(values):.2f} s, max {max(values):.2f} s")
    say(f"{len(done)} runs in a row passed in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    try:
        soak(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
    except RigMissing as missing:
        sys.exit(f"NOT TESTED: {missing}")
