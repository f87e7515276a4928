import random
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelOperator, LabelSelector, NodeSelectorTerm, Requirement, Taint, Toleration
from forebay.model.workloads import PodAffinityTerm, TopologySpread
from forebay.planning import planner
from forebay.planning.plan import Cap, PoolKey, Preferences
from tests.unit.planning.checker import Instance, may_go, violations
from tests.unit.planning.worlds import GPU, candidate, machine, pod, shape

pytestmark = pytest.mark.law

PATIENT = Preferences(deadline=timedelta(minutes=1))

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
POOLS = (PoolKey("team", "a"), PoolKey("team", "b"))
APP = LabelSelector({"app": "a"})


def plan(pods, offers, caps=()):
    """`plan` with a stopped clock: the search is bounded by counts, and a busy machine must not cut it short."""
    return planner.plan(pods, offers, caps, PATIENT, clock=lambda: 0.0)


terms = st.one_of(
    st.builds(
        lambda values: NodeSelectorTerm((Requirement("model", LabelOperator.IN, tuple(values)),)),
        st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, max_size=2),
    ),
    st.just(NodeSelectorTerm((Requirement("model", LabelOperator.NOT_IN, ("x",)),))),
    st.just(NodeSelectorTerm((Requirement("vram", LabelOperator.GT, ("20",)),))),
)
plain_fields = st.fixed_dictionaries(
    {},
    optional={
        "node_selector": st.sampled_from([{"model": "x"}, {"model": "y"}, {"model": "no offer has it"}]),
        "node_affinity": st.lists(terms, min_size=1, max_size=2).map(tuple),
        "tolerations": st.sampled_from([(Toleration("team", "Exists"),), (Toleration(operator="Exists"),)]),
        "priority": st.sampled_from([0, 0, 100]),
    },
)
pair_fields = st.fixed_dictionaries(
    {},
    optional={
        "host_ports": st.sampled_from([((80, "TCP"),), ((80, "TCP"), (81, "TCP"))]),
        "pod_anti_affinity": st.sampled_from([(PodAffinityTerm(HOSTNAME, APP),), (PodAffinityTerm(ZONE, APP),)]),
        "topology_spread": st.sampled_from([(TopologySpread(HOSTNAME, 2, APP),), (TopologySpread(ZONE, 1, APP),)]),
    },
)
sizes = st.fixed_dictionaries(
    {"gpus": st.sampled_from([1, 1, 1, 2, 4]), "cpu": st.sampled_from(["1", "3", "7"]), "memory": st.just("4Gi")}
)


@st.composite
def demands(draw, *, pair_rules=True, groups=True):
    pods = []
    for number in range(draw(st.integers(1, 6))):
        fields = draw(plain_fields) | (draw(pair_fields) if pair_rules and draw(st.integers(0, 3)) == 0 else {})
        of = shape(**draw(sizes), **fields)
        group = {"forebay.dev/pod-group": f"g{number}"} if groups and draw(st.integers(0, 4)) == 0 else {}
        labels = {"app": draw(st.sampled_from(["a", "b"]))}
        namespace = draw(st.sampled_from(["team", "team", "other"]))
        for copy in range(draw(st.integers(1, 5))):
            name = f"p{number}-{copy}"
            pods.append(pod(of, name=name, namespace=namespace, labels=labels, annotations=group))
    return pods


@st.composite
def offerings(draw, *, limited=True):
    made = []
    for number in range(draw(st.integers(0, 6))):
        gpus = draw(st.sampled_from([1, 2, 4, 8]))
        if draw(st.integers(0, 4)) == 0 and limited:
            made.append(machine(f"own-{number}", gpus, draw(st.sampled_from(["0", "0", "0.3"])), pool=POOLS[0]))
            continue
        model = draw(st.sampled_from(["x", "y", "z"]))
        labels = {"model": model, "vram": {"x": "16", "y": "24", "z": "80"}[model]}
        made.append(
            candidate(
                gpus,
                str(draw(st.integers(1, 40)) * gpus / 10),
                name=f"type-{number}",
                cpu=str(gpus * draw(st.sampled_from([2, 4, 8]))),
                labels=labels,
                zone=draw(st.sampled_from(["za", "zb", None])),
                taints=(Taint("team", "b"),) if draw(st.integers(0, 5)) == 0 else (),
                stock=draw(st.sampled_from([None, None, 1, 3])) if limited else None,
                pool=draw(st.sampled_from(POOLS)),
                weight=draw(st.sampled_from([10, 10, 10, 20])) if limited else 10,
                namespaces=draw(st.sampled_from([None, None, frozenset({"team"})])),
            )
        )
    return made


amounts = st.one_of(
    st.builds(lambda n: {"nodes": n}, st.integers(0, 5)),
    st.builds(lambda n: {"hourly_cost": UsdPerHour(n)}, st.integers(0, 20)),
    st.builds(lambda n: {"resources": Resources({GPU: n})}, st.integers(1, 10)),
)
all_caps = st.lists(
    st.builds(
        lambda pools, limit: Cap(name=f"limit of {len(pools)} pools", pools=frozenset(pools), **limit),
        st.sampled_from([POOLS[:1], POOLS]),
        amounts,
    ),
    max_size=2,
)


