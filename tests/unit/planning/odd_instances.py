"""Odder random inputs of the planner: pods and nodes that are there, gangs that partly run, rules about other pods,
other architectures and resources, namespaces, offers that pools share, prices out of line."""

import random
from datetime import timedelta

from msgspec.structs import replace

from forebay.model.quantities import Resources
from forebay.model.requirements import (
    Effect,
    LabelOperator,
    LabelSelector,
    NodeSelectorTerm,
    PreferredTerm,
    Requirement,
    Taint,
    Toleration,
)
from forebay.model.workloads import PodAffinityTerm, TopologySpread
from forebay.planning.gangs import Gang, GangKey
from forebay.planning.plan import Cap, RunningPod
from tests.unit.planning.checker import ARCH, HOSTNAME, Instance
from tests.unit.planning.instances import POOLS, ZONE, random_caps
from tests.unit.planning.worlds import GPU, candidate, machine, pod, shape

REGION = "topology.kubernetes.io/region"
MIG = "nvidia.com/mig-1g.10gb"
REGIONS = {"za": "r1", "zb": "r1", "zc": "r2", "zd": "r3"}
ODD_PRICES = (0, 0.0001, 98765.4321)
PREFERS = (Effect.NO_SCHEDULE, Effect.NO_EXECUTE, Effect.PREFER_NO_SCHEDULE)
TOLERATED = (
    Toleration("team", "Exists"),
    Toleration("team", "Equal", "b"),
    Toleration("", "Exists"),
    Toleration("team", "Exists", "", Effect.NO_SCHEDULE),
)


def odd_instance(seed, *, small=False):
    """`small`: at most five pods, without preferences, for `brute_force`."""
    rng = random.Random(seed)
    offers = [_offer(rng, number, small=small) for number in range(rng.randint(1, 3 if small else 8))]
    if rng.random() < 0.3:
        offers.append(replace(rng.choice(offers), pool=rng.choice(POOLS)))
    pods = []
    for number in range(rng.randint(1, 3 if small else 7)):
        app = f"app-{number}" if rng.random() < 0.7 else "shared"
        pods += _workload(rng, number, rng.randint(1, 3) if small else rng.choice((1, 2, 3, 5, 8)), app, small=small)
    pods = pods[:5] if small else pods
    running = [_running(rng) for _ in range(rng.choice((0, 0, 2, 5)))]
    there = [(each.node_labels, each.node_taints) for each in running]
    there += [(_place(rng), _taints(rng)) for _ in range(rng.choice((0, 0, 1, 3)))]
    nodes = [
        replace(offers[0].node, name=f"n{at}", labels=mine, taints=taints) for at, (mine, taints) in enumerate(there)
    ]
    caps = random_caps(rng)
    if rng.random() < 0.2:
        caps.append(Cap(name="mig", pools=frozenset(POOLS), resources=Resources({MIG: rng.randint(0, 14)})))
    return Instance(pods, offers, caps, _gangs(rng, pods), running, nodes)


def _offer(rng, number, *, small):
    gpus = rng.choice((1, 2, 4, 8))
    if rng.random() < 0.12:
        return machine(f"own-{number}", gpus, rng.choice(("0", "0", "0.3")), pool=POOLS[0])
    price = rng.choice((rng.randint(1, 40) * gpus / 10,) * 3 + ODD_PRICES)
    arch = {ARCH: rng.choice(("arm64", "amd64"))} if rng.random() < 0.25 else {}
    zone = rng.choice(("za", "zb", "zc", None))
    made = candidate(
        gpus,
        str(price),
        name=f"type-{number}" if rng.random() < 0.8 else "twin",
        cpu=str(gpus * rng.choice((1, 2, 4, 8))),
        memory=f"{gpus * rng.choice((8, 64))}Gi",
        labels={"model": rng.choice("xyz"), **arch},
        zone=zone,
        region=REGIONS.get(zone, rng.choice(("r1", None))),
        resource=rng.choice((GPU, GPU, GPU, "amd.com/gpu", MIG)),
        more={MIG: 7} if rng.random() < 0.2 else None,
        taints=_taints(rng, PREFERS[: 2 if small else 3]),
        stock=rng.choice((None, None, 0, 1, 1, 2, 3)),
        pool=rng.choice(POOLS),
        weight=10 if small else rng.choice((10, 10, 20, 1)),
        namespaces=rng.choice((None, None, None, frozenset({"team"}), frozenset({"other"}))),
        effective=str(price * 1.1) if rng.random() < 0.2 else None,
    )
    return replace(made, any_architecture=rng.random() < 0.3)


def _taints(rng, effects=(Effect.NO_SCHEDULE,)):
    return tuple(Taint("team", rng.choice("bc"), rng.choice(effects)) for _ in range(rng.choice((0, 0, 0, 1, 2))))


