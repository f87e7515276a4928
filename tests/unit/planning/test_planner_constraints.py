"""Scheduling constraints of Kubernetes in plans: selectors, taints, host ports, affinity, topology spread."""

import pytest

from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
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
from forebay.planning.plan import Preferences, RunningPod
from forebay.planning.planner import plan
from tests.unit.planning.worlds import bought, candidate, machine, pod, pods, served, shape, why

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
APP = LabelSelector({"app": "a"})
OTHERS = LabelSelector({"app": "other"})


def test_a_selector_keeps_a_pod_off_cheaper_offers():
    offers = [candidate(1, "1", name="t4"), candidate(1, "3", name="h100", labels={"gpu": "h100"})]

    assert bought(plan(pods(1, shape(node_selector={"gpu": "h100"})), offers)) == ["h100"]


def test_terms_of_node_affinity_are_alternatives():
    offers = [candidate(1, str(n), name=f"in-{n}", labels={"zone": str(n)}) for n in (1, 2, 3)]
    terms = tuple(NodeSelectorTerm((Requirement("zone", LabelOperator.IN, (zone,)),)) for zone in ("3", "2"))

    assert bought(plan(pods(1, shape(node_affinity=terms)), offers)) == ["in-2"]


def test_a_preference_is_worth_a_little_and_no_more():
    prefers = shape(
        preferred_node_affinity=(PreferredTerm(100, NodeSelectorTerm((Requirement("a", LabelOperator.EXISTS),))),)
    )
    plain = candidate(1, "1.00", name="plain")

    near = [plain, candidate(1, "1.04", name="preferred", labels={"a": ""})]
    far = [plain, candidate(1, "1.06", name="preferred", labels={"a": ""})]

    assert bought(plan(pods(1, prefers), near)) == ["preferred"]
    assert bought(plan(pods(1, prefers), far)) == ["plain"]


def test_several_pods_with_a_preference_do_not_move_to_a_node_that_is_cheaper_without_it():
    prefers = shape(
        preferred_node_affinity=(PreferredTerm(100, NodeSelectorTerm((Requirement("a", LabelOperator.EXISTS),))),)
    )
    offers = [candidate(1, "1.00", name="plain"), candidate(1, "1.04", name="preferred", labels={"a": ""})]

    made = plan(pods(3, prefers), offers, preferences=Preferences(refine=False))

    assert bought(made) == ["preferred"] * 3


def test_with_fewer_zones_than_min_domains_each_zone_gets_no_more_than_max_skew():
    offers = [candidate(4, "4", name=f"in-{zone}", zone=zone) for zone in "ab"]

    def left_out(min_domains):
        spread = TopologySpread(ZONE, 1, APP, min_domains=min_domains)
        return len(plan(pods(6, shape(topology_spread=(spread,)), labels={"app": "a"}), offers).left_out)

    assert (left_out(2), left_out(3)) == (0, 4)


def test_affinity_that_also_selects_waiting_pods_without_it_is_not_planned_and_says_so():
    near = pods(2, shape(pod_affinity=(PodAffinityTerm(ZONE, APP),)), labels={"app": "a"})
    free = pods(1, shape(2), labels={"app": "a"})

    made = plan([*near, *free], [candidate(4, "4", zone="a")])

    assert served(made) == {free[0].name}
    assert {each.reason for each in made.left_out} == {Reason.AFFINITY_NOT_PLANNED}
    assert "give them the affinity too, or select fewer pods" in made.left_out[0].sentence


def test_pods_that_name_their_node_get_that_machine_of_two_alike():
    alike = [machine(name, 4) for name in ("one", "two", "three")]

    def naming(name):
        return (NodeSelectorTerm((), (Requirement("metadata.name", LabelOperator.IN, (name,)),)),)

    waiting = [*pods(2, shape(node_affinity=naming("two"))), *pods(1, shape(node_affinity=naming("three")))]

    assert bought(plan(waiting, alike)) == ["three", "two"]


def test_a_place_whose_offers_are_sold_out_is_not_chosen():
    near = shape(pod_affinity=(PodAffinityTerm(ZONE, APP),))
    offers = [candidate(4, "1", name="sold-out", zone="a", stock=0), candidate(4, "4", name="there", zone="b")]

    made = plan(pods(4, near, labels={"app": "a"}), offers, preferences=Preferences(refine=False))

    assert bought(made) == ["there"]


