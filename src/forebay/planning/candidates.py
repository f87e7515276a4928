"""Candidates: which offers each pool may buy, as the nodes they would become; and those it may not, with the reason."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_class import GPUNodeClass, InstanceRequirements
from forebay.api.gpu_node_pool import GPUNodePool, NodeSpec
from forebay.api.names import (
    GPU_TYPE_LABEL,
    GROUP,
    NODECLASS_LABEL,
    NODEPOOL_LABEL,
    PREDECESSOR_PREFIX,
    PROVIDER_LABEL,
    PROVISIONED_LABEL,
    REGION_LABEL,
    SPOT_LABEL,
)
from forebay.api.parts import LabelSelectorEntry as ApiSelector
from forebay.demand.free_capacity import daemon_overhead
from forebay.model.gpu_models import canonical, matching_models
from forebay.model.label_syntax import label_value
from forebay.model.nodes import Node
from forebay.model.observed_capacity import with_observed_capacity
from forebay.model.quantities import CPU, Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelOperator, LabelSelector, Requirement, Taint
from forebay.model.sources import AMPLE, Delivery, Offer, OfferKey, Source, SourceKey
from forebay.model.workloads import POD_COUNT, PodShape
from forebay.planning.candidate_groups import ARCHITECTURE
from forebay.planning.plan import Candidate, Excluded, PoolKey

#: Pool of the machines that environment variables configure.
NO_POOL: Final = PoolKey("", "")

Cooldowns = Mapping[OfferKey, tuple[datetime, str]]

_MILLI: Final = 1000
_GIB: Final = 2**30
#: An offer states what is allocatable, `minMemoryGiB` what the machine is sold with: of 16 GiB, some 14 are
#: allocatable.
_ALLOCATABLE_SHARE: Final = Fraction(85, 100)
_PODS_PER_NODE: Final = 110
_GPU_TYPE_KEYS: Final = (GPU_TYPE_LABEL, GPU_TYPE_LABEL.replace(f"{GROUP}/", PREDECESSOR_PREFIX))
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NO_LABELS: Final[Mapping[str, str]] = {}
_EVERY_NODE: Final = {"kubernetes.io/os": "linux", ARCHITECTURE: "amd64"}


class CandidateSet(msgspec.Struct, frozen=True, kw_only=True):
    candidates: tuple[Candidate, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    #: Sources without known offers, with the error: for the sentences of pods that nothing else fits.
    unknown: tuple[str, ...] = ()


class CandidateContext(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the cluster that decides which offers may be bought, besides pools and classes."""

    now: datetime
    #: Labels of each namespace, by its name.
    namespaces: Mapping[str, Mapping[str, str]] = {}
    #: Nodes of the cluster; and owned machines as their nodes were when last seen.
    nodes: Mapping[str, Node] = {}
    remembered: Mapping[str, Node] = {}
    #: One pod shape per DaemonSet.
    daemons: Collection[PodShape] = ()
    records: Collection[GPUInstance] = ()
    cooldowns: Cooldowns = {}


def candidates(
    sources: Mapping[SourceKey, Source],
    pools: Iterable[GPUNodePool],
    classes: Iterable[GPUNodeClass],
    context: CandidateContext,
) -> CandidateSet:
    """Every offer of every source, for each pool of its class. Offers of containers are skipped: they are not nodes."""
    by_name = {each.metadata.name: each for each in classes if each.metadata.deletion_timestamp is None}
    policies: dict[str, list[_PoolPolicy]] = {"": [_PoolPolicy.without_pool()]}
    for pool in sorted(pools, key=lambda each: each.key):
        node_class = by_name.get(pool.spec.node_class_ref.name)
        if node_class is not None and pool.metadata.deletion_timestamp is None:
            policies.setdefault(node_class.metadata.name, []).append(
                _PoolPolicy.of(pool, node_class, context.namespaces)
            )
    in_use = _in_use(context)
    found: list[Candidate] = []
    excluded: list[Excluded] = []
    unknown: list[str] = []
    for key, source in sorted(sources.items()):
        if source.capabilities.delivers is Delivery.CONTAINER or not policies.get(key.node_class):
            continue
        if source.offers is None:
            where = f"of GPUNodeClass {key.node_class}" if key.node_class else "of environment variables"
            unknown.append(f"{key.provider} {where}: {source.error or 'not asked yet'}")
            continue
        zoned = any(offer.zone for offer in source.offers)
        for offer in source.offers:
            for policy in policies[key.node_class]:
                candidate = policy.candidate(source, offer, context, zoned=zoned)
                why = policy.refuses(source, candidate) or _unavailable(candidate, context, in_use)
                if why is None:
                    found.append(candidate)
                else:
                    excluded.append(Excluded(candidate=candidate, reason=why[0], sentence=why[1]))
    return CandidateSet(candidates=tuple(found), excluded=tuple(excluded), unknown=tuple(unknown))


