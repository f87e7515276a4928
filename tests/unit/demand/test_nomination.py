"""A usable node is reserved for the pods it was launched for, then opened to all."""

import pytest

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.names import STARTUP_TAINT
from forebay.demand.nomination import STARTUP_TAINT_TTL, NominatePods, next_taint_expiry, nominations
from forebay.model.quantities import Resources
from forebay.model.requirements import LabelSelector, Taint, Toleration
from forebay.model.workloads import PodAffinityTerm
from tests.unit.demand.builders import GPU, NOW, ago, node, pod, record, running

TAINTED = (Taint(STARTUP_TAINT),)


def nominate(records, nodes, pending, used=None, now=NOW, **options):
    return nominations(records, {each.name: each for each in nodes}, pending, used or {}, now, **options)


def reserved_for(record):
    return (Taint(STARTUP_TAINT, record.uid),)


def just_ready(*args, **fields):
    return record(*args, since=NOW, **fields)


@pytest.mark.parametrize("state", [State.JOINED, State.READY])
def test_a_usable_node_is_reserved_for_its_planned_pods_and_these_are_nominated(state):
    first, second, stranger = pod("first", 4), pod("second", 4), pod("stranger", 8)
    machine, there = just_ready(state=state, pods=[first, second]), node(taints=TAINTED)
    assert nominate([machine], [there], [stranger, second, first]) == (
        NominatePods(record=machine, node=there, pods=(first, second), reserve=True),
    )


def toleration(name="n1"):
    return (Toleration(STARTUP_TAINT, "Equal", record(name).uid),)


def test_a_nominated_pod_without_its_toleration_gets_it_from_the_next_leader():
    stuck = pod(nominated_node="n1")
    machine = just_ready(pods=[stuck])
    (found,) = nominate([machine], [node(taints=reserved_for(machine))], [stuck])
    assert (found.pods, found.reserve) == ((stuck,), True)


def test_nothing_is_done_while_nominated_pods_with_their_toleration_are_being_bound():
    expected = pod(nominated_node="n1", tolerations=toleration())
    machine = just_ready(pods=[expected])
    assert nominate([machine], [node(taints=reserved_for(machine))], [expected]) == ()


def test_a_pod_whose_nomination_was_cleared_is_nominated_again_and_the_node_stays_reserved():
    waiting = pod()
    machine = just_ready(pods=[waiting])
    (found,) = nominate([machine], [node(taints=reserved_for(machine))], [waiting])
    assert (found.pods, found.reserve, found.untaint) == ((waiting,), True, False)


def test_the_taint_is_removed_when_the_planned_pods_are_bound():
    machine = just_ready(pods=[pod()])
    (found,) = nominate([machine], [node(taints=reserved_for(machine))], [], {"n1": Resources({GPU: 1})})
    assert found.untaint


def test_a_full_node_is_opened_when_no_other_node_is_reserved():
    expected = pod("expected", nominated_node="n2", tolerations=toleration("n2"))
    done, busy = just_ready(pods=[pod("there")]), just_ready("n2", pods=[expected])
    nodes = [node(taints=reserved_for(done)), node("n2", taints=reserved_for(busy))]
    full = {"n1": Resources({GPU: 8})}
    assert nominate([done, busy], nodes, [expected], full) == ()
    half = {"n1": Resources({GPU: 4})}
    assert [each.node.name for each in nominate([done, busy], nodes, [expected], half)] == ["n1"]
    assert {each.node.name for each in nominate([done, busy], nodes, [], full)} == {"n1", "n2"}


def test_the_taint_expires_though_a_planned_pod_is_not_bound():
    expected, other = pod(nominated_node="n1", tolerations=toleration()), pod("other")
    machine = just_ready(pods=[expected, other])
    there = node(taints=reserved_for(machine))
    end = next_taint_expiry([machine], {"n1": there}, NOW)
    assert NOW < end <= NOW + STARTUP_TAINT_TTL
    (found,) = nominate([machine], [there], [expected, other], now=end)
    assert (found.pods, found.untaint) == ((other,), True)
    assert next_taint_expiry([machine], {"n1": node()}, NOW) is None


def test_a_node_that_waited_long_for_its_gpus_is_reserved_all_the_same():
    waiting = pod()
    machine = record(state=State.JOINED, pods=[waiting], since=ago(minutes=9))
    (found,) = nominate([machine], [node(taints=TAINTED)], [waiting])
    assert found.reserve