def test_taints_keep_pods_away_that_do_not_tolerate_them():
    offers = [candidate(1, "1", name="tainted", taints=(Taint("team", "b"),)), candidate(1, "2", name="open")]

    assert bought(plan(pods(1), offers)) == ["open"]
    assert bought(plan(pods(1, shape(tolerations=(Toleration("team", "Exists"),))), offers)) == ["tainted"]
    soft = [candidate(1, "1", name="soft", taints=(Taint("x", "", Effect.PREFER_NO_SCHEDULE),)), *offers]
    assert bought(plan(pods(2), soft)) == ["soft", "soft"]


def test_a_slice_of_a_gpu_comes_only_from_offers_that_have_it():
    mig = shape(gpus=0, more={"nvidia.com/mig-1g.10gb": 1})
    offers = [candidate(1, "1", name="whole"), candidate(0, "2", name="sliced", more={"nvidia.com/mig-1g.10gb": 7})]

    made = plan(pods(7, mig), offers)

    assert bought(made) == ["sliced"]
    assert len(served(made)) == 7


def test_a_resource_that_no_offer_has_is_named():
    made = plan(pods(1, shape(resource="nvidia.com/mig-1g.10gb")), [candidate(8)])

    assert "No offer has nvidia.com/mig-1g.10gb: request another resource" in made.left_out[0].sentence


@pytest.mark.parametrize(
    ("of", "nodes"),
    [
        (shape(), 1),
        (shape(host_ports=((80, "TCP"),)), 8),
        (shape(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, APP),)), 8),
        (shape(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, OTHERS),)), 1),
        (shape(topology_spread=(TopologySpread(HOSTNAME, 2, APP),)), 4),
        (shape(topology_spread=(TopologySpread(HOSTNAME, 2, OTHERS),)), 1),
    ],
    ids=["nothing", "host port", "anti-affinity", "anti-affinity to others", "spread, skew 2", "spread of others"],
)
def test_constraints_between_pods_of_one_node(of, nodes):
    made = plan(pods(8, of, labels={"app": "a"}), [candidate(8, "8", name="eight")])

    assert len(made.purchases) == nodes
    assert len(served(made)) == 8


def test_pods_that_avoid_others_get_a_node_each_where_such_pods_wait_as_well():
    # Stricter than needed for pods that avoid others and not each other; without others, they share a node.
    avoids = shape(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, OTHERS),))
    waiting = [*pods(2, avoids, labels={"app": "a"}), *pods(2, labels={"app": "other"})]

    made = plan(waiting, [candidate(8, "8", name="eight")])

    assert sorted(sorted(each.labels["app"] for each in node.pods) for node in made.purchases) == [
        ["a"],
        ["a"],
        ["other", "other"],
    ]


@pytest.mark.parametrize(
    ("affinity", "found"),
    [
        (None, ["zoned", "zoned"]),
        ((NodeSelectorTerm((Requirement("model", LabelOperator.IN, ("x",)),)),), ["x-zoned", "x-zoned"]),
        # A term that asks for nothing matches no node.
        ((NodeSelectorTerm(()),), []),
    ],
)
def test_a_spread_without_a_selector_asks_for_a_node_with_its_label_and_for_no_more(affinity, found):
    spread = shape(topology_spread=(TopologySpread(ZONE, 1, None),), node_affinity=affinity)
    offers = [
        candidate(1, "1", name="nowhere"),
        candidate(1, "2", name="zoned", zone="a"),
        candidate(1, "3", name="dear", zone="b"),
        candidate(1, "4", name="x-zoned", zone="a", labels={"model": "x"}),
    ]

    assert bought(plan(pods(2, spread), offers)) == found


def test_the_bound_holds_for_plans_that_are_less_strict_than_ours():
    spread = shape(topology_spread=(TopologySpread(HOSTNAME, 1, LabelSelector({})),))
    waiting = [pod(spread, labels={"app": "a"}), *pods(2, labels={"app": "other"})]

    made = plan(waiting, [candidate(8, "8")])

    # The two others could share a node beside that of the first.
    assert made.bound <= UsdPerHour("16") < made.cost


