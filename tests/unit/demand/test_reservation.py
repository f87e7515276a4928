"""Which pods fit on free and launching nodes; the laws are in test_reservation_laws."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.demand.free_capacity import FreeNode
from forebay.demand.refusal import refusal_holds
from forebay.demand.reservation import SCHEDULER_FLUSH, SCHEDULER_GRACE, Reservations, reserve
from forebay.model.quantities import Resources
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelSelector, Taint
from forebay.model.workloads import PodAffinityTerm
from tests.unit.demand.builders import NOW, ago, node, pod, running

LATER = NOW + SCHEDULER_GRACE


def free_node(name="n1", gpus=8, *, launching=None, planned_for=(), ports=(), **fields):
    existing = node(name, gpus, **fields)
    return FreeNode(
        node=existing,
        free=existing.allocatable,
        launching=launching,
        planned_for=frozenset(each.uid for each in planned_for),
        ports=frozenset(ports),
    )


def places(reservations):
    return {uid.removeprefix("uid-"): placed.node for uid, placed in reservations.placed.items()}


def names(pods):
    return [each.name for each in pods]


def test_a_pod_is_placed_on_the_node_with_the_fewest_free_gpus():
    reservations = reserve([pod(gpus=2)], [free_node("large", 8), free_node("right", 2), free_node("small", 1)], NOW)
    assert places(reservations) == {"train": "right"}
    placed = reservations.placed["uid-train"]
    assert placed.reason is Reason.FITS_EXISTING
    assert "right has room" in placed.sentence


def test_of_two_nodes_that_were_launched_for_a_pod_the_one_with_room_is_used():
    train = pod("train", 8)
    nodes = [free_node("full", 4, planned_for=[train]), free_node("right", 8, planned_for=[train])]
    assert places(reserve([train], nodes, NOW)) == {"train": "right"}
    assert "launched for the pod" in reserve([train], nodes, NOW).placed["uid-train"].sentence


def test_ready_nodes_come_before_launching_nodes():
    reservations = reserve([pod("a"), pod("b")], [free_node("soon", 1, launching="gi-1"), free_node("there", 1)], NOW)
    assert places(reservations) == {"a": "there", "b": "soon"}
    assert reservations.placed["uid-b"].reason is Reason.CAPACITY_LAUNCHING
    assert reservations.placed["uid-b"].launching == "gi-1"
    assert "gi-1 is launching" in reservations.placed["uid-b"].sentence


def test_pods_that_fit_nowhere_are_left_in_the_order_of_priority_size_and_age():
    pods = [
        pod("young", 4, created=ago(minutes=1)),
        pod("old", 4, created=ago(minutes=9)),
        pod("large", 8),
        pod("urgent", 1, priority=100),
    ]
    assert names(reserve(pods, [], NOW).left) == ["urgent", "large", "old", "young"]


def test_the_pod_of_higher_priority_gets_the_last_room():
    reservations = reserve([pod("large", 4), pod("urgent", 4, priority=1)], [free_node(gpus=4)], NOW)
    assert places(reservations) == {"urgent": "n1"}
    assert names(reservations.left) == ["large"]


def test_a_node_is_reserved_for_its_planned_pods_first():
    small, large = pod("small", 1), pod("large", 8, priority=100)
    reservations = reserve([small, large], [free_node("for-small", 8, planned_for=[small])], NOW)
    assert places(reservations) == {"small": "for-small"}
    assert names(reservations.left) == ["large"]


def test_a_pod_whose_planned_node_no_longer_fits_is_left():
    large = pod("large", 8)
    reservations = reserve([large], [free_node(gpus=4, planned_for=[large]), free_node("n2", 2)], NOW)
    assert names(reservations.left) == ["large"]


def test_a_pod_whose_node_is_launching_with_too_little_room_waits_until_that_is_certain():
    large = pod("large", 8)
    soon = free_node("soon", 4, planned_for=[large], launching="gi-1")
    placed = reserve([large], [soon], NOW, await_planned=True).placed["uid-large"]
    assert placed.launching == "gi-1"
    assert "seems to have too little room" in placed.sentence
    assert places(reserve([large], [soon, free_node("n2", 8)], NOW, await_planned=True)) == {"large": "n2"}
    assert names(reserve([large], [soon], NOW).left) == ["large"]
    full = free_node("full", 4, planned_for=[large])
    both = reserve([large], [full, soon], NOW, await_planned=True)
    assert places(both) == {"large": "soon"}, "another one that is ready and too small changes nothing"
    assert names(reserve([large], [full], NOW, await_planned=True).left) == ["large"]


def test_room_that_planned_pods_do_not_need_is_free_for_others():
    reservations = reserve([pod("new", 4)], [free_node(gpus=8, planned_for=[pod("gone", 8)], launching="gi")], NOW)
    assert places(reservations) == {"new": "n1"}


def test_selectors_taints_and_host_ports_exclude_nodes():
    selective = pod("selective", node_selector={"gpu-type": "h100"})
    plain = pod("plain")
    web = pod("web", host_ports=((80, "TCP"),))
    nodes = [
        free_node("tainted", taints=(Taint("dedicated"),)),
        free_node("h100", labels={"gpu-type": "h100"}, gpus=1),
        free_node("busy-port", 1, ports=[(80, "TCP")]),
    ]
    reservations = reserve([selective, plain, web], nodes, NOW)
    assert places(reservations) == {"selective": "h100", "plain": "busy-port"}
    assert names(reservations.left) == ["web"]


def test_two_pods_with_the_same_host_port_need_two_nodes():
    pods = [pod(name, host_ports=((80, "TCP"),)) for name in "abc"]
    reservations = reserve(pods, [free_node("n1"), free_node("n2", launching="gi")], NOW)
    assert places(reservations) == {"a": "n1", "b": "n2"}
    assert names(reservations.left) == ["c"]
    several = [pod("a", host_ports=((80, "TCP"),)), pod("b", host_ports=((81, "TCP"), (80, "TCP")))]
    assert names(reserve(several, [free_node("n1")], NOW).left) == ["b"], "one of its ports is taken"


ALONE = (PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "train"})),)


def test_pods_with_anti_affinity_to_each_other_get_a_node_each():
    pods = [pod(name, labels={"app": "train"}, pod_anti_affinity=ALONE) for name in "abc"]
    reservations = reserve(pods, [free_node("n1"), free_node("n2")], NOW)
    assert places(reservations) == {"a": "n1", "b": "n2"}
    assert names(reservations.left) == ["c"]


def test_pods_on_the_node_count_for_anti_affinity_in_both_directions():
    alone = pod("alone", labels={"app": "train"}, pod_anti_affinity=ALONE)
    kin = running("kin", labels={"app": "train"})
    stranger = running("stranger", labels={"app": "web"})
    elsewhere = running("elsewhere", labels={"app": "train"}, namespace="other")
    assert reserve([alone], [free_node()], NOW, pods_by_node={"n1": [kin]}).left == (alone,)
    assert reserve([alone], [free_node()], NOW, pods_by_node={"n1": [stranger, elsewhere]}).left == ()
    plain = pod("plain", labels={"app": "train"})
    exclusive = running("exclusive", labels={"app": "train"}, pod_anti_affinity=ALONE)
    assert reserve([plain], [free_node()], NOW, pods_by_node={"n1": [exclusive]}).left == (plain,)


def test_a_pod_excluded_by_anti_affinity_does_not_exclude_other_pods_of_its_shape():
    alone = pod("alone", labels={"app": "train"}, pod_anti_affinity=ALONE)
    elsewhere = pod("elsewhere", labels={"app": "train"}, namespace="other", shape=alone.shape)
    reservations = reserve(
        [alone, elsewhere], [free_node()], NOW, pods_by_node={"n1": [running("kin", labels={"app": "train"})]}
    )
    assert places(reservations) == {"elsewhere": "n1"}
    assert names(reservations.left) == ["alone"]


def test_anti_affinity_across_a_zone_is_left_to_the_scheduler():
    zone = (PodAffinityTerm("topology.kubernetes.io/zone", LabelSelector({"app": "train"})),)
    pods = [pod(name, labels={"app": "train"}, pod_anti_affinity=zone) for name in "ab"]
    assert reserve(pods, [free_node()], NOW).left == ()


def test_other_resources_count_too():
    assert names(reserve([pod(cpu=64_001)], [free_node()], NOW).left) == ["train"]


def test_a_pod_that_stays_unbound_though_it_seems_to_fit_is_left_after_the_grace_time():
    waiting, nodes = pod(unschedulable_message="1 node(s) had volume node affinity conflict."), [free_node()]
    first = reserve([waiting], nodes, NOW)
    assert places(first) == {"train": "n1"}
    still = reserve([waiting], nodes, LATER - timedelta(seconds=1), before=first)
    assert places(still) == {"train": "n1"}
    at_last = reserve([waiting], nodes, LATER, before=still)
    assert at_last.left == (waiting,)
    assert "Node n1 seems to have room" in at_last.notes["uid-train"]
    assert "volume node affinity conflict" in at_last.notes["uid-train"]
    for_good = reserve([waiting], nodes, LATER + timedelta(hours=1), before=at_last)
    assert for_good.left == (waiting,)


def test_after_the_grace_time_the_pod_waits_for_the_machine_launched_for_it_and_no_second_one():
    waiting = pod()
    before = reserve([waiting], [free_node()], NOW)
    bought = free_node("n2", launching="gi-2", planned_for=[waiting])
    reservations = reserve([waiting], [free_node(), bought], LATER, before=before)
    assert places(reservations) == {"train": "n2"}


def test_room_that_has_just_become_free_has_the_full_grace_time_however_long_the_pod_has_waited():
    waiting = pod()
    nothing = reserve([waiting], [], NOW)
    assert places(reserve([waiting], [free_node()], LATER, before=nothing)) == {"train": "n1"}


def test_the_grace_time_starts_again_after_nothing_fitted():
    waiting = pod()
    once = reserve([waiting], [free_node()], NOW)
    taken = reserve([waiting], [], LATER, before=once)
    assert taken.left == (waiting,)
    assert places(reserve([waiting], [free_node()], LATER, before=taken)) == {"train": "n1"}


def test_no_second_machine_is_bought_for_a_pod_whose_planned_node_the_scheduler_does_not_use():
    waiting = pod(unschedulable_message="1 node(s) had volume node affinity conflict.")
    nodes = [free_node(planned_for=[waiting])]
    reservations = reserve([waiting], nodes, LATER, before=reserve([waiting], nodes, NOW))
    assert reservations.left == ()
    (refused,) = reservations.refused
    assert (refused.pod, refused.reason) == (waiting, Reason.SCHEDULER_REFUSES)
    assert "volume node affinity conflict" in refused.sentence


UNBOUND = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: not helpful."
CONFLICT = "0/3 nodes are available: 1 node(s) had volume node affinity conflict, 2 Insufficient nvidia.com/gpu."
NO_GPU = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes are available."


@pytest.mark.parametrize(
    ("refusal", "message", "holds"),
    [
        pytest.param(None, UNBOUND, False, id="none"),
        pytest.param(UNBOUND, UNBOUND.replace("0/3", "0/2"), True, id="the pod's own reason, with fewer nodes"),
        pytest.param(UNBOUND, NO_GPU, False, id="the pod's own reason is resolved"),
        pytest.param(CONFLICT, NO_GPU, True, id="a reason of the node, which is off now"),
        pytest.param("", None, True, id="the scheduler gave no message"),
        pytest.param(UNBOUND, None, False, id="the scheduler gives no message any more"),
        pytest.param(
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims, volume is in use.",
            "0/3 nodes are available: volume is in use, 3 Insufficient cpu.",
            True,
            id="one of two reasons is left",
        ),
    ],
)
def test_a_refusal_holds_until_its_reason_in_the_pod_is_resolved(refusal, message, holds):
    waiting = pod(refusal=refusal, unschedulable_message=message)
    reservations = reserve([waiting], [], NOW)
    assert [each.pod for each in reservations.refused] == ([waiting] if holds else [])
    assert reservations.left == (() if holds else (waiting,))
    assert refusal_holds(waiting) is holds


def test_without_demand_nothing_is_reserved():
    assert reserve([], [free_node()], NOW).placed == {}


def test_a_pod_waits_for_the_scheduler_on_a_node_that_its_group_got_for_it_and_is_refused_after_a_flush():
    waiting = pod("p", unschedulable_since=ago(minutes=10))
    earlier, grown = (
        FreeNode(node=node(name, created=created), free=node().allocatable, in_group=True)
        for name, created in (("earlier", ago(hours=1)), ("grown", ago(minutes=5)))
    )

    def after(span, *nodes):
        before = Reservations(fitting={"uid-p": NOW - span})
        return reserve([waiting], nodes, NOW, before=before)

    assert after(SCHEDULER_GRACE, earlier).left == (waiting,), "the group had that node before"
    assert after(SCHEDULER_GRACE, earlier, grown).placed["uid-p"].node == "grown"
    full = replace(grown, free=Resources({"cpu": 64_000}))
    assert after(SCHEDULER_GRACE, earlier, full).left == (waiting,), "it has no room"
    keeps_out = replace(grown, node=node("grown", created=ago(minutes=5), taints=(Taint("team"),)))
    assert after(SCHEDULER_GRACE, earlier, keeps_out).left == (waiting,), "it does not take the pod"
    alone = replace(grown, in_group=False)
    assert after(SCHEDULER_GRACE, earlier, alone).left == (waiting,), "no group got it"
    late = after(SCHEDULER_GRACE + SCHEDULER_FLUSH, earlier, grown)
    assert (late.left, [each.reason for each in late.refused]) == ((), [Reason.SCHEDULER_REFUSES])
    assert after(SCHEDULER_GRACE, replace(grown, in_group=False)).left == (waiting,)