_Refusal = tuple[Reason, str]


def _in_use(context: CandidateContext) -> frozenset[str]:
    """Nodes of owned machines that have a record: each machine is one node, and cannot be bought twice."""
    recorded = (record.node_name for record in context.records if record.state is not InstanceState.GONE)
    return frozenset(name for name in recorded if name is not None)


def _unavailable(candidate: Candidate, context: CandidateContext, in_use: Collection[str]) -> _Refusal | None:
    offer = candidate.offer
    name = offer.node_name
    if name is not None:
        node = context.nodes.get(name)
        if name in in_use or (node is not None and node.ready):
            return Reason.OUT_OF_STOCK, "is already in use"
        if node is not None and node.unschedulable:
            return Reason.NOT_ALLOWED, f"its node is cordoned: run kubectl uncordon {name} to allow its use"
    cooldown = context.cooldowns.get(offer.key)
    if cooldown is not None and cooldown[0] > context.now:
        return Reason.COOLING_DOWN, f"is cooling down until {cooldown[0]:%H:%M:%S} UTC: {cooldown[1].rstrip('.')}"
    if candidate.available == 0:
        return Reason.OUT_OF_STOCK, "its provider has none in stock"
    return None


class _PoolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool and its class demand of offers; without a pool, for machines of environment variables."""

    pool: PoolKey
    node_class: str = ""
    weight: int = 10
    namespaces: frozenset[str] | None = None
    most: UsdPerHour | None = None
    wanted: InstanceRequirements = InstanceRequirements()
    gpu_types: frozenset[str] = frozenset()
    #: Allowed regions by provider; none: all regions.
    regions: Mapping[str, frozenset[str]] = {}
    requirements: tuple[Requirement, ...] = ()

    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()

    @classmethod
    def without_pool(cls) -> "_PoolPolicy":
        return cls(pool=NO_POOL, wanted=InstanceRequirements(spot_allowed=True))

    @classmethod
    def of(
        cls, pool: GPUNodePool, node_class: GPUNodeClass, namespaces: Mapping[str, Mapping[str, str]]
    ) -> "_PoolPolicy":
        spec = pool.spec
        nodes = spec.template.spec or NodeSpec()
        wanted = node_class.spec.instance_requirements or InstanceRequirements()
        requirements = tuple(
            _canonical(Requirement(r.key, LabelOperator(r.operator), r.values)) for r in nodes.requirements
        )
        return cls(
            pool=PoolKey(*pool.key),
            node_class=node_class.metadata.name,
            weight=spec.weight,
            namespaces=_served(spec.namespace_selector, namespaces),
            most=UsdPerHour(spec.max_hourly_price),
            wanted=wanted,
            gpu_types=frozenset(model for name in wanted.gpu_types for model in matching_models(name)),
            regions={each.name: frozenset(each.regions) for each in node_class.spec.providers},
            requirements=requirements,
            labels=spec.template.metadata.labels if spec.template.metadata is not None else _NO_LABELS,
            taints=tuple(Taint(taint.key, taint.value or "", taint.effect.value) for taint in nodes.taints),
        )

    def candidate(self, source: Source, offer: Offer, context: CandidateContext, *, zoned: bool) -> Candidate:
        """The offer as the pool would buy it. `zoned`: whether the source divides its regions into zones."""
        name = offer.node_name
        if name is not None:
            offer = with_observed_capacity(offer, context.nodes.get(name) or context.remembered.get(name))
        amounts = Resources({**_default_amounts(), **offer.allocatable})
        node = Node(
            name=name or "",
            uid="",
            resource_version=0,
            created=_LONG_AGO,
            labels=self._node_labels(offer, zoned=zoned),
            taints=tuple(dict.fromkeys((*offer.taints, *self.taints))),
            capacity=amounts,
            allocatable=amounts,
            ready=False,
        )
        if context.daemons:
            node = msgspec.structs.replace(node, allocatable=amounts - daemon_overhead(node, context.daemons))
        return Candidate(
            pool=self.pool,
            source=source.key,
            offer=offer,
            node=node,
            effective_price=UsdPerHour.from_units(offer.price.units * (10 + source.priority) // 10),
            available=offer.stock if name is None else min(1, 1 if offer.stock is None else offer.stock),
            weight=self.weight,
            namespaces=self.namespaces,
            any_architecture=any(each.key == ARCHITECTURE for each in self.requirements),
        )

    def _node_labels(self, offer: Offer, *, zoned: bool) -> Mapping[str, str]:
        """Labels that the node will have. Each `forebay.dev/...` label is repeated as `tgp.io/...`."""
        ours = {
            PROVIDER_LABEL: offer.provider,
            SPOT_LABEL: "true" if offer.spot else "false",
            PROVISIONED_LABEL: "true",
            GPU_TYPE_LABEL: canonical(offer.gpu_type, offer.gpu_memory_gib) if offer.gpu_type else None,
            REGION_LABEL: offer.region,
            NODEPOOL_LABEL: self.pool.name,
            NODECLASS_LABEL: self.node_class,
        }
        labels = {key: label_value(value) for key, value in ours.items() if value}
        labels |= {PREDECESSOR_PREFIX + key.removeprefix(f"{GROUP}/"): value for key, value in labels.items()}
        if offer.node_name is None:
            labels["node.kubernetes.io/instance-type"] = label_value(offer.instance_type)
        if offer.region:
            labels["topology.kubernetes.io/region"] = label_value(offer.region)
        # A region that its provider does not divide is one zone: otherwise rules about zones would exclude it.
        undivided = None if zoned or offer.node_name is not None else offer.region or offer.provider
        if zone := offer.zone or undivided:
            labels["topology.kubernetes.io/zone"] = label_value(zone)
        return {**_EVERY_NODE, **labels, **offer.labels, **self.labels}

    def refuses(self, source: Source, candidate: Candidate) -> _Refusal | None:
        """Reason and sentence why the pool, its class or the source does not allow the candidate, or None."""
        offer = candidate.offer
        if not source.enabled:
            return Reason.PROVIDER_DISABLED, f"GPUNodeClass {self.node_class} has disabled {offer.provider}"
        if self.most is not None and offer.price > self.most:
            return Reason.PRICE_TOO_HIGH, f"costs more than {self.most}, the maxHourlyPrice of {self._pool_name}"
        if why := self._not_allowed(offer):
            return Reason.NOT_ALLOWED, f"GPUNodeClass {self.node_class} {why}"
        labels = candidate.node.labels
        unmet = next((each for each in self.requirements if not each.matches(labels)), None)
        return None if unmet is None else (Reason.NOT_ALLOWED, f"{self._pool_name} requires {unmet}")

    def _not_allowed(self, offer: Offer) -> str | None:
        wanted = self.wanted
        regions = self.regions.get(offer.provider) or frozenset()
        for allowed in (regions, frozenset(wanted.regions)):
            if allowed and not allowed & {offer.region, offer.zone}:
                return f"allows {offer.provider} only in {', '.join(sorted(allowed))}"
        if offer.spot and not wanted.spot_allowed:
            return "does not allow spot: set instanceRequirements.spotAllowed"
        if self.gpu_types and canonical(offer.gpu_type or "", offer.gpu_memory_gib) not in self.gpu_types:
            return f"allows only the GPU types {', '.join(wanted.gpu_types)}"
        if wanted.min_vcpu is not None and -(-_amount(offer, CPU) // _MILLI) < wanted.min_vcpu:
            return f"requires at least {wanted.min_vcpu} vCPUs"
        if wanted.min_memory_gib is not None and (
            _amount(offer, "memory") < wanted.min_memory_gib * _GIB * _ALLOCATABLE_SHARE
        ):
            return f"requires at least {wanted.min_memory_gib} GiB of memory"
        if wanted.min_gpu_memory_gib is not None and (offer.gpu_memory_gib or 0) < wanted.min_gpu_memory_gib:
            return f"requires GPUs of at least {wanted.min_gpu_memory_gib} GiB"
        return None

    @property
    def _pool_name(self) -> str:
        return f"GPUNodePool {self.pool.namespace}/{self.pool.name}"


def _canonical(requirement: Requirement) -> Requirement:
    """The requirement with canonical GPU models, as nodes are labelled: users may write any name."""
    if requirement.key not in _GPU_TYPE_KEYS:
        return requirement
    values = sorted({label_value(model) for name in requirement.values for model in matching_models(name)})
    return Requirement(requirement.key, requirement.operator, tuple(values))


def _served(selector: ApiSelector, namespaces: Mapping[str, Mapping[str, str]]) -> frozenset[str] | None:
    if not selector.match_labels and not selector.match_expressions:
        return None
    expressions = tuple(
        Requirement(each.key, LabelOperator(each.operator), each.values) for each in selector.match_expressions
    )
    picks = LabelSelector(selector.match_labels, expressions)
    # The API server puts this label on every namespace.
    return frozenset(
        name for name, labels in namespaces.items() if picks.matches({"kubernetes.io/metadata.name": name, **labels})
    )


def _default_amounts() -> dict[str, int]:
    return {CPU: AMPLE, "memory": AMPLE, "ephemeral-storage": AMPLE, POD_COUNT: _PODS_PER_NODE}


def _amount(offer: Offer, resource: str) -> int:
    return offer.allocatable.get(resource, AMPLE)
