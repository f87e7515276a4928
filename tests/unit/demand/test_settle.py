"""Which pods free and coming capacity takes, told as stories; the laws are in test_settle_law."""

from datetime import timedelta

from forebay.api.parts import Condition, Truth
from forebay.demand.free_capacity import Room
from forebay.demand.planned_pods import refusals
from forebay.demand.reservation import GRACE, settle
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelSelector, Taint
from forebay.model.workloads import PodAffinityTerm
from tests.unit.demand.builders import NOW, ago, node, pod, record, running

LATER = NOW + GRACE


def room(name="n1", gpus=8, *, coming=None, promised=(), ports=(), **fields):
    there = node(name, gpus, **fields)
    return Room(
        node=there,
        free=there.allocatable,
        coming=coming,
        promised=frozenset(each.uid for each in promised),
        ports=frozenset(ports),
    )


def places(settlement):
    return {uid.removeprefix("uid-"): placed.node for uid, placed in settlement.placed.items()}


def names(pods):
    return [each.name for each in pods]


def test_a_pod_goes_where_it_leaves_the_least():
    settlement = settle([pod(gpus=2)], [room("large", 8), room("right", 2), room("small", 1)], NOW)
    assert places(settlement) == {"train": "right"}
    placed = settlement.placed["uid-train"]
    assert placed.reason is Reason.FITS_EXISTING
    assert "right has room" in placed.sentence


def test_what_is_there_comes_before_what_is_on_its_way():
    settlement = settle([pod("a"), pod("b")], [room("soon", 1, coming="gi-1"), room("there", 1)], NOW)
    assert places(settlement) == {"a": "there", "b": "soon"}
    assert settlement.placed["uid-b"].reason is Reason.COMING
    assert settlement.placed["uid-b"].coming == "gi-1"
    assert "gi-1 is on its way" in settlement.placed["uid-b"].sentence


def test_what_nothing_takes_is_left_in_the_order_of_priority_then_size_then_age():
    pods = [
        pod("young", 4, created=ago(minutes=1)),
        pod("old", 4, created=ago(minutes=9)),
        pod("large", 8),
        pod("urgent", 1, priority=100),
    ]
    assert names(settle(pods, [], NOW).left) == ["urgent", "large", "old", "young"]


def test_the_important_pod_gets_the_last_place():
    settlement = settle([pod("large", 4), pod("urgent", 4, priority=1)], [room(gpus=4)], NOW)
    assert places(settlement) == {"urgent": "n1"}
    assert names(settlement.left) == ["large"]


def test_a_machine_is_first_for_the_pods_it_was_obtained_for():
    small, large = pod("small", 1), pod("large", 8, priority=100)
    settlement = settle([small, large], [room("for-small", 8, promised=[small])], NOW)
    assert places(settlement) == {"small": "for-small"}
    assert names(settlement.left) == ["large"]


def test_a_promised_machine_that_no_longer_fits_sends_its_pod_back_into_demand():
    promised = pod("promised", 8)
    settlement = settle([promised], [room(gpus=4, promised=[promised]), room("n2", 2)], NOW)
    assert names(settlement.left) == ["promised"]


def test_what_its_pods_do_not_need_of_a_machine_is_for_anybody():
    settlement = settle([pod("new", 4)], [room(gpus=8, promised=[pod("gone", 8)], coming="gi")], NOW)
    assert places(settlement) == {"new": "n1"}


def test_selectors_taints_and_host_ports_keep_pods_away():
    picky = pod("picky", node_selector={"gpu-type": "h100"})
    plain = pod("plain")
    web = pod("web", host_ports=((80, "TCP"),))
    rooms = [
        room("tainted", taints=(Taint("dedicated"),)),
        room("h100", labels={"gpu-type": "h100"}, gpus=1),
        room("busy-port", 1, ports=[(80, "TCP")]),
    ]
    settlement = settle([picky, plain, web], rooms, NOW)
    assert places(settlement) == {"picky": "h100", "plain": "busy-port"}
    assert names(settlement.left) == ["web"]


def test_two_pods_with_the_same_host_port_need_two_nodes():
    pods = [pod(name, host_ports=((80, "TCP"),)) for name in "abc"]
    settlement = settle(pods, [room("n1"), room("n2", coming="gi")], NOW)
    assert places(settlement) == {"a": "n1", "b": "n2"}
    assert names(settlement.left) == ["c"]


ALONE = (PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "train"})),)


def test_pods_that_refuse_their_own_kind_get_a_node_each():
    pods = [pod(name, labels={"app": "train"}, pod_anti_affinity=ALONE) for name in "abc"]
    settlement = settle(pods, [room("n1"), room("n2")], NOW)
    assert places(settlement) == {"a": "n1", "b": "n2"}
    assert names(settlement.left) == ["c"]


