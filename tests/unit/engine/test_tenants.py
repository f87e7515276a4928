"""Who is on a node, as it is now, however often it was asked before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.engine.pods_by_node import PodsByNode
from forebay.kube.pods import BY_NODE, pod_indexes
from forebay.kube.view import View
from forebay.model.workloads import Owner, Phase
from tests.unit.demand.builders import pod

DAEMON = Owner("DaemonSet", "agent", "uid-agent")


def changes():
    """Pods that come, move, end and go, with looks at the nodes in between."""
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
def test_they_are_what_a_fresh_look_would_find(history):
    pods_by_node = PodsByNode()
    view = View(pod_indexes(), handlers=(pods_by_node,))

    def on(node):
        return view.by(BY_NODE, node)

    for version, event in enumerate(history, 1):
        if event is None:
            for node in ("n1", "n2"):
                assert pods_by_node.of(node, on) == tuple(each for each in on(node) if each.occupies_node)
        elif isinstance(event, str):
            there = view.get(("default", event))
            if there is not None:
                view.apply_deleted(there)
        else:
            view.apply(replace(event, resource_version=version), now=0.0)
    for node in ("n1", "n2"):
        assert pods_by_node.of(node, on) == tuple(each for each in on(node) if each.occupies_node)


def test_an_unchanged_node_is_not_looked_at_again():
    pods_by_node = PodsByNode()
    looks = []

    def on(node):
        looks.append(node)
        return (pod("a", node=node),)

    assert pods_by_node.of("n1", on) == pods_by_node.of("n1", on)
    assert looks == ["n1"]
    pods_by_node.change(None, pod("b", node="n2"))
    pods_by_node.of("n1", on)
    assert looks == ["n1"]
    pods_by_node.change(pod("a", node="n1"), None)
    pods_by_node.of("n1", on)
    assert looks == ["n1", "n1"]
