"""A day of mixed arrivals on simulated clouds: what Forebay pays, against two other ways to do it.

    python bench/churn.py [--jobs N] [--seed N] [--json]

The whole operator runs on the embedded cluster in virtual time. Jobs of 1, 2, 4 and 8 GPUs come over 24 hours, more by
day than by night, and run from minutes to hours. Two clouds rent machines of 1 to 8 GPUs that boot for two minutes.

- `optimum`: no schedule can cost less, even with hindsight. At every moment the jobs that run need machines around
  them; the bound is the cheapest such machines at each moment, as if they booted in no time, were billed by the moment,
  and jobs could move from one to the other for nothing.
- `first_fit`: each job takes the first machine with room, else the cheapest machine that fits it alone is rented;
  machines go when they have been idle for as long as with Forebay. It knows the same prices, boot times and bills.
- `spread`: the same, but a job takes the machine with the largest share free, as kube-scheduler does by default. Which
  machine a job takes is not Forebay's to say: this is what the default costs.

The same jobs run for as long in all of them. Prints dollars and ratios.
"""

import argparse
import asyncio
import itertools
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

# A benchmark is a script: the repository is not on its path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import structlog

from forebay.kube.lease import Terms
from forebay.net import clock
from forebay.simulate.market_goods import Sku
from forebay.simulate.virtual_time import run
from tests.engine.market_world import Cloud, cloud_operator, clouds, market

DAY = 86_400
#: How much longer everything may take to end.
MOST = 2 * DAY
BOOT, DRIVER = 110.0, 10.0
IDLE = 300
MINIMUM = 60
#: GPUs, and dollars an hour: large machines cost a little less for each GPU, as everywhere.
PRICES = {"alpha": {1: "1.20", 4: "4.40"}, "beta": {2: "2.30", 8: "8.40"}}
#: Nobody else wants to lead: a day has 43,200 renewals by the usual terms.
TERMS = Terms(duration=900.0, renew_deadline=600.0, retry=300.0)
#: Jobs of so many GPUs, by weight.
SIZES = {1: 60, 2: 20, 4: 13, 8: 7}


class Arrival(NamedTuple):
    at: float
    gpus: int
    #: Seconds.
    runs: int


class OneMachine:
    """A machine of the first-fit baseline."""

    def __init__(self, gpus: int, price: Fraction, began: float) -> None:
        self.gpus = gpus
        self.price = price
        self.began = began
        self.ready = began + BOOT + DRIVER
        #: End and GPUs of the jobs on it.
        self.jobs: list[tuple[float, int]] = []

    def free(self, at: float) -> int:
        return self.gpus - sum(gpus for end, gpus in self.jobs if end > at)

    @property
    def idle_at(self) -> float:
        """When it will be terminated, if no other job comes."""
        return max(end for end, _ in self.jobs) + IDLE

    def cost(self) -> Fraction:
        seconds = max(self.idle_at - self.began, MINIMUM)
        return self.price * Fraction(seconds) / 3600


def arrivals(jobs: int, seed: int) -> list[Arrival]:
    """Three times as many by day (from 8 to 20 o'clock) as by night."""
    rng = random.Random(seed)
    hours = rng.choices(range(24), [3 if 8 <= hour < 20 else 1 for hour in range(24)], k=jobs)
    sizes = rng.choices(list(SIZES), list(SIZES.values()), k=jobs)
    return sorted(
        Arrival(3600 * hour + rng.random() * 3600, gpus, round(min(max(rng.lognormvariate(7.2, 1.0), 120), 6 * 3600)))
        for hour, gpus in zip(hours, sizes, strict=True)
    )


def machines() -> dict[int, Fraction]:
    """The cheapest price of each size."""
    return {gpus: Fraction(price) for prices in PRICES.values() for gpus, price in prices.items()}


def optimum(work: Sequence[Arrival]) -> Fraction:
    """Dollars below which nobody can serve the work."""
    begins = {each.at for each in work} | {each.at + each.runs for each in work}
    known: dict[tuple[int, ...], Fraction] = {}
    total = Fraction(0)
    for start, end in itertools.pairwise(sorted(begins)):
        running = [each.gpus for each in work if each.at <= start < each.at + each.runs]
        demand = tuple(running.count(size) for size in SIZES)
        if demand not in known:
            known[demand] = cheapest_cover(dict(zip(SIZES, demand, strict=True)))
        total += known[demand] * Fraction(end - start) / 3600
    return total


def cheapest_cover(demand: dict[int, int]) -> Fraction:
    """The least an hour of machines that hold these jobs costs. Sizes are powers of two: jobs fit exactly if, for each
    size, the machines that are at least as large hold all jobs that are.
    """
    prices = machines()
    sizes = sorted(prices, reverse=True)
    needs = {size: sum(gpus * count for gpus, count in demand.items() if gpus >= size) for size in sizes}
    best: dict[int, Fraction] = {0: Fraction(0)}
    for size in sizes:
        most = math.ceil(needs[min(sizes)] / size)
        after: dict[int, Fraction] = {}
        for held, cost in best.items():
            for count in range(most + 1):
                now = held + size * count
                if now >= needs[size] and cost + count * prices[size] < after.get(now, Fraction(10**9)):
                    after[now] = cost + count * prices[size]
                if now >= needs[min(sizes)]:
                    break
        best = after
    return min(best.values())


