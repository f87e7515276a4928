"""Pool policies: what a GPUNodePool and its GPUNodeClass demand of offers, and the nodes that offers would become."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

import msgspec

from forebay.api.gpu_node_class import GPUNodeClass, InstanceRequirements
from forebay.api.gpu_node_pool import GPUNodePool, NodeSpec, UnusualPrices
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
from forebay.api.node_provisioner import NodeProvisionerSpec
from forebay.api.parts import TaintEntry
from forebay.demand.free_capacity import daemon_overhead
from forebay.model.gpu_models import canonical, matching_models, unknown_models
from forebay.model.label_syntax import label_value
from forebay.model.nodes import Node
from forebay.model.quantities import CPU, Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelOperator, Requirement, Taint
from forebay.model.sources import AMPLE, Offer, Source
from forebay.model.workloads import POD_COUNT, PodShape
from forebay.planning.candidate_groups import ARCHITECTURE
from forebay.planning.plan import Candidate, PoolKey
from forebay.planning.pool_permissions import PoolRefusal, pool_refusal, served_namespaces

#: Pool of offers without a GPUNodeClass, which only `forebay plan` has: every pod may use them.
NO_POOL: Final = PoolKey("", "")

_MILLI: Final = 1000
_GIB: Final = 2**30
#: An offer states what is allocatable, `minMemoryGiB` what the machine is sold with: of 16 GiB, some 14 are
#: allocatable.
_ALLOCATABLE_SHARE: Final = Fraction(85, 100)
_PODS_PER_NODE: Final = 110
GPU_TYPE_KEYS: Final = (GPU_TYPE_LABEL, GPU_TYPE_LABEL.replace(f"{GROUP}/", PREDECESSOR_PREFIX))
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NO_LABELS: Final[Mapping[str, str]] = {}
_EVERY_NODE: Final = {"kubernetes.io/os": "linux", ARCHITECTURE: "amd64"}

Refusal = tuple[Reason, str]


class PoolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool and its class demand of offers."""

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
    startup_taints: tuple[Taint, ...] = ()
    allows_unusual_prices: bool = False
    #: Why the pool may buy nothing at all.
    refusal: PoolRefusal | None = None

    @classmethod
    def without_pool(cls) -> "PoolPolicy":
        return cls(pool=NO_POOL, wanted=InstanceRequirements(spot_allowed=True))

    @classmethod
    def of(
        cls,
        pool: GPUNodePool,
        node_class: GPUNodeClass,
        namespaces: Mapping[str, Mapping[str, str]],
        operator_namespace: str,
    ) -> "PoolPolicy":
        scope = (pool, node_class, namespaces, operator_namespace)
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
            namespaces=served_namespaces(*scope),
            most=UsdPerHour(spec.max_hourly_price),
            wanted=wanted,
            gpu_types=frozenset(model for name in wanted.gpu_types for model in matching_models(name)),
            regions={each.name: frozenset(each.regions) for each in node_class.spec.providers},
            requirements=requirements,
            labels=spec.template.metadata.labels if spec.template.metadata is not None else _NO_LABELS,
            taints=_taints(nodes.taints),
            startup_taints=_taints(nodes.startup_taints),
            refusal=pool_refusal(*scope),
            allows_unusual_prices=spec.unusual_prices is UnusualPrices.ALLOW,
        )

    @classmethod
    def of_group(cls, spec: NodeProvisionerSpec, node_class: GPUNodeClass, labels: Mapping[str, str]) -> "PoolPolicy":
        """What a class demands of machines that a NodeProvisioner rents, whose own labels are `labels`."""
        wanted = node_class.spec.instance_requirements or InstanceRequirements()
        return cls(
            pool=NO_POOL,
            node_class=node_class.metadata.name,
            wanted=wanted,
            gpu_types=frozenset(model for name in wanted.gpu_types for model in matching_models(name)),
            regions={each.name: frozenset(each.regions) for each in node_class.spec.providers},
            labels={**spec.labels, **labels},
            taints=_taints(spec.taints),
            allows_unusual_prices=True,
        )

    def candidate(self, source: Source, offer: Offer, daemons: Collection[PodShape], *, zoned: bool) -> Candidate:
        """The offer as the pool would buy it. `zoned`: whether the source divides its regions into zones."""
        name = offer.node_name
        amounts = Resources({**_default_amounts(), **offer.allocatable})
        node = Node(
            name=name or "",
            uid="",
            resource_version=0,
            created=_LONG_AGO,
            labels=self._node_labels(offer, zoned=zoned),
            taints=tuple(dict.fromkeys((*self._lasting(offer.taints), *self.taints))),
            capacity=amounts,
            allocatable=amounts,
            ready=False,
        )
        if daemons:
            node = msgspec.structs.replace(node, allocatable=amounts - daemon_overhead(node, daemons))
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

    def _lasting(self, taints: Iterable[Taint]) -> Iterable[Taint]:
        """Without startup taints that a machine still had when it was powered off."""
        passing = {(each.key, each.effect) for each in self.startup_taints}
        return (each for each in taints if (each.key, each.effect) not in passing)

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

    def refuses(self, source: Source, candidate: Candidate, unusual: str | None) -> Refusal | None:
        """Reason and sentence why the pool, its class or the source does not allow the candidate, or None.

        `unusual`: what is unusual about its price.
        """
        offer = candidate.offer
        if self.refusal is not None:
            return Reason.NOT_ALLOWED, f"{self._pool_name} may not have it: {self.refusal.sentence}"
        if not source.enabled:
            return Reason.PROVIDER_DISABLED, f"GPUNodeClass {self.node_class} has disabled {offer.provider}"
        if source.problem is not None:
            return (
                Reason.PROVIDER_NOT_SERVED,
                f"GPUNodeClass {self.node_class} cannot be used with {offer.provider}: {source.problem.rstrip('.')}",
            )
        if self.most is not None and offer.price > self.most:
            return Reason.PRICE_TOO_HIGH, f"costs more than {self.most}, the maxHourlyPrice of {self._pool_name}"
        if unusual is not None and not self.allows_unusual_prices:
            return (
                Reason.PRICE_UNUSUAL,
                f"{unusual}: {self._pool_name} does not buy such offers unless it has unusualPrices: Allow",
            )
        if why := self._not_allowed(offer):
            return Reason.NOT_ALLOWED, f"GPUNodeClass {self.node_class} {why}"
        labels = candidate.node.labels
        unmet = next((each for each in self.requirements if not each.matches(labels)), None)
        if unmet is None:
            return None
        wanted = unmet.values if unmet.key in GPU_TYPE_KEYS and unmet.operator is LabelOperator.IN else ()
        return Reason.NOT_ALLOWED, f"{self._pool_name} requires {unmet}{unknown_models(wanted)}"

    def _not_allowed(self, offer: Offer) -> str | None:
        wanted = self.wanted
        regions = self.regions.get(offer.provider) or frozenset()
        for allowed in (regions, frozenset(wanted.regions)):
            if allowed and not allowed & {offer.region, offer.zone}:
                return f"allows {offer.provider} only in {', '.join(sorted(allowed))}"
        if offer.spot and not wanted.spot_allowed:
            return "does not allow spot: set instanceRequirements.spotAllowed"
        if self.gpu_types and canonical(offer.gpu_type or "", offer.gpu_memory_gib) not in self.gpu_types:
            return f"allows only the GPU types {', '.join(wanted.gpu_types)}{unknown_models(wanted.gpu_types)}"
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


def _taints(entries: Iterable[TaintEntry]) -> tuple[Taint, ...]:
    return tuple(Taint(each.key, each.value or "", each.effect.value) for each in entries)


def _canonical(requirement: Requirement) -> Requirement:
    """The requirement with canonical GPU models, as nodes are labelled: users may write any name."""
    if requirement.key not in GPU_TYPE_KEYS:
        return requirement
    values = sorted({label_value(model) for name in requirement.values for model in matching_models(name)})
    return Requirement(requirement.key, requirement.operator, tuple(values))


def _default_amounts() -> dict[str, int]:
    return {CPU: AMPLE, "memory": AMPLE, "ephemeral-storage": AMPLE, POD_COUNT: _PODS_PER_NODE}


def _amount(offer: Offer, resource: str) -> int:
    return offer.allocatable.get(resource, AMPLE)
