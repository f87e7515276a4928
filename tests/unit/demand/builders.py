"""Pods, nodes and GPUInstances in the state that a test needs, with defaults for everything else."""

from datetime import UTC, datetime, timedelta

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, PoolRef
from forebay.api.instance_order import OfferRecord, PlannedNode
from forebay.api.meta import ObjectMeta
from forebay.api.parts import PodRef
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.sources import Delivery
from forebay.model.workloads import Phase, Pod, PodShape

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
GPU = "nvidia.com/gpu"


def ago(**span) -> datetime:
    return NOW - timedelta(**span)


def shape(gpus=1, cpu=1000, *, resource=GPU, **fields) -> PodShape:
    return PodShape(requests=Resources({"cpu": cpu, resource: gpus, "pods": 1}), **fields)


def pod(name="train", gpus=1, **fields) -> Pod:
    """A GPU pod that the scheduler has marked Unschedulable."""
    of_shape = {key: fields.pop(key) for key in list(fields) if key in {*PodShape.__struct_fields__, "cpu", "resource"}}
    return Pod(
        **{
            "namespace": "default",
            "name": name,
            "uid": f"uid-{name}",
            "resource_version": 1,
            "created": ago(minutes=5),
            "shape": shape(gpus, **of_shape),
            "phase": Phase.PENDING,
            "labels": {},
            "annotations": {},
            "owner": None,
            "node": None,
            "nominated_node": None,
            "deleted": None,
            "unschedulable_since": ago(minutes=4),
            "unschedulable_message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            "finalizers": (),
            **fields,
        }
    )


def running(name="train", node="n1", gpus=1, **fields) -> Pod:
    return pod(name, gpus, **{"node": node, "phase": Phase.RUNNING, "unschedulable_since": None, **fields})


def node(name="n1", gpus=8, *, cpu=64_000, **fields) -> Node:
    amounts = Resources({"cpu": cpu, "memory": 2**38, GPU: gpus, "pods": 110})
    return Node(
        **{
            "name": name,
            "uid": f"uid-{name}",
            "resource_version": 1,
            "created": ago(days=1),
            "labels": {"kubernetes.io/hostname": name},
            "capacity": amounts,
            "allocatable": amounts,
            "ready": True,
            "ready_since": ago(hours=1),
            **fields,
        }
    )


def record(
    name="n1",
    state: InstanceState | None = InstanceState.READY,
    *,
    gpus=8,
    pods=(),
    delivers=Delivery.POWER,
    pool=None,
    born=None,
    planned=None,
    deleted=None,
    **status,
) -> GPUInstance:
    """`pods` are those that the GPUInstance was launched for; `planned` overrides fields of the planned node."""
    return GPUInstance(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-of-{name}",
            resource_version="7",
            creation_timestamp=born or ago(hours=1),
            deletion_timestamp=deleted,
        ),
        spec=GPUInstanceSpec(
            provider="webhook",
            delivers=delivers,
            pool_ref=None if pool is None else PoolRef(namespace="team", name=pool),
            offer=OfferRecord(instance_type=name, gpu_count=gpus),
            node=PlannedNode(name=name, **{"allocatable": {GPU: gpus}, **(planned or {})}),
            pods=tuple(PodRef(namespace=each.namespace, name=each.name, uid=each.uid) for each in pods),
        ),
        status=None
        if state is None
        else GPUInstanceStatus(
            **{"state": state, "node_name": name, "since": ago(minutes=10), **status},
        ),
    )
