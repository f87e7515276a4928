"""How many nodes of a group waiting pods need."""

from forebay.demand.free_capacity import FreeNode
from forebay.model.requirements import Taint
from forebay.sizing.packing import new_nodes
from tests.unit.demand.builders import NOW, node, pod


def template(gpus=8, **fields):
    existing = node("group", gpus, **fields)
    return FreeNode(node=existing, free=existing.allocatable)


def needed(pods, of=None, most=None):
    found = new_nodes(pods, of or template(), most, NOW)
    return found.count, [each.name for each in found.left]


def test_pods_are_packed_by_gpus():
    assert needed([pod(f"p{at}", 3) for at in range(4)]) == (2, [])


def test_pods_are_packed_by_every_other_resource_too():
    # Eight of them fit the GPUs of one node, but only four its 64 CPUs.
    pods = [pod(f"p{at}", 1, cpu=16_000) for at in range(8)]
    assert needed(pods) == (2, [])


def test_a_pod_that_does_not_fit_an_empty_node_needs_none():
    assert needed([pod("large", 16), pod("small", 1)]) == (1, ["large"])


def test_a_pod_that_does_not_tolerate_the_group_needs_none_of_its_nodes():
    assert needed([pod("any")], template(taints=(Taint("team", "a"),))) == (0, ["any"])


def test_no_more_nodes_than_allowed():
    assert needed([pod(f"p{at}", 8) for at in range(3)], most=2) == (2, ["p2"])
    assert needed([pod("p")], most=0) == (0, ["p"])