def first(fits: Sequence[OneMachine], _job: Arrival) -> OneMachine:
    return fits[0]


def least_allocated(fits: Sequence[OneMachine], job: Arrival) -> OneMachine:
    """As kube-scheduler chooses: of the nodes that are up, the one with the largest share free."""
    up = [each for each in fits if each.ready <= job.at]
    return max(up or fits, key=lambda each: (each.free(job.at) - job.gpus) / each.gpus)


def fit(work: Sequence[Arrival], choose: Callable[[Sequence[OneMachine], Arrival], OneMachine]) -> Fraction:
    """Dollars, where each job takes the machine that is chosen among those with room, else the cheapest is rented."""
    rented: list[OneMachine] = []
    for job in work:
        fits = [each for each in rented if each.idle_at > job.at and each.free(job.at) >= job.gpus]
        if fits:
            found = choose(fits, job)
        else:
            sizes = ((size, price) for size, price in machines().items() if size >= job.gpus)
            gpus, price = min(sizes, key=lambda each: each[1])
            found = OneMachine(gpus, price, job.at)
            rented.append(found)
        found.jobs.append((max(job.at, found.ready) + job.runs, job.gpus))
    return sum((each.cost() for each in rented), Fraction(0))


async def ours(work: Sequence[Arrival]) -> dict[str, Any]:
    skus = {
        name: [
            Sku(
                instance_type=f"{name}.{gpus}x",
                gpus=gpus,
                gpu_type="L40S",
                hourly_price=price,
                region=name,
                boot=BOOT,
                driver=DRIVER,
                minimum=MINIMUM,
                increment=1,
            )
            for gpus, price in prices.items()
        ]
        for name, prices in PRICES.items()
    }
    async with clouds(*(market(name, *each) for name, each in skus.items()), events=False) as world:
        for name in PRICES:
            world.pool(name, disruption={"consolidateAfter": f"{IDLE}s"}, limits={})
        watched = Watched(world)
        async with cloud_operator(world, terms=TERMS):
            await asyncio.sleep(10)
            loop = asyncio.get_running_loop()
            began = loop.time()
            for number, job in enumerate(work):
                await asyncio.sleep(max(0.0, began + job.at - loop.time()))
                world.world.pod(f"job-{number:04}", job.gpus, runs=f"{job.runs}s")
            await _at_rest(world, watched, len(work))
        return {
            "dollars": world.bill(),
            "ledger": world.ledger(),
            "machines": sum(len(each.instances) for each in world.markets.values()),
            "waited": sorted(watched.waited.values()),
        }


class Watched:
    """Which jobs have ended, and how long each waited: a pod goes with the node on which it ended."""

    def __init__(self, world: Cloud) -> None:
        #: Seconds from creation to start, by name.
        self.waited: dict[str, float] = {}
        self.ended: set[str] = set()
        world.store.subscribe(world.store.kinds.named("v1", "Pod"), self._see)

    def _see(self, change: Any) -> None:
        pod = change.new
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        if status.get("phase") == "Running" and name not in self.waited:
            made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
            self.waited[name] = (clock.now() - made).total_seconds()
        if status.get("phase") == "Succeeded":
            self.ended.add(name)


async def _at_rest(world: Cloud, watched: Watched, count: int) -> None:
    async with asyncio.timeout(MOST):
        while world.running or set(world.world.states().values()) - {"Gone"} or len(watched.ended) < count:  # noqa: ASYNC110
            await asyncio.sleep(60)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))

    work = arrivals(options.jobs, options.seed)
    best, first_fit, spread = optimum(work), fit(work, first), fit(work, least_allocated)
    found = run(ours(work))
    paid, waits = found["dollars"], found["waited"]
    figures = {
        "jobs": len(work),
        "gpu_hours": round(sum(each.gpus * each.runs for each in work) / 3600, 1),
        "machines": found["machines"],
        "ours": round(float(paid), 2),
        "ledger": round(float(found["ledger"]), 2),
        "optimum": round(float(best), 2),
        "first_fit": round(float(first_fit), 2),
        "spread": round(float(spread), 2),
        "over_optimum": round(float(paid / best), 3),
        "first_fit_over_ours": round(float(first_fit / paid), 3),
        "spread_over_ours": round(float(spread / paid), 3),
        "wait_p50_s": waits[len(waits) // 2] if waits else None,
        "wait_p99_s": waits[math.ceil(len(waits) * 0.99) - 1] if waits else None,
    }
    print(f"{len(work)} jobs, {figures['gpu_hours']} GPU-hours, {figures['machines']} machines")
    print(f"ours       ${figures['ours']:>9}   (ledger ${figures['ledger']})")
    print(f"optimum    ${figures['optimum']:>9}   bound with hindsight; ours is {figures['over_optimum']} times it")
    print(f"first fit  ${figures['first_fit']:>9}   {figures['first_fit_over_ours']} times ours")
    print(f"spread     ${figures['spread']:>9}   {figures['spread_over_ours']} times ours")
    if options.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
