"""What counts as capacity: nodes with a GPU to spare, and machines on their way."""

import pytest

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.names import CORDONED_ANNOTATION, STARTUP_TAINT
from forebay.api.parts import TaintEffect
from forebay.api.parts import TaintEntry as PlannedTaint
from forebay.demand.free_capacity import daemon_overhead, free_nodes, planned_amounts, planned_figures
from forebay.model.fit import misfit
from forebay.model.quantities import Resources
from forebay.model.requirements import LabelOperator, NodeSelectorTerm, Requirement, Taint, Toleration
from forebay.model.sources import AMPLE, Delivery
from forebay.model.workloads import PodShape
from tests.unit.demand.builders import GPU, NOW, ago, node, pod, record, shape

OURS = Taint(STARTUP_TAINT)


def named(*nodes):
    return {each.name: each for each in nodes}


def only(found):
    (room,) = found
    return room


def test_a_ready_node_is_room_for_what_its_pods_leave():
    room = only(
        free_nodes(named(node(gpus=8)), {"n1": Resources({GPU: 3, "cpu": 500})}, ports={"n1": frozenset({(80, "TCP")})})
    )
    assert room.ready
    assert room.free.amount(GPU) == 5
    assert room.free.amount("cpu") == 63_500
    assert room.ports == {(80, "TCP")}


@pytest.mark.parametrize(
    "changes",
    [{"ready": False}, {"unschedulable": True}, {"deleted": NOW}, {"gpus": 0}, {"gpus": 3}],
)
def test_a_node_that_is_down_cordoned_leaving_full_or_without_gpus_is_none(changes):
    assert free_nodes(named(node(**changes)), {"n1": Resources({GPU: 3})}) == ()


@pytest.mark.parametrize("state", [None, State.REQUESTED, State.LAUNCHING, State.LAUNCHED, State.JOINED])
def test_a_machine_that_was_asked_for_is_capacity_from_then_on(state):
    waiting = pod()
    room = only(free_nodes({}, {}, [record("gi-1", state, gpus=4, pods=[waiting])]))
    assert room.coming == "gi-1"
    assert not room.ready
    assert room.promised == {waiting.uid}
    assert room.free.amount(GPU) == 4
    assert room.free.amount("memory") == AMPLE


@pytest.mark.parametrize("state", [State.DRAINING, State.TERMINATING])
def test_a_machine_on_its_way_out_is_none_though_its_node_is_still_ready(state):
    assert free_nodes(named(node()), {}, [record(state=state)]) == ()
    assert free_nodes(named(node()), {}, [record(state=State.READY, deleted=NOW)]) == ()


def test_a_record_of_a_machine_that_has_gone_says_nothing_about_the_node_that_is_there():
    assert only(free_nodes(named(node()), {}, [record(state=State.GONE)])).ready
    assert free_nodes({}, {}, [record(state=State.GONE)]) == ()


def test_a_container_is_no_room_for_anybody_else():
    assert free_nodes({}, {}, [record(delivers=Delivery.CONTAINER, state=State.LAUNCHED)]) == ()


def test_an_owned_machine_that_boots_is_counted_by_its_plan_not_by_the_node_it_left_behind():
    off = node(gpus=8, ready=False, taints=(Taint("node.kubernetes.io/unreachable"),))
    room = only(free_nodes(named(off), {}, [record(state=State.LAUNCHED, gpus=8)]))
    assert room.coming == "n1"
    assert room.node.taints == ()


def test_pods_of_its_last_time_do_not_fill_a_machine_that_boots():
    """Or a second machine would be bought for the pod that this one was bought for."""
    machine = record(state=State.LAUNCHED, gpus=2, pods=[pod(gpus=2)])
    (room,) = free_nodes({"n1": node(gpus=2, ready=False)}, {"n1": Resources({GPU: 2})}, [machine])
    assert room.free[GPU] == 2


