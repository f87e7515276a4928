"""A new node is reserved for the pods it was launched for by its startup taint, then opened to all."""

from datetime import timedelta

import pytest

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.names import STARTUP_TAINT
from forebay.api.parts import TaintEffect, TaintEntry
from forebay.demand.startup_taint import (
    GPUS_AWAITED,
    STARTUP_TAINT_TTL,
    AddToleration,
    OpenNode,
    ReserveNode,
    next_taint_change,
    startup_taints,
)
from forebay.model.quantities import Resources
from forebay.model.requirements import LabelSelector, Taint, Toleration
from forebay.model.workloads import PodAffinityTerm
from tests.unit.demand.builders import GPU, NOW, ago, node, pod, record, running

OTHERS = (Taint(STARTUP_TAINT),)


def tainted(nodes):
    return [each for each in nodes if any(taint.key == STARTUP_TAINT for taint in each.taints)]


def decide(records, nodes, pending, used=None, now=NOW, **options):
    by_name = {each.name: each for each in nodes}
    return startup_taints(records, by_name, pending, used or {}, now, tainted=tainted(nodes), **options)


def reserved_for(record):
    return (Taint(STARTUP_TAINT, record.uid),)


def just_ready(*args, **fields):
    return record(*args, since=NOW, **fields)


def toleration(name="n1"):
    return (Toleration(STARTUP_TAINT, "Equal", record(name).uid),)


def test_records_that_need_nothing_hide_none_that_do():
    first, second = pod("first"), pod("second")
    machines = [
        record("gone", State.GONE),
        record("old"),
        record("off", State.REQUESTED),
        record("leaves", State.LAUNCHED, deleted=NOW),
        record("n1", State.LAUNCHED, pods=[first]),
        record("n2", State.LAUNCHED, pods=[second]),
    ]
    nodes = [node("old"), node("other", taints=(Taint(STARTUP_TAINT, "uid-of-n1"),))]
    found = decide(machines, nodes, [first, second])
    assert [each.pod.name for each in found if isinstance(each, AddToleration)] == ["first", "second"]


# Before the node can take pods.


def test_the_node_of_a_machine_that_is_off_is_reserved_before_it_is_powered_on():
    waiting, off = pod(), node(ready=False)
    machine = record(state=None, pods=[waiting])
    assert decide([machine], [off], [waiting], to_launch={"n1"}) == (ReserveNode(record=machine, node=off),)
    assert decide([machine], [off], [waiting]) == ()


def test_a_machine_without_a_node_object_is_launched_as_it_is():
    waiting = pod()
    assert decide([record(state=None, pods=[waiting])], [], [waiting], to_launch={"n1"}) == ()


def test_pods_get_their_toleration_once_the_launch_is_accepted_while_the_machine_boots():
    first, second, stranger = pod("first", 4), pod("second", 4), pod("stranger", 8)
    machine = record(state=State.LAUNCHED, pods=[first, second])
    assert decide([machine], [], [stranger, second, first]) == (
        AddToleration(record=machine, pod=first),
        AddToleration(record=machine, pod=second),
    )


@pytest.mark.parametrize("state", [State.REQUESTED, State.LAUNCHING])
def test_pods_get_no_toleration_before_the_launch_is_accepted(state):
    waiting = pod()
    assert decide([record(state=state, pods=[waiting])], [], [waiting]) == ()


@pytest.mark.parametrize("tolerations", [toleration(), (Toleration(operator="Exists"),)])
def test_a_pod_that_tolerates_the_taint_already_is_left_as_it_is(tolerations):
    waiting = pod(tolerations=tolerations)
    machine = record(state=State.LAUNCHED, pods=[waiting])
    assert decide([machine], [node(ready=False, taints=reserved_for(machine))], [waiting]) == ()


@pytest.mark.parametrize("state", [State.LAUNCHED, State.JOINED])
@pytest.mark.parametrize("taints", [(), OTHERS, (Taint(STARTUP_TAINT, "uid-of-an-earlier-run"),)])
def test_a_node_that_joined_without_its_own_taint_is_reserved_on_sight(state, taints):
    waiting = pod(tolerations=toleration())
    machine, there = record(state=state, pods=[waiting]), node(taints=taints)
    assert decide([machine], [there], [waiting]) == (ReserveNode(record=machine, node=there),)


def test_a_cordoned_node_or_one_that_is_being_deleted_is_not_reserved():
    waiting = pod()
    machine = record(state=State.JOINED, pods=[waiting])
    for there in (node(unschedulable=True), node(deleted=NOW)):
        assert not any(isinstance(each, ReserveNode) for each in decide([machine], [there], [waiting]))
    assert ReserveNode(record=machine, node=node()) in decide([machine], [node()], [waiting])


def test_a_node_is_not_reserved_when_no_planned_pod_waits_any_more():
    assert decide([record(state=State.JOINED, pods=[pod("gone")])], [node()], [pod("other")]) == ()


