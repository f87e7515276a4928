"""Which members of a group have a node that may be tainted and deleted."""

import pytest

from forebay.api.meta import ObjectMeta
from forebay.api.node_provisioner import GroupProvider, NodeProvisioner, NodeProvisionerSpec
from forebay.model.sources import Capabilities, Delivery, Source, SourceKey
from forebay.reconcile.group_growth import SizedProvisioner
from forebay.reconcile.group_sizing import sized_members
from forebay.reconcile.snapshot import Snapshot
from tests.unit.lifecycle.builders import NOW, S, node, pod, record

KEY = SourceKey.of_provisioner("gpus", "simulated")


def only_member(state, *, reserved=(), nodes=None, pods=()):
    spec = NodeProvisionerSpec(
        existing_instance_group_names=("a",), min_unutilized_gpu_nodes=1, provider=GroupProvider(name="simulated")
    )
    sized = SizedProvisioner(
        provisioner=NodeProvisioner(metadata=ObjectMeta(name="gpus"), spec=spec),
        source=Source(key=KEY, capabilities=Capabilities(deliveries=(Delivery.NODE,))),
        groups=("a",),
        members=(record(state),),
        offers={},
        cooling={},
    )
    seen = Snapshot(
        now=NOW,
        nodes={"pool-abc": node()} if nodes is None else nodes,
        pods_by_node={"pool-abc": tuple(pods)} if pods else {},
    )
    return next(sized_members(sized, seen, reserved, {}), None)


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
