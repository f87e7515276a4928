"""Random inputs of the planner, odd ones included: limits, gangs, rules about places, stock, weights, taints."""

import random
from datetime import timedelta

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import LabelOperator, LabelSelector, NodeSelectorTerm, Requirement, Taint, Toleration
from forebay.model.workloads import PodAffinityTerm, TopologySpread
from forebay.planning.plan import Cap, PoolKey
from tests.unit.planning.checker import HOSTNAME, Instance
from tests.unit.planning.worlds import GPU, candidate, machine, pod, shape

ZONE = "topology.kubernetes.io/zone"
POOLS = (PoolKey("team", "a"), PoolKey("team", "b"), PoolKey("team", "c"))


def small_instance(seed):
    """At most five pods, for `brute_force`. Selectors pick the pods of one workload; all pools have one weight."""
    rng = random.Random(seed)
    offers = [_offer(rng, number, weights=(10,)) for number in range(rng.randint(1, 3))]
    pods = []
    for number in range(rng.randint(1, 3)):
        pods += _workload(rng, number, rng.randint(1, 3), f"app-{number}")
    return Instance(pods[:5], offers, random_caps(rng))


def instance(seed):
    """Up to some thirty pods; selectors may pick the pods of several workloads, with and without the rule."""
    rng = random.Random(seed)
    offers = [_offer(rng, number, weights=(10, 10, 10, 20)) for number in range(rng.randint(0, 7))]
    pods = []
    for number in range(rng.randint(1, 6)):
        app = f"app-{number}" if rng.random() < 0.7 else "shared"
        pods += _workload(rng, number, rng.choice((1, 2, 3, 5, 8)), app)
    return Instance(pods, offers, random_caps(rng))


def _workload(rng, number, count, app):
    fields, labels, annotations = {}, {"app": app}, {}
    mine = LabelSelector({"app": app})
    if rng.random() < 0.3:
        fields["node_selector"] = {"model": rng.choice("xyz")}
    if rng.random() < 0.15:
        terms = [
            NodeSelectorTerm((Requirement("model", LabelOperator.NOT_IN, (rng.choice("xyz"),)),)),
            NodeSelectorTerm((Requirement("vram", LabelOperator.GT, ("20",)),)),
        ]
        fields["node_affinity"] = tuple(rng.sample(terms, rng.randint(1, 2)))
    if rng.random() < 0.3:
        fields["tolerations"] = (rng.choice((Toleration("team", "Exists"), Toleration("team", "Equal", "b"))),)
    if rng.random() < 0.3:
        fields["priority"] = rng.choice((10, 100))
    rule = rng.random()
    if rule < 0.10:
        fields["pod_anti_affinity"] = (PodAffinityTerm(rng.choice((HOSTNAME, ZONE)), mine),)
    elif rule < 0.20:
        minimum = rng.choice((None, None, 2, 3))
        spread = TopologySpread(rng.choice((HOSTNAME, ZONE, ZONE)), rng.randint(1, 2), mine, min_domains=minimum)
        fields["topology_spread"] = (spread,)
    elif rule < 0.27:
        fields["pod_affinity"] = (PodAffinityTerm(ZONE, mine),)
    elif rule < 0.32:
        fields["host_ports"] = ((80, "TCP"),)
    if rng.random() < 0.3:
        annotations["forebay.dev/pod-group"] = f"gang-{number}" if rng.random() < 0.6 else "gang-shared"
        if rng.random() < 0.3:
            annotations["forebay.dev/pod-group-min-count"] = str(rng.randint(1, count))
        if rng.random() < 0.2 and rule >= 0.32:
            annotations["forebay.dev/together"] = "zone"
    of = shape(
        gpus=rng.choice((1, 1, 1, 2, 4)), cpu=str(rng.choice((1, 3, 7))), memory=f"{rng.choice((1, 4, 30))}Gi", **fields
    )
    age = timedelta(minutes=rng.choice((0, 0, 5)))
    names = [f"w{number}-{copy}" for copy in range(count)]
    return [pod(of, name=name, labels=labels, annotations=annotations, age=age) for name in names]


def _offer(rng, number, weights):
    gpus = rng.choice((1, 2, 4, 8))
    if rng.random() < 0.15:
        return machine(f"own-{number}", gpus, rng.choice(("0", "0", "0.3")), pool=POOLS[0])
    model = rng.choice("xyz")
    return candidate(
        gpus,
        str(rng.randint(1, 40) * gpus / 10),
        name=f"type-{number}",
        cpu=str(gpus * rng.choice((2, 4, 8))),
        memory=f"{gpus * rng.choice((8, 64))}Gi",
        labels={"model": model, "vram": {"x": "16", "y": "24", "z": "80"}[model]},
        zone=rng.choice(("za", "zb", "zc", None)),
        taints=(Taint("team", rng.choice("bc")),) if rng.random() < 0.2 else (),
        stock=rng.choice((None, None, 0, 1, 1, 2, 3)),
        pool=rng.choice(POOLS),
        weight=rng.choice(weights),
    )


def random_caps(rng):
    made = []
    for number in range(rng.choice((0, 1, 1, 2, 3))):
        limit = rng.choice(
            (
                {"nodes": rng.randint(0, 4)},
                {"hourly_cost": UsdPerHour(str(rng.randint(0, 120) / 10))},
                {"resources": Resources({GPU: rng.randint(1, 9)})},
                {"resources": Resources({"cpu": rng.randint(4, 60) * 1000})},
                {"nodes": rng.randint(1, 4), "hourly_cost": UsdPerHour(str(rng.randint(5, 120) / 10))},
            )
        )
        pools = frozenset(rng.sample(POOLS, rng.randint(1, 3)))
        made.append(Cap(name=f"limit {number}", pools=pools, **limit))
    return made