def test_pods_with_different_ports_share_a_node():
    mixed = [pod(shape(host_ports=((port, "TCP"),))) for port in (80, 80, 81)]

    assert len(plan(mixed, [candidate(8, "8")]).purchases) == 2


def test_anti_affinity_also_holds_for_the_pods_it_selects():
    loner = pod(shape(pod_anti_affinity=(PodAffinityTerm(HOSTNAME, APP),)), labels={"app": "loner"})
    others = pods(3, labels={"app": "a"})

    made = plan([loner, *others], [candidate(8, "8")])

    assert sorted(len(purchase.pods) for purchase in made.purchases) == [1, 3]


ZONES = [candidate(8, "8", name=f"in-{zone}", zone=zone) for zone in ("a", "b")]


def test_a_spread_over_zones_is_kept_and_the_cheap_zone_has_the_rest():
    spread = shape(topology_spread=(TopologySpread(ZONE, 1, APP),))
    offers = [candidate(1, "1", name="cheap", zone="a"), candidate(1, "2", name="expensive", zone="b")]

    made = plan(pods(5, spread, labels={"app": "a"}), offers)

    assert bought(made) == ["cheap"] * 3 + ["expensive"] * 2


def test_a_spread_with_offers_in_one_zone_serves_as_many_as_the_skew():
    spread = shape(topology_spread=(TopologySpread(ZONE, 2, APP),))
    elsewhere = candidate(0, zone="b").node

    made = plan(pods(8, spread, labels={"app": "a"}), [candidate(8, "8", zone="a")], nodes=[elsewhere])

    assert len(served(made)) == 2
    assert set(why(made).values()) == {Reason.SPREAD_IMPOSSIBLE}
    assert "raise maxSkew" in made.left_out[0].sentence


def test_many_pods_are_spread_evenly_over_zones():
    spread = shape(topology_spread=(TopologySpread(ZONE, 1, APP),))

    made = plan(pods(1600, spread, labels={"app": "a"}), ZONES)

    assert bought(made) == ["in-a"] * 100 + ["in-b"] * 100


def test_anti_affinity_by_zone_counts_running_pods():
    alone = shape(pod_anti_affinity=(PodAffinityTerm(ZONE, APP),))
    runs = RunningPod(namespace="team", labels={"app": "a"}, node_labels={ZONE: "a"})

    made = plan(pods(2, alone, labels={"app": "a"}), ZONES, running=[runs])

    assert bought(made) == ["in-b"]
    assert list(why(made).values()) == [Reason.SPREAD_IMPOSSIBLE]


def test_pods_with_zone_affinity_share_one_zone():
    together = shape(pod_affinity=(PodAffinityTerm(ZONE, APP),))
    offers = [candidate(8, "8", name="cheap-but-few", zone="a", stock=1), candidate(8, "9", name="many", zone="b")]

    assert bought(plan(pods(8, together, labels={"app": "a"}), offers)) == ["cheap-but-few"]
    assert bought(plan(pods(16, together, labels={"app": "a"}), offers)) == ["many", "many"]


def test_a_pod_with_affinity_to_running_pods_goes_to_their_zone():
    near = shape(pod_affinity=(PodAffinityTerm(ZONE, LabelSelector({"app": "db"})),))
    runs = RunningPod(namespace="team", labels={"app": "db"}, node_labels={ZONE: "b"})

    assert bought(plan(pods(1, near), ZONES, running=[runs])) == ["in-b"]
    alone = plan(pods(1, near), ZONES)
    assert list(why(alone).values()) == [Reason.AFFINITY_NOT_PLANNED]
    assert "start those pods first" in alone.left_out[0].sentence


def test_affinity_by_hostname_is_not_planned_for():
    near = shape(pod_affinity=(PodAffinityTerm(HOSTNAME, APP),))

    made = plan([*pods(1, near), *pods(1)], ZONES)

    assert list(why(made).values()) == [Reason.AFFINITY_NOT_PLANNED]
    assert len(served(made)) == 1


def test_a_zone_rule_that_selects_pods_without_it_is_not_planned_for():
    alone = shape(pod_anti_affinity=(PodAffinityTerm(ZONE, APP),))

    made = plan([*pods(1, alone, labels={"app": "a"}), *pods(1, labels={"app": "a"})], ZONES)

    assert list(why(made).values()) == [Reason.AFFINITY_NOT_PLANNED]


