"""Whether the plan comes true: 1,000 pods and exactly the 300 machines that hold them, on a real control plane.

    python bench/promise.py [--json]

The pods ask for 1, 2, 4 and 8 GPUs, 2,400 in all; the machines have 8 each, and their Node objects are there while they
are off. `forebay run` plans, puts the startup taint on each node, powers the machine on and lets its pods tolerate that
taint; kube-scheduler binds. `as_planned` are the pods on exactly the node that was launched for them, `bound` all on
any of the 300. `after_ready` are the seconds from the last node that could take pods to the last binding. `without` is
how many the scheduler binds by itself on the same nodes, which then appear at once. Ends with 1 where a bar is missed.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import structlog

from forebay.api.names import STARTUP_TAINT
from forebay.kube.informer import Informer
from forebay.kube.nodes import NODES
from forebay.model.nodes import Node
from forebay.model.workloads import Pod
from forebay.simulate.power import Powered
from on_the_rig import FOREBAY, Administrator, BenchCluster, Part, bench_cluster, gpu_pod, node, power_api

AS_PLANNED = 1000
#: Seconds, on two quiet cores.
ALL_BOUND = 18.0
AFTER_READY = 2.0
GPUS = {1: 500, 2: 250, 4: 150, 8: 100}
MACHINES = 300


def pods(rng: random.Random) -> list[dict[str, Any]]:
    asked = [gpus for gpus, count in GPUS.items() for _ in range(count)]
    rng.shuffle(asked)
    return [asking(gpu_pod(f"pod-{number:04}", gpus), gpus) for number, gpus in enumerate(asked)]


def asking(pod: dict[str, Any], gpus: int) -> dict[str, Any]:
    """Also for the processors and the memory that go with the GPUs: by these the scheduler spreads pods over nodes."""
    [container] = pod["spec"]["containers"]
    container["resources"]["requests"] = {"cpu": str(8 * gpus), "memory": f"{64 * gpus}Gi"}
    return pod


def machines(rng: random.Random) -> list[Powered]:
    amounts = {"cpu": "96", "memory": "768Gi"}
    return [
        Powered(name=f"machine-{number:03}", gpus=8, boot=rng.uniform(2, 8), allocatable=amounts)
        for number in range(MACHINES)
    ]


async def waiting(world: BenchCluster, rng: random.Random) -> None:
    everyone = pods(rng)
    await world.create_pods(everyone)
    await world.unschedulable(len(everyone))


class Firsts:
    """When each object was first seen to be so."""

    def __init__(self, is_so: Callable[[Any], bool]) -> None:
        self._is_so = is_so
        self._at: dict[str, float] = {}

    def note(self, change: Any) -> None:
        seen = getattr(change, "new", None)
        if seen is not None and seen.uid not in self._at and self._is_so(seen):
            self._at[seen.uid] = time.monotonic()

    @property
    def last(self) -> float:
        return max(self._at.values(), default=0.0)


def can_take_pods(node: Node) -> bool:
    return node.ready and all(taint.key == STARTUP_TAINT for taint in node.taints)


def is_bound(pod: Pod) -> bool:
    return pod.node is not None


async def with_forebay() -> dict[str, Any]:
    rng = random.Random(1)
    async with (
        bench_cluster() as world,
        power_api(world.rig, machines(rng), look_for_pods=False, kept=True) as (power, base),
        Informer(world.client.transport, world.rig.url, NODES) as nodes,
    ):
        await waiting(world, rng)
        await nodes.wait_synced()
        up, bound = Firsts(can_take_pods), Firsts(is_bound)
        nodes.subscribe(up.note)
        world.pods.subscribe(bound.note)
        began = time.monotonic()
        with world.operator({**power.environment(base), "FOREBAY_POWER_ON_INTERVAL": "0s"}) as operator:
            await world.settled(world.bound, len(world.pods))
            took = time.monotonic() - began
            administrator = Administrator(world.rig)
            records = administrator.call("GET", f"{FOREBAY}/gpuinstances")["items"]
            administrator.close()
            assert operator.pid
        planned = {pod["uid"]: each["spec"]["node"]["name"] for each in records for pod in each["spec"].get("pods", ())}
        where = {pod.uid: pod.node for pod in world.pods.values()}
        missed = Counter(
            int(pod.shape.gpus()) for pod in world.pods.values() if pod.node is None or planned.get(pod.uid) != pod.node
        )
        return {
            "planned_nodes": len(records),
            "bound": sum(name in power.machines for name in where.values()),
            "as_planned": sum(name is not None and planned.get(uid) == name for uid, name in where.items()),
            "seconds": round(took, 1),
            "after_ready": round(bound.last - up.last, 2),
            "missed_by_gpus": dict(sorted(missed.items())),
        }


async def without_forebay() -> int:
    rng = random.Random(1)
    async with bench_cluster() as world:
        await waiting(world, rng)
        # On a slow machine they would come one after the other, and each would be filled before the next.
        with world.rig.paused(Part.SCHEDULER):
            await world.create_nodes(node(machine) for machine in machines(rng))
            await world.nodes_ready(MACHINES)
        return await world.settled(world.bound, len(world.pods))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    parser.add_argument("--only", action="store_true", help="with Forebay only")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))

    figures = asyncio.run(with_forebay())
    print(f"planned nodes          {figures['planned_nodes']:>6}")
    print(f"bound on these         {figures['bound']:>6}  of 1,000, after {figures['seconds']} s")
    print(f"exactly as planned     {figures['as_planned']:>6}")
    print(f"last node to last pod  {figures['after_ready']:>6} s")
    if not options.only:
        figures["without"] = asyncio.run(without_forebay())
        print(f"bound without Forebay  {figures['without']:>6}")
    met = (
        figures["as_planned"] >= AS_PLANNED
        and figures["seconds"] <= ALL_BOUND
        and figures["after_ready"] <= AFTER_READY
    )
    bars = f"all {AS_PLANNED} as planned, in {ALL_BOUND:.0f} s, {AFTER_READY:.0f} s after the last node"
    print(f"bar: {bars}: {'met' if met else 'MISSED'}")
    if options.json:
        print(json.dumps(figures))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
