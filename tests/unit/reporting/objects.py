"""Pods, nodes, GPUInstances, pools and cluster views for the tests of reporting."""

from datetime import UTC, datetime, timedelta

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, PoolRef, Transition
from forebay.api.gpu_node_pool import Disruption, GPUNodePool, GPUNodePoolSpec
from forebay.api.instance_order import OfferRecord, PlannedNode
from forebay.api.meta import ObjectMeta
from forebay.api.parts import Condition, NodeClassRef, PodRef, Truth
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.sources import Delivery
from forebay.model.workloads import Phase, Pod, PodShape
from forebay.reporting.cluster_view import ClusterView, EventLine, pods_by_node

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
S = InstanceState


def before(**span):
    return NOW - timedelta(**span)


def pod(name="train", gpus=1, *, gates=(), **fields):
    """A pod that kube-scheduler has found no node for."""
    requests = Resources({"cpu": 1000, "pods": 1, "nvidia.com/gpu": gpus})
    known = {
        "namespace": "team",
        "name": name,
        "uid": f"uid-{name}",
        "resource_version": 1,
        "created": before(minutes=3),
        "shape": PodShape(requests=requests, scheduling_gates=gates),
        "phase": Phase.PENDING,
        "labels": {},
        "annotations": {},
        "owner": None,
        "node": None,
        "nominated_node": None,
        "deleted": None,
        "unschedulable_since": before(minutes=2),
        "unschedulable_message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "finalizers": (),
    }
    return Pod(**{**known, **fields})


def running(name="train", node="m1", **fields):
    return pod(name, node=node, phase=Phase.RUNNING, unschedulable_since=None, unschedulable_message=None, **fields)


def node(name="m1", **fields):
    amounts = Resources({"cpu": 8000, "pods": 110, "nvidia.com/gpu": 4})
    known = {"uid": name, "resource_version": 1, "created": before(hours=1), "labels": {}, "ready": True}
    return Node(name=name, capacity=amounts, allocatable=amounts, **{**known, **fields})


def record(name="m1", state=S.READY, *, pods=("train",), price="1.80", pool="lab", idle_since=None, **status):
    steps = (
        Transition(state=S.REQUESTED, at=before(minutes=2), reason="CapacityNeeded", message="Pods wait."),
        Transition(state=state, at=before(minutes=1), reason="NodeReady", message="It came."),
    )
    idle = Condition(
        type="Idle", status=Truth.TRUE, reason="Idle", message="Nothing runs on it.", last_transition_time=idle_since
    )
    return GPUInstance(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", creation_timestamp=before(minutes=2)),
        spec=GPUInstanceSpec(
            provider="webhook",
            delivers=Delivery.POWER,
            pool_ref=PoolRef(namespace="team", name=pool) if pool else None,
            node_class_name="owned",
            offer=OfferRecord(instance_type=name, gpu_count=4, gpu_type="L40S"),
            hourly_price=price,
            node=PlannedNode(name=name),
            pods=tuple(PodRef(namespace="team", name=each, uid=f"uid-{each}") for each in pods),
            why="It is the cheapest that fits.",
        ),
        status=GPUInstanceStatus(
            **{
                "state": state,
                "reason": "NodeReady",
                "message": "It came.",
                "since": before(minutes=1),
                "transitions": steps,
                "conditions": (idle,) if idle_since is not None else (),
                "billed_from": before(minutes=2),
                **status,
            }
        ),
    )


def pool(name="lab", after="5m"):
    return GPUNodePool(
        metadata=ObjectMeta(name=name, namespace="team"),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="owned"), disruption=Disruption(consolidate_after=after)),
    )


def event(note, reason="NoOfferFits", about="team/train"):
    return EventLine(about=about, at=before(seconds=30), type="Warning", reason=reason, note=note)


def cluster_view(*records, pods=(), **fields):
    return ClusterView(
        **{
            "now": NOW,
            "records": records,
            "pools": (pool(),),
            "nodes": {"m1": node()},
            "pods_by_node": pods_by_node(pods),
            "operator_running": True,
            **fields,
        }
    )