def test_a_pool_serves_its_own_namespaces_only():
    offers = [
        candidate(1, "1", name="theirs", namespaces=frozenset({"other"})),
        candidate(1, "2", name="ours", namespaces=frozenset({"team"})),
    ]

    made = plan([*pods(1), *pods(1, namespace="third")], offers)

    assert bought(made) == ["ours"]
    assert "serve other namespaces than third" in made.left_out[0].sentence


def test_an_owned_machine_may_be_selected_by_name():
    by_name = NodeSelectorTerm(match_fields=(Requirement("metadata.name", LabelOperator.IN, ("large",)),))

    made = plan(pods(1, shape(node_affinity=(by_name,))), [machine("small", 1), machine("large", 8)])

    assert bought(made) == ["large"]


def test_a_zone_is_cut_to_its_spread_when_another_zone_has_too_little_stock():
    spread = shape(topology_spread=(TopologySpread(ZONE, 1, APP),))
    offers = [candidate(1, "1", name="many", zone="a"), candidate(1, "1", name="few", zone="b", stock=1)]

    made = plan(pods(8, spread, labels={"app": "a"}), offers)

    assert bought(made) == ["few", "many", "many"]
    assert {left.reason for left in made.left_out} == {Reason.SPREAD_IMPOSSIBLE}
    assert any("would break their topology spread" in left.sentence for left in made.left_out)


def test_a_spread_over_zones_needs_offers_with_a_zone():
    spread = shape(topology_spread=(TopologySpread(ZONE, 1, APP),))

    made = plan(pods(1, spread, labels={"app": "a"}), [candidate(1)])

    assert list(why(made).values()) == [Reason.NO_OFFER_FITS]
    assert "1: have no topology.kubernetes.io/zone" in made.left_out[0].sentence
    assert "give the nodes of a pool the label topology.kubernetes.io/zone" in made.left_out[0].sentence


def test_anti_affinity_by_zone_does_not_forbid_nodes_without_a_zone():
    alone = shape(pod_anti_affinity=(PodAffinityTerm(ZONE, APP),))

    assert len(served(plan(pods(3, alone, labels={"app": "a"}), [candidate(8, "8")]))) == 3


def test_the_bound_does_not_depend_on_the_places_that_were_chosen_first():
    # The cheapest node for one pod is in zone a, the cheapest plan for all of them is in zone b.
    spread = shape(topology_spread=(TopologySpread(ZONE, 4, APP),))
    offers = [candidate(1, "1", name="single", zone="a"), candidate(8, "2.05", name="eight", zone="b")]

    made = plan(pods(4, spread, labels={"app": "a"}), offers)

    assert bought(made) == ["eight"]
    assert made.bound <= made.cost
    assert made.gap < 0.001


@pytest.mark.parametrize(
    ("fields", "policies", "count"),
    [
        ({}, {}, 1),
        ({"node_selector": {"model": "x"}}, {}, 8),
        ({"node_selector": {"model": "x"}}, {"honors_node_affinity": False}, 1),
        ({}, {"honors_node_taints": True}, 8),
    ],
    ids=["a tainted node counts", "a node that is not selected does not", "unless ignored", "taints honoured"],
)
def test_a_spread_counts_the_zones_of_the_nodes_that_the_scheduler_counts(fields, policies, count):
    spread = shape(topology_spread=(TopologySpread(ZONE, 1, APP, **policies),), **fields)
    elsewhere = candidate(0, zone="b", taints=(Taint("system"),)).node
    offers = [candidate(8, "8", zone="a", labels={"model": "x"})]

    assert len(served(plan(pods(8, spread, labels={"app": "a"}), offers, nodes=[elsewhere]))) == count


@pytest.mark.parametrize(
    ("policies", "count"),
    [({}, 1), ({"honors_node_affinity": False}, 2), ({"honors_node_affinity": False, "honors_node_taints": True}, 1)],
    ids=["a node that the pod may not use", "which counts all the same", "unless for its taint"],
)
def test_a_spread_counts_running_pods_on_the_nodes_that_the_scheduler_counts(policies, count):
    # Only with the second zone are there as many zones as the rule asks for.
    spread = TopologySpread(ZONE, 1, APP, min_domains=2, **policies)
    waiting = pods(3, shape(topology_spread=(spread,), node_selector={"model": "y"}), labels={"app": "a"})
    there = RunningPod(
        namespace="team", labels={"app": "a"}, node_labels={ZONE: "b", "model": "z"}, node_taints=(Taint("team", "b"),)
    )

    made = plan(waiting, [candidate(8, zone="a", labels={"model": "y"})], running=[there])

    assert len(served(made)) == count


