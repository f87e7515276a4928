"""Builders of pods, candidates and owned machines for planning tests."""

from datetime import UTC, datetime, timedelta
from itertools import count

from forebay.model.nodes import Node
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import AMPLE, Offer, SourceKey
from forebay.model.workloads import Owner, Phase, Pod, PodShape
from forebay.planning.plan import Candidate, PoolKey

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POOL = PoolKey("team", "pool")
GPU = "nvidia.com/gpu"

_numbers = count(1)


def shape(gpus=1, cpu="1", memory="1Gi", resource=GPU, **fields):
    amounts = {"cpu": cpu, "memory": memory, "pods": 1} | ({resource: gpus} if gpus else {})
    return PodShape(requests=Resources.parse(amounts | fields.pop("more", {})), **fields)


def pod(of=None, *, name=None, namespace="team", labels=None, annotations=None, age=timedelta(0), owner=None):
    name = name or f"pod-{next(_numbers):06}"
    return Pod(
        namespace=namespace,
        name=name,
        uid=f"uid-{namespace}-{name}",
        resource_version=1,
        created=NOW - age,
        shape=of or shape(),
        phase=Phase.PENDING,
        labels=labels or {},
        annotations=annotations or {},
        owner=Owner("Job", owner, f"uid-{owner}") if owner else None,
        node=None,
        nominated_node=None,
        deleted=None,
        unschedulable_since=NOW,
        unschedulable_message="",
        finalizers=(),
    )


def pods(number, of=None, **fields):
    of = of or shape()
    return [pod(of, **fields) for _ in range(number)]


def candidate(
    gpus=1,
    price="1",
    *,
    name=None,
    provider="simulated",
    cpu="32",
    memory="256Gi",
    resource=GPU,
    region=None,
    zone=None,
    labels=None,
    taints=(),
    stock=None,
    pool=POOL,
    effective=None,
    weight=10,
    namespaces=None,
    machine=None,
    node_class="class",
    more=None,
    **offer,
):
    allocatable = Resources.parse({"cpu": cpu, "memory": memory, "pods": 110, resource: gpus} | (more or {}))
    places = {"topology.kubernetes.io/region": region, "topology.kubernetes.io/zone": zone}
    labels = (
        {key: value for key, value in places.items() if value} | {"forebay.dev/provider": provider} | (labels or {})
    )
    made = Offer(
        provider=provider,
        instance_type=name or machine or f"gpu-{gpus}",
        region=region,
        zone=zone,
        gpu_count=gpus,
        gpu_resource=resource,
        price=UsdPerHour(price),
        stock=stock,
        allocatable=allocatable,
        node_name=machine,
        **offer,
    )
    node = Node(
        name=machine or "",
        uid="",
        resource_version=0,
        created=NOW,
        labels=labels,
        taints=taints,
        capacity=allocatable,
        allocatable=allocatable,
        ready=True,
    )
    return Candidate(
        pool=pool,
        source=SourceKey(node_class, provider),
        offer=made,
        node=node,
        effective_price=UsdPerHour(effective or price),
        available=stock,
        weight=weight,
        namespaces=namespaces,
    )


def machine(name, gpus, price="0", **fields):
    """An owned machine of which only the GPUs are known."""
    return candidate(gpus, price, machine=name, provider="webhook", cpu=AMPLE, memory=AMPLE, **fields)


def bought(plan):
    """Instance types that were bought, sorted."""
    return sorted(purchase.candidate.offer.instance_type for purchase in plan.purchases)


def served(plan):
    return {each.name for purchase in plan.purchases for each in purchase.pods}


def why(plan):
    return {left.pod.name: left.reason for left in plan.left_out}
