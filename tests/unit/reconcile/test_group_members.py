"""Which members of a group have a node that may be tainted and deleted."""

import pytest
from msgspec.structs import replace

from forebay.reconcile.group_growth import SizedProvisioner
from forebay.reconcile.group_sizing import sized_members
from forebay.reconcile.member_rotation import drift_ends
from forebay.reconcile.rented_groups import RentedGroup
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import node as named
from tests.unit.demand.builders import running
from tests.unit.lifecycle.builders import NOW, S, node, pod, record
from tests.unit.reconcile.test_group_growth import member, offer, provisioner, source


def only_member(state, *, reserved=(), nodes=None, pods=()):
    seen = Snapshot(
        now=NOW,
        nodes={"pool-abc": node()} if nodes is None else nodes,
        pods_by_node={"pool-abc": tuple(pods)} if pods else {},
    )
    return next(sized_members((record(state),), {}, seen, reserved, {}), None)


@pytest.mark.parametrize(("state", "has_node"), [(S.READY, True), (S.JOINED, False), (S.LAUNCHED, False)])
def test_a_member_that_boots_is_not_removed_as_empty_though_its_node_exists(state, has_node):
    member = only_member(state)

    assert (member.node is not None) is has_node
    assert member.usable


def test_a_member_is_empty_without_pods_and_unless_pods_wait_for_it():
    assert only_member(S.READY).node.empty
    assert not only_member(S.READY, reserved={"pool-abc"}).node.empty
    assert only_member(S.READY, reserved={"pool-abc"}).used
    assert not only_member(S.READY, pods=[pod()]).node.empty
    assert only_member(S.READY, nodes={}).node is None


def test_a_member_that_leaves_is_not_counted():
    assert only_member(S.TERMINATING) is None
    both = sized_members((record(S.TERMINATING), record(S.READY)), {}, Snapshot(now=NOW), (), {})
    assert [each.record.state for each in both] == [S.READY]


def test_machines_of_a_rented_group_that_have_drifted_are_replaced_unless_a_pod_there_would_lose_its_work():
    def made_of(name, template):
        made = member(name, group="east")
        return replace(made, spec=replace(made.spec, template_hash=template))

    rents = SizedProvisioner(
        provisioner=provisioner(),
        source=source(),
        groups=("east",),
        members=(made_of("busy", "old"), made_of("free", "old"), made_of("new", "now")),
        offers={"east": offer("1.00")},
        cooling={},
        rented=RentedGroup(template_hash="now"),
    )
    there = {name: named(name) for name in ("busy", "free", "new")}
    empty = Snapshot(now=NOW, nodes=there)
    used = Snapshot(now=NOW, nodes=there, pods_by_node={"busy": (running("train", "busy"),)})

    assert drift_ends(rents, empty).keys() == {"busy"}, "a tenth of them at a time, at least one"
    assert drift_ends(rents, used).keys() == {"free"}
    assert drift_ends(replace(rents, rented=None), empty) == {}
