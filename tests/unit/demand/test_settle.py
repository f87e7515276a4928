"""Which pods free and coming capacity takes, told as stories; the laws are in test_settle_law."""

from datetime import timedelta

from forebay.api.parts import Condition, Truth
from forebay.demand.free_capacity import FreeNode
from forebay.demand.planned_pods import refusals
from forebay.demand.reservation import GRACE, reserve
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelSelector, Taint
from forebay.model.workloads import PodAffinityTerm
from tests.unit.demand.builders import NOW, ago, node, pod, record, running

LATER = NOW + GRACE


def room(name="n1", gpus=8, *, coming=None, promised=(), ports=(), **fields):
    there = node(name, gpus, **fields)
    return FreeNode(
        node=there,
        free=there.allocatable,
        coming=coming,
        promised=frozenset(each.uid for each in promised),
        ports=frozenset(ports),
    )


def places(reservations):
    return {uid.removeprefix("uid-"): placed.node for uid, placed in reservations.placed.items()}


def names(pods):
    return [each.name for each in pods]


def test_a_pod_goes_where_it_leaves_the_least():
    reservations = reserve([pod(gpus=2)], [room("large", 8), room("right", 2), room("small", 1)], NOW)
    assert places(reservations) == {"train": "right"}
    placed = reservations.placed["uid-train"]
    assert placed.reason is Reason.FITS_EXISTING
    assert "right has room" in placed.sentence


def test_what_is_there_comes_before_what_is_on_its_way():
    reservations = reserve([pod("a"), pod("b")], [room("soon", 1, coming="gi-1"), room("there", 1)], NOW)
    assert places(reservations) == {"a": "there", "b": "soon"}
    assert reservations.placed["uid-b"].reason is Reason.CAPACITY_LAUNCHING
    assert reservations.placed["uid-b"].coming == "gi-1"
    assert "gi-1 is on its way" in reservations.placed["uid-b"].sentence


def test_what_nothing_takes_is_left_in_the_order_of_priority_then_size_then_age():
    pods = [
        pod("young", 4, created=ago(minutes=1)),
        pod("old", 4, created=ago(minutes=9)),
        pod("large", 8),
        pod("urgent", 1, priority=100),
    ]
    assert names(reserve(pods, [], NOW).left) == ["urgent", "large", "old", "young"]


def test_the_important_pod_gets_the_last_place():
    reservations = reserve([pod("large", 4), pod("urgent", 4, priority=1)], [room(gpus=4)], NOW)
    assert places(reservations) == {"urgent": "n1"}
    assert names(reservations.left) == ["large"]


def test_a_machine_is_first_for_the_pods_it_was_obtained_for():
    small, large = pod("small", 1), pod("large", 8, priority=100)
    reservations = reserve([small, large], [room("for-small", 8, promised=[small])], NOW)
    assert places(reservations) == {"small": "for-small"}
    assert names(reservations.left) == ["large"]


def test_a_promised_machine_that_no_longer_fits_sends_its_pod_back_into_demand():
    promised = pod("promised", 8)
    reservations = reserve([promised], [room(gpus=4, promised=[promised]), room("n2", 2)], NOW)
    assert names(reservations.left) == ["promised"]


def test_what_its_pods_do_not_need_of_a_machine_is_for_anybody():
    reservations = reserve([pod("new", 4)], [room(gpus=8, promised=[pod("gone", 8)], coming="gi")], NOW)
    assert places(reservations) == {"new": "n1"}


def test_selectors_taints_and_host_ports_keep_pods_away():
    picky = pod("picky", node_selector={"gpu-type": "h100"})
    plain = pod("plain")
    web = pod("web", host_ports=((80, "TCP"),))
    rooms = [
        room("tainted", taints=(Taint("dedicated"),)),
        room("h100", labels={"gpu-type": "h100"}, gpus=1),
        room("busy-port", 1, ports=[(80, "TCP")]),
    ]
    reservations = reserve([picky, plain, web], rooms, NOW)
    assert places(reservations) == {"picky": "h100", "plain": "busy-port"}
    assert names(reservations.left) == ["web"]


def test_two_pods_with_the_same_host_port_need_two_nodes():
    pods = [pod(name, host_ports=((80, "TCP"),)) for name in "abc"]
    reservations = reserve(pods, [room("n1"), room("n2", coming="gi")], NOW)
    assert places(reservations) == {"a": "n1", "b": "n2"}
    assert names(reservations.left) == ["c"]


ALONE = (PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "train"})),)


def test_pods_that_refuse_their_own_kind_get_a_node_each():
    pods = [pod(name, labels={"app": "train"}, pod_anti_affinity=ALONE) for name in "abc"]
    reservations = reserve(pods, [room("n1"), room("n2")], NOW)
    assert places(reservations) == {"a": "n1", "b": "n2"}
    assert names(reservations.left) == ["c"]


