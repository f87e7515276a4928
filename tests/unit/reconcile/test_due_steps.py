"""Steps of GPUInstances that a tick finds due."""

from dataclasses import dataclass

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState, PoolRef
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.parts import NodeClassRef
from forebay.lifecycle.facts import source_of
from forebay.lifecycle.record_fields import INITIAL_STATUS_ANNOTATION
from forebay.lifecycle.steps import DeleteRecord, WriteStatus
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.model.sources import Offer, Source
from forebay.reconcile.due_steps import due_steps
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import node, pod
from tests.unit.lifecycle.builders import (
    NOW,
    OWNED,
    RENTED,
    S,
    fresh_record,
    instance,
    listed,
    minutes,
    record,
    rented_spec,
)


@dataclass
class Box:
    """An owned machine whose power-off failed, its node, and a pod that may want it."""

    made: GPUInstance
    ready: bool = True
    taints: tuple[Taint, ...] = ()
    unrecorded_cost: frozenset[str] = frozenset()

    def steps(self, *pending):
        return [each for each in self.found(*pending).steps if isinstance(each, WriteStatus)]

    def found(self, *pending):
        offer = Offer(
            provider="webhook",
            instance_type="gpu-1",
            node_name="gpu-1",
            gpu_count=8,
            price=UsdPerHour(0),
            allocatable=Resources({"nvidia.com/gpu": 8}),
        )
        source = Source(
            key=source_of(self.made), capabilities=OWNED, offers=(offer,), listing=listed(unknown=["gpu-1"])
        )
        snapshot = Snapshot(
            now=NOW,
            records=(self.made,),
            sources={source.key: source},
            nodes={"gpu-1": node("gpu-1", ready=self.ready, unschedulable=True, taints=self.taints)},
            pending=pending,
            unrecorded_cost=self.unrecorded_cost,
        )
        return due_steps(snapshot, {})

    def is_back(self, *pending):
        return any(each.status.state is InstanceState.READY for each in self.steps(*pending))


@pytest.mark.parametrize(("reason", "told"), [("Adopted", Reason.ADOPTED), (None, Reason.CAPACITY_NEEDED)])
def test_the_first_status_of_a_found_machine_is_written_with_the_reason_that_it_has(reason, told):
    status = GPUInstanceStatus(state=InstanceState.READY, since=NOW, reason=reason, message="Found on.")
    made = fresh_record(owned=True)
    made = replace(
        made,
        metadata=replace(made.metadata, annotations={INITIAL_STATUS_ANNOTATION: msgspec.json.encode(status).decode()}),
    )

    (step,) = Box(made).steps()

    assert (step.reason, step.sentence, step.status) == (told, "Found on.", status)


def test_a_machine_that_no_end_was_accepted_for_is_taken_back_only_for_a_pod_that_needs_it():
    asked = NOW - minutes(30)
    ending = Box(record(S.TERMINATING, owned=True, since=asked, termination_attempts=1, attempted_at=asked))

    assert ending.is_back(pod("waits"))
    assert not ending.is_back()
    assert not ending.is_back(pod("untried", unschedulable_since=None))
    assert not ending.is_back(pod("too large", gpus=9))
    assert not Box(ending.made, ready=False).is_back(pod("waits"))
    cordon = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    assert Box(ending.made, taints=(cordon,)).is_back(pod("waits"))
    assert not Box(ending.made, taints=(cordon, Taint("team", "b", "NoSchedule"))).is_back(pod("waits"))
    accepted = record(S.TERMINATING, owned=True, since=asked, termination_attempts=1, termination_accepted_at=asked)
    assert not Box(accepted).is_back(pod("waits")), "its power is going off"


def test_a_record_stays_until_its_cost_is_stored_and_its_other_steps_do_not_wait_for_that():
    old = NOW - minutes(120)
    gone = Box(record(S.GONE, owned=True, since=old, billed_from=old, billed_until=old))
    (delete,) = gone.found().allowed
    assert isinstance(delete, DeleteRecord)
    gone.unrecorded_cost = frozenset({gone.made.uid})
    assert (gone.found().steps, gone.found().allowed) == ((delete,), ())

    ending = Box(record(S.TERMINATING, owned=True, since=NOW - minutes(30), termination_attempts=1))
    ending.unrecorded_cost = frozenset({ending.made.uid})
    assert ending.found().steps == ending.found().allowed != ()


@pytest.mark.parametrize(
    ("state", "billed", "allowed", "ends"),
    [
        (S.LAUNCHED, "9", "5.00", True),
        (S.LAUNCHED, "9", "9.00", False),
        (S.LAUNCHED, "5", "5.00", False),
        (S.READY, "9", "5.00", False),
    ],
)
def test_a_machine_that_boots_and_is_billed_for_more_than_its_pool_allows_is_terminated(state, billed, allowed, ends):
    spec = rented_spec(pool_ref=PoolRef(namespace="team", name="lab"), hourly_price="1.29")
    made = record(state, spec=spec)
    pool = GPUNodePool(
        metadata=ObjectMeta(name="lab", namespace="team"),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="cheap"), max_hourly_price=allowed),
    )
    shown = listed(instance(price=UsdPerHour(billed)))
    source = Source(key=source_of(made), capabilities=RENTED, offers=(), listing=shown)
    node_class = GPUNodeClass(metadata=ObjectMeta(name="cheap"), spec=GPUNodeClassSpec(providers=()))
    snapshot = Snapshot(
        now=NOW,
        records=(made,),
        sources={source.key: source},
        pools=(pool,),
        classes=(node_class,),
        pending=(replace(pod("train"), uid="uid-train"),),
        nodes={} if state is S.LAUNCHED else {"pool-abc": node("pool-abc")},
    )

    reasons = [each.reason for each in due_steps(snapshot, {}).steps]

    assert (Reason.PRICE_RAISED in reasons) is ends, reasons
