"""Laws of reservations, for any pods and nodes."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.demand.free_capacity import FreeNode
from forebay.demand.reservation import reserve
from forebay.model.fit import misfit
from forebay.model.quantities import Resources
from forebay.model.requirements import LabelSelector, Taint, Toleration
from forebay.model.workloads import PodAffinityTerm
from tests.unit.demand.builders import GPU, NOW, ago, node, pod

ALONE = (PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
OTHER = "amd.com/gpu"


@st.composite
def clusters(draw):
    pods = [
        pod(
            f"p{number}",
            draw(st.integers(1, 8)),
            cpu=draw(st.sampled_from((0, 1000, 4000))),
            resource=draw(st.sampled_from((GPU, GPU, OTHER))),
            priority=draw(st.integers(0, 1)),
            created=ago(minutes=draw(st.integers(0, 3))),
            node_selector=draw(st.sampled_from(({}, {"type": "a"}))),
            tolerations=draw(st.sampled_from(((), (Toleration("dedicated", "Exists"),)))),
            host_ports=draw(st.sampled_from(((), (), ((80, "TCP"),)))),
            labels=draw(st.sampled_from(({}, {"app": "x"}))),
            pod_anti_affinity=draw(st.sampled_from(((), (), ALONE))),
        )
        for number in range(draw(st.integers(0, 8)))
    ]
    nodes = []
    for number in range(draw(st.integers(0, 5))):
        existing = node(
            f"n{number}",
            labels=draw(st.sampled_from(({}, {"type": "a"}))),
            taints=draw(st.sampled_from(((), (Taint("dedicated", "b"),)))),
        )
        free = Resources({draw(st.sampled_from((GPU, GPU, OTHER))): draw(st.integers(1, 8)), "cpu": 8000, "pods": 4})
        uids = [each.uid for each in pods] or ["nobody"]
        nodes.append(
            FreeNode(
                node=existing,
                free=free,
                ports=draw(st.sampled_from((frozenset(), frozenset({(80, "TCP")})))),
                planned_for=draw(st.frozensets(st.sampled_from(uids), max_size=2)),
                launching=draw(st.sampled_from((None, f"gi-{number}"))),
            )
        )
    return pods, nodes


@pytest.mark.law
@given(clusters())
def test_every_pod_is_placed_where_it_fits_beside_all_others_or_is_left(cluster):
    pods, nodes = cluster
    reservations = reserve(pods, nodes, NOW)
    assert sorted([*reservations.placed, *(each.uid for each in reservations.left)]) == sorted(
        each.uid for each in pods
    )
    for free_node in nodes:
        placed = [each for each in pods if each.uid in reservations.placed]
        placed = [each for each in placed if reservations.placed[each.uid].node == free_node.node.name]
        free, ports = free_node.free, set(free_node.ports)
        for each in placed:
            assert misfit(each.shape, free_node.node, free, ports) is None
            free -= each.shape.requests
            ports |= set(each.shape.host_ports)
            others = [other for other in placed if other is not each and other.labels == {"app": "x"}]
            assert not (each.shape.pod_anti_affinity and others)


@pytest.mark.law
@given(clusters())
def test_nothing_is_bought_for_a_pod_while_a_node_is_launching_for_it(cluster):
    pods, nodes = cluster
    usual, reservations = reserve(pods, nodes, NOW), reserve(pods, nodes, NOW, await_planned=True)
    launching = {uid for each in nodes if each.launching is not None for uid in each.planned_for}
    assert {each.uid for each in reservations.left} == {each.uid for each in usual.left} - launching
    assert {uid: reservations.placed[uid] for uid in usual.placed} == usual.placed


@pytest.mark.law
@given(clusters())
def test_a_pod_that_is_left_fits_on_no_node(cluster):
    pods, nodes = cluster
    reservations = reserve(pods, nodes, NOW)
    for free_node in nodes:
        placed = [each for each in pods if each.uid in reservations.placed]
        placed = [each for each in placed if reservations.placed[each.uid].node == free_node.node.name]
        free = sum((each.shape.requests for each in placed), start=Resources())
        ports = {*free_node.ports, *(port for each in placed for port in each.shape.host_ports)}
        for left in reservations.left:
            if left.labels or left.shape.pod_anti_affinity:
                continue  # anti-affinity may be the reason
            assert misfit(left.shape, free_node.node, free_node.free - free, ports) is not None


@pytest.mark.law
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_in_which_pods_and_nodes_come_does_not_matter(cluster, dice):
    pods, nodes = cluster
    before = reserve(pods, nodes, NOW)
    dice.shuffle(pods)
    dice.shuffle(nodes)
    assert reserve(pods, nodes, NOW) == before


@pytest.mark.parametrize("shapes", [5, 200])
def test_a_thousand_pods_and_five_thousand_nodes_take_less_than_a_second(shapes):
    dice = random.Random(1)
    kinds = [pod("k", dice.choice((1, 2, 4, 8)), cpu=1000 + number).shape for number in range(shapes)]
    pods = [pod(f"p{number}", shape=kinds[number % shapes]) for number in range(1000)]
    nodes = []
    for number in range(5000):
        existing = node(f"n{number}", dice.randint(1, 8), cpu=dice.choice((500, 500, 500, 8000)))
        nodes.append(FreeNode(node=existing, free=existing.allocatable))
    started = time.process_time()
    reservations = reserve(pods, nodes, NOW)
    assert time.process_time() - started < 1.0
    assert len(reservations.placed) + len(reservations.left) == 1000