def test_a_cordon_of_ours_on_a_machine_that_boots_will_be_gone_but_one_of_the_users_will_not():
    ours = node(ready=False, unschedulable=True, annotations={CORDONED_ANNOTATION: "2026-03-02T11:00:00Z"})
    users = node(ready=False, unschedulable=True)
    assert len(free_nodes(named(ours), {}, [record(state=State.LAUNCHED)])) == 1
    assert free_nodes(named(users), {}, [record(state=State.LAUNCHED)]) == ()


def test_until_our_taint_is_off_and_its_gpus_are_there_a_node_is_still_coming():
    tainted = node(taints=(OURS,))
    starting = node(gpus=0, taints=(Taint("vendor.example/driver"),))
    driver = PlannedTaint(key="vendor.example/driver", effect=TaintEffect.NO_SCHEDULE)
    for there in (tainted, starting):
        room = only(free_nodes(named(there), {}, [record(state=State.JOINED, planned={"startup_taints": (driver,)})]))
        assert room.coming == "n1"
        assert room.free.amount(GPU) == 8
        assert misfit(shape(8), room.node, room.free) is None


def test_a_machine_whose_node_fell_over_is_no_capacity():
    assert free_nodes(named(node(ready=False)), {}, [record(state=State.READY)]) == ()


def test_what_the_node_says_of_itself_corrects_the_plan():
    there = node(labels={"zone": "b"}, cpu=4_000, taints=(OURS, Taint("team", "x")))
    planned = {"labels": {"zone": "a", "pool": "p"}, "allocatable": {GPU: 8, "cpu": "64"}}
    room = only(free_nodes(named(there), {}, [record(state=State.JOINED, planned=planned)]))
    assert room.node.labels == {"zone": "b", "pool": "p"}
    assert room.node.taints == (Taint("team", "x"),)
    assert room.free.amount("cpu") == 4_000


def test_the_figures_of_a_plan_are_quantities_and_say_nothing_where_nobody_knows():
    amounts = Resources({"cpu": 1500, "memory": 2**30, GPU: 2, "pods": AMPLE, "ephemeral-storage": AMPLE - 5})
    figures = planned_figures(amounts)
    assert figures == {"cpu": "1500m", "memory": 2**30, GPU: 2}
    back = planned_amounts(record(planned={"allocatable": figures}).spec.node)
    assert back == Resources({"cpu": 1500, "memory": 2**30, GPU: 2, "pods": AMPLE, "ephemeral-storage": AMPLE})


def test_daemonsets_take_their_part_of_a_machine_that_is_coming():
    agent = PodShape(
        requests=Resources({"cpu": 200, "pods": 1}),
        node_affinity=(NodeSelectorTerm(match_fields=(Requirement("metadata.name", LabelOperator.IN, ("other",)),)),),
    )
    elsewhere = PodShape(requests=Resources({"cpu": 900}), node_selector={"disk": "ssd"})
    planned = {"allocatable": {GPU: 8, "cpu": "1"}}
    room = only(free_nodes({}, {}, [record(state=State.LAUNCHED, planned=planned)], daemons=(agent, elsewhere)))
    assert room.free.amount("cpu") == 800


def test_a_daemonset_that_does_not_tolerate_the_nodes_taint_will_not_be_there():
    tainted = node(taints=(Taint("dedicated", "gpu"),))
    agent = shape(0, 100)
    hardy = shape(0, 100, tolerations=(Toleration(operator="Exists"),))
    assert daemon_overhead(tainted, (agent, hardy)) == hardy.requests


def test_room_that_the_scheduler_keeps_for_a_nominated_pod_is_not_free():
    keeps = pod("big", 6, nominated_node="n1")
    assert only(free_nodes(named(node(gpus=8)), {}, holding=[keeps])).free.amount(GPU) == 2


def test_an_older_machine_is_found_in_use_by_any_resource_that_counts():
    mig = "nvidia.com/mig-1g.5gb"
    sliced = node(gpus=0, allocatable=Resources({mig: 7, "pods": 10}), created=ago(days=9))
    assert free_nodes(named(sliced), {}) == ()
    assert only(free_nodes(named(sliced), {}, gpu_resources={mig})).free.amount(mig) == 7
