"""Status of pools: conditions, totals, and when they are written."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import (
    GPUInstance,
    GPUInstanceSpec,
    GPUInstanceStatus,
    InstanceState,
    OfferRecord,
    PoolRef,
    Transition,
)
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec, GPUNodePoolStatus
from forebay.api.meta import ObjectMeta
from forebay.api.parts import Condition, NodeClassRef, Truth
from forebay.api.providers import ProviderName
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.reconcile.reports import report_classes, report_pools
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import running

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)


def pool(name="p", class_name="c", status=None, **metadata):
    return GPUNodePool(
        metadata=ObjectMeta(
            name=name, namespace="team", uid=f"uid-{name}", resource_version="7", generation=2, **metadata
        ),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name=class_name)),
        status=status,
    )


def node_class(name="c", **metadata):
    return GPUNodeClass(metadata=ObjectMeta(name=name, **metadata), spec=GPUNodeClassSpec(providers=()))


def reported(*, pools, classes=(), now=NOW):
    return tuple(report_pools(Snapshot(now=now, classes=tuple(classes), pools=tuple(pools)), {}))


def stuck(name, state, since, **status):
    return GPUInstance(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version="1"),
        spec=GPUInstanceSpec(provider="webhook", delivers=Delivery.POWER, pool_ref=PoolRef(namespace="team", name="p")),
        status=GPUInstanceStatus(state=state, since=since, node_name=name, **status),
    )


def test_a_pool_says_which_of_its_machines_cannot_go_and_when_they_have_gone():
    failing = stuck("box", InstanceState.TERMINATING, NOW, reason=Reason.TERMINATION_FAILED)
    blocked = stuck("rack", InstanceState.DRAINING, NOW - timedelta(minutes=5))
    fresh = stuck("fresh", InstanceState.DRAINING, NOW - timedelta(minutes=4))
    on_nodes = dict.fromkeys(("rack", "fresh"), (running(),))

    def told(seen, records):
        snapshot = Snapshot(
            now=NOW, classes=(node_class(),), pools=(seen,), records=tuple(records), pods_by_node=on_nodes
        )
        (decision,) = report_pools(snapshot, {})
        found = (each for each in decision.conditions if each.type == "TerminationBlocked")
        return decision, next(found, None)

    decision, said = told(pool(), [failing, blocked, fresh])
    assert (said.status, said.reason) == (Truth.TRUE, Reason.TERMINATION_FAILED)
    assert "pods cannot be evicted from rack, termination of box fails;" in said.message
    assert told(pool(), [fresh])[1] is None
    assert told(after(decision, pool()), [])[1].status is Truth.FALSE


def test_a_pool_names_its_machines_that_cool_down_with_the_end():
    failed = Transition(
        state=InstanceState.TERMINATING, at=NOW - timedelta(minutes=1), reason="JoinTimeout", message="No node."
    )
    records = tuple(
        GPUInstance(
            metadata=ObjectMeta(name=name),
            spec=GPUInstanceSpec(
                provider=ProviderName.WEBHOOK,
                delivers=Delivery.POWER,
                pool_ref=PoolRef(namespace="team", name=in_pool),
                offer=OfferRecord(instance_type=name, gpu_count=1),
            ),
            status=GPUInstanceStatus(state=InstanceState.TERMINATING, failures=1, transitions=(failed,)),
        )
        for name, in_pool in (("box-1", "p"), ("box-2", "other"))
    )
    snapshot = Snapshot(now=NOW, classes=(node_class(),), pools=(pool(),), records=records)
    (decision,) = report_pools(snapshot, {})

    ready = next(each for each in decision.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == (Truth.TRUE, "CoolingDown")
    assert "Cooling down after a failure: box-1 until 12:04:00 UTC. To end a cooldown, delete its" in ready.message
    # The sentence is the same a minute later: it is not written again in every tick.
    later = replace(snapshot, now=NOW + timedelta(minutes=1), pools=(after(decision, pool()),))
    assert tuple(report_pools(later, {})) == ()


@pytest.mark.parametrize(
    ("class_name", "status", "reason"),
    [("c", Truth.TRUE, Reason.PROVIDERS_READY), ("other", Truth.FALSE, Reason.NO_NODE_POOL)],
)
def test_a_class_that_no_pool_names_says_that_it_serves_nobody(class_name, status, reason):
    (decision,) = report_classes(Snapshot(now=NOW, classes=(node_class(),), pools=(pool(class_name=class_name),)))

    ready = next(each for each in decision.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == (status, reason)
    assert ("create one with spec.nodeClassRef.name" in ready.message) == (status is Truth.FALSE)


def after(decision, seen):
    """The pool once the decision has been written."""
    status = GPUNodePoolStatus(
        observed_generation=decision.generation,
        conditions=decision.conditions,
        node_count=decision.node_count,
        hourly_cost=decision.hourly_cost,
    )
    return GPUNodePool(metadata=seen.metadata, spec=seen.spec, status=status)


@pytest.mark.parametrize(
    ("classes", "reason", "status"),
    [
        pytest.param([node_class()], Reason.NODE_CLASS_FOUND, Truth.TRUE, id="exists"),
        pytest.param([node_class("other")], Reason.NODE_CLASS_NOT_FOUND, Truth.FALSE, id="missing"),
        pytest.param([node_class(deletion_timestamp=NOW)], Reason.NODE_CLASS_DELETING, Truth.FALSE, id="deleting"),
    ],
)
def test_a_pool_is_ready_only_while_its_class_exists(classes, reason, status):
    (decision,) = reported(pools=[pool()], classes=classes)

    conditions = {each.type: each for each in decision.conditions}
    assert decision.reason is reason
    assert conditions["NodeClassReady"].status is status
    assert conditions["NodeClassReady"].message == decision.sentence
    assert conditions["Ready"].status is status, "without its class a pool gets no capacity"
    assert (decision.uid, decision.resource_version, decision.generation) == ("uid-p", 7, 2)


def test_an_unchanged_status_is_not_written_again():
    before = pool()
    (decision,) = reported(pools=[before], classes=[node_class()])

    assert reported(pools=[after(decision, before)], classes=[node_class()], now=NOW + timedelta(hours=1)) == ()


def test_a_condition_keeps_its_transition_time_until_its_status_changes():
    before = pool()
    (missing,) = reported(pools=[before])
    (found,) = reported(pools=[after(missing, before)], classes=[node_class()], now=NOW + timedelta(hours=1))

    times = {each.type: each.last_transition_time for each in found.conditions}
    assert times == dict.fromkeys(("NodeClassReady", "Ready"), NOW + timedelta(hours=1))


def test_conditions_of_other_writers_stay():
    foreign = Condition(type="Audited", status=Truth.TRUE, reason="ByHand", last_transition_time=NOW)
    (decision,) = reported(pools=[pool(status=GPUNodePoolStatus(conditions=(foreign,)))])

    assert foreign in decision.conditions


def test_a_pool_that_is_being_deleted_gets_no_status():
    assert reported(pools=[pool(deletion_timestamp=NOW, finalizers=["x"])]) == ()


def test_a_sentence_that_is_too_long_for_the_api_is_shortened():
    paused = "so many nodes are unhealthy " * 2000
    seen = pool()
    snapshot = Snapshot(now=NOW, classes=(node_class(),), pools=(seen,))

    (decision,) = report_pools(snapshot, {seen.key: paused})

    assert all(len(each.message) <= 32768 for each in decision.conditions)
    assert tuple(report_pools(replace(snapshot, pools=(after(decision, seen),)), {seen.key: paused})) == ()
