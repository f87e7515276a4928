"""Which offers each pool may buy, as the nodes they would be; and those it may not, with the reason."""

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
from forebay.model.gpu_models import canonical, meant
from forebay.model.label_syntax import label_value
from forebay.model.nodes import Node
from forebay.model.observed_capacity import as_learned
from forebay.model.quantities import CPU, Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirement_sets import Requirements
from forebay.model.requirements import LabelOperator, LabelSelector, Requirement, Taint
from forebay.model.sources import AMPLE, Delivery, Offer, OfferKey, Source, SourceKey
from forebay.model.workloads import POD_COUNT, PodShape
from forebay.planning.plan import Candidate, Excluded, PoolKey

#: Of machines that the environment names.
NO_POOL: Final = PoolKey("", "")

Cooling = Mapping[OfferKey, tuple[datetime, str]]

_MILLI: Final = 1000
_GIB: Final = 2**30
#: An offer states what is left for pods, a user what the machine is sold with: of 16 GiB, some 14 are left.
_LEFT_OF_MEMORY: Final = Fraction(85, 100)
_PODS_PER_NODE: Final = 110
_GPU_TYPE_KEYS: Final = (GPU_TYPE_LABEL, GPU_TYPE_LABEL.replace(f"{GROUP}/", PREDECESSOR_PREFIX))
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NO_LABELS: Final[Mapping[str, str]] = {}
_EVERY_NODE: Final = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


