"""Candidates: which offers each pool may buy, as the nodes they would become; and those it may not, with the reason."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.names import OPERATOR_NAMESPACE
from forebay.demand.maintenance import maintenance
from forebay.model.nodes import Node
from forebay.model.observed_capacity import with_observed_capacity, with_observed_size
from forebay.model.quantities import Resources
from forebay.model.reasons import Reason
from forebay.model.sources import CooldownKey, Source, SourceKey, cooldown_keys
from forebay.model.workloads import PodShape
from forebay.planning.plan import Candidate, Excluded, PoolKey
from forebay.planning.pool_policies import PoolPolicy, Refusal
from forebay.planning.usual_prices import RememberedPrices, UsualPrices

#: So many pairs of source and pool are remembered.
_MOST_REMEMBERED: Final = 1024


class CandidateSet(msgspec.Struct, frozen=True, kw_only=True):
    candidates: tuple[Candidate, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    #: Sources without known offers, with the error: for the sentences of pods that nothing else fits.
    unknown: tuple[str, ...] = ()


class CoolingDown(NamedTuple):
    """An offer, zone or source that is not tried now."""

    until: datetime
    #: What failed, and when.
    cause: str


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
    #: Names of GPUInstances that cannot be read: an owned machine of such a name may be on.
    unreadable: Collection[str] = ()
    #: What nodes of each source and instance type last had for pods, as far as known: clouds state nominal sizes.
    observed: Mapping[tuple[SourceKey, str], Resources] = {}
    #: Offers, zones and sources that are not tried now: until when, and why.
    cooldowns: Mapping[CooldownKey, CoolingDown] = {}
    #: Pools of this namespace are the administrator's.
    operator_namespace: str = OPERATOR_NAMESPACE


def candidates(
    sources: Mapping[SourceKey, Source],
    pools: Iterable[GPUNodePool],
    classes: Iterable[GPUNodeClass],
    context: CandidateContext,
) -> CandidateSet:
    """Every offer of every source, for each pool of its class. Offers of containers are skipped: they are not nodes."""
    by_name = {each.metadata.name: each for each in classes if each.metadata.deletion_timestamp is None}
    policies: dict[str, list[PoolPolicy]] = {"": [PoolPolicy.without_pool()]}
    for pool in sorted(pools, key=lambda each: each.key):
        node_class = by_name.get(pool.spec.node_class_ref.name)
        if node_class is not None and pool.metadata.deletion_timestamp is None:
            policies.setdefault(node_class.metadata.name, []).append(
                PoolPolicy.of(pool, node_class, context.namespaces, context.operator_namespace)
            )
    in_use = _in_use(context)
    usual = _PRICES.of([source.offers for _, source in sorted(sources.items()) if source.offers is not None])
    cooling = any(each.until > context.now for each in context.cooldowns.values())
    blocks: list[tuple[Candidate, ...]] = []
    found: list[Candidate] = []
    excluded: list[Excluded] = []
    unknown: list[str] = []
    for key, source in sorted(sources.items()):
        if not any(each.has_node for each in source.capabilities.deliveries) or not policies.get(key.node_class):
            continue
        if source.offers is None:
            # Nothing would be bought of a provider that the class has disabled, whatever it offers.
            if source.enabled:
                unknown.append(f"{key.provider} of GPUNodeClass {key.node_class}: {source.error or 'not asked yet'}")
            continue
        for policy in policies[key.node_class]:
            observed = {kind: size for (of, kind), size in context.observed.items() if of == key}
            rented = _RENTED.of(source, policy, context.daemons, usual, observed)
            excluded += rented.excluded
            if not cooling:
                blocks.append(rented.candidates)
            for candidate in (*(rented.candidates if cooling else ()), *_owned(source, policy, context)):
                why = policy.refuses(source, candidate, None) or _unavailable(candidate, context, in_use)
                if why is None:
                    found.append(candidate)
                else:
                    excluded.append(Excluded(candidate=candidate, reason=why[0], sentence=why[1]))
    return CandidateSet(candidates=_JOINED.of(blocks, found), excluded=tuple(excluded), unknown=tuple(unknown))


def _owned(source: Source, policy: PoolPolicy, context: CandidateContext) -> Iterable[Candidate]:
    for offer in source.offers or ():
        name = offer.node_name
        if name is not None and source.delivery_of(offer).has_node:
            last_ready = context.remembered.get(name)
            observed = with_observed_capacity(offer, context.nodes.get(name) or last_ready, last_ready)
            yield policy.candidate(source, observed, context.daemons, zoned=True)


class _Rented(msgspec.Struct, frozen=True):
    """Candidates of one source and pool that follow from offers and pool alone."""

    # What they follow from.
    source: Source
    policy: PoolPolicy
    daemons: Collection[PodShape]
    usual: UsualPrices
    observed: Mapping[str, Resources]
    candidates: tuple[Candidate, ...]
    excluded: tuple[Excluded, ...]

    def holds_for(
        self,
        source: Source,
        policy: PoolPolicy,
        daemons: Collection[PodShape],
        usual: UsualPrices,
        observed: Mapping[str, Resources],
    ) -> bool:
        return (
            self.usual is usual
            and self.observed == observed
            and self.source.offers is source.offers
            and (self.source.enabled, self.source.priority) == (source.enabled, source.priority)
            and self.source.problem == source.problem
            and self.source.capabilities == source.capabilities
            and self.policy == policy
            and tuple(self.daemons) == tuple(daemons)
        )


class _RememberedCandidates:
    """Candidates of the last call, by source and pool: to make a thousand of them takes longer than most plans."""

    def __init__(self) -> None:
        self._known: dict[tuple[SourceKey, PoolKey], _Rented] = {}

    def of(
        self,
        source: Source,
        policy: PoolPolicy,
        daemons: Collection[PodShape],
        usual: UsualPrices,
        observed: Mapping[str, Resources],
    ) -> _Rented:
        key = (source.key, policy.pool)
        known = self._known.get(key)
        if known is None or not known.holds_for(source, policy, daemons, usual, observed):
            if len(self._known) > _MOST_REMEMBERED:
                self._known.clear()
            known = self._known[key] = _rented(source, policy, daemons, usual, observed)
        return known


def _rented(
    source: Source,
    policy: PoolPolicy,
    daemons: Collection[PodShape],
    usual: UsualPrices,
    observed: Mapping[str, Resources],
) -> _Rented:
    found: list[Candidate] = []
    excluded: list[Excluded] = []
    offers = source.offers or ()
    zoned = any(offer.zone for offer in offers)
    for offer in offers:
        if offer.node_name is not None or not source.delivery_of(offer).has_node:
            continue
        unusual = usual.unusual(offer)
        size = observed.get(offer.instance_type)
        sized = offer if size is None else with_observed_size(offer, size)
        candidate = policy.candidate(source, sized, daemons, zoned=zoned)
        why = policy.refuses(source, candidate, unusual)
        if why is None and candidate.available == 0:
            why = Reason.OUT_OF_STOCK, "its provider has none in stock"
        if why is not None:
            excluded.append(Excluded(candidate=candidate, reason=why[0], sentence=why[1]))
        else:
            found.append(candidate if unusual is None else msgspec.structs.replace(candidate, warning=unusual))
    return _Rented(source, policy, daemons, usual, observed, tuple(found), tuple(excluded))


class _JoinedBlocks:
    """The blocks of the last call as one tuple, which stays the same object while they do."""

    def __init__(self) -> None:
        self._last: tuple[Sequence[tuple[Candidate, ...]], tuple[Candidate, ...]] = ((), ())

    def of(self, blocks: Sequence[tuple[Candidate, ...]], others: Sequence[Candidate]) -> tuple[Candidate, ...]:
        known, joined = self._last
        if len(known) != len(blocks) or any(a is not b for a, b in zip(known, blocks, strict=True)):
            joined = tuple(each for block in blocks for each in block)
            self._last = (tuple(blocks), joined)
        return (*joined, *others) if others else joined


# The same offers and pools always give the same candidates, so it does not matter who asked before.
_RENTED: Final = _RememberedCandidates()
_PRICES: Final = RememberedPrices()
_JOINED: Final = _JoinedBlocks()


def _in_use(context: CandidateContext) -> frozenset[str]:
    """Nodes of owned machines that have a record: each machine is one node, and cannot be bought twice."""
    recorded = (record.node_name for record in context.records if record.state is not InstanceState.GONE)
    return frozenset(name for name in recorded if name is not None)


def _unavailable(candidate: Candidate, context: CandidateContext, in_use: Collection[str]) -> Refusal | None:
    offer = candidate.offer
    name = offer.node_name
    if name is not None:
        node = context.nodes.get(name)
        if name in context.unreadable:
            return Reason.UNREADABLE, f"its GPUInstance {name} cannot be read: correct or delete it, or upgrade Forebay"
        if name in in_use or (node is not None and node.ready):
            return Reason.OUT_OF_STOCK, "is already in use"
        if node is not None and not node.unschedulable and (why := maintenance(node)) is not None:
            return Reason.UNDER_MAINTENANCE, why
        if node is not None and node.unschedulable:
            return Reason.NOT_ALLOWED, f"its node is cordoned: run kubectl uncordon {name} to allow its use"
    cooldown = _cooldown(candidate, context)
    if cooldown is not None:
        return (
            Reason.COOLING_DOWN,
            f"is cooling down until {cooldown.until:%Y-%m-%d %H:%M:%S} UTC: {cooldown.cause}",
        )
    if candidate.available == 0:
        return Reason.OUT_OF_STOCK, "its provider has none in stock"
    return None


def _cooldown(candidate: Candidate, context: CandidateContext) -> CoolingDown | None:
    """The cooldown of the offer, its zone or its source that ends last."""
    if not context.cooldowns:
        return None
    pool = (candidate.pool.namespace, candidate.pool.name)
    keys = cooldown_keys(candidate.source, candidate.offer.key, pool)
    found = (each for key in keys if (each := context.cooldowns.get(key)) is not None and each.until > context.now)
    return max(found, key=lambda each: each.until, default=None)
