"""The scheduler's books: however they came to be, they give the answer that fresh ones would give."""

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


def ask(taste=0, *, gpus=1, cpu=1000, priority=0, **shape):
    requests = Resources({"cpu": cpu, "nvidia.com/gpu": gpus, "pods": 1})
    return SchedulingShape.of(PodShape(requests=requests, priority=priority, **shape), taste)


ASKS = (
    ask(gpus=1),
    ask(gpus=4, cpu=2000),
    ask(gpus=8),
    ask(gpus=2, priority=10),
    ask(1, gpus=1, tolerations=(Toleration("k", "Exists"),)),
    ask(2, gpus=1, node_selector={"zone": "b"}),
    ask(gpus=1, pod_anti_affinity=(APART,)),
    ask(gpus=1, pod_affinity=(TOGETHER,)),
    ask(gpus=0, host_ports=((80, "TCP"),)),
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
    st.tuples(st.just("describe"), nodes),
    st.tuples(st.just("forget"), names),
    st.tuples(st.just("take"), pods, names, st.sampled_from(ASKS)),
    st.tuples(st.just("give back"), pods),
    st.tuples(st.just("keep"), pods, st.none() | names, st.sampled_from(ASKS)),
    st.tuples(st.just("look"), st.sampled_from(ASKS)),
)


@pytest.mark.law
@given(st.lists(steps, max_size=40))
def test_books_kept_up_to_date_answer_as_new_ones_do(history):
    known: dict[str, Node] = {}
    taken: dict[tuple[str, str], tuple[str, SchedulingShape]] = {}
    kept: dict[tuple[str, str], tuple[str, SchedulingShape]] = {}
    placement = SchedulerCache()
    for step in history:
        match step:
            case ("describe", described):
                known[described.name] = described
                placement.describe(described)
            case ("forget", name):
                known.pop(name, None)
                placement.forget_node(name)
            case ("take", pod, name, wants):
                taken[pod] = (name, wants)
                kept.pop(pod, None)
                placement.take(pod, name, wants, LABELS)
            case ("give back", pod):
                taken.pop(pod, None)
                placement.give_back(pod)
            case ("keep", pod, name, wants) if pod not in taken:
                kept.pop(pod, None)
                if name is not None:
                    kept[pod] = (name, wants)
                placement.keep(pod, name, wants)
            case ("look", wants):
                placement.best(("d", "someone"), wants, LABELS)

    fresh = SchedulerCache()
    for described in known.values():
        fresh.describe(described)
    for pod, (name, wants) in taken.items():
        fresh.take(pod, name, wants, LABELS)
    for pod, (name, wants) in kept.items():
        fresh.keep(pod, name, wants)
    for wants in ASKS:
        key = ("d", "someone")
        best = placement.best(key, wants, LABELS)
        assert best == fresh.best(key, wants, LABELS)
        assert placement.room(wants, known) == fresh.room(wants, known)
        if best is None:
            assert placement.why_not(key, wants, LABELS) == fresh.why_not(key, wants, LABELS)
        else:
            assert placement.fits_on(best, key, wants, LABELS)


def test_room_kept_for_a_nominated_pod_gives_way_only_to_more_important_ones():
    placement = SchedulerCache()
    placement.describe(node("n1", gpus=8))
    placement.keep(("d", "nominee"), "n1", ask(gpus=8))
    assert placement.best(("d", "equal"), ask(gpus=1), {}) is None
    assert placement.best(("d", "above"), ask(gpus=1, priority=5), {}) == "n1"
    assert placement.fits_on("n1", ("d", "nominee"), ask(gpus=8), {})


def test_room_is_kept_on_a_node_that_joins_after_the_nomination():
    placement = SchedulerCache()
    placement.keep(("d", "nominee"), "n1", ask(gpus=8))
    placement.describe(node("n1", gpus=8))
    assert placement.best(("d", "other"), ask(gpus=1), {}) is None


def test_a_pod_bound_before_its_node_joined_takes_room_there():
    placement = SchedulerCache()
    placement.take(("d", "early"), "n1", ask(gpus=8), {})
    placement.describe(node("n1", gpus=8))
    assert placement.best(("d", "late"), ask(gpus=1), {}) is None
    placement.give_back(("d", "early"))
    assert placement.best(("d", "late"), ask(gpus=1), {}) == "n1"


def test_how_many_would_fit_counts_only_the_nodes_asked_about():
    placement = SchedulerCache()
    placement.describe(node("n1", gpus=8))
    placement.describe(node("n2", gpus=4))
    assert placement.room(ask(gpus=2), ["n2"]) == 2
    assert placement.room(ask(gpus=2), ["n1", "n2", "gone"]) == 6


def test_a_pod_whose_node_is_gone_draws_nobody_to_its_zone():
    placement = SchedulerCache()
    for name, zone in (("n1", "b"), ("n2", "a")):
        placement.describe(node(name, zone=zone))
    placement.take(("d", "first"), "n1", ask(), LABELS)
    together = ask(pod_affinity=(TOGETHER,))
    assert placement.best(("d", "second"), together, LABELS) == "n1"
    placement.forget_node("n1")
    assert placement.best(("d", "second"), together, LABELS) == "n2"
