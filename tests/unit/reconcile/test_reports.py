"""What the owners of pools are told, from values alone."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec, GPUNodePoolStatus
from forebay.api.meta import ObjectMeta
from forebay.api.parts import Condition, NodeClassRef, Truth
from forebay.model.reasons import Reason
from forebay.reconcile.reports import report_pools
from forebay.reconcile.snapshot import Snapshot

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


def decided(*, pools, classes=(), now=NOW):
    return tuple(report_pools(Snapshot(now=now, classes=tuple(classes), pools=tuple(pools)), {}))


def after(decision, looked_at):
    """The pool once the decision has been written."""
    status = GPUNodePoolStatus(
        observed_generation=decision.generation,
        conditions=decision.conditions,
        node_count=decision.node_count,
        hourly_cost=decision.hourly_cost,
    )
    return GPUNodePool(metadata=looked_at.metadata, spec=looked_at.spec, status=status)


@pytest.mark.parametrize(
    ("classes", "reason", "status"),
    [
        pytest.param([node_class()], Reason.NODE_CLASS_FOUND, Truth.TRUE, id="there"),
        pytest.param([node_class("other")], Reason.NODE_CLASS_NOT_FOUND, Truth.FALSE, id="missing"),
        pytest.param([node_class(deletion_timestamp=NOW)], Reason.NODE_CLASS_DELETING, Truth.FALSE, id="going"),
    ],
)
def test_a_pool_is_told_whether_its_class_is_there(classes, reason, status):
    (decision,) = decided(pools=[pool()], classes=classes)

    told = {each.type: each for each in decision.conditions}
    assert decision.reason is reason
    assert told["NodeClassReady"].status is status
    assert told["NodeClassReady"].message == decision.sentence
    assert told["Ready"].status is status, "without its class a pool gets no capacity"
    assert (decision.uid, decision.resource_version, decision.generation) == ("uid-p", 7, 2)


def test_what_was_said_is_not_said_again():
    before = pool()
    (decision,) = decided(pools=[before], classes=[node_class()])

    assert decided(pools=[after(decision, before)], classes=[node_class()], now=NOW + timedelta(hours=1)) == ()


def test_a_condition_keeps_its_time_until_its_status_changes():
    before = pool()
    (missing,) = decided(pools=[before])
    (found,) = decided(pools=[after(missing, before)], classes=[node_class()], now=NOW + timedelta(hours=1))

    times = {each.type: each.last_transition_time for each in found.conditions}
    assert times == dict.fromkeys(("NodeClassReady", "Ready"), NOW + timedelta(hours=1))


def test_conditions_of_others_stay():
    foreign = Condition(type="Audited", status=Truth.TRUE, reason="ByHand", last_transition_time=NOW)
    (decision,) = decided(pools=[pool(status=GPUNodePoolStatus(conditions=(foreign,)))])

    assert foreign in decision.conditions


def test_a_pool_that_is_being_deleted_is_left_alone():
    assert decided(pools=[pool(deletion_timestamp=NOW, finalizers=["x"])]) == ()


def test_a_sentence_that_is_too_long_for_the_api_is_shortened():
    brake = "so many nodes are unhealthy " * 2000
    looked_at = pool()
    snapshot = Snapshot(now=NOW, classes=(node_class(),), pools=(looked_at,))

    (decision,) = report_pools(snapshot, {looked_at.key: brake})

    assert all(len(each.message) <= 32768 for each in decision.conditions)
    assert tuple(report_pools(replace(snapshot, pools=(after(decision, looked_at),)), {looked_at.key: brake})) == ()
