"""A machine that is ready is first offered to the pods it was obtained for."""

import pytest

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.names import STARTUP_TAINT
from forebay.demand.nomination import KEPT, NominatePods, nominations, reserved_until
from forebay.demand.planned_pods import planned_nodes
from forebay.model.quantities import Resources
from forebay.model.requirements import LabelSelector, Taint, Toleration
from forebay.model.workloads import PodAffinityTerm
from tests.unit.demand.builders import GPU, NOW, ago, node, pod, record, running

TAINTED = (Taint(STARTUP_TAINT),)


def welcome(records, nodes, pending, used=None, now=NOW, **options):
    return nominations(records, {each.name: each for each in nodes}, pending, used or {}, now, **options)


def made_out_to(record):
    return (Taint(STARTUP_TAINT, record.uid),)


def just_up(*told, **more):
    return record(*told, since=NOW, **more)


@pytest.mark.parametrize("state", [State.JOINED, State.READY])
def test_when_the_node_is_ready_it_is_kept_for_its_pods_which_are_sent_there(state):
    first, second, stranger = pod("first", 4), pod("second", 4), pod("stranger", 8)
    machine, there = just_up(state=state, pods=[first, second]), node(taints=TAINTED)
    assert welcome([machine], [there], [stranger, second, first]) == (
        NominatePods(record=machine, node=there, pods=(first, second), keep=True),
    )


def let_through(name="n1"):
    return (Toleration(STARTUP_TAINT, "Equal", record(name).uid),)


def test_a_pod_that_was_nominated_by_one_who_died_is_let_through_by_the_next():
    stuck = pod(nominated_node="n1")
    machine = just_up(pods=[stuck])
    (found,) = welcome([machine], [node(taints=made_out_to(machine))], [stuck])
    assert (found.pods, found.keep) == ((stuck,), True)


def test_while_its_pods_are_on_their_way_nothing_more_is_done():
    coming = pod(nominated_node="n1", tolerations=let_through())
    machine = just_up(pods=[coming])
    assert welcome([machine], [node(taints=made_out_to(machine))], [coming]) == ()


def test_who_has_lost_the_nomination_is_sent_again_and_the_node_stays_closed():
    waiting = pod()
    machine = just_up(pods=[waiting])
    (found,) = welcome([machine], [node(taints=made_out_to(machine))], [waiting])
    assert (found.pods, found.keep, found.untaint) == ((waiting,), True, False)


def test_when_its_pods_are_there_the_node_is_open_to_all():
    machine = just_up(pods=[pod()])
    (found,) = welcome([machine], [node(taints=made_out_to(machine))], [], {"n1": Resources({GPU: 1})})
    assert found.untaint


def test_a_full_node_is_opened_when_no_other_is_being_kept():
    coming = pod("coming", nominated_node="n2", tolerations=let_through("n2"))
    done, busy = just_up(pods=[pod("there")]), just_up("n2", pods=[coming])
    nodes = [node(taints=made_out_to(done)), node("n2", taints=made_out_to(busy))]
    full = {"n1": Resources({GPU: 8})}
    assert welcome([done, busy], nodes, [coming], full) == ()
    half = {"n1": Resources({GPU: 4})}
    assert [each.node.name for each in welcome([done, busy], nodes, [coming], half)] == ["n1"]
    assert {each.node.name for each in welcome([done, busy], nodes, [], full)} == {"n1", "n2"}


def test_a_node_is_not_kept_for_ever_for_a_pod_that_does_not_come():
    coming, other = pod(nominated_node="n1", tolerations=let_through()), pod("other")
    machine = just_up(pods=[coming, other])
    there = node(taints=made_out_to(machine))
    end = reserved_until([machine], {"n1": there}, NOW)
    assert NOW < end <= NOW + KEPT
    (found,) = welcome([machine], [there], [coming, other], now=end)
    assert (found.pods, found.untaint) == ((other,), True)
    assert reserved_until([machine], {"n1": node()}, NOW) is None


def test_one_that_waited_long_for_its_gpus_is_kept_all_the_same():
    waiting = pod()
    machine = record(state=State.JOINED, pods=[waiting], since=ago(minutes=9))
    (found,) = welcome([machine], [node(taints=TAINTED)], [waiting])
    assert found.keep


def test_a_machine_that_joins_without_our_taint_is_nominated_for_as_well():
    waiting = pod()
    (found,) = welcome([record(pods=[waiting])], [node()], [waiting])
    assert found.pods == (waiting,)
    assert not found.untaint


