"""What pods that wait cost the API server: their writes, and how long until every pod says why it waits.

    python bench/waiting.py [--pods N ...] [--json]

The operator leads on the embedded cluster, in virtual time; pods of one Job and as many as 500 without an owner request
more GPUs than any machine has. Counted are the operator's writes to pods and events until every pod has its condition,
and for 70 minutes after that, in which events expire and are repeated. Ends with 1 where a pod is not told, where a pod
is written to more than once, where more than 60 are written to within a second, or where there are 100 events or more.
"""

import argparse
import asyncio
import json
import sys
import time
from bisect import bisect_left
from collections import Counter
from typing import Any

import structlog

from forebay.embedded.api import kinds
from forebay.simulate.power import Powered
from forebay.simulate.virtual_time import run
from tests.engine.power_world import lab, operator
from tests.engine.test_many_waiting import Writes, capacity, job

EVENTS_BAR = 100
MOST_A_SECOND = 60
BARE = 500


async def measure(pods: int) -> dict[str, Any]:
    writes = Writes()
    began = time.perf_counter()
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world, wrap=writes):
        job(world, "sweep", pods - BARE, 16)
        for number in range(BARE):
            world.pod(f"giant-{number}", 16)
        start = asyncio.get_running_loop().time()
        await asyncio.sleep(60 + pods / 20)
        told_after = max(writes.times, default=start) - start
        told = Counter(capacity(pod) is not None for pod in world.store.list(kinds.POD_KIND, "default"))
        await asyncio.sleep(70 * 60)
        busiest = max(bisect_left(writes.times, at + 1) - first for first, at in enumerate(writes.times))
    return {
        "pods": pods,
        "told": told[True],
        "seconds_until_all_are_told": round(told_after),
        "writes_to_pods": writes.by_kind["pod"],
        "most_writes_in_a_second": busiest,
        "writes_of_events": writes.by_kind["event"],
        "real_seconds": round(time.perf_counter() - began),
    }


def is_bounded(found: dict[str, Any]) -> bool:
    return (
        found["told"] == found["pods"] == found["writes_to_pods"]
        and found["most_writes_in_a_second"] <= MOST_A_SECOND
        and found["writes_of_events"] < EVENTS_BAR
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, nargs="+", default=[3_000, 20_500])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    good = True
    for pods in arguments.pods:
        found = run(measure(pods))
        good &= is_bounded(found)
        if arguments.json:
            print(json.dumps(found))
        else:
            print(", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in found.items()))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