def test_all_rules_of_a_pod_about_zones_are_kept():
    fields = {"topology_spread": (TopologySpread(ZONE, 2, APP),), "pod_anti_affinity": (PodAffinityTerm(ZONE, APP),)}
    offers = [candidate(4, "4", zone="a"), candidate(4, "4", zone="b")]

    made = plan(pods(5, shape(**fields), labels={"app": "a"}), offers, (), Preferences(refine=False))

    assert sorted(len(purchase.pods) for purchase in made.purchases) == [1, 1]
    assert set(why(made).values()) == {Reason.SPREAD_IMPOSSIBLE}


def test_a_zone_is_cut_to_its_spread_though_other_pods_have_other_rules_about_zones():
    alone = shape(pod_anti_affinity=(PodAffinityTerm(ZONE, OTHERS),))
    spread = shape(topology_spread=(TopologySpread(ZONE, 1, APP),))
    offers = [candidate(1, "1", name="many", zone="a"), candidate(1, "1", name="few", zone="b", stock=2)]
    waiting = [*pods(2, alone, labels={"app": "other"}), *pods(8, spread, labels={"app": "a"})]

    made = plan(waiting, offers, (), Preferences(refine=False))

    assert bought(made) == ["few", "few", "many", "many", "many"]


def test_a_pod_whose_rules_are_not_planned_for_changes_nothing_for_others():
    fields = {
        "topology_spread": (TopologySpread(ZONE, 1, APP),),
        "pod_anti_affinity": (PodAffinityTerm("topology.kubernetes.io/region", APP),),
    }
    spread = shape(topology_spread=(TopologySpread(ZONE, 4, OTHERS),))
    offers = [candidate(1, "1", name="single", zone="a"), candidate(8, "2.05", name="eight", zone="b")]
    refused = pods(1, shape(gpus=8, **fields), labels={"app": "a"})

    made = plan([*refused, *pods(4, spread, labels={"app": "other"})], offers)

    assert list(why(made).values()) == [Reason.AFFINITY_NOT_PLANNED]
    assert bought(made) == ["eight"]
    assert made.gap < 0.001


def test_rules_about_two_topologies_are_not_planned_for():
    fields = {
        "topology_spread": (TopologySpread(ZONE, 1, APP),),
        "pod_anti_affinity": (PodAffinityTerm("topology.kubernetes.io/region", APP),),
    }

    made = plan(pods(1, shape(**fields), labels={"app": "a"}), ZONES)

    assert list(why(made).values()) == [Reason.AFFINITY_NOT_PLANNED]
    assert "rules about topology.kubernetes.io/region and topology.kubernetes.io/zone" in made.left_out[0].sentence


def test_pods_that_share_a_zone_stay_where_they_fit_exactly():
    together = shape(pod_affinity=(PodAffinityTerm(ZONE, APP),))
    offers = [candidate(1, "1", name="cheap", zone="a", stock=4), candidate(1, "2", name="dear", zone="b")]

    made = plan(pods(4, together, labels={"app": "a"}), offers, (), Preferences(refine=False))

    assert bought(made) == ["cheap"] * 4


@pytest.mark.parametrize("plain_first", [True, False])
def test_a_node_is_asked_for_by_name_beside_pods_that_do_not_care(plain_first):
    by_name = NodeSelectorTerm(match_fields=(Requirement("metadata.name", LabelOperator.IN, ("rack-2",)),))
    plain, named = pod(shape(1), name="plain"), pod(shape(1, cpu="2", node_affinity=(by_name,)), name="named")
    waiting = [plain, named] if plain_first else [named, plain]

    made = plan(waiting, [machine("rack-1", 1), machine("rack-2", 1), machine("rack-3", 1)])

    assert not made.left_out
    assert {each.pods[0].name: each.candidate.offer.node_name for each in made.purchases}["named"] == "rack-2"