def test_whoever_is_there_already_counts_for_anti_affinity_in_both_directions():
    alone = pod("alone", labels={"app": "train"}, pod_anti_affinity=ALONE)
    kin = running("kin", labels={"app": "train"})
    stranger = running("stranger", labels={"app": "web"})
    elsewhere = running("elsewhere", labels={"app": "train"}, namespace="other")
    assert reserve([alone], [room()], NOW, pods_by_node={"n1": [kin]}).left == (alone,)
    assert reserve([alone], [room()], NOW, pods_by_node={"n1": [stranger, elsewhere]}).left == ()
    plain = pod("plain", labels={"app": "train"})
    hermit = running("hermit", labels={"app": "train"}, pod_anti_affinity=ALONE)
    assert reserve([plain], [room()], NOW, pods_by_node={"n1": [hermit]}).left == (plain,)


def test_who_is_kept_out_by_company_does_not_keep_out_others_of_its_shape():
    alone = pod("alone", labels={"app": "train"}, pod_anti_affinity=ALONE)
    cousin = pod("cousin", labels={"app": "train"}, namespace="other", shape=alone.shape)
    reservations = reserve(
        [alone, cousin], [room()], NOW, pods_by_node={"n1": [running("kin", labels={"app": "train"})]}
    )
    assert places(reservations) == {"cousin": "n1"}
    assert names(reservations.left) == ["alone"]


def test_refusing_company_across_a_zone_is_left_to_the_scheduler():
    zone = (PodAffinityTerm("topology.kubernetes.io/zone", LabelSelector({"app": "train"})),)
    pods = [pod(name, labels={"app": "train"}, pod_anti_affinity=zone) for name in "ab"]
    assert reserve(pods, [room()], NOW).left == ()


def test_other_resources_count_too():
    assert names(reserve([pod(cpu=64_001)], [room()], NOW).left) == ["train"]


def test_a_pod_that_the_scheduler_leaves_alone_though_it_seems_to_fit_is_served_otherwise_after_a_minute():
    waiting, spot = pod(unschedulable_message="1 node(s) had volume node affinity conflict."), [room()]
    first = reserve([waiting], spot, NOW)
    assert places(first) == {"train": "n1"}
    still = reserve([waiting], spot, LATER - timedelta(seconds=1), before=first)
    assert places(still) == {"train": "n1"}
    at_last = reserve([waiting], spot, LATER, before=still)
    assert at_last.left == (waiting,)
    assert "Node n1 seems to have room" in at_last.notes["uid-train"]
    assert "volume node affinity conflict" in at_last.notes["uid-train"]
    for_good = reserve([waiting], spot, LATER + timedelta(hours=1), before=at_last)
    assert for_good.left == (waiting,)


def test_the_machine_that_was_then_asked_for_is_waited_for_and_no_second_one():
    waiting = pod()
    before = reserve([waiting], [room()], NOW)
    bought = room("n2", coming="gi-2", promised=[waiting])
    reservations = reserve([waiting], [room(), bought], LATER, before=before)
    assert places(reservations) == {"train": "n2"}


def test_room_that_has_just_come_free_is_given_its_minute_however_long_the_pod_has_waited():
    waiting = pod()
    nothing = reserve([waiting], [], NOW)
    assert places(reserve([waiting], [room()], LATER, before=nothing)) == {"train": "n1"}


def test_a_pod_that_seemed_to_fit_long_ago_starts_anew_once_nothing_fits():
    waiting = pod()
    once = reserve([waiting], [room()], NOW)
    taken = reserve([waiting], [], LATER, before=once)
    assert taken.left == (waiting,)
    assert places(reserve([waiting], [room()], LATER, before=taken)) == {"train": "n1"}


def test_a_machine_obtained_for_a_pod_that_the_scheduler_does_not_put_there_is_not_followed_by_a_second():
    waiting = pod(unschedulable_message="1 node(s) had volume node affinity conflict.")
    spot = [room(promised=[waiting])]
    reservations = reserve([waiting], spot, LATER, before=reserve([waiting], spot, NOW))
    assert reservations.left == ()
    (refused,) = reservations.refused
    assert (refused.pod, refused.reason) == (waiting, Reason.SCHEDULER_REFUSES)
    assert "volume node affinity conflict" in refused.sentence


def test_while_the_nomination_stands_the_scheduler_has_not_refused():
    waiting = pod(nominated_node="n1")
    spot = [room(promised=[waiting])]
    reservations = reserve([waiting], spot, LATER, before=reserve([waiting], spot, NOW))
    assert places(reservations) == {"train": "n1"}


def test_a_refusal_is_remembered_on_the_record_after_the_machine_has_gone():
    waiting = pod()
    vain = Condition(
        type="Idle", status=Truth.TRUE, reason=Reason.SCHEDULER_REFUSES, message="", last_transition_time=NOW
    )
    known = refusals([record("gi-1", pods=[waiting], conditions=(vain,)), record("gi-2", pods=[pod("other")])])
    assert known == {"uid-train": "gi-1"}
    reservations = reserve([waiting], [], NOW, refusals=known)
    assert reservations.left == ()
    assert "gi-1 was obtained for it in vain" in reservations.refused[0].sentence
    assert places(reserve([waiting], [room()], NOW, refusals=known)) == {"train": "n1"}


def test_nothing_wanted_is_nothing_to_do():
    assert reserve([], [room()], NOW).placed == {}
