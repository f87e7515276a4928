"""GPUInstances to create for the purchases of a plan.

A GPUInstance holds everything that a launch needs: after a failover, the next leader continues from it alone.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import msgspec

from forebay.api.gpu_instance import (
    GPUInstance,
    GPUInstanceSpec,
    GPUInstanceStatus,
    InstanceState,
    PoolRef,
    Purpose,
    ReplacedInstance,
)
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool, NodeMetadata, NodeSpec, NodeTemplate
from forebay.api.instance_order import ContainerRecord
from forebay.api.node_provisioner import NodeProvisionerSpec
from forebay.api.parts import PodRef, Taints
from forebay.api.values import duration_or_never, duration_text
from forebay.lifecycle.record_fields import billing_terms, offer_record, planned_node
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery, FailureScope, Offer, OfferKey, SourceKey
from forebay.model.workloads import Pod
from forebay.planning.plan import Purchase
from forebay.reconcile.decisions import CreateInstance

#: Limits of the API. A machine for more pods serves them all, but names only the oldest.
_PODS_RECORDED: Final = 512
_WHY: Final = 2048
#: What a DNS label of 63 characters leaves beside a hyphen and the digest.
_LONGEST_PREFIX: Final = 52
#: From the time at which Forebay replaces a machine until the provider ends it by itself. A drain may take that long.
DEAD_MAN_MARGIN: Final = timedelta(days=1)


class OrderTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the pool and the class of a purchase, and its provider, add to the order."""

    pool: GPUNodePool | None = None
    node_class: GPUNodeClass | None = None
    capabilities: Capabilities
    purpose: Purpose = Purpose.PODS
    #: What tells its name from others of the same offer, beside the pods.
    name_parts: tuple[str, ...] = ()
    replaces: tuple[ReplacedInstance, ...] = ()
    #: What its failure would speak against, because others have failed before it; None: its offer.
    failure_scope: FailureScope | None = None

    @property
    def template(self) -> NodeTemplate:
        return self.pool.spec.template if self.pool is not None else NodeTemplate()

    @property
    def startup_taints(self) -> Taints:
        return self.template.spec.startup_taints if self.template.spec is not None else ()

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.template.metadata.annotations if self.template.metadata is not None else {}

    @property
    def image(self) -> str | None:
        talos = self.node_class.spec.talos_config if self.node_class is not None else None
        return talos.image if talos is not None else None

    @property
    def max_run_time(self) -> str | None:
        """When the provider ends the machine by itself: long after Forebay would have replaced it."""
        expiry = duration_or_never(self.pool.spec.disruption.expire_after) if self.pool is not None else None
        if expiry is None or not self.capabilities.dead_man_switch:
            return None
        return duration_text(expiry + DEAD_MAN_MARGIN)


class ContainerOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The offer that was chosen for one pod, and why."""

    source: SourceKey
    offer: Offer
    delivers: Delivery
    sentence: str
    #: Failed launches of this offer so far.
    failures: int = 0
    #: The pod may run for this long. The provider ends the container by itself then, where it can.
    max_run_time: timedelta | None = None


def create_instance(  # noqa: PLR0917 (what is ordered, and what there is)
    purchase: Purchase,
    delivers: Delivery,
    terms: OrderTerms,
    failures: int,
    records: Mapping[str, GPUInstance],
    nodes: Mapping[str, Node] | None = None,
) -> CreateInstance:
    """The GPUInstance for one purchase.

    Its name is deterministic, so that two leaders cannot buy the same twice: the name of the owned machine, or a digest
    of the offer and the pods. `failures` counts the failed launches of this offer so far. `records` are the existing
    GPUInstances, and `nodes` the nodes, by name.
    """
    candidate, offer = purchase.candidate, purchase.candidate.offer
    name = offer.node_name or _name(
        candidate.pool.name, offer.key, purchase.pods, records, nodes or {}, terms.name_parts
    )
    pool, node = candidate.pool, candidate.node
    spec = GPUInstanceSpec(
        purpose=terms.purpose,
        provider=offer.provider,
        delivers=delivers,
        pool_ref=PoolRef(namespace=pool.namespace, name=pool.name) if pool.name else None,
        node_class_name=candidate.source.node_class or None,
        offer=offer_record(offer),
        hourly_price=offer.price.exact(),
        billing=billing_terms(offer.billing),
        node=planned_node(name, node.labels, node.taints, node.capacity, terms.startup_taints, terms.annotations),
        image=terms.image,
        tags=terms.node_class.spec.tags if terms.node_class is not None else {},
        max_run_time=terms.max_run_time,
        pods=tuple(PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in _oldest(purchase.pods)),
        replaces=terms.replaces,
        template_hash=template_hash(terms.node_class, terms.pool),
        why=purchase.sentence[:_WHY],
    )
    # A cooldown grows with each failure, across GPUInstances: this one may take the place of the last that failed.
    status = None
    if failures or terms.failure_scope is not None:
        status = GPUInstanceStatus(
            state=InstanceState.REQUESTED, failures=failures or None, failure_scope=terms.failure_scope
        )
    return CreateInstance(name=name, spec=spec, status=status, reason=purchase.reason, sentence=purchase.sentence)


def create_container(
    pod: Pod, offer: ContainerOffer, container: ContainerRecord, terms: OrderTerms, records: Iterable[GPUInstance]
) -> CreateInstance:
    """The GPUInstance for a pod that runs in a remote container.

    Only for a pod without one (`demand.planned_pods.live_containers`): the name follows from the pod and its containers
    before, so that of two leaders only one creates it, whatever offer each has chosen.
    """
    pool = terms.pool
    before = sorted(each.uid for each in records if not each.spec.delivers.has_node and _is_for(each, pod))
    digest = hashlib.sha256("\n".join((pod.uid, *before)).encode()).hexdigest()[:10]
    chosen = offer.offer
    spec = GPUInstanceSpec(
        purpose=Purpose.PODS,
        provider=chosen.provider,
        delivers=offer.delivers,
        pool_ref=PoolRef(namespace=pool.key[0], name=pool.key[1]) if pool is not None else None,
        node_class_name=offer.source.node_class or None,
        offer=offer_record(chosen),
        hourly_price=chosen.price.exact(),
        billing=billing_terms(chosen.billing),
        container=container,
        tags=terms.node_class.spec.tags if terms.node_class is not None else {},
        max_run_time=duration_text(offer.max_run_time) if offer.max_run_time is not None else None,
        pods=(PodRef(namespace=pod.namespace, name=pod.name, uid=pod.uid),),
        why=offer.sentence[:_WHY],
    )
    status = GPUInstanceStatus(state=InstanceState.REQUESTED, failures=offer.failures) if offer.failures else None
    prefix = _prefix(pool.metadata.name if pool is not None else pod.name)
    return CreateInstance(
        name=f"{prefix}-{digest}", spec=spec, status=status, reason=Reason.CAPACITY_NEEDED, sentence=offer.sentence
    )


def _is_for(record: GPUInstance, pod: Pod) -> bool:
    return any(each.uid == pod.uid for each in record.spec.pods)


def template_hash(
    node_class: GPUNodeClass | None, pool: GPUNodePool | None, group: NodeProvisionerSpec | None = None
) -> str | None:
    """Hash of what a machine is made of, by its class and its pool or rented group; None for machines without a class.

    Not of what only chooses among offers (providers, requirements, limits): a machine that was chosen stays as good as
    it was.
    """
    if node_class is None and pool is None:
        return None
    made_of: list[Any] = []
    if node_class is not None:
        spec = node_class.spec
        made_of += (spec.talos_config, spec.k3s_config, spec.kubeadm_config, spec.cloud_init, spec.tailscale_config)
        made_of.append(spec.tags)
    if pool is not None:
        nodes = pool.spec.template.spec or NodeSpec()
        made_of += (pool.spec.template.metadata or NodeMetadata(), nodes.taints, nodes.startup_taints)
    if group is not None:
        made_of += (group.labels, group.taints, group.provider.instance_type)
    return hashlib.sha256(msgspec.json.encode(made_of, order="sorted")).hexdigest()[:16]


def current_templates(pools: Iterable[GPUNodePool], classes: Iterable[GPUNodeClass]) -> dict[tuple[str, str], str]:
    """By pool, what its machines are made of now. Without those whose class is not there: it may come back."""
    by_name = {each.metadata.name: each for each in classes}
    found = ((pool, by_name.get(pool.spec.node_class_ref.name)) for pool in pools)
    hashes = ((pool.key, template_hash(node_class, pool)) for pool, node_class in found if node_class is not None)
    return {key: made_of for key, made_of in hashes if made_of is not None}


def _oldest(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=lambda pod: (pod.created, pod.uid))[:_PODS_RECORDED]


def _prefix(name: str) -> str:
    return name.replace(".", "-")[:_LONGEST_PREFIX].rstrip("-")


def _must_stay(record: GPUInstance) -> bool:
    """Whether no other may take its place: another one for the same pods is terminating, and its record must stay until
    the provider proves it gone; or what was made beside its machine, which only the record names, is not deleted yet.
    """
    resources = record.status.secondary_resources if record.status is not None else ()
    return record.state is not InstanceState.GONE or bool(resources)


def _name(  # noqa: PLR0917 (what the name is made of, and which there are)
    pool: str,
    offer: OfferKey,
    pods: Iterable[Pod],
    records: Mapping[str, GPUInstance],
    nodes: Mapping[str, Node],
    more: Iterable[str] = (),
) -> str:
    # Also the name of the machine and of its node, so one DNS label: no dots, at most 63 characters.
    prefix = _prefix(pool)
    # The offer is part of the name: a failed GPUInstance for these pods is kept for a while beside the next attempt.
    parts = [*map(str, offer), *sorted(pod.uid for pod in pods), *more]
    while True:
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]
        name = f"{prefix}-{digest}"
        earlier = records.get(name)
        if earlier is not None and _must_stay(earlier):
            parts.append(earlier.uid)
        elif name in nodes:
            # The Node of a machine that is gone outlives it for a while. Another one that registers under its name has
            # a spec.providerID that is not its own, so that it counts as a stranger.
            parts.append(nodes[name].uid)
        else:
            return name
