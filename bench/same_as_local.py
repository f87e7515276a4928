"""Jobs at RunPod's conformance server end as the same Jobs on a node of KWOK, on a control plane of its own.

    python bench/same_as_local.py [--jobs N] [--calm] [--json]

Some are indexed, fail, are suspended, resumed or deleted midway. Leaders are killed (SIGKILL) every two seconds
(`--without-kills`: not) and 20 % of the requests to RunPod fail, half of them after they acted (`--calm`: neither).
Ends with 1 where a bar is missed: `differences` 0 (Jobs whose status or pods ended otherwise), `left` 0 (containers and
registry credentials), `unbilled` 0, `cents_apart` < 1 (bill of the server against the ledger). RunPod's limit of 60
requests a minute is not kept here: `offload.py` measures with it.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from msgspec import to_builtins

from tests.cluster.jobs_compared import Comparison, compare_jobs
from tests.cluster.worlds import install_definitions
from tests.rig import Rig, Tier


def measured(jobs: int, *, kills: bool, faults: float, trace: Callable[[str], None] | None) -> Comparison:
    with Rig.start(Tier.CLUSTER) as rig:
        install_definitions(rig)
        return asyncio.run(compare_jobs(rig, jobs, kills=kills, faults=faults, harsh=True, trace=trace))


def told(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--without-kills", action="store_true")
    parser.add_argument("--trace", action="store_true", help="tell every 5 s what has not ended yet")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    began = time.monotonic()
    kills = not (arguments.calm or arguments.without_kills)
    found = measured(
        arguments.jobs, kills=kills, faults=0.0 if arguments.calm else 0.2, trace=told if arguments.trace else None
    )
    for name, (local, remote) in found.differences.items():
        print(f"{name}: locally {local}\n{' ' * len(name)}  remotely {remote}", file=sys.stderr)
    for line in found.unbilled:
        print(f"billed for less: {line}", file=sys.stderr)
    shown = {
        **to_builtins(found),
        "differences": len(found.differences),
        "unbilled": len(found.unbilled),
        "cents_apart": round(found.cents_apart, 3),
        "seconds": round(time.monotonic() - began),
    }
    if arguments.json:
        print(json.dumps(shown))
    else:
        for name, value in shown.items():
            print(f"{name:16} {value}")
    missed = found.differences or found.left or found.unbilled or found.violations or found.cents_apart >= 1
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
