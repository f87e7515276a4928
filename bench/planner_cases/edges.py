"""Limits, gangs, places and scarce stock, on the real price table."""

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from forebay.model.quantities import UsdPerHour
from forebay.model.requirements import LabelSelector
from forebay.model.workloads import Pod, PodAffinityTerm, PodShape, TopologySpread
from forebay.planning.plan import Candidate, Cap
from planner_cases.making import POOL
from planner_cases.real_offers import ZONE, mixed_pods, offers

HOSTNAME = "kubernetes.io/hostname"
EVERY_POOL = frozenset({POOL})


class Edge(NamedTuple):
    name: str
    pods: list[Pod]
    offers: list[Candidate]
    caps: tuple[Cap, ...] = ()

    @property
    def best_known(self) -> tuple[int, float]:
        return BEST_KNOWN[self.name]


#: Most pods served, and the lowest price in $/h of about as many, in searches of up to 20 s and with places tried in
#: other orders. Of the limits, linear programs prove that no more than 790, 690, 744, 894, 923, 946, 958 and 903 pods
#: can be served; of the 256 gangs, an integer program over all their patterns serves 800.
BEST_KNOWN = {
    "1,000 pods for $250/h, 0": (790, 249.92),
    "1,000 pods on 100 nodes, 0": (690, 311.20),
    "1,000 pods for $250/h, 1": (744, 248.80),
    "1,000 pods on 100 nodes, 1": (894, 985.62),
    "1,000 pods for $250/h, 2": (922, 248.71),
    "1,000 pods on 100 nodes, 2": (943, 4502.27),
    "1,000 pods for $250/h, 3": (958, 248.57),
    "1,000 pods on 100 nodes, 3": (902, 325.10),
    "zone spread, 1,000 pods": (1000, 3370.04),
    "zone affinity, 1,000 pods": (1000, 750.67),
    "together: zone, one gang of 8": (8, 1.0192),
    "together: zone, 32 gangs of 8": (256, 243.51),
    "50,000 pods, 500 anti-affine": (50_000, 47_420.10),
    "1,000 pods, stock 1 to 5": (1000, 1118.79),
    "256 gangs, stock for half": (800, 2118.60),
}


def limits(table: Path) -> Iterator[Edge]:
    for seed in range(4):
        some, pods = offers(table, 800, seed), mixed_pods(1000, 20, seed)
        money = Cap(name="maxHourlyCost", pools=EVERY_POOL, hourly_cost=UsdPerHour("250"))
        yield Edge(f"1,000 pods for $250/h, {seed}", pods, some, (money,))
        yield Edge(f"1,000 pods on 100 nodes, {seed}", pods, some, (Cap(name="nodes", pools=EVERY_POOL, nodes=100),))


def rules(table: Path) -> Iterator[Edge]:
    some = offers(table, 800, 0)
    yield Edge("zone spread, 1,000 pods", _with(mixed_pods(1000, 20, 0), _spread), some)
    yield Edge("zone affinity, 1,000 pods", _with(mixed_pods(1000, 20, 0), _affinity), some)
    together = {"forebay.dev/pod-group": "g", "forebay.dev/together": "zone"}
    yield Edge("together: zone, one gang of 8", _annotated(mixed_pods(8, 1, 1), together), some)
    gangs = []
    for number, each in enumerate(mixed_pods(256, 20, 2)):
        gangs.append((each, {**together, "forebay.dev/pod-group": f"g{number // 8}"}))
    yield Edge("together: zone, 32 gangs of 8", [_annotate(each, fields) for each, fields in gangs], some)
    yield Edge("50,000 pods, 500 anti-affine", _anti_affine(50_000, 500), some)
    scarce = [msgspec.structs.replace(c, available=random.Random(n).randint(1, 5)) for n, c in enumerate(some)]
    yield Edge("1,000 pods, stock 1 to 5", mixed_pods(1000, 20, 0), scarce)
    plenty = [c for c in some if c.offer.gpu_count >= 8][:32]
    half = [msgspec.structs.replace(c, available=max(128 // len(plenty), 1)) for c in plenty]
    many = []
    for number, each in enumerate(mixed_pods(1024, 12, 3)):
        older = msgspec.structs.replace(each, created=each.created - timedelta(minutes=number // 4))
        many.append(_annotate(older, {"forebay.dev/pod-group": f"g{number // 4:03}"}))
    yield Edge("256 gangs, stock for half", many, half)


def _annotate(pod: Pod, annotations: dict[str, str]) -> Pod:
    return msgspec.structs.replace(pod, annotations=annotations)


def _annotated(pods: list[Pod], annotations: dict[str, str]) -> list[Pod]:
    return [_annotate(each, annotations) for each in pods]


def _with(pods: list[Pod], rule: object) -> list[Pod]:
    """The pods of each shape as a workload of its own, with the rule about its own pods."""
    shapes: dict[int, tuple[PodShape, dict[str, str]]] = {}
    made = []
    for each in pods:
        if id(each.shape) not in shapes:
            labels = {"app": f"app-{len(shapes)}"}
            shapes[id(each.shape)] = (rule(each.shape, LabelSelector(labels)), labels)  # type: ignore[operator]
        of, labels = shapes[id(each.shape)]
        made.append(msgspec.structs.replace(each, shape=of, labels=labels))
    return made


def _spread(shape: PodShape, mine: LabelSelector) -> PodShape:
    return msgspec.structs.replace(shape, topology_spread=(TopologySpread(ZONE, 1, mine),))


def _affinity(shape: PodShape, mine: LabelSelector) -> PodShape:
    return msgspec.structs.replace(shape, pod_affinity=(PodAffinityTerm(ZONE, mine),))


def _anti_affine(pods: int, workloads: int) -> list[Pod]:
    made = []
    shapes = [each.shape for each in mixed_pods(workloads, 20, 4)]
    for number, each in enumerate(mixed_pods(pods, 1, 4)):
        labels = {"app": f"app-{number % workloads}"}
        of = shapes[number % workloads]
        if number < workloads:
            avoid = (PodAffinityTerm(HOSTNAME, LabelSelector(labels)),)
            shapes[number] = of = msgspec.structs.replace(of, pod_anti_affinity=avoid)
        made.append(msgspec.structs.replace(each, shape=of, labels=labels))
    return made
