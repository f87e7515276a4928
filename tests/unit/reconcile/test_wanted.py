"""Whether a GPUInstance is still wanted is asked by its purpose, never "is some pod pending"."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import PoolRef, Purpose, ReplacedInstance
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec
from forebay.api.instance_order import ContainerRecord
from forebay.api.meta import ObjectMeta
from forebay.api.parts import Condition, NodeClassRef, Truth
from forebay.model.sources import Delivery
from forebay.model.workloads import Phase
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.wanted import Wanted
from tests.unit.lifecycle.builders import NOW, S, pod, record, rented_spec

TRAIN = replace(pod("train"), phase=Phase.PENDING, node=None)
BOUND = pod("train")
FAR = replace(BOUND, node="forebay-virtual")
MACHINE = record(S.LAUNCHING)
CONTAINER = record(S.RUNNING, spec=replace(rented_spec(), delivers=Delivery.CONTAINER, node=None))


def wanted(of, *others, **fields):
    return Wanted(Snapshot(now=NOW, records=(of, *others), **fields))(of)


def test_a_machine_is_wanted_while_its_pods_wait_or_are_bound_there():
    assert wanted(MACHINE, pending=(TRAIN,))
    assert wanted(MACHINE, pods_by_node={"pool-abc": (BOUND,)})
    assert not wanted(MACHINE, pods_by_node={"elsewhere": (BOUND,)})
    assert not wanted(MACHINE, pods_by_node={"pool-abc": (pod("other"),)})
    assert not wanted(MACHINE)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (FAR, True),
        (replace(FAR, phase=Phase.SUCCEEDED), False),
        (replace(FAR, phase=Phase.FAILED), False),
        (replace(FAR, deleted=NOW), False),
    ],
    ids=["running", "succeeded", "failed", "deleted"],
)
def test_a_container_is_wanted_while_its_bound_pod_exists_and_has_not_ended(runs, expected):
    assert wanted(CONTAINER, container_pods={runs.uid: runs}) is expected


def test_a_container_whose_pod_is_gone_is_not_wanted():
    assert not wanted(CONTAINER)


def named(virtual_node=None, state=S.REQUESTED, **fields):
    container = ContainerRecord(image="work:1", node_name=virtual_node)
    return record(state, spec=replace(CONTAINER.spec, container=container), **fields)


def test_a_container_is_not_wanted_once_the_scheduler_has_bound_its_pod_to_a_node():
    here = {FAR.uid: FAR}
    assert wanted(named("forebay-virtual"), container_pods=here)
    assert wanted(named("forebay-virtual"), container_pods={FAR.uid: TRAIN})
    assert not wanted(named("another"), container_pods=here)


def test_of_two_containers_for_one_pod_the_first_is_wanted_and_one_that_was_launched_before_one_that_was_not():
    first, second = named(), named()
    first = replace(first, metadata=replace(first.metadata, uid="uid-a"))
    second = replace(second, metadata=replace(second.metadata, uid="uid-b"))
    here = {FAR.uid: FAR}
    assert wanted(first, second, container_pods=here)
    assert not wanted(second, first, container_pods=here)
    launched = named(state=S.LAUNCHED)
    launched = replace(launched, metadata=replace(launched.metadata, uid="uid-c"))
    assert wanted(launched, first, container_pods=here)
    assert not wanted(first, launched, container_pods=here)
    gone = named(state=S.GONE)
    gone = replace(gone, metadata=replace(gone.metadata, uid="uid-0"))
    assert wanted(second, gone, container_pods=here)


@pytest.mark.parametrize("purpose", [Purpose.GROUP, Purpose.ADOPTED])
def test_no_other_purpose_asks_for_pods(purpose):
    sized = record(S.LAUNCHING, spec=rented_spec(purpose=purpose, pods=()))
    assert wanted(sized)


def test_a_replacement_is_wanted_while_the_node_that_it_replaces_has_yet_to_go():
    needed = Condition(type="Replacement", status=Truth.TRUE, reason="r", message="m", last_transition_time=NOW)
    old = record(S.READY, name="old", conditions=(needed,))
    told = ReplacedInstance(name="old", uid=old.uid)
    new = record(S.LAUNCHING, name="new", spec=replace(MACHINE.spec, replaces=(told,)))

    assert wanted(new, old), "no pod waits: its pods still run on the other node"
    assert not wanted(new, replace(old, status=replace(old.status, conditions=())))


def test_of_more_static_nodes_than_the_pool_needs_the_oldest_are_wanted():
    spec = rented_spec(purpose=Purpose.STATIC, pods=(), pool_ref=PoolRef(namespace="team", name="pool"))
    pool = GPUNodePool(
        metadata=ObjectMeta(name="pool", namespace="team"),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="gpu"), min_nodes=1),
    )
    # By name, and so by UID, the younger comes first.
    young, old = record(S.LAUNCHED, name="a", spec=spec), record(S.LAUNCHED, name="b", spec=spec)
    old = replace(old, metadata=replace(old.metadata, creation_timestamp=NOW - timedelta(minutes=1)))

    assert wanted(old, young, pools=(pool,))
    assert not wanted(young, old, pools=(pool,))
