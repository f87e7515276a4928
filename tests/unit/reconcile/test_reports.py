"""Status of pools: conditions, totals, and when they are written."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, PoolRef
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec, GPUNodePoolStatus
from forebay.api.meta import ObjectMeta
from forebay.api.parts import Condition, NodeClassRef, Truth
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.reconcile.reports import report_pools
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