def _place(rng):
    zone = rng.choice(sorted(REGIONS))
    return {ZONE: zone, REGION: REGIONS[zone], "model": rng.choice("xyz")}


def _running(rng):
    labels = {"app": rng.choice(("app-0", "app-1", "app-2", "shared")), "ver": rng.choice("12")}
    return RunningPod(
        namespace=rng.choice(("team", "team", "other")),
        labels=labels,
        node_labels=_place(rng),
        node_taints=_taints(rng),
    )


def _workload(rng, number, count, app, *, small):
    fields, annotations = _rules(rng, app), {}
    if rng.random() < 0.25:
        asked = (("model", "xyz"), (ZONE, ("za", "zb", "zc")), (ARCH, ("arm64", "amd64")))
        key, values = rng.choice(asked)
        fields["node_selector"] = {key: rng.choice(values)}
    if rng.random() < 0.2:
        exists = Requirement(
            rng.choice(("model", ARCH, ZONE)), rng.choice((LabelOperator.EXISTS, LabelOperator.DOES_NOT_EXIST)), ()
        )
        fields["node_affinity"] = (NodeSelectorTerm((exists,)),)
    if rng.random() < 0.3:
        fields["tolerations"] = (rng.choice(TOLERATED),)
    if rng.random() < 0.3:
        fields["priority"] = rng.choice((-5, 10, 100, 1000))
    if not small and rng.random() < 0.15:
        liked = NodeSelectorTerm((Requirement("model", LabelOperator.IN, (rng.choice("xyz"),)),))
        fields["preferred_node_affinity"] = (PreferredTerm(rng.randint(1, 100), liked),)
    if rng.random() < 0.35:
        annotations["forebay.dev/pod-group"] = f"gang-{number}" if rng.random() < 0.6 else "gang-shared"
        if rng.random() < 0.3:
            annotations["forebay.dev/pod-group-min-count"] = str(rng.randint(1, count + 2))
        if rng.random() < 0.3:
            annotations["forebay.dev/together"] = "zone"
    of = shape(
        gpus=rng.choice((0, 1, 1, 1, 2, 4)),
        cpu=str(rng.choice((1, 3, 7))),
        memory=f"{rng.choice((1, 4, 30))}Gi",
        resource=rng.choice((GPU,) * 6 + ("amd.com/gpu", MIG, MIG)),
        **fields,
    )
    whose = {
        "namespace": rng.choice(("team", "team", "team", "other")),
        "labels": {"app": app, "ver": rng.choice("12")},
        "annotations": annotations,
        "age": timedelta(minutes=rng.choice((0, 0, 5))),
    }
    return [pod(of, name=f"w{number}-{copy}", **whose) for copy in range(count)]


def _rules(rng, app):
    """Rules about pods of the own workload, of others, of all and of none; most pods have no rule."""
    versions = LabelSelector({}, (Requirement("ver", LabelOperator.IN, ("1",)),))
    others = (LabelSelector({"app": f"app-{rng.randint(0, 5)}"}), versions, LabelSelector({}), None)
    rule, keys = rng.random(), (HOSTNAME, ZONE, ZONE, REGION)

    def some(make):
        return tuple(make(rng.choice(keys)) for _ in range(rng.choice((1, 1, 2))))

    def whom():
        return rng.choice((LabelSelector({"app": app}),) * 3 + others)

    def term(key):
        return PodAffinityTerm(key, whom(), rng.choice(((), (), ("team", "other"))))

    def spread(key):
        return TopologySpread(
            key,
            rng.randint(1, 3),
            whom(),
            min_domains=rng.choice((None, None, 2, 3, 5)),
            honors_node_affinity=rng.random() < 0.7,
            honors_node_taints=rng.random() < 0.3,
        )

    fields = {}
    if rule < 0.12:
        fields["pod_anti_affinity"] = some(term)
    if 0.10 < rule < 0.25:
        fields["topology_spread"] = some(spread)
    if 0.23 < rule < 0.35:
        fields["pod_affinity"] = some(term)
    if 0.34 < rule < 0.4:
        fields["host_ports"] = ((80, "TCP"), (rng.choice((80, 443)), "UDP"))
    return fields


def _gangs(rng, pods):
    """What is known of some gangs: members that run, and that wait for other reasons."""
    found = {}
    for each in pods:
        key = GangKey(each.namespace, each.annotations.get("forebay.dev/pod-group", ""))
        if key.name and key not in found and rng.random() < 0.4:
            placed = rng.choice((0, 1, 2))
            found[key] = Gang(
                min_count=rng.choice((None, None, None, 0, 2, 4)),
                placed=placed,
                others=rng.choice((0, 0, 1)),
                nodes=tuple({ZONE: "za"} for _ in range(placed)),
            )
    return found