def test_startup_taints_of_the_plan_are_put_on_the_node_of_a_machine_that_is_off_together_with_ours():
    waiting, driver = pod(), TaintEntry(key="example.com/driver", value="v1", effect=TaintEffect.NO_SCHEDULE)
    machine = record(state=None, pods=[waiting], planned={"startup_taints": (driver,)})
    (found,) = decide([machine], [node(ready=False)], [waiting], to_launch={"n1"})
    assert found.others == (Taint("example.com/driver", "v1"),)
    has_it = node(ready=False, taints=(Taint("example.com/driver", "v0"),))
    assert decide([machine], [has_it], [waiting], to_launch={"n1"})[0].others == ()


def test_startup_taints_of_the_plan_are_not_put_on_a_node_that_may_have_lost_them_already():
    waiting, driver = pod(tolerations=toleration()), TaintEntry(key="driver", effect=TaintEffect.NO_SCHEDULE)
    machine = record(state=State.JOINED, pods=[waiting], planned={"startup_taints": (driver,)})
    (found,) = decide([machine], [node()], [waiting])
    assert (type(found), found.others) == (ReserveNode, ())
    was_ready = just_ready(pods=[waiting], planned={"startup_taints": (driver,)})
    for each in decide([was_ready], [node(ready=False)], [waiting]):
        assert each.others == ()


def test_a_ready_node_whose_gpus_do_not_come_is_opened_for_the_daemonset_that_brings_them():
    """Its device plugin may not tolerate our taint. When the GPUs are there, the node is reserved again."""
    waiting = pod(tolerations=toleration())
    machine = record(state=State.JOINED, pods=[waiting])
    there = node(gpus=0, taints=reserved_for(machine), ready_since=NOW)
    assert decide([machine], [there], [waiting]) == ()
    later = next_taint_change([machine], tainted([there]), NOW)
    assert later == NOW + GPUS_AWAITED
    assert decide([machine], [there], [waiting], now=later) == (OpenNode(node=there),)
    opened = node(gpus=0, ready_since=NOW)
    assert decide([machine], [opened], [waiting], now=later) == ()
    with_gpus = node(ready_since=NOW)
    assert decide([machine], [with_gpus], [waiting], now=later) == (ReserveNode(record=machine, node=with_gpus),)


# From then on.


def test_a_ready_node_stays_reserved_while_its_pods_are_being_bound():
    expected = pod(tolerations=toleration())
    machine = just_ready(pods=[expected])
    assert decide([machine], [node(taints=reserved_for(machine))], [expected]) == ()


def test_a_pod_without_its_toleration_gets_it_from_the_next_leader():
    waiting = pod()
    machine = just_ready(pods=[waiting])
    there = node(taints=reserved_for(machine))
    assert decide([machine], [there], [waiting]) == (AddToleration(record=machine, pod=waiting),)


def test_the_taint_is_removed_when_the_planned_pods_are_bound():
    machine = just_ready(pods=[pod()])
    there = node(taints=reserved_for(machine))
    assert decide([machine], [there], [], {"n1": Resources({GPU: 1})}) == (OpenNode(node=there),)


def test_a_full_node_is_opened_when_no_other_node_is_reserved():
    expected = pod("expected", tolerations=toleration("n2"))
    done, busy = just_ready(pods=[pod("there")]), just_ready("n2", pods=[expected])
    nodes = [node(taints=reserved_for(done)), node("n2", taints=reserved_for(busy))]
    full = {"n1": Resources({GPU: 8})}
    assert decide([done, busy], nodes, [expected], full) == ()
    half = {"n1": Resources({GPU: 4})}
    assert [each.node.name for each in decide([done, busy], nodes, [expected], half)] == ["n1"]
    assert {each.node.name for each in decide([done, busy], nodes, [], full)} == {"n1", "n2"}


def test_the_door_is_open_after_a_minute_though_a_planned_pod_is_not_bound():
    expected = pod(tolerations=toleration())
    machine = just_ready(pods=[expected])
    there = node(taints=reserved_for(machine))
    end = next_taint_change([machine], tainted([there]), NOW)
    assert end == NOW + STARTUP_TAINT_TTL == NOW + timedelta(minutes=1)
    assert decide([machine], [there], [expected], now=end - timedelta(seconds=1)) == ()
    assert decide([machine], [there], [expected], now=end) == (OpenNode(node=there),)
    assert next_taint_change([machine], tainted([node()]), NOW) is None
    assert decide([machine], [node()], [expected], now=end) == ()


def test_a_pod_that_cannot_have_its_toleration_does_not_keep_the_node_reserved():
    forbidden, other = pod("forbidden"), pod("other", tolerations=toleration())
    machine = just_ready(pods=[forbidden, other])
    there = node(taints=reserved_for(machine))
    assert decide([machine], [there], [forbidden, other], intolerant={forbidden.uid}) == ()
    assert decide([machine], [there], [forbidden], intolerant={forbidden.uid}) == (OpenNode(node=there),)


