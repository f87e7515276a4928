"""GPUInstances to create for a plan.

A GPUInstance holds everything a launch needs, so that whoever leads next can go on from it.
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

#: What a record has room for. A machine for more pods serves them all the same.
_PODS_RECORDED: Final = 512
_WHY: Final = 2048


def create_instance(
    purchase: Purchase, delivers: Delivery, failures: int, records: Mapping[str, GPUInstance]
) -> CreateInstance:
    """The intent. Its name is the same whoever plans the same: a machine's own, or one made of the pods it is for.
    `records` are those that are there, by name.
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
    # A wait that grows with each failure must not begin anew with each record.
    status = GPUInstanceStatus(state=InstanceState.REQUESTED, failures=failures) if failures else None
    return CreateInstance(name=name, spec=spec, status=status, reason=purchase.reason, sentence=purchase.sentence)


def source_of(record: GPUInstance) -> SourceKey:
    return SourceKey(record.spec.node_class_name or "", record.spec.provider)


def _oldest(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (pod.created, pod.uid))[:_PODS_RECORDED]


def _name(pool: str, offer: OfferKey, pods: Iterable[Pod], records: Mapping[str, GPUInstance]) -> str:
    # Of the offer too: the record of one that failed for these pods is kept for a while beside that of the next.
    parts = [*map(str, offer), *sorted(pod.uid for pod in pods)]
    while True:
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]
        name = f"{pool[:200]}-{digest}"
        earlier = records.get(name)
        if earlier is None or earlier.state is InstanceState.GONE:
            return name
        # One for the same pods is on its way out, and its record must stay until there is proof of its end.
        parts.append(earlier.uid)