def test_whoever_is_there_already_counts_for_anti_affinity_in_both_directions():
    alone = pod("alone", labels={"app": "train"}, pod_anti_affinity=ALONE)
    kin = running("kin", labels={"app": "train"})
    stranger = running("stranger", labels={"app": "web"})
    elsewhere = running("elsewhere", labels={"app": "train"}, namespace="other")
    assert settle([alone], [room()], NOW, tenants={"n1": [kin]}).left == (alone,)
    assert settle([alone], [room()], NOW, tenants={"n1": [stranger, elsewhere]}).left == ()
    plain = pod("plain", labels={"app": "train"})
    hermit = running("hermit", labels={"app": "train"}, pod_anti_affinity=ALONE)
    assert settle([plain], [room()], NOW, tenants={"n1": [hermit]}).left == (plain,)


def test_who_is_kept_out_by_company_does_not_keep_out_others_of_its_shape():
    alone = pod("alone", labels={"app": "train"}, pod_anti_affinity=ALONE)
    cousin = pod("cousin", labels={"app": "train"}, namespace="other", shape=alone.shape)
    settlement = settle([alone, cousin], [room()], NOW, tenants={"n1": [running("kin", labels={"app": "train"})]})
    assert places(settlement) == {"cousin": "n1"}
    assert names(settlement.left) == ["alone"]


def test_refusing_company_across_a_zone_is_left_to_the_scheduler():
    zone = (PodAffinityTerm("topology.kubernetes.io/zone", LabelSelector({"app": "train"})),)
    pods = [pod(name, labels={"app": "train"}, pod_anti_affinity=zone) for name in "ab"]
    assert settle(pods, [room()], NOW).left == ()


def test_other_resources_count_too():
    assert names(settle([pod(cpu=64_001)], [room()], NOW).left) == ["train"]


def test_a_pod_that_the_scheduler_leaves_alone_though_it_seems_to_fit_is_served_otherwise_after_a_minute():
    waiting, spot = pod(unschedulable_message="1 node(s) had volume node affinity conflict."), [room()]
    first = settle([waiting], spot, NOW)
    assert places(first) == {"train": "n1"}
    still = settle([waiting], spot, LATER - timedelta(seconds=1), before=first)
    assert places(still) == {"train": "n1"}
    at_last = settle([waiting], spot, LATER, before=still)
    assert at_last.left == (waiting,)
    assert "Node n1 seems to have room" in at_last.notes["uid-train"]
    assert "volume node affinity conflict" in at_last.notes["uid-train"]
    for_good = settle([waiting], spot, LATER + timedelta(hours=1), before=at_last)
    assert for_good.left == (waiting,)


def test_the_machine_that_was_then_asked_for_is_waited_for_and_no_second_one():
    waiting = pod()
    before = settle([waiting], [room()], NOW)
    bought = room("n2", coming="gi-2", promised=[waiting])
    settlement = settle([waiting], [room(), bought], LATER, before=before)
    assert places(settlement) == {"train": "n2"}


def test_room_that_has_just_come_free_is_given_its_minute_however_long_the_pod_has_waited():
    waiting = pod()
    nothing = settle([waiting], [], NOW)
    assert places(settle([waiting], [room()], LATER, before=nothing)) == {"train": "n1"}


def test_a_pod_that_seemed_to_fit_long_ago_starts_anew_once_nothing_fits():
    waiting = pod()
    once = settle([waiting], [room()], NOW)
    taken = settle([waiting], [], LATER, before=once)
    assert taken.left == (waiting,)
    assert places(settle([waiting], [room()], LATER, before=taken)) == {"train": "n1"}


def test_a_machine_obtained_for_a_pod_that_the_scheduler_does_not_put_there_is_not_followed_by_a_second():
    waiting = pod(unschedulable_message="1 node(s) had volume node affinity conflict.")
    spot = [room(promised=[waiting])]
    settlement = settle([waiting], spot, LATER, before=settle([waiting], spot, NOW))
    assert settlement.left == ()
    (refused,) = settlement.refused
    assert (refused.pod, refused.reason) == (waiting, Reason.SCHEDULER_REFUSES)
    assert "volume node affinity conflict" in refused.sentence


def test_while_the_nomination_stands_the_scheduler_has_not_refused():
    waiting = pod(nominated_node="n1")
    spot = [room(promised=[waiting])]
    settlement = settle([waiting], spot, LATER, before=settle([waiting], spot, NOW))
    assert places(settlement) == {"train": "n1"}


def test_a_refusal_is_remembered_on_the_record_after_the_machine_has_gone():
    waiting = pod()
    vain = Condition(
        type="Idle", status=Truth.TRUE, reason=Reason.SCHEDULER_REFUSES, message="", last_transition_time=NOW
    )
    known = refusals([record("gi-1", pods=[waiting], conditions=(vain,)), record("gi-2", pods=[pod("other")])])
    assert known == {"uid-train": "gi-1"}
    settlement = settle([waiting], [], NOW, refusals=known)
    assert settlement.left == ()
    assert "gi-1 was obtained for it in vain" in settlement.refused[0].sentence
    assert places(settle([waiting], [room()], NOW, refusals=known)) == {"train": "n1"}


def test_nothing_wanted_is_nothing_to_do():
    assert settle([], [room()], NOW).placed == {}
