"""What planning is told of pods that it does not place: those that run, and the other members of gangs."""

import pytest

from forebay.api.gpu_instance import InstanceState
from forebay.demand.reservation import Reservation
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelSelector, Taint
from forebay.model.workloads import PodAffinityTerm, TopologySpread
from forebay.planning.gangs import GangKey
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.what_runs import known_gangs, looks_at_other_pods, running_pods
from tests.unit.demand.builders import NOW, node, pod, record, running

S = InstanceState
APP = LabelSelector({"app": "a"})
TERM = PodAffinityTerm("kubernetes.io/hostname", APP)
TRAIN = GangKey("default", "train")
MEMBER = {"forebay.dev/pod-group": "train"}
IN_ONE_ZONE = {**MEMBER, "forebay.dev/together": "zone"}


@pytest.mark.parametrize(
    ("fields", "looks"),
    [
        ({}, False),
        ({"pod_affinity": (TERM,)}, True),
        ({"pod_anti_affinity": (TERM,)}, True),
        ({"topology_spread": (TopologySpread("kubernetes.io/hostname", 1, APP),)}, True),
        ({"annotations": MEMBER}, True),
    ],
    ids=["plain", "affinity", "anti-affinity", "spread", "gang"],
)
def test_a_pod_with_a_rule_about_others_or_of_a_gang_looks_at_them(fields, looks):
    assert looks_at_other_pods([pod("plain"), pod("mine", **fields)]) is looks


def test_pods_run_where_their_node_is_known():
    here = node("n1", labels={"zone": "a"}, taints=(Taint("team"),))
    snapshot = Snapshot(
        now=NOW,
        nodes={"n1": here, "empty": node("empty")},
        pods_by_node={"n1": (running("one"), running("two")), "unknown": (running("lost", "unknown"),)},
    )

    found = running_pods(snapshot)

    assert [(each.node_name, each.node_labels, each.node_taints) for each in found] == [
        ("n1", {"zone": "a"}, (Taint("team"),))
    ] * 2


def of_gang(name="asked", group="train", **fields):
    return pod(name, **{"annotations": {"forebay.dev/pod-group": group}, **fields})


def at_work(name, on="n1", annotations=MEMBER):
    return running(name, on, annotations=annotations)


def room_on(name):
    return Reservation(node=name, reason=Reason.FITS_EXISTING, sentence="s")


def known(*asked, waiting=(), records=(), by_node=None, nodes=(), reserved=None):
    snapshot = Snapshot(
        now=NOW,
        pending=(*asked, *waiting),
        records=records,
        nodes={each.name: each for each in nodes},
        pods_by_node=by_node or {},
    )
    return known_gangs(snapshot, asked, reserved or {})


def counts(found):
    return {key.name: (each.placed, each.others) for key, each in found.items()}


def test_members_that_run_or_have_room_are_placed_and_others_wait_beside():
    by_node = {"n1": (at_work("r1"), at_work("r2"), running("plain")), "n2": (at_work("r3", "n2"),)}
    booting = record("n3", S.LAUNCHED, pods=[of_gang("launched")])
    waiting = [of_gang("launched"), of_gang("reserved"), of_gang("w1"), of_gang("w2"), pod("plain-too")]
    reserved = {"uid-reserved": room_on("n1")}

    found = known(of_gang(), of_gang("asked-too"), waiting=waiting, by_node=by_node, records=(booting,))
    assert counts(found) == {"train": (4, 3)}
    found = known(of_gang(), waiting=waiting, by_node=by_node, records=(booting,), reserved=reserved)
    assert counts(found) == {"train": (5, 2)}
    assert all(each.nodes == () for each in found.values()), "only gangs that share a place ask where that is"


def test_only_gangs_that_are_planned_for_are_told_of():
    by_node = {"n1": (at_work("r1", annotations={"forebay.dev/pod-group": "another"}),)}
    waiting = [of_gang("w1", "another"), of_gang("w2", "train")]

    assert counts(known(of_gang(), waiting=waiting, by_node=by_node)) == {"train": (0, 1)}
    assert counts(known(of_gang(), of_gang("b", "another"), by_node=by_node)) == {"another": (1, 0), "train": (0, 0)}
    assert known(pod("plain"), waiting=waiting, by_node=by_node) == {}
    many = known(*(of_gang(name, name) for name in "hgfedcba"))
    assert [key.name for key in many] == [*"abcdefgh"], "in an order that a restart does not change"


@pytest.mark.parametrize("state", [S.DRAINING, S.TERMINATING, S.GONE])
def test_a_machine_that_leaves_is_no_place_for_the_member_it_was_launched_for(state):
    leaving = record("n3", state, pods=[of_gang("launched")])
    assert counts(known(of_gang(), waiting=[of_gang("launched")], records=(leaving,))) == {"train": (0, 1)}


def test_a_gang_that_shares_a_zone_is_told_the_labels_of_the_nodes_that_it_has():
    asked = of_gang(annotations=IN_ONE_ZONE)
    launched, reserved = of_gang("launched"), of_gang("reserved")
    booting = record("n3", S.LAUNCHED, pods=[launched], planned={"labels": {"zone": "planned"}})
    there = [node(name, labels={"zone": name}) for name in ("n1", "n2", "other")]
    by_node = {"n1": (at_work("r1"),), "other": (running("plain", "other"),), "lost": (at_work("r2", "lost"),)}

    found = known(
        asked,
        waiting=[launched, reserved],
        by_node=by_node,
        nodes=there,
        records=(booting,),
        reserved={"uid-reserved": room_on("n2")},
    )

    assert found[TRAIN].nodes == ({"zone": "n1"}, {"zone": "n2"}, {"zone": "planned"})
    assert (found[TRAIN].placed, found[TRAIN].others) == (4, 0)


def test_what_a_node_says_of_itself_counts_before_what_was_planned():
    booting = record("n3", S.LAUNCHED, pods=[of_gang("launched")], planned={"labels": {"zone": "planned"}})
    found = known(
        of_gang(annotations=IN_ONE_ZONE),
        of_gang("b", "loose"),
        waiting=[of_gang("launched"), of_gang("c", "loose")],
        records=(booting,),
        nodes=[node("n3", labels={"zone": "real"})],
        reserved={"uid-c": room_on("n3")},
    )

    assert found[TRAIN].nodes == ({"zone": "real"},)
    loose = found[GangKey("default", "loose")]
    assert (loose.placed, loose.nodes) == (1, ()), "it may be anywhere"
