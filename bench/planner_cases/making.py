"""Builders of pods and candidates."""

from collections.abc import Mapping
from datetime import UTC, datetime

from forebay.model.nodes import Node
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Offer, SourceKey
from forebay.model.workloads import Phase, Pod, PodShape
from forebay.planning.plan import Candidate, PoolKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOL = PoolKey("bench", "pool")
GPU = "nvidia.com/gpu"


def shape(cpu_milli: int, memory: int, gpus: int = 0, **fields: object) -> PodShape:
    amounts = {"cpu": cpu_milli, "memory": memory, GPU: gpus, "pods": 1}
    return PodShape(requests=Resources(amounts), **fields)  # type: ignore[arg-type]


def pod(of: PodShape, number: int) -> Pod:
    return Pod(
        namespace="bench",
        name=f"pod-{number:06}",
        uid=f"uid-{number:06}",
        resource_version=1,
        created=NOW,
        shape=of,
        phase=Phase.PENDING,
        labels={},
        annotations={},
        owner=None,
        node=None,
        nominated_node=None,
        deleted=None,
        unschedulable_since=NOW,
        unschedulable_message="",
        finalizers=(),
    )


def candidate(
    name: str,
    amounts: Mapping[str, int],
    price: str,
    *,
    provider: str = "simulated",
    region: str | None = None,
    zone: str | None = None,
    spot: bool = False,
    gpu_type: str | None = None,
    stock: int | None = None,
    labels: Mapping[str, str] | None = None,
) -> Candidate:
    allocatable = Resources(amounts)
    offer = Offer(
        provider=provider,
        instance_type=name,
        region=region,
        zone=zone,
        spot=spot,
        gpu_type=gpu_type,
        gpu_count=allocatable.amount(GPU),
        price=UsdPerHour(price),
        stock=stock,
        allocatable=allocatable,
    )
    node = Node(
        name="",
        uid="",
        resource_version=0,
        created=NOW,
        labels=labels or {},
        capacity=allocatable,
        allocatable=allocatable,
        ready=False,
    )
    return Candidate(
        pool=POOL,
        source=SourceKey("bench", provider),
        offer=offer,
        node=node,
        effective_price=offer.price,
        available=stock,
    )