@given(demands(), offerings(), all_caps)
def test_every_placed_pod_fits_no_limit_is_exceeded_and_groups_are_whole(pods, offers, caps):
    assert violations(Instance(pods, offers, caps), plan(pods, offers, caps)) == []


@given(demands(), offerings(), all_caps, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(pods, offers, caps, chance):
    shuffled_pods, shuffled_offers, shuffled_caps = (chance.sample(each, len(each)) for each in (pods, offers, caps))

    assert outline(plan(pods, offers, caps)) == outline(plan(shuffled_pods, shuffled_offers, shuffled_caps))


def outline(made):
    return (
        sorted((each.candidate.offer.instance_type, sorted(pod.uid for pod in each.pods)) for each in made.purchases),
        sorted((left.pod.uid, left.reason) for left in made.left_out),
        made.cost,
        made.bound,
    )


@given(demands(pair_rules=False, groups=False), offerings(limited=False))
def test_without_limits_every_pod_is_served_that_some_offer_fits(pods, offers):
    made = plan(pods, offers)

    left = {each.pod.uid for each in made.left_out}
    assert left == {each.uid for each in pods if not any(may_go(each, offer) for offer in offers)}
    known = {Reason.NO_OFFER_FITS, Reason.NO_CAPACITY_CONFIGURED}
    assert {each.reason for each in made.left_out} <= known


@given(demands(pair_rules=False, groups=False), offerings(limited=False), st.data())
def test_fewer_pods_never_cost_more_than_the_reported_tolerance(pods, offers, data):
    whole = plan(pods, offers)
    fewer = plan(data.draw(st.lists(st.sampled_from(pods), unique_by=id)), offers)

    tolerance = fewer.cost - fewer.bound
    assert fewer.cost <= whole.cost + tolerance


@given(demands(pair_rules=False, groups=False), offerings(), st.integers(1, 3))
def test_more_stock_never_costs_more_than_the_reported_tolerance(pods, offers, factor):
    offers = [msgspec.structs.replace(each, weight=10) for each in offers]
    little = plan(pods, offers)
    more = [msgspec.structs.replace(c, available=None if c.available is None else c.available * factor) for c in offers]
    much = plan(pods, more)

    if len(little.left_out) == len(much.left_out):
        assert much.cost <= little.cost + (much.cost - much.bound)
    assert len(much.left_out) <= len(little.left_out)


@given(demands(pair_rules=False, groups=False), offerings(), st.integers(0, 4), st.integers(0, 4))
def test_a_larger_budget_never_costs_more_than_the_reported_tolerance(pods, offers, little, more):
    offers = [msgspec.structs.replace(each, weight=10) for each in offers]

    def under(nodes):
        return plan(pods, offers, [Cap(name="limit", pools=frozenset(POOLS), nodes=nodes)])

    tight, loose = under(little), under(little + more)
    if {each.pod.uid for each in tight.left_out} == {each.pod.uid for each in loose.left_out}:
        assert loose.cost <= tight.cost + (loose.cost - loose.bound)


@given(st.lists(sizes, min_size=1, max_size=5), offerings(limited=False))
def test_no_plan_is_cheaper_than_the_bound_and_small_ones_are_the_cheapest(asked, offers):
    pods = [pod(shape(**size), name=f"p{number}") for number, size in enumerate(asked)]
    made = plan(pods, offers)

    served = [each for purchase in made.purchases for each in purchase.pods]
    best = cheapest(served, offers)
    assert made.bound.amount <= best <= made.cost.amount


def cheapest(pods, offers):
    """Price of the cheapest plan, by trying every way to share nodes."""
    from functools import cache

    def price(members):
        total = Resources()
        for each in members:
            total += each.shape.requests
        return min(
            (
                offer.offer.price.amount
                for offer in offers
                if total.fits_within(offer.node.allocatable) and all(may_go(each, offer) for each in members)
            ),
            default=None,
        )

    @cache
    def best(left):
        if not left:
            return 0
        first, rest = left[0], left[1:]
        found = []
        for mask in range(1 << len(rest)):
            here = [first, *(rest[n] for n in range(len(rest)) if mask >> n & 1)]
            there = tuple(rest[n] for n in range(len(rest)) if not mask >> n & 1)
            if (cost := price([pods[n] for n in here])) is not None:
                found.append(cost + best(there))
        return min(found)

    return best(tuple(range(len(pods))))


def test_the_same_input_gives_the_same_plan():
    chance = random.Random(7)
    shapes = [shape(gpus=chance.choice([1, 2, 4]), cpu=str(chance.randint(1, 9))) for _ in range(12)]
    pods = [pod(chance.choice(shapes), name=f"p{n:03}") for n in range(120)]
    offers = [candidate(g, str(g * p / 10), name=f"t{g}-{p}", cpu=str(g * 4)) for g in (1, 4, 8) for p in (9, 11)]

    plans = [outline(plan(pods, offers)) for _ in range(3)]

    assert plans[0] == plans[1] == plans[2]
