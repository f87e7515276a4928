from datetime import UTC, datetime

import pytest

from forebay.model.fit import Filter, Misfit, misfit, preference
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.requirements import (
    Effect,
    LabelOperator,
    NodeSelectorTerm,
    PreferredTerm,
    Requirement,
    Taint,
    Toleration,
)
from forebay.model.workloads import PodShape

FREE = Resources.parse({"cpu": 8, "memory": "32Gi", "nvidia.com/gpu": 4, "pods": 10})
ONE_GPU = Resources.parse({"cpu": 1, "nvidia.com/gpu": 1, "pods": 1})
ANY = Toleration(operator="Exists")


def node(name="n1", **fields):
    return Node(
        name=name,
        uid=f"uid-{name}",
        resource_version=1,
        created=datetime(2026, 1, 1, tzinfo=UTC),
        capacity=FREE,
        allocatable=FREE,
        ready=True,
        **{"labels": {}, **fields},
    )


def shape(requests=ONE_GPU, **fields):
    return PodShape(requests=requests, **fields)


def term(key, *values):
    return NodeSelectorTerm((Requirement(key, LabelOperator.IN, values),))


def test_a_pod_fits_where_there_is_room_and_nothing_forbids_it():
    assert misfit(shape(), node(), FREE) is None
    assert node().key == ("", "n1")


@pytest.mark.parametrize(
    ("requests", "reasons"),
    [
        ({"nvidia.com/gpu": 5}, ("Insufficient nvidia.com/gpu",)),
        ({"cpu": "8001m", "memory": "33Gi"}, ("Insufficient cpu", "Insufficient memory")),
        ({"pods": 11}, ("Too many pods",)),
        ({"amd.com/gpu": 1}, ("Insufficient amd.com/gpu",)),
    ],
)
def test_every_resource_that_is_short_is_named(requests, reasons):
    found = misfit(shape(Resources.parse(requests)), node(), FREE)

    assert found == Misfit(Filter.NODE_RESOURCES_FIT, reasons)


@pytest.mark.parametrize("effect", [Effect.NO_SCHEDULE, Effect.NO_EXECUTE])
def test_an_untolerated_taint_is_named(effect):
    tainted = node(taints=(Taint("soft", "", Effect.PREFER_NO_SCHEDULE), Taint("dedicated", "team-a", effect)))

    found = misfit(shape(), tainted, FREE)
    assert found == Misfit(Filter.TAINT_TOLERATION, ("node(s) had untolerated taint {dedicated: team-a}",))
    assert misfit(shape(tolerations=(Toleration("dedicated", "Equal", "team-a"),)), tainted, FREE) is None
    assert misfit(shape(tolerations=(Toleration("dedicated", "Equal", "team-b"),)), tainted, FREE) == found


def test_a_taint_that_only_asks_nicely_keeps_nobody_away():
    assert misfit(shape(), node(taints=(Taint("soft", "", Effect.PREFER_NO_SCHEDULE),)), FREE) is None


def test_a_cordoned_node_takes_only_who_tolerates_that():
    cordoned = node(unschedulable=True)

    assert str(misfit(shape(), cordoned, FREE)) == "node(s) were unschedulable"
    assert misfit(shape(tolerations=(ANY,)), cordoned, FREE) is None


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        ({"node_selector": {"gpu": "h100"}}, True),
        ({"node_selector": {"gpu": "a100"}}, False),
        ({"node_affinity": (term("gpu", "a100"), term("zone", "a"))}, True),
        ({"node_affinity": (term("gpu", "a100"), term("zone", "b"))}, False),
        ({"node_affinity": ()}, False),
        ({"node_affinity": (NodeSelectorTerm(),)}, False),
        ({"node_selector": {"gpu": "h100"}, "node_affinity": (term("zone", "b"),)}, False),
        ({"node_affinity": (NodeSelectorTerm((), (Requirement("metadata.name", LabelOperator.IN, ("n1",)),)),)}, True),
    ],
)
def test_node_selector_and_one_term_of_the_affinity_must_match(wanted, fits):
    found = misfit(shape(**wanted), node(labels={"gpu": "h100", "zone": "a"}), FREE)

    assert (found is None) is fits
    assert fits or str(found) == "node(s) didn't match Pod's node affinity/selector"


def test_two_pods_cannot_share_a_host_port():
    server = shape(host_ports=((8080, "TCP"),))

    assert misfit(server, node(), FREE) is None
    assert misfit(server, node(), FREE, {(8080, "UDP")}) is None
    assert misfit(server, node(), FREE, {(8080, "TCP")}).filter is Filter.NODE_PORTS


def test_the_first_filter_that_fails_speaks_as_in_the_scheduler():
    hopeless = node(unschedulable=True, taints=(Taint("a"),))
    greedy = shape(Resources({"cpu": 10**9}), node_selector={"x": "y"})

    assert misfit(greedy, hopeless, FREE).filter is Filter.NODE_UNSCHEDULABLE
    assert misfit(greedy, node(taints=(Taint("a"),)), FREE).filter is Filter.TAINT_TOLERATION
    assert misfit(greedy, node(), FREE).filter is Filter.NODE_AFFINITY


def test_preferences_add_up():
    picky = shape(preferred_node_affinity=(PreferredTerm(10, term("gpu", "h100")), PreferredTerm(5, term("zone", "a"))))

    assert preference(picky, node(labels={"gpu": "h100", "zone": "a"})) == 15
    assert preference(picky, node(labels={"zone": "a"})) == 5
    assert preference(shape(), node()) == 0
