"""GPUInstances to create for the purchases of a plan.

A GPUInstance holds everything that a launch needs: after a failover, the next leader continues from it alone.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, PoolRef
from forebay.api.parts import PodRef
from forebay.api.providers import ProviderName
from forebay.lifecycle.record_fields import offer_record, planned_node
from forebay.model.sources import Delivery, OfferKey, SourceKey
from forebay.model.workloads import Pod
from forebay.planning.plan import Purchase
from forebay.reconcile.decisions import CreateInstance

#: Limits of the API. A machine for more pods serves them all, but names only the oldest.
_PODS_RECORDED: Final = 512
_WHY: Final = 2048


def create_instance(
    purchase: Purchase, delivers: Delivery, failures: int, records: Mapping[str, GPUInstance]
) -> CreateInstance:
    """The GPUInstance for one purchase.

    Its name is deterministic, so that two leaders cannot buy the same twice: the name of the owned machine, or a digest
    of the offer and the pods. `failures` counts the failed launches of this offer so far. `records` are the existing
    GPUInstances by name.
    """
    candidate, offer = purchase.candidate, purchase.candidate.offer
    name = offer.node_name or _name(candidate.pool.name, offer.key, purchase.pods, records)
    pool = candidate.pool
    spec = GPUInstanceSpec(
        provider=ProviderName(offer.provider),
        delivers=delivers,
        pool_ref=PoolRef(namespace=pool.namespace, name=pool.name) if pool.name else None,
        node_class_name=candidate.source.node_class or None,
        offer=offer_record(offer),
        hourly_price=offer.price.exact(),
        node=planned_node(name, candidate.node.labels, candidate.node.taints, candidate.node.allocatable),
        pods=tuple(PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in _oldest(purchase.pods)),
        why=purchase.sentence[:_WHY],
    )
    # A cooldown grows with each failure, across GPUInstances.
    status = GPUInstanceStatus(state=InstanceState.REQUESTED, failures=failures) if failures else None
    return CreateInstance(name=name, spec=spec, status=status, reason=purchase.reason, sentence=purchase.sentence)


def source_of(record: GPUInstance) -> SourceKey:
    """The source that the GPUInstance came from."""
    return SourceKey(record.spec.node_class_name or "", record.spec.provider)


def _oldest(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (pod.created, pod.uid))[:_PODS_RECORDED]


def _name(pool: str, offer: OfferKey, pods: Iterable[Pod], records: Mapping[str, GPUInstance]) -> str:
    # The offer is part of the name: a failed GPUInstance for these pods is kept for a while beside the next attempt.
    parts = [*map(str, offer), *sorted(pod.uid for pod in pods)]
    while True:
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]
        name = f"{pool[:200]}-{digest}"
        earlier = records.get(name)
        if earlier is None or earlier.state is InstanceState.GONE:
            return name
        # Another one for the same pods is terminating, and its record must stay until the provider proves it gone.
        parts.append(earlier.uid)
