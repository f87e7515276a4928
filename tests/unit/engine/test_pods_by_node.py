"""The cache of pods by node never returns outdated pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.engine.pods_by_node import PodsByNode
from forebay.kube.pod_indexes import BY_NODE, pod_indexes
from forebay.kube.view import View
from forebay.model.workloads import Owner, Phase
from tests.unit.demand.builders import pod

DAEMON = Owner("DaemonSet", "agent", "uid-agent")


def changes():
    """Pods that are added, moved, ended and deleted, with reads of the cache (None) in between."""
    states = st.builds(
        lambda name, node, phase, owner: pod(name, node=node, phase=phase, owner=owner),
        st.sampled_from("abc"),
        st.sampled_from(["n1", "n2", None]),
        st.sampled_from(list(Phase)),
        st.sampled_from([None, DAEMON]),
    )
    return st.lists(st.one_of(states, st.sampled_from("abc"), st.just(None)))


@pytest.mark.law
@given(changes())
def test_cached_pods_are_what_the_index_holds(history):
    pods_by_node = PodsByNode()
    view = View(pod_indexes(), handlers=(pods_by_node,))

    def bound_to(node):
        return view.by(BY_NODE, node)

    for version, event in enumerate(history, 1):
        if event is None:
            for node in ("n1", "n2"):
                assert pods_by_node.of(node, bound_to) == tuple(each for each in bound_to(node) if each.occupies_node)
        elif isinstance(event, str):
            known = view.get(("default", event))
            if known is not None:
                view.apply_deleted(known)
        else:
            view.apply(replace(event, resource_version=version), now=0.0)
    for node in ("n1", "n2"):
        assert pods_by_node.of(node, bound_to) == tuple(each for each in bound_to(node) if each.occupies_node)


def test_an_unchanged_node_is_not_read_again():
    pods_by_node = PodsByNode()
    reads = []

    def bound_to(node):
        reads.append(node)
        return (pod("a", node=node),)

    assert pods_by_node.of("n1", bound_to) == pods_by_node.of("n1", bound_to)
    assert reads == ["n1"]
    pods_by_node.change(None, pod("b", node="n2"))
    pods_by_node.of("n1", bound_to)
    assert reads == ["n1"]
    pods_by_node.change(pod("a", node="n1"), None)
    pods_by_node.of("n1", bound_to)
    assert reads == ["n1", "n1"]


def test_a_node_that_was_read_while_pods_were_still_being_listed_has_those_of_the_next_page_too():
    pods_by_node, listed = PodsByNode(), []

    def bound_to(node):
        return tuple(each for each in listed if each.node == node)

    assert pods_by_node.of("n1", bound_to) == ()
    listed.append(pod("a", node="n1"))
    pods_by_node.add(listed[0])
    assert pods_by_node.of("n1", bound_to) == tuple(listed)
