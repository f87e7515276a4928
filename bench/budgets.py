"""Budgets: what their ledgers cost, and whether they are correct.

- `philly`: all 82,247 jobs of the Philly trace, replayed in time order through the ledgers of their tenants (recorded
  as they end, stored, compacted, loaded again), must total 978,078.47 GPU-h to the second. Only where the trace is.
- `assess`: 1,000 budgets and 20,000 pods, all assessed at once: 200 ms at most.
- `window-edge`: usage that leaves a window of an hour, read for three hours of virtual time (`budgets_shapes.py`);
- `a month`: 31 days of 100,000 pods a day, in one budget (10,000 a day without --full) and in a thousand (of which ten
  are made, and what they take is multiplied): 50 MB at most, no object over 512 KiB.

Seconds are of CPU time: all of this is computing.

On a real control plane, where its programs are (`make rig`; --without-rig leaves them out; about eight minutes):
- `bench`, `bench deleted`, `chaos`, `down`, `kill -9`: what is reported of pods that run there (`budgets_harness.py`);
- `shapes`: restarts, init containers, several containers, label changes, overlapping budgets (`budgets_shapes.py`);
- `admission`: what the creation of a pod costs more (`budgets_admission.py`).

`--json` prints one object as the last line: scenarios[] with name, expected, reported, accuracy, signed_error.
"""

import argparse
import asyncio
import base64
import csv
import gzip
import json
import random
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import structlog

from forebay.api.gpu_workload_budget import (
    Enforcement,
    EnforcementAction,
    GPUWorkloadBudget,
    GPUWorkloadBudgetSpec,
    Quota,
)
from forebay.api.meta import ObjectMeta
from forebay.api.parts import LabelSelectorEntry
from forebay.budgets.accounts import Accounts
from forebay.budgets.assessment import Assessor
from forebay.budgets.ledger.ledger import Ledger
from forebay.model.quantities import GpuHours, Resources
from forebay.model.workloads import Phase, Pod, PodShape

TRACE = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces" / "philly_jobs.csv.gz"
PHILLY = GpuHours.from_exact("3521082502/3600")
PHILLY_S = 60.0
ASSESS_S = 0.200
MONTH_MB = 50.0
OBJECT_BYTES = 512 * 1024
COMPUTED = ("philly", "assess", "month", "window-edge")
ON_THE_RIG = ("bench", "bench-deleted", "chaos", "shapes", "down", "kill", "admission")
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")
DAY = 86_400
WHOLE = 400 * DAY
NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Store:
    """What the API server would keep of one ledger."""

    def __init__(self) -> None:
        self.objects: dict[int, bytes] = {}
        self.written = 0
        self.largest = 0

    def save(self, ledger: Ledger, now: int) -> None:
        for write in ledger.chunk_log.writes(now):
            self.objects[write.serial] = write.data
            self.written += len(write.data)
            self.largest = max(self.largest, len(base64.b64encode(write.data)))
            ledger.chunk_log.wrote(write)
        for serial in ledger.chunk_log.obsolete():
            del self.objects[serial]
            ledger.chunk_log.deleted(serial)

    @property
    def bytes(self) -> int:
        return sum(map(len, self.objects.values()))


def scenario(name: str, expected: GpuHours, reported: GpuHours, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "expected": float(expected.hours),
        "reported": float(reported.hours),
        "accuracy": float(min(reported / expected, Fraction(1))),
        "signed_error": float((reported - expected).hours),
        **more,
    }


def philly() -> dict[str, Any] | None:
    if not TRACE.exists():
        print("philly       the trace is not there, so it is not replayed")
        return None
    jobs = list(_jobs())
    begun = time.process_time()
    ledgers: dict[str, Ledger] = {}
    stores: defaultdict[str, Store] = defaultdict(Store)
    day = 0
    for end, start, gpus, tenant, uid in jobs:
        while end // DAY > day:
            day += 1
            _overnight(ledgers, stores, day * DAY, {})
        ledger = ledgers.setdefault(tenant, Ledger(tenant))
        ledger.record(uid, start, end, gpus * 1000)
        if random.random() < 0.01:
            ledger.record(uid, start, end, gpus * 1000)  # a duplicate event
    last = jobs[-1][0]
    for later in (1, 2):
        _overnight(ledgers, stores, last + later * DAY, {})
    total = GpuHours.zero()
    damages = 0
    for tenant, store in stores.items():
        ledger, damaged = Ledger.load(tenant, store.objects)
        damages += len(damaged)
        total += GpuHours.from_units(ledger.consumed((last + DAY) * 10**6, WHOLE * 10**6))
    taken = time.process_time() - begun
    met = total == PHILLY and taken <= PHILLY_S and not damages
    objects = sum(len(store.objects) for store in stores.values())
    size = sum(store.bytes for store in stores.values())
    print(f"philly       {len(jobs):,} jobs of {len(stores)} tenants: {total} (must be {PHILLY}) in {taken:.1f} s")
    print(f"             {objects} objects, {size / 1e6:.2f} MB: {'met' if met else 'MISSED'}")
    return scenario("philly", PHILLY, total, seconds=taken, jobs=len(jobs), objects=objects, bytes=size, met=met)


