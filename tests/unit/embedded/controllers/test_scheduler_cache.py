"""The scheduler's cache: whatever its history, it answers as a newly built one does."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.embedded.controllers.node_info import SchedulingShape
from forebay.embedded.controllers.scheduler_cache import SchedulerCache
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.requirements import LabelSelector, Taint, Toleration
from forebay.model.workloads import PodAffinityTerm, PodShape

APART = PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "x"}))
TOGETHER = PodAffinityTerm("zone", LabelSelector({"app": "x"}))
TAINT = Taint("k", "v", "NoSchedule")


def node(name, *, gpus=8, cpu=8000, zone="a", tainted=False, cordoned=False):
    amounts = Resources({"cpu": cpu, "nvidia.com/gpu": gpus, "pods": 110})
    return Node(
        name=name,
        uid=name,
        resource_version=1,
        created=datetime(2030, 1, 1, tzinfo=UTC),
        labels={"kubernetes.io/hostname": name, "zone": zone},
        taints=(TAINT,) if tainted else (),
        unschedulable=cordoned,
        capacity=amounts,
        allocatable=amounts,
        ready=True,
    )


def shape(node_filter=0, *, gpus=1, cpu=1000, priority=0, **fields):
    requests = Resources({"cpu": cpu, "nvidia.com/gpu": gpus, "pods": 1})
    return SchedulingShape.of(PodShape(requests=requests, priority=priority, **fields), node_filter)


SHAPES = (
    shape(gpus=1),
    shape(gpus=4, cpu=2000),
    shape(gpus=8),
    shape(gpus=2, priority=10),
    shape(1, gpus=1, tolerations=(Toleration("k", "Exists"),)),
    shape(2, gpus=1, node_selector={"zone": "b"}),
    shape(gpus=1, pod_anti_affinity=(APART,)),
    shape(gpus=1, pod_affinity=(TOGETHER,)),
    shape(gpus=0, host_ports=((80, "TCP"),)),
)
LABELS: Mapping[str, str] = {"app": "x"}

names = st.sampled_from(["n1", "n2", "n3", "n4"])
pods = st.sampled_from([("d", f"p{number}") for number in range(6)])
nodes = st.builds(
    node,
    names,
    gpus=st.sampled_from([1, 4, 8]),
    cpu=st.sampled_from([2000, 8000]),
    zone=st.sampled_from("ab"),
    tainted=st.booleans(),
    cordoned=st.booleans(),
)
steps = st.one_of(
    st.tuples(st.just("update node"), nodes),
    st.tuples(st.just("remove node"), names),
    st.tuples(st.just("add pod"), pods, names, st.sampled_from(SHAPES)),
    st.tuples(st.just("remove pod"), pods),
    st.tuples(st.just("nominate"), pods, st.none() | names, st.sampled_from(SHAPES)),
    st.tuples(st.just("best node"), st.sampled_from(SHAPES)),
)


@pytest.mark.law
@given(st.lists(steps, max_size=40))
def test_an_updated_cache_answers_as_a_new_one_does(history):
    known: dict[str, Node] = {}
    bound: dict[tuple[str, str], tuple[str, SchedulingShape]] = {}
    nominated: dict[tuple[str, str], tuple[str, SchedulingShape]] = {}
    cache = SchedulerCache()
    for step in history:
        match step:
            case ("update node", updated):
                known[updated.name] = updated
                cache.update_node(updated)
            case ("remove node", name):
                known.pop(name, None)
                cache.remove_node(name)
            case ("add pod", pod, name, asked):
                bound[pod] = (name, asked)
                nominated.pop(pod, None)
                cache.add_pod(pod, name, asked, LABELS)
            case ("remove pod", pod):
                bound.pop(pod, None)
                cache.remove_pod(pod)
            case ("nominate", pod, name, asked) if pod not in bound:
                nominated.pop(pod, None)
                if name is not None:
                    nominated[pod] = (name, asked)
                cache.nominate(pod, name, asked)
            case ("best node", asked):
                cache.best_node(("d", "someone"), asked, LABELS)

    fresh = SchedulerCache()
    for updated in known.values():
        fresh.update_node(updated)
    for pod, (name, asked) in bound.items():
        fresh.add_pod(pod, name, asked, LABELS)
    for pod, (name, asked) in nominated.items():
        fresh.nominate(pod, name, asked)
    for asked in SHAPES:
        key = ("d", "someone")
        best = cache.best_node(key, asked, LABELS)
        assert best == fresh.best_node(key, asked, LABELS)
        assert cache.pods_that_fit(asked, known) == fresh.pods_that_fit(asked, known)
        if best is None:
            assert cache.unschedulable_message(key, asked, LABELS) == fresh.unschedulable_message(key, asked, LABELS)
        else:
            assert cache.fits_on(best, key, asked, LABELS)


def test_room_of_a_nominated_pod_is_open_only_to_pods_of_higher_priority():
    cache = SchedulerCache()
    cache.update_node(node("n1", gpus=8))
    cache.nominate(("d", "nominee"), "n1", shape(gpus=8))
    assert cache.best_node(("d", "equal"), shape(gpus=1), {}) is None
    assert cache.best_node(("d", "above"), shape(gpus=1, priority=5), {}) == "n1"
    assert cache.fits_on("n1", ("d", "nominee"), shape(gpus=8), {})


def test_a_nomination_reserves_room_on_a_node_that_joins_later():
    cache = SchedulerCache()
    cache.nominate(("d", "nominee"), "n1", shape(gpus=8))
    cache.update_node(node("n1", gpus=8))
    assert cache.best_node(("d", "other"), shape(gpus=1), {}) is None


def test_a_pod_bound_before_its_node_joined_takes_room_there():
    cache = SchedulerCache()
    cache.add_pod(("d", "early"), "n1", shape(gpus=8), {})
    cache.update_node(node("n1", gpus=8))
    assert cache.best_node(("d", "late"), shape(gpus=1), {}) is None
    cache.remove_pod(("d", "early"))
    assert cache.best_node(("d", "late"), shape(gpus=1), {}) == "n1"


def test_pods_that_fit_are_counted_only_on_the_given_nodes():
    cache = SchedulerCache()
    cache.update_node(node("n1", gpus=8))
    cache.update_node(node("n2", gpus=4))
    assert cache.pods_that_fit(shape(gpus=2), ["n2"]) == 2
    assert cache.pods_that_fit(shape(gpus=2), ["n1", "n2", "gone"]) == 6


def test_a_pod_whose_node_is_gone_attracts_no_pod_to_its_zone():
    cache = SchedulerCache()
    for name, zone in (("n1", "b"), ("n2", "a")):
        cache.update_node(node(name, zone=zone))
    cache.add_pod(("d", "first"), "n1", shape(), LABELS)
    together = shape(pod_affinity=(TOGETHER,))
    assert cache.best_node(("d", "second"), together, LABELS) == "n1"
    cache.remove_node("n1")
    assert cache.best_node(("d", "second"), together, LABELS) == "n2"