def test_pods_are_nominated_to_a_node_without_our_taint_as_well():
    waiting = pod()
    (found,) = nominate([record(pods=[waiting])], [node()], [waiting])
    assert found.pods == (waiting,)
    assert not found.untaint


def test_a_nomination_that_stands_is_not_repeated_and_one_that_was_cleared_is():
    machine = record(pods=[pod()])
    assert nominate([machine], [node()], [pod(nominated_node="n1")]) == ()
    assert nominate([machine], [node()], [pod()])[0].pods == (pod(),)


def test_the_taint_is_removed_when_no_planned_pod_is_pending_any_more():
    (found,) = nominate([record(pods=[pod("gone")])], [node(taints=TAINTED)], [])
    assert found.untaint
    assert found.pods == ()


@pytest.mark.parametrize(
    "there",
    [
        node(ready=False, taints=TAINTED),
        node(gpus=4, taints=TAINTED),
        node(deleted=NOW, taints=TAINTED),
        node(unschedulable=True, taints=TAINTED),
    ],
)
def test_a_node_that_is_not_ready_short_of_gpus_deleted_or_cordoned_is_not_opened(there):
    waiting = pod()
    assert nominate([record(gpus=8, pods=[waiting])], [there], [waiting]) == ()


def test_a_node_with_a_condition_taint_is_opened_when_that_is_gone():
    """The node controller removes its taint a little after the node has become ready."""
    waiting = pod()
    there = node(taints=(*TAINTED, Taint("node.kubernetes.io/not-ready")))
    assert nominate([record(pods=[waiting])], [there], [waiting]) == ()
    (found,) = nominate([record(pods=[waiting])], [node(taints=TAINTED)], [waiting])
    assert found.pods == (waiting,)


@pytest.mark.parametrize("state", [State.LAUNCHED, State.DRAINING, State.TERMINATING, State.GONE])
def test_only_registered_machines_that_are_not_leaving_are_opened(state):
    waiting = pod()
    assert nominate([record(state=state, pods=[waiting])], [node(taints=TAINTED)], [waiting]) == ()
    assert nominate([record(pods=[waiting], deleted=NOW)], [node(taints=TAINTED)], [waiting]) == ()


def test_a_pod_that_does_not_fit_any_more_is_not_nominated():
    large, small = pod("large", 8), pod("small", 2)
    (found,) = nominate([record(pods=[large, small])], [node()], [large, small], {"n1": Resources({GPU: 4})})
    assert found.pods == (small,)


def test_room_of_pods_already_nominated_to_the_node_is_not_given_away_twice():
    kept, late = pod("kept", 6, nominated_node="n1"), pod("late", 4)
    assert nominate([record(pods=[late])], [node()], [kept, late]) == ()


def test_a_nomination_by_the_scheduler_is_not_overruled():
    preempting = pod(nominated_node="n2")
    machine = record(pods=[preempting])
    assert nominate([machine], [node(), node("n2")], [preempting]) == ()
    assert nominate([machine], [node(), node("n2", ready=False)], [preempting])[0].pods == (preempting,)


def test_bound_deleted_and_gated_pods_are_not_nominated():
    others = [running("bound", "n2"), pod("ending", deleted=NOW), pod("gated", scheduling_gates=("a/b",))]
    assert nominate([record(pods=others)], [node()], others) == ()


def test_a_pod_that_the_scheduler_keeps_refusing_is_not_nominated_for_ever():
    waiting = pod()
    assert nominate([record(pods=[waiting])], [node()], [waiting], refused={waiting.uid}) == ()


def test_a_pod_with_two_machines_is_nominated_to_one():
    waiting = pod()
    machines = [record(pods=[waiting]), record("n2", pods=[waiting])]
    (found,) = nominate(machines, [node(), node("n2")], [waiting])
    assert found.node.name == "n1"


def test_pods_with_anti_affinity_to_each_other_are_not_nominated_to_one_node():
    alone = (PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
    pods = [pod(name, labels={"app": "x"}, pod_anti_affinity=alone) for name in "ab"]
    (found,) = nominate([record(pods=pods)], [node()], pods)
    assert [each.name for each in found.pods] == ["a"]
    assert nominate([record(pods=pods)], [node()], pods, pods_by_node={"n1": [running("c", labels={"app": "x"})]}) == ()


def test_host_ports_in_use_keep_a_pod_from_being_nominated():
    web = pod(host_ports=((80, "TCP"),))
    assert nominate([record(pods=[web])], [node()], [web], ports={"n1": frozenset({(80, "TCP")})}) == ()