def _overnight(ledgers: dict[str, Ledger], stores: dict[str, Store], now: int, visible: dict[str, None]) -> None:
    """Stored and compacted; once a week loaded again, as by an operator that was restarted."""
    for tenant, ledger in list(ledgers.items()):
        stores[tenant].save(ledger, now)
        ledger.compact(now, WHOLE, visible)
        stores[tenant].save(ledger, now)
        if now // DAY % 7 == 0:
            ledgers[tenant], damages = Ledger.load(tenant, stores[tenant].objects)
            assert not damages


def _jobs() -> Iterator[tuple[int, int, int, str, str]]:
    dice = random.Random(1)
    with gzip.open(TRACE, "rt") as lines:
        rows = sorted(
            (
                int(row["submit_s"]) + int(row["duration_s"]),
                int(row["submit_s"]),
                int(row["num_gpus"]),
                row["vc"],
                number,
            )
            for number, row in enumerate(csv.DictReader(lines))
        )
    for end, start, gpus, tenant, _ in rows:
        yield end, start, gpus, tenant, str(uuid.UUID(int=dice.getrandbits(128)))


def budget(number: int) -> GPUWorkloadBudget:
    name = f"team-{number:04d}"
    return GPUWorkloadBudget(
        metadata=ObjectMeta(name=name, namespace=f"space-{number % 50:02d}", uid=f"uid-{name}"),
        spec=GPUWorkloadBudgetSpec(
            selector=LabelSelectorEntry(match_labels={"team": name}),
            quota=Quota(gpu_hours=str(100 + number), window_hours=24 + number % 700),
            enforcement=Enforcement(action=EnforcementAction.EVICT),
        ),
    )


def pods(count: int, budgets: int) -> Iterator[Pod]:
    dice = random.Random(2)
    shapes = [PodShape(requests=Resources({"nvidia.com/gpu": 1 << size, "cpu": 4000})) for size in range(4)]
    for number in range(count):
        team = number % budgets
        started = NOW - timedelta(seconds=dice.randrange(40 * 3600))
        ended = started + timedelta(seconds=dice.randrange(20 * 3600)) if number % 2 else None
        over = ended is not None and ended < NOW
        yield Pod(
            namespace=f"space-{team % 50:02d}",
            name=f"pod-{number}",
            uid=str(uuid.UUID(int=dice.getrandbits(128))),
            resource_version=number,
            created=started - timedelta(seconds=20),
            shape=shapes[dice.randrange(4)],
            phase=Phase.SUCCEEDED if over else Phase.RUNNING,
            labels={"team": f"team-{team:04d}", "app": f"app-{number % 7}"},
            annotations={},
            owner=None,
            node=f"node-{number % 500}",
            nominated_node=None,
            deleted=None,
            unschedulable_since=None,
            unschedulable_message=None,
            finalizers=(),
            started=started,
            finished=ended if over else None,
        )


def assess(budgets: int = 1_000, count: int = 20_000) -> dict[str, Any]:
    all_budgets = [budget(number) for number in range(budgets)]
    all_pods = list(pods(count, budgets))
    accounts, assessor = Accounts(), Assessor()
    begun = time.process_time()
    for each in all_budgets:
        accounts.open(each, NOW)
    for pod in all_pods:
        accounts.see(pod, NOW)
    filled = time.process_time() - begun
    begun = time.process_time()
    assessor.assess(all_budgets, accounts, NOW)
    first = time.process_time() - begun
    again = []
    for turn in range(1, 10):
        now = NOW + timedelta(seconds=turn)
        begun = time.process_time()
        standings = assessor.assess(all_budgets, accounts, now)
        again.append(time.process_time() - begun)
    reported = sum((standing.consumed for standing in standings.values()), start=GpuHours.zero())
    expected = sum((_usage(pod, all_budgets, now) for pod in all_pods), start=GpuHours.zero())
    met = first <= ASSESS_S and max(again) <= ASSESS_S and reported == expected
    print(
        f"assess       {budgets:,} budgets x {count:,} pods: {first * 1e3:.0f} ms the first time, then "
        f"{sorted(again)[len(again) // 2] * 1e3:.0f} ms; filled in {filled * 1e3:.0f} ms: {'met' if met else 'MISSED'}"
    )
    return scenario("assess", expected, reported, first_s=first, again_s=max(again), filled_s=filled, met=met)


def _usage(pod: Pod, budgets: list[GPUWorkloadBudget], now: datetime) -> GpuHours:
    """The slow way: this pod, its budget, its interval, its window."""
    quota = budgets[int(pod.labels["team"].removeprefix("team-"))].spec.quota
    assert pod.started is not None
    start = max(pod.started, now - timedelta(hours=quota.window_hours))
    return pod.shape.gpus() * max((pod.finished or now) - start, timedelta(0))


