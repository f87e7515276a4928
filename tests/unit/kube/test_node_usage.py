"""Usage of nodes by pods: exact after any sequence of changes."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.kube.node_usage import NodeUsage
from forebay.kube.view import View
from forebay.model.quantities import Resources
from forebay.model.workloads import Owner, Phase, Pod, PodShape

BORN = datetime(2026, 1, 1, tzinfo=UTC)
SMALL = PodShape(requests=Resources({"cpu": 100, "pods": 1}))
LARGE = PodShape(requests=Resources({"cpu": 4000, "memory": 2**30, "nvidia.com/gpu": 8, "pods": 1}))
WEB = PodShape(requests=Resources({"pods": 1}), host_ports=((80, "TCP"), (443, "TCP")))
DAEMON = Owner("DaemonSet", "agent", "uid-agent")
JOB = Owner("Job", "train", "uid-train")


def pod(name="a", version=1, shape=SMALL, *, node="n1", phase=Phase.RUNNING, owner=None, **fields):
    return Pod(
        namespace="default",
        name=name,
        resource_version=version,
        shape=shape,
        phase=phase,
        labels={},
        annotations={},
        owner=owner,
        node=node,
        nominated_node=None,
        unschedulable_since=None,
        unschedulable_message=None,
        finalizers=(),
        **{"uid": f"uid-{name}", "created": BORN, "deleted": None, **fields},
    )


def test_pods_add_to_their_node_until_they_end():
    usage = NodeUsage()
    small, large = pod("a"), pod("b", shape=LARGE)
    usage.add(small)
    usage.add(large)
    assert usage.all_used() == {"n1": SMALL.requests + LARGE.requests}
    usage.change(large, pod("b", 2, LARGE, phase=Phase.SUCCEEDED))
    assert usage.all_used() == {"n1": SMALL.requests}
    usage.change(small, None)
    assert usage.all_used() == {}


def test_a_pod_that_is_being_deleted_counts_until_it_is_gone():
    usage = NodeUsage()
    usage.add(pod("a"))
    usage.change(pod("a"), pod("a", 2, deleted=BORN))
    assert usage.all_used() == {"n1": SMALL.requests}


def test_a_pending_pod_does_not_count_until_it_is_bound():
    usage = NodeUsage()
    waiting = pod("a", node=None, phase=Phase.PENDING)
    usage.add(waiting)
    assert usage.all_used() == {}
    usage.change(waiting, pod("a", 2, phase=Phase.PENDING))
    assert usage.all_used() == {"n1": SMALL.requests}


def test_host_ports_are_free_again_when_the_last_pod_that_has_them_is_gone():
    usage = NodeUsage()
    usage.add(pod("a", shape=WEB))
    usage.add(pod("b", shape=WEB))
    usage.change(pod("a", shape=WEB), None)
    assert usage.all_ports() == {"n1": {(80, "TCP"), (443, "TCP")}}
    usage.change(pod("b", shape=WEB), None)
    assert usage.all_ports() == {}


def test_a_result_is_a_copy_that_later_changes_leave_alone():
    usage = NodeUsage()
    usage.add(pod("a"))
    before = usage.all_used()
    usage.add(pod("b", shape=LARGE))
    assert before == {"n1": SMALL.requests}
    assert usage.all_used() == {"n1": SMALL.requests + LARGE.requests}


def test_a_daemonset_has_the_shape_of_its_newest_pod_until_its_last_pod_is_gone():
    usage = NodeUsage()
    old = pod("a", owner=DAEMON)
    new = pod("b", shape=WEB, owner=DAEMON, node="n2", created=BORN + timedelta(hours=1))
    usage.add(new)
    usage.add(old)
    usage.add(pod("c", owner=JOB))
    assert usage.daemons() == (WEB,)
    usage.change(old, None)
    usage.change(new, None)
    assert usage.daemons() == ()


def test_a_pod_that_is_adopted_by_a_daemonset_is_one_of_its_pods_from_then_on():
    usage = NodeUsage()
    orphan = pod("a")
    usage.add(orphan)
    usage.change(orphan, pod("a", 2, owner=DAEMON))
    assert usage.daemons() == (SMALL,)
    usage.change(pod("a", 2, owner=DAEMON), pod("a", 3))
    assert usage.daemons() == ()


def test_a_view_keeps_usage_up_to_date_through_lists_changes_and_deletions():
    usage = NodeUsage()
    view = View(handlers=(usage,))
    view.begin_list()
    view.apply_all([pod("a"), pod("b", shape=LARGE)], 0.0)
    view.end_list(5, 0.0)
    assert usage.all_used() == {"n1": SMALL.requests + LARGE.requests}
    view.observe(pod("c", 6, node="n2"), 1.0)
    view.apply_deleted(pod("a", 7))
    assert usage.all_used() == {"n1": LARGE.requests, "n2": SMALL.requests}
    view.begin_list()
    view.apply_all([pod("b", 9, shape=LARGE, node="n3", uid="another b")], 2.0)
    view.end_list(10, 2.0)
    assert usage.all_used() == {"n3": LARGE.requests}


states = st.builds(
    pod,
    shape=st.sampled_from((SMALL, LARGE, WEB, PodShape(requests=Resources()))),
    node=st.sampled_from((None, "n1", "n2")),
    phase=st.sampled_from(Phase),
    owner=st.sampled_from((None, JOB, DAEMON)),
)


@pytest.mark.law
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.none() | states, st.booleans()), max_size=60))
def test_after_any_changes_usage_is_what_a_recount_gives(changes):
    usage = NodeUsage()
    there: dict[str, Pod] = {}
    for name, new, look in changes:
        old = there.pop(name, None)
        if old is None and new is not None and look:
            usage.add(new)
        else:
            usage.change(old, new)
        if new is not None:
            there[name] = new
        if look:
            usage.all_used()
    used: dict[str, Resources] = {}
    ports: dict[str, set] = {}
    daemons: Counter[str] = Counter()
    for each in there.values():
        if each.node is not None and not each.phase.ended:
            used[each.node] = used.get(each.node, Resources()) + each.shape.requests
            ports.setdefault(each.node, set()).update(each.shape.host_ports)
            daemons[each.owner.uid if each.owner is not None else ""] += each.owner is DAEMON
    assert {node: amounts for node, amounts in usage.all_used().items() if amounts} == {
        node: amounts for node, amounts in used.items() if amounts
    }
    assert usage.all_ports() == {node: found for node, found in ports.items() if found}
    assert len(usage.daemons()) == sum(1 for count in daemons.values() if count)