def test_a_pod_that_the_scheduler_keeps_refusing_does_not_keep_the_node_reserved():
    waiting = pod(tolerations=toleration())
    machine = just_ready(pods=[waiting])
    there = node(taints=reserved_for(machine))
    assert decide([machine], [there], [waiting], refused={waiting.uid}) == (OpenNode(node=there),)


def test_a_pod_that_does_not_fit_any_more_does_not_keep_the_node_reserved():
    large, small = pod("large", 8, tolerations=toleration()), pod("small", 2, tolerations=toleration())
    machine = just_ready(pods=[large, small])
    there, used = node(taints=reserved_for(machine)), {"n1": Resources({GPU: 4})}
    assert decide([machine], [there], [large, small], used) == ()
    assert decide([machine], [there], [large], used) == (OpenNode(node=there),)


def test_pods_with_anti_affinity_to_each_other_are_not_awaited_on_one_node():
    alone = (PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
    one = pod("a", labels={"app": "x"}, pod_anti_affinity=alone, tolerations=toleration())
    machine = just_ready(pods=[one])
    there = node(taints=reserved_for(machine))
    assert decide([machine], [there], [one]) == ()
    company = {"n1": [running("c", labels={"app": "x"})]}
    assert decide([machine], [there], [one], pods_by_node=company) == (OpenNode(node=there),)


def test_a_pod_that_others_on_the_node_keep_away_is_not_awaited():
    plain = pod("a", labels={"app": "x"}, tolerations=toleration())
    machine = just_ready(pods=[plain])
    there = node(taints=reserved_for(machine))
    alone = (PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)
    company = [running("easy"), running("alone", pod_anti_affinity=alone)]
    assert decide([machine], [there], [plain], pods_by_node={"n1": company[:1]}) == ()
    assert decide([machine], [there], [plain], pods_by_node={"n1": company}) == (OpenNode(node=there),)


def test_host_ports_in_use_keep_a_pod_from_being_awaited():
    web = pod(host_ports=((80, "TCP"),), tolerations=toleration())
    machine = just_ready(pods=[web])
    there = node(taints=reserved_for(machine))
    assert decide([machine], [there], [web], ports={"n1": frozenset({(80, "TCP")})}) == (OpenNode(node=there),)


@pytest.mark.parametrize("other", [running("x", "n2"), pod("x", deleted=NOW), pod("x", scheduling_gates=("a/b",))])
def test_bound_deleted_and_gated_pods_are_not_awaited(other):
    machine = just_ready(pods=[other])
    there = node(taints=reserved_for(machine))
    assert decide([machine], [there], [other]) == (OpenNode(node=there),)


@pytest.mark.parametrize("state", [State.DRAINING, State.TERMINATING])
def test_nothing_is_done_about_a_machine_that_is_leaving(state):
    waiting = pod()
    assert decide([record(state=state, pods=[waiting])], [node(taints=OTHERS)], [waiting]) == ()
    assert decide([record(pods=[waiting], deleted=NOW)], [node(taints=OTHERS)], [waiting]) == ()


def test_a_node_that_was_opened_is_not_reserved_again():
    waiting = pod(tolerations=toleration())
    assert decide([record(pods=[waiting], since=ago(minutes=2))], [node()], [waiting]) == ()


# Left behind.


def test_the_taint_of_a_launch_that_failed_is_taken_off_the_node():
    gone = record(state=State.GONE, pods=[pod()])
    off = node(ready=False, taints=reserved_for(gone))
    assert decide([gone], [off], []) == (OpenNode(node=off),)
    assert decide([], [off], []) == (OpenNode(node=off),)


def test_a_taint_of_a_machine_that_has_a_live_record_stays():
    """By its UID: a node may register under another name than planned."""
    machine = record("n9", state=State.LAUNCHED)
    assert decide([machine], [node(taints=reserved_for(machine))], []) == ()


def test_a_taint_without_a_value_was_not_put_there_by_us():
    assert decide([], [node(taints=OTHERS)], []) == ()


def test_the_next_change_is_that_of_the_node_that_has_been_ready_longest():
    machines = [record(name, since=ago(seconds=age)) for name, age in (("n1", 1), ("n2", 5), ("n3", 3))]
    nodes = {each.metadata.name: node(each.metadata.name, taints=reserved_for(each)) for each in machines}
    assert next_taint_change(machines, tainted(nodes.values()), NOW) == ago(seconds=5) + STARTUP_TAINT_TTL


def test_a_node_whose_gpus_do_not_come_is_looked_at_again_when_it_is_opened_for_them():
    joined = record(state=State.JOINED)
    taints = reserved_for(joined)
    assert next_taint_change([joined], [node(gpus=0, taints=taints, ready_since=ago(seconds=5))], NOW) == (
        ago(seconds=5) + GPUS_AWAITED
    )
    unknown = node(gpus=0, taints=taints, ready_since=None)
    assert next_taint_change([joined], [unknown], NOW) == NOW + GPUS_AWAITED
    assert next_taint_change([joined], [], NOW) is None
    assert next_taint_change([record(state=State.LAUNCHED)], [node(taints=taints)], NOW) is None
