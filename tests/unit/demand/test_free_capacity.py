"""What counts as free capacity: ready nodes with a free GPU, and GPUInstances that are launching."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.gpu_instance import Purpose
from forebay.api.names import CORDONED_ANNOTATION, STARTUP_TAINT
from forebay.api.parts import TaintEffect
from forebay.api.parts import TaintEntry as PlannedTaint
from forebay.demand.free_capacity import daemon_overhead, free_nodes, planned_amounts
from forebay.demand.reservation import reserve
from forebay.model.fit import misfit
from forebay.model.quantities import Resources
from forebay.model.requirements import LabelOperator, NodeSelectorTerm, Requirement, Taint, Toleration
from forebay.model.sources import AMPLE, Delivery
from forebay.model.workloads import PodShape
from tests.unit.demand.builders import GPU, NOW, ago, node, pod, record, shape

STARTUP = Taint(STARTUP_TAINT)


def named(*nodes):
    return {each.name: each for each in nodes}


def only(found):
    (free_node,) = found
    return free_node


def test_a_ready_node_has_free_what_its_pods_do_not_request():
    free = only(
        free_nodes(named(node(gpus=8)), {"n1": Resources({GPU: 3, "cpu": 500})}, ports={"n1": frozenset({(80, "TCP")})})
    )
    assert free.ready
    assert free.free.amount(GPU) == 5
    assert free.free.amount("cpu") == 63_500
    assert free.ports == {(80, "TCP")}


@pytest.mark.parametrize(
    "changes",
    [{"ready": False}, {"unschedulable": True}, {"deleted": NOW}, {"gpus": 0}, {"gpus": 3}],
)
def test_a_node_that_is_not_ready_cordoned_deleted_full_or_without_gpus_has_no_free_capacity(changes):
    assert free_nodes(named(node(**changes)), {"n1": Resources({GPU: 3})}) == ()


@pytest.mark.parametrize("key", ["node.kubernetes.io/not-ready", "readiness.k8s.io/gpu"])
@pytest.mark.parametrize(
    ("records", "ready"),
    [
        pytest.param([], True, id="of no GPUInstance"),
        pytest.param([record(state=State.READY)], True, id="Ready"),
        pytest.param([record(state=State.JOINED)], False, id="Joined"),
    ],
)
def test_a_node_with_a_taint_that_is_about_to_go_has_room(key, records, ready):
    free = only(free_nodes(named(node(taints=(Taint(key),))), {}, records))

    assert free.ready is ready
    assert misfit(shape(), free.node, free.free) is None


@pytest.mark.parametrize("state", [None, State.REQUESTED, State.LAUNCHING, State.LAUNCHED, State.JOINED])
def test_a_gpuinstance_counts_as_launching_from_its_creation(state):
    waiting = pod()
    free = only(free_nodes({}, {}, [record("gi-1", state, gpus=4, pods=[waiting])]))
    assert free.launching == "gi-1"
    assert not free.ready
    assert not free.node.ready
    assert free.planned_for == {waiting.uid}
    assert free.free.amount(GPU) == 4
    assert free.free.amount("memory") == AMPLE


@pytest.mark.parametrize(
    ("state", "deleted", "launching"),
    [(State.JOINED, None, None), (State.JOINED, NOW, "n1"), (State.LAUNCHED, None, "n1")],
)
def test_a_node_that_can_take_pods_counts_as_it_is_once_it_has_joined_and_while_it_is_not_deleted(
    state, deleted, launching
):
    free = only(free_nodes(named(node(deleted=deleted)), {"n1": Resources({GPU: 3})}, [record(state=state)]))
    assert free.launching == launching


@pytest.mark.parametrize("state", [State.DRAINING, State.TERMINATING])
def test_a_draining_machine_does_not_count_though_its_node_is_still_ready(state):
    assert free_nodes(named(node()), {}, [record(state=state)]) == ()
    assert free_nodes(named(node()), {}, [record(state=State.READY, deleted=NOW)]) == ()


def test_a_gpuinstance_that_is_gone_does_not_hide_a_ready_node_of_its_name():
    assert only(free_nodes(named(node()), {}, [record(state=State.GONE)])).ready
    assert free_nodes({}, {}, [record(state=State.GONE)]) == ()


def test_a_container_has_no_room_for_other_pods():
    assert free_nodes({}, {}, [record(delivers=Delivery.CONTAINER, state=State.LAUNCHED)]) == ()


def test_a_booting_owned_machine_counts_by_its_plan_not_by_its_stale_node():
    stale = (Taint("node.kubernetes.io/unreachable"), Taint("left-by", "somebody"))
    off = node(gpus=8, ready=False, taints=stale, labels={"zone": "old"}, cpu=1_000)
    planned = {"labels": {"zone": "a"}, "allocatable": {GPU: 8, "cpu": "64"}}
    free = only(free_nodes(named(off), {}, [record(state=State.LAUNCHED, gpus=8, planned=planned)]))
    assert free.launching == "n1"
    assert free.node.taints == ()
    assert free.node.labels == {"zone": "a"}
    assert free.free.amount("cpu") == 64_000


def test_pods_of_the_previous_run_do_not_fill_a_booting_machine():
    """If they did, a second machine would be bought for the pod that this one was launched for."""
    machine = record(state=State.LAUNCHED, gpus=2, pods=[pod(gpus=2)])
    (free,) = free_nodes({"n1": node(gpus=2, ready=False)}, {"n1": Resources({GPU: 2})}, [machine])
    assert free.free[GPU] == 2


def test_a_machine_that_pods_of_its_previous_run_fill_while_it_registers_still_comes_for_its_own():
    """They end once its kubelet has started. Until then a second machine would be bought for the same pods."""
    waiting = pod(gpus=2)
    filled = {"n1": Resources({GPU: 2})}
    machine = record(state=State.LAUNCHED, gpus=2, pods=[waiting])
    launching = free_nodes({"n1": node(gpus=2)}, filled, [machine])
    assert launching[0].free.amount(GPU) == 0

    reservations = reserve([waiting], launching, NOW, await_planned=True)
    assert reservations.left == ()
    assert reservations.placed[waiting.uid].launching == machine.metadata.name
    assert free_nodes({"n1": node(gpus=2)}, filled, [record(state=State.LAUNCHED, gpus=2)]) == ()


def test_our_cordon_on_a_booting_machine_does_not_count_but_a_users_cordon_does():
    ours = node(ready=False, unschedulable=True, annotations={CORDONED_ANNOTATION: "2026-03-02T11:00:00Z"})
    users = node(ready=False, unschedulable=True)
    assert len(free_nodes(named(ours), {}, [record(state=State.LAUNCHED)])) == 1
    assert free_nodes(named(users), {}, [record(state=State.LAUNCHED)]) == ()


def test_a_node_is_launching_until_its_startup_taint_is_gone_and_its_gpus_are_allocatable():
    tainted = node(taints=(STARTUP,))
    starting = node(gpus=0, taints=(Taint("vendor.example/driver"),))
    driver = PlannedTaint(key="vendor.example/driver", effect=TaintEffect.NO_SCHEDULE)
    for there in (tainted, starting):
        free = only(free_nodes(named(there), {}, [record(state=State.JOINED, planned={"startup_taints": (driver,)})]))
        assert free.launching == "n1"
        assert free.free.amount(GPU) == 8
        assert misfit(shape(8), free.node, free.free) is None


def test_a_ready_machine_whose_node_turned_not_ready_has_no_free_capacity():
    assert free_nodes(named(node(ready=False)), {}, [record(state=State.READY)]) == ()


def test_a_ready_machine_that_was_lost_with_its_startup_taint_is_not_launching_again():
    lost = node(ready=False, taints=(Taint(STARTUP_TAINT, "uid-of-n1"),))

    assert free_nodes(named(lost), {}, [record(state=State.READY)]) == ()


def test_a_ready_node_object_corrects_the_plan():
    there = node(labels={"zone": "b"}, cpu=4_000, taints=(STARTUP, Taint("team", "x")))
    planned = {"labels": {"zone": "a", "pool": "p"}, "allocatable": {GPU: 8, "cpu": "64"}}
    free = only(free_nodes(named(there), {}, [record(state=State.JOINED, planned=planned)]))
    assert free.node.labels == {"zone": "b", "pool": "p"}
    assert free.node.taints == (Taint("team", "x"),)
    assert free.free.amount("cpu") == 4_000


def test_standard_resources_that_a_plan_does_not_state_are_ample():
    amounts = planned_amounts(record(planned={"allocatable": {"cpu": "1500m", "memory": 2**30, GPU: 2}}).spec.node)
    assert amounts == Resources({"cpu": 1500, "memory": 2**30, GPU: 2, "pods": AMPLE, "ephemeral-storage": AMPLE})


def test_daemonsets_take_their_part_of_a_launching_node():
    agent = PodShape(
        requests=Resources({"cpu": 200, "pods": 1}),
        node_affinity=(NodeSelectorTerm(match_fields=(Requirement("metadata.name", LabelOperator.IN, ("other",)),)),),
    )
    elsewhere = PodShape(requests=Resources({"cpu": 900}), node_selector={"disk": "ssd"})
    planned = {"allocatable": {GPU: 8, "cpu": "1"}}
    free = only(free_nodes({}, {}, [record(state=State.LAUNCHED, planned=planned)], daemons=(agent, elsewhere)))
    assert free.free.amount("cpu") == 800


def test_a_daemonset_of_nodes_with_a_label_takes_nothing_of_a_node_without_it():
    ssd = Requirement("disk", LabelOperator.IN, ("ssd",))
    agent = shape(0, 100, node_affinity=(NodeSelectorTerm(match_expressions=(ssd,)),))
    assert daemon_overhead(node(labels={"disk": "hdd"}), (agent,)) == Resources()
    assert daemon_overhead(node(labels={"disk": "ssd"}), (agent,)) == agent.requests


def test_a_daemonset_that_does_not_tolerate_the_nodes_taint_takes_nothing():
    tainted = node(taints=(Taint("dedicated", "gpu"),))
    agent = shape(0, 100)
    tolerant = shape(0, 100, tolerations=(Toleration(operator="Exists"),))
    assert daemon_overhead(tainted, (agent, tolerant)) == tolerant.requests


def test_room_for_a_pod_that_preempts_others_is_not_free():
    preempting = pod("big", 6, nominated_node="n1")
    assert only(free_nodes(named(node(gpus=8)), {}, preempting=[preempting])).free.amount(GPU) == 2


def test_configured_gpu_resources_count_in_place_of_whole_gpus():
    mig = "nvidia.com/mig-1g.5gb"
    sliced = node(gpus=0, allocatable=Resources({mig: 7, "pods": 10}), created=ago(days=9))
    assert free_nodes(named(sliced), {}, gpu_resources={"amd.com/gpu"}) == ()
    assert only(free_nodes(named(sliced), {})).free.amount(mig) == 7
    assert only(free_nodes(named(sliced), {}, gpu_resources={mig})).free.amount(mig) == 7


@pytest.mark.parametrize("purpose", Purpose)
def test_only_the_node_of_a_groups_member_is_one_that_its_group_got(purpose):
    made = record()
    made = replace(made, spec=replace(made.spec, purpose=purpose))
    assert only(free_nodes(named(node()), {}, [made])).in_group is (purpose is Purpose.GROUP)


def test_a_ready_machine_without_a_node_object_has_no_room():
    assert free_nodes({}, {}, [record(state=State.READY)]) == ()


def test_a_launching_node_has_the_taints_of_its_plan_with_their_values():
    taints = (
        PlannedTaint(key="dedicated", value="ml", effect=TaintEffect.NO_SCHEDULE),
        PlannedTaint(key="bare", effect=TaintEffect.NO_SCHEDULE),
    )
    free = only(free_nodes({}, {}, [record(state=State.LAUNCHED, planned={"taints": taints})]))
    assert free.node.taints == (Taint("dedicated", "ml"), Taint("bare", ""))


def test_pods_that_preempt_and_are_bound_already_keep_no_room_twice():
    bound = pod("big", 6, nominated_node="n1", node="n1")
    assert only(free_nodes(named(node(gpus=8)), {}, preempting=[bound, pod("plain", 4)])).free.amount(GPU) == 8
