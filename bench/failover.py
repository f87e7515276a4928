"""From a capacity error to the next launch call, and from a pod that waits to the first one, on a real control plane.

    python bench/failover.py [--samples N] [--json]

`forebay run` leads among 1,000 other pods. A simulated cloud has one type of machine in many zones, at rising prices,
and has none left whenever a pod first asks. GPU pods come one at a time; none of their machines joins, so that ever
more pods wait. `pending`: from when a separate watch brings the pod's Unschedulable condition until the first launch
call. `next`: from that call, which is refused for want of capacity, until the next. Ends with 1 where the 99th
percentile is over 200 ms, or over 1 s.
"""

import argparse
import asyncio
import json
import math
import random
import sys
from collections.abc import Sequence
from typing import Any

import structlog

from forebay.net.serve import serving
from forebay.simulate import market_faults as faults
from forebay.simulate.market import Market, MarketCall, ReceivedCall
from forebay.simulate.market_goods import Sku
from on_the_rig import FOREBAY, NAMESPACE, Administrator, BenchCluster, bench_cluster, gpu_pod
from reaction import NEVER, Watcher, populate

PENDING_BAR_MS = 200.0
NEXT_BAR_MS = 1000.0
#: Zones that are not needed, so that the last pods have a choice, too.
SPARE = 20


def cloud(zones: int) -> Market:
    skus = [
        Sku(
            instance_type="l40s.1x",
            gpus=1,
            gpu_type="L40S",
            hourly_price=f"{1 + number / 1000:.3f}",
            region=f"region-{number % 7}",
            zone=f"zone-{number:03}",
            boot=NEVER,
        )
        for number in range(zones)
    ]
    return Market("cloud", skus)


def configure(world: BenchCluster, base: str) -> None:
    administrator = Administrator(world.rig)
    spec: dict[str, Any] = {"providers": [{"name": "simulated", "endpoint": base}], "allowedNamespaces": {}}
    made = {"apiVersion": "forebay.dev/v1alpha1", "kind": "GPUNodeClass", "metadata": {"name": "rented"}, "spec": spec}
    administrator.call("POST", f"{FOREBAY}/gpunodeclasses", made)
    pool = {**made, "kind": "GPUNodePool", "spec": {"nodeClassRef": {"name": "rented"}}}
    administrator.call("POST", f"{FOREBAY}/namespaces/{NAMESPACE}/gpunodepools", pool)
    administrator.close()


def launches(market: Market) -> list[ReceivedCall]:
    return market.calls_of(MarketCall.LAUNCH)


async def sample(world: BenchCluster, watcher: Watcher, market: Market, number: int) -> tuple[float, float]:
    """Milliseconds until the first call, and from that until the next."""
    name, before = f"pod-{number:03}", len(launches(market))
    market.script(MarketCall.LAUNCH, faults.no_capacity())
    await world.create_pods([gpu_pod(name, 1)])
    await world.until(lambda: len(launches(market)) >= before + 2 and name in watcher.seen, 60.0)
    first, second = launches(market)[before : before + 2]
    assert (first.acted, second.acted) == (False, True)
    spans = first.at - watcher.seen[name], second.at - first.at
    return spans[0].total_seconds() * 1000, spans[1].total_seconds() * 1000


async def work(samples: int) -> list[tuple[float, float]]:
    rng = random.Random(1)
    market = cloud(samples + SPARE)
    async with bench_cluster() as world, serving(market.answer) as base:
        await populate(world)
        await asyncio.to_thread(configure, world, base)
        watcher = Watcher()
        world.pods.subscribe(watcher)
        with world.operator({}) as operator:
            await world.until(lambda: bool(market.calls_of(MarketCall.OFFERS)))
            await asyncio.sleep(1)
            # The first opens the connections.
            await sample(world, watcher, market, samples)
            took = []
            for number in range(samples):
                await asyncio.sleep(rng.uniform(0.2, 0.6))
                took.append(await sample(world, watcher, market, number))
            assert operator.pid
        market.stop()
        return took


def percentiles(took: Sequence[float]) -> dict[str, float]:
    found = sorted(took)
    return {
        "p50_ms": round(found[len(found) // 2], 1),
        "p99_ms": round(found[math.ceil(len(found) * 0.99) - 1], 1),
        "most_ms": round(found[-1], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))

    took = asyncio.run(work(options.samples))
    pending, after = percentiles([each for each, _ in took]), percentiles([each for _, each in took])
    met = pending["p99_ms"] <= PENDING_BAR_MS and after["p99_ms"] < NEXT_BAR_MS
    for what, found, bar in (
        ("pod waits -> launch call", pending, PENDING_BAR_MS),
        ("no capacity -> next launch call", after, NEXT_BAR_MS),
    ):
        print(f"{what:<32} 50 % within {found['p50_ms']} ms, 99 % within {found['p99_ms']} ms (bar {bar:.0f} ms)")
    print("bars met" if met else "bars MISSED")
    if options.json:
        print(json.dumps({"samples": len(took), "pending": pending, "next": after}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
