"""Pods that must not share a node."""

import pytest
from msgspec.structs import replace

from forebay.demand.co_location import has_anti_affinity, violates_anti_affinity
from forebay.model.requirements import LabelSelector
from forebay.model.workloads import PodAffinityTerm
from tests.unit.demand.builders import pod, shape

HOSTNAME = "kubernetes.io/hostname"


def apart(name="a", *, labels=None, key=HOSTNAME, selector=LabelSelector(match_labels={"app": "a"}), namespaces=()):  # noqa: B008
    term = PodAffinityTerm(key, selector, namespaces)
    return replace(pod(name), shape=shape(pod_anti_affinity=(term,)), labels=labels or {})


def other(**labels):
    return replace(pod("other"), labels=labels)


@pytest.mark.parametrize(
    ("one", "labels", "violates"),
    [
        (apart(), {"app": "a"}, True),
        (apart(), {"app": "b"}, False),
        (apart(selector=None), {"app": "a"}, False),
        (apart(key="zone"), {"app": "a"}, False),
        (apart(namespaces=("elsewhere",)), {"app": "a"}, False),
        (apart(namespaces=("default", "elsewhere")), {"app": "a"}, True),
    ],
)
def test_anti_affinity_holds_in_both_directions(one, labels, violates):
    assert violates_anti_affinity(one, [other(), other(**labels)]) is violates
    assert violates_anti_affinity(other(**labels), [other(), one]) is violates


def test_only_terms_about_nodes_count():
    assert has_anti_affinity(apart())
    assert not has_anti_affinity(apart(key="zone"))
    assert not has_anti_affinity(other())