def test_a_nomination_that_stands_is_not_repeated_and_one_that_was_cleared_is():
    machine = record(pods=[pod()])
    assert welcome([machine], [node()], [pod(nominated_node="n1")]) == ()
    assert welcome([machine], [node()], [pod()])[0].pods == (pod(),)


def test_the_taint_goes_even_when_nobody_waits_any_more():
    (found,) = welcome([record(pods=[pod("gone")])], [node(taints=TAINTED)], [])
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
def test_a_node_that_is_down_short_of_gpus_leaving_or_cordoned_is_not_opened(there):
    waiting = pod()
    assert welcome([record(gpus=8, pods=[waiting])], [there], [waiting]) == ()


def test_a_node_that_takes_no_pods_for_a_moment_is_opened_when_it_does():
    """The node controller takes its taint off a little after the node has become ready."""
    waiting = pod()
    there = node(taints=(*TAINTED, Taint("node.kubernetes.io/not-ready")))
    assert welcome([record(pods=[waiting])], [there], [waiting]) == ()
    (found,) = welcome([record(pods=[waiting])], [node(taints=TAINTED)], [waiting])
    assert found.pods == (waiting,)


@pytest.mark.parametrize("state", [State.LAUNCHED, State.DRAINING, State.TERMINATING, State.GONE])
def test_only_machines_that_have_joined_and_stay_are_opened(state):
    waiting = pod()
    assert welcome([record(state=state, pods=[waiting])], [node(taints=TAINTED)], [waiting]) == ()
    assert welcome([record(pods=[waiting], deleted=NOW)], [node(taints=TAINTED)], [waiting]) == ()


def test_a_pod_that_does_not_fit_any_more_is_not_nominated():
    large, small = pod("large", 8), pod("small", 2)
    (found,) = welcome([record(pods=[large, small])], [node()], [large, small], {"n1": Resources({GPU: 4})})
    assert found.pods == (small,)


def test_room_kept_for_pods_already_nominated_there_is_not_promised_twice():
    kept, late = pod("kept", 6, nominated_node="n1"), pod("late", 4)
    assert welcome([record(pods=[late])], [node()], [kept, late]) == ()


def test_what_the_scheduler_chose_for_a_pod_is_not_overruled():
    preempting = pod(nominated_node="n2")
    machine = record(pods=[preempting])
    assert welcome([machine], [node(), node("n2")], [preempting]) == ()
    assert welcome([machine], [node(), node("n2", ready=False)], [preempting])[0].pods == (preempting,)


def test_bound_ending_and_gated_pods_are_left_alone():
    others = [running("bound", "n2"), pod("ending", deleted=NOW), pod("gated", scheduling_gates=("a/b",))]
    assert welcome([record(pods=others)], [node()], others) == ()


def test_a_pod_that_the_scheduler_keeps_refusing_is_not_nominated_for_ever():
    waiting = pod()
    assert welcome([record(pods=[waiting])], [node()], [waiting], refused={waiting.uid}) == ()


def test_a_pod_with_two_machines_is_nominated_to_one():
    waiting = pod()
    machines = [record(pods=[waiting]), record("n2", pods=[waiting])]
    (found,) = welcome(machines, [node(), node("n2")], [waiting])
    assert found.node.name == "n1"


def test_pods_that_refuse_each_other_are_not_nominated_to_one_node():
    alone = (PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
    pods = [pod(name, labels={"app": "x"}, pod_anti_affinity=alone) for name in "ab"]
    (found,) = welcome([record(pods=pods)], [node()], pods)
    assert [each.name for each in found.pods] == ["a"]
    assert welcome([record(pods=pods)], [node()], pods, pods_by_node={"n1": [running("c", labels={"app": "x"})]}) == ()


def test_host_ports_in_use_keep_a_pod_from_being_nominated():
    web = pod(host_ports=((80, "TCP"),))
    assert welcome([record(pods=[web])], [node()], [web], ports={"n1": frozenset({(80, "TCP")})}) == ()


def test_promises_are_of_machines_that_stay_and_of_the_pods_asked_about():
    one, other = pod("one"), pod("other")
    records = [
        record("a", State.LAUNCHED, pods=[one, other]),
        record("b", State.READY, pods=[one]),
        record("c", State.DRAINING, pods=[one]),
        record("d", State.GONE, pods=[one]),
    ]
    assert planned_nodes(records, {one.uid}) == {one.uid: {"a", "b"}}
    assert planned_nodes(records, set()) == {}