class Offering(msgspec.Struct, frozen=True, kw_only=True):
    candidates: tuple[Candidate, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    #: Why of some sources nothing is known: to be told to pods that nothing else takes.
    unknown: tuple[str, ...] = ()


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What offers are held against besides pools and classes."""

    now: datetime
    #: Labels by name of the namespace.
    namespaces: Mapping[str, Mapping[str, str]] = {}
    #: Nodes that are there; and owned machines as they were when last seen.
    nodes: Mapping[str, Node] = {}
    remembered: Mapping[str, Node] = {}
    #: One pod shape per DaemonSet.
    daemons: Collection[PodShape] = ()
    records: Collection[GPUInstance] = ()
    cooling: Cooling = {}


def candidates(
    sources: Mapping[SourceKey, Source], pools: Iterable[GPUNodePool], classes: Iterable[GPUNodeClass], world: World
) -> Offering:
    """Every offer of every source, for each pool of its class. Containers are not nodes and are left aside."""
    by_name = {each.metadata.name: each for each in classes if each.metadata.deletion_timestamp is None}
    buyers: dict[str, list[_Buyer]] = {"": [_Buyer.without_pool()]}
    for pool in sorted(pools, key=lambda each: each.key):
        node_class = by_name.get(pool.spec.node_class_ref.name)
        if node_class is not None and pool.metadata.deletion_timestamp is None:
            buyers.setdefault(node_class.metadata.name, []).append(_Buyer.of(pool, node_class, world.namespaces))
    in_use = _in_use(world)
    found: list[Candidate] = []
    excluded: list[Excluded] = []
    unknown: list[str] = []
    for key, source in sorted(sources.items()):
        if source.capabilities.delivers is Delivery.CONTAINER or not buyers.get(key.node_class):
            continue
        if source.offers is None:
            where = f"of GPUNodeClass {key.node_class}" if key.node_class else "that the environment names"
            unknown.append(f"{key.provider} {where}: {source.error or 'it has not been asked yet'}")
            continue
        for offer in source.offers:
            for buyer in buyers[key.node_class]:
                candidate = buyer.candidate(source, offer, world)
                why = buyer.refuses(source, candidate) or _not_now(candidate, world, in_use)
                if why is None:
                    found.append(candidate)
                else:
                    excluded.append(Excluded(candidate=candidate, reason=why[0], sentence=why[1]))
    return Offering(candidates=tuple(found), excluded=tuple(excluded), unknown=tuple(unknown))


_Why = tuple[Reason, str]


def _in_use(world: World) -> frozenset[str]:
    """Owned machines that are on, or that something is done about: each is one node only."""
    recorded = (record.node_name for record in world.records if record.state is not InstanceState.GONE)
    return frozenset(name for name in recorded if name is not None)


def _not_now(candidate: Candidate, world: World, in_use: Collection[str]) -> _Why | None:
    offer = candidate.offer
    name = offer.node_name
    if name is not None:
        node = world.nodes.get(name)
        if name in in_use or (node is not None and node.ready):
            return Reason.OUT_OF_STOCK, "it is on already, or on its way, and has no room for the pod"
        if node is not None and node.unschedulable:
            return Reason.NOT_ALLOWED, f"its node is cordoned: run kubectl uncordon {name} to let it be used"
    cooling = world.cooling.get(offer.key)
    if cooling is not None and cooling[0] > world.now:
        return Reason.COOLING_DOWN, f"it is left alone until {cooling[0]:%H:%M:%S} UTC: {cooling[1].rstrip('.')}"
    if candidate.available == 0:
        return Reason.OUT_OF_STOCK, "its provider has none of it now"
    return None


class _Buyer(msgspec.Struct, frozen=True, kw_only=True):
    """A pool with its class, as offers are held against it; or nobody's pool, for machines of the environment."""

    pool: PoolKey
    node_class: str = ""
    weight: int = 10
    namespaces: frozenset[str] | None = None
    most: UsdPerHour | None = None
    wanted: InstanceRequirements = InstanceRequirements()
    gpu_types: frozenset[str] = frozenset()
    #: By provider; none: everywhere.
    regions: Mapping[str, frozenset[str]] = {}
    requirements: tuple[Requirement, ...] = ()
    allowed: Requirements = Requirements()
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()

    @classmethod
    def without_pool(cls) -> "_Buyer":
        return cls(pool=NO_POOL, wanted=InstanceRequirements(spot_allowed=True))

    @classmethod
    def of(cls, pool: GPUNodePool, node_class: GPUNodeClass, namespaces: Mapping[str, Mapping[str, str]]) -> "_Buyer":
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
            gpu_types=frozenset(model for name in wanted.gpu_types for model in meant(name)),
            regions={each.name: frozenset(each.regions) for each in node_class.spec.providers},
            requirements=requirements,
            allowed=Requirements(requirements),
            labels=spec.template.metadata.labels if spec.template.metadata is not None else _NO_LABELS,
            taints=tuple(Taint(taint.key, taint.value or "", taint.effect.value) for taint in nodes.taints),
        )

    def candidate(self, source: Source, offer: Offer, world: World) -> Candidate:
        name = offer.node_name
        if name is not None:
            offer = as_learned(offer, world.nodes.get(name) or world.remembered.get(name))
        amounts = Resources({**_always_there(), **offer.allocatable})
        node = Node(
            name=name or "",
            uid="",
            resource_version=0,
            created=_LONG_AGO,
            labels=self._node_labels(offer),
            taints=tuple(dict.fromkeys((*offer.taints, *self.taints))),
            capacity=amounts,
            allocatable=amounts,
            ready=False,
        )
        if world.daemons:
            node = msgspec.structs.replace(node, allocatable=amounts - daemon_overhead(node, world.daemons))
        return Candidate(
            pool=self.pool,
            source=source.key,
            offer=offer,
            node=node,
            effective_price=UsdPerHour.from_units(offer.price.units * (10 + source.priority) // 10),
            available=offer.stock if name is None else min(1, 1 if offer.stock is None else offer.stock),
            weight=self.weight,
            namespaces=self.namespaces,
        )

    def _node_labels(self, offer: Offer) -> Mapping[str, str]:
        """Whoever brings the node in puts these on it. `tgp.io/...` means the same as `forebay.dev/...`."""
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
        if offer.zone:
            labels["topology.kubernetes.io/zone"] = label_value(offer.zone)
        return {**_EVERY_NODE, **labels, **offer.labels, **self.labels}

    def refuses(self, source: Source, candidate: Candidate) -> _Why | None:
        """Why the pool, its class or the source does not allow it."""
        offer = candidate.offer
        if not source.enabled:
            return Reason.PROVIDER_DISABLED, f"GPUNodeClass {self.node_class} has disabled {offer.provider}"
        if self.most is not None and offer.price > self.most:
            return Reason.PRICE_TOO_HIGH, f"it costs more than {self.most}, the maxHourlyPrice of {self._pool_name}"
        if why := self._not_allowed(offer):
            return Reason.NOT_ALLOWED, f"GPUNodeClass {self.node_class} {why}"
        labels = candidate.node.labels
        if not self.allowed.allows(labels):
            unmet = next(str(each) for each in self.requirements if not each.matches(labels))
            return Reason.NOT_ALLOWED, f"{self._pool_name} requires {unmet}"
        return None

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
            return f"wants at least {wanted.min_vcpu} vCPUs"
        if wanted.min_memory_gib is not None and (
            _amount(offer, "memory") < wanted.min_memory_gib * _GIB * _LEFT_OF_MEMORY
        ):
            return f"wants at least {wanted.min_memory_gib} GiB of memory"
        if wanted.min_gpu_memory_gib is not None and (offer.gpu_memory_gib or 0) < wanted.min_gpu_memory_gib:
            return f"wants GPUs of at least {wanted.min_gpu_memory_gib} GiB"
        return None

    @property
    def _pool_name(self) -> str:
        return f"GPUNodePool {self.pool.namespace}/{self.pool.name}"


def _canonical(requirement: Requirement) -> Requirement:
    """Users may call GPU models by any name; nodes are labelled with ours."""
    if requirement.key not in _GPU_TYPE_KEYS:
        return requirement
    values = sorted({label_value(model) for name in requirement.values for model in meant(name)})
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


def _always_there() -> dict[str, int]:
    return {CPU: AMPLE, "memory": AMPLE, "ephemeral-storage": AMPLE, POD_COUNT: _PODS_PER_NODE}


def _amount(offer: Offer, resource: str) -> int:
    return offer.allocatable.get(resource, AMPLE)
