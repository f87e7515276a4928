"""What no reservations may do, whatever pods and rooms there are."""

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
def worlds(draw):
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
    rooms = []
    for number in range(draw(st.integers(0, 5))):
        there = node(
            f"n{number}",
            labels=draw(st.sampled_from(({}, {"type": "a"}))),
            taints=draw(st.sampled_from(((), (Taint("dedicated", "b"),)))),
        )
        free = Resources({draw(st.sampled_from((GPU, GPU, OTHER))): draw(st.integers(1, 8)), "cpu": 8000, "pods": 4})
        uids = [each.uid for each in pods] or ["nobody"]
        rooms.append(
            FreeNode(
                node=there,
                free=free,
                ports=draw(st.sampled_from((frozenset(), frozenset({(80, "TCP")})))),
                promised=draw(st.frozensets(st.sampled_from(uids), max_size=2)),
                coming=draw(st.sampled_from((None, f"gi-{number}"))),
            )
        )
    return pods, rooms


@pytest.mark.law
@given(worlds())
def test_every_pod_is_placed_where_it_fits_beside_all_others_or_left(world):
    pods, rooms = world
    reservations = reserve(pods, rooms, NOW)
    assert sorted([*reservations.placed, *(each.uid for each in reservations.left)]) == sorted(
        each.uid for each in pods
    )
    for room in rooms:
        guests = [each for each in pods if each.uid in reservations.placed]
        guests = [each for each in guests if reservations.placed[each.uid].node == room.node.name]
        free, ports = room.free, set(room.ports)
        for guest in guests:
            assert misfit(guest.shape, room.node, free, ports) is None
            free -= guest.shape.requests
            ports |= set(guest.shape.host_ports)
            others = [other for other in guests if other is not guest and other.labels == {"app": "x"}]
            assert not (guest.shape.pod_anti_affinity and others)


@pytest.mark.law
@given(worlds())
def test_whoever_is_left_fits_nowhere_in_what_remains(world):
    pods, rooms = world
    reservations = reserve(pods, rooms, NOW)
    for room in rooms:
        guests = [each for each in pods if each.uid in reservations.placed]
        guests = [each for each in guests if reservations.placed[each.uid].node == room.node.name]
        free = sum((each.shape.requests for each in guests), start=Resources())
        ports = {*room.ports, *(port for each in guests for port in each.shape.host_ports)}
        for left in reservations.left:
            if left.labels or left.shape.pod_anti_affinity:
                continue  # company may be the reason
            assert misfit(left.shape, room.node, room.free - free, ports) is not None


@pytest.mark.law
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_in_which_pods_and_rooms_come_does_not_matter(world, dice):
    pods, rooms = world
    before = reserve(pods, rooms, NOW)
    dice.shuffle(pods)
    dice.shuffle(rooms)
    assert reserve(pods, rooms, NOW) == before


@pytest.mark.parametrize("shapes", [5, 200])
def test_a_thousand_pods_and_five_thousand_rooms_take_well_under_a_second(shapes):
    dice = random.Random(1)
    kinds = [pod("k", dice.choice((1, 2, 4, 8)), cpu=1000 + number).shape for number in range(shapes)]
    pods = [pod(f"p{number}", shape=kinds[number % shapes]) for number in range(1000)]
    rooms = []
    for number in range(5000):
        there = node(f"n{number}", dice.randint(1, 8), cpu=dice.choice((500, 500, 500, 8000)))
        rooms.append(FreeNode(node=there, free=there.allocatable))
    started = time.process_time()
    reservations = reserve(pods, rooms, NOW)
    assert time.process_time() - started < 1.0
    assert len(reservations.placed) + len(reservations.left) == 1000