def month(budgets: int, days: int = 31, daily: int = 100_000, sample: int = 1) -> dict[str, Any]:
    """Pods of a few seconds to many hours, stored and compacted each day. Of alike budgets, one in `sample` is made."""
    budgets, daily = budgets // sample, daily // sample
    dice = random.Random(3)
    ledgers = [Ledger(f"budget-{number}") for number in range(budgets)]
    stores = [Store() for _ in ledgers]
    expected = 0
    begun = time.process_time()
    most = 0
    for day in range(1, days + 1):
        for _ in range(daily):
            number = dice.randrange(budgets)
            end = day * DAY + dice.randrange(DAY)
            start = end - int(dice.expovariate(1 / 3600)) - 1
            rate = 1000 << dice.randrange(4)
            ledgers[number].record(str(uuid.UUID(int=dice.getrandbits(128))), start, end, rate)
            expected += rate * (end - max(start, DAY))
        for ledger, store in zip(ledgers, stores, strict=True):
            store.save(ledger, (day + 1) * DAY)
            ledger.compact((day + 1) * DAY, 31 * DAY, ())
            store.save(ledger, (day + 1) * DAY)
        most = max(most, sum(store.bytes for store in stores))
    taken = time.process_time() - begun
    now = (days + 1) * DAY * 10**6
    total = sum(
        Ledger.load(ledger.chunk_log.owner, store.objects)[0].consumed(now, days * DAY * 10**6)
        for ledger, store in zip(ledgers, stores, strict=True)
    )
    begun = time.process_time()
    for ledger in ledgers:
        ledger.begin("running", days * DAY, 1000, days * DAY)
        ledger.profile.reaches(10**30, now, days * DAY * 10**6)
        ledger.profile.reaches(ledger.consumed(now, days * DAY * 10**6) + 1000 * 10**6, now, days * DAY * 10**6)
    forecast = (time.process_time() - begun) / len(ledgers)
    largest = max(store.largest for store in stores)
    objects = sum(len(store.objects) for store in stores) * sample
    most *= sample
    reported, true = GpuHours.from_units(total), GpuHours.from_units(expected * 10**6)
    met = most <= MONTH_MB * 1e6 and largest <= OBJECT_BYTES and reported == true
    print(
        f"a month      {days} x {daily * sample:,} pods in {budgets * sample:,} budgets: {most / 1e6:.1f} MB in "
        f"{objects:,} objects, the largest {largest / 1024:.0f} KiB; {taken:.0f} s; a forecast takes "
        f"{forecast * 1e3:.1f} ms: {'met' if met else 'MISSED'}"
    )
    return scenario(f"month-{budgets * sample}", true, reported, bytes=most, objects=objects, largest=largest, met=met)


def rig_scenarios(names: Sequence[str], *, left_out: bool) -> list[dict[str, Any]]:
    """Says in one line what is not run, and why."""
    if not names:
        return []
    # Beside this script; with it comes a control plane.
    import budgets_admission
    import budgets_harness
    import budgets_shapes
    from tests.rig.binaries import RigMissing, locate

    why = "--without-rig"
    if not left_out:
        try:
            locate(*PROGRAMS)
            why = ""
        except RigMissing as missing:
            why = str(missing)
    if why:
        print(f"not run      {', '.join(names)}: {why}")
        return []
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))
    runs: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "bench": lambda: asyncio.run(budgets_harness.bench()),
        "bench-deleted": lambda: asyncio.run(budgets_harness.bench(deleted=True)),
        "chaos": lambda: asyncio.run(budgets_harness.chaos()),
        "shapes": lambda: asyncio.run(budgets_shapes.shapes()),
        "down": lambda: asyncio.run(budgets_harness.down()),
        "kill": lambda: asyncio.run(budgets_harness.killed()),
        "admission": budgets_admission.admission,
    }
    return [each for name in names for each in runs[name]()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--full", action="store_true", help="all pods of a month in one budget: three minutes of CPU")
    parser.add_argument("--without-rig", action="store_true", help="only what needs no control plane")
    parser.add_argument("--only", action="append", choices=(*COMPUTED, *ON_THE_RIG), help="this one; may be repeated")
    options = parser.parse_args()
    chosen = options.only or [*COMPUTED, *ON_THE_RIG]
    scenarios = []
    if "philly" in chosen and (replayed := philly()) is not None:
        scenarios.append(replayed)
    if "assess" in chosen:
        scenarios.append(assess())
    if "month" in chosen:
        scenarios += [month(1, daily=100_000 if options.full else 10_000), month(1_000, sample=100)]
    if "window-edge" in chosen:
        import budgets_shapes

        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("error"))
        scenarios += budgets_shapes.window_edge()
    scenarios += rig_scenarios([each for each in ON_THE_RIG if each in chosen], left_out=options.without_rig)
    met = all(each["met"] for each in scenarios)
    if options.json:
        print(json.dumps({"scenarios": scenarios, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
