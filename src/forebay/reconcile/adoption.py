"""Adoption of orphans: instances at a provider that have no GPUInstance get one."""

from collections.abc import Iterator, Sequence

import msgspec

from forebay.api.gpu_instance import GPUInstance, PoolRef
from forebay.demand.planned_pods import is_gone
from forebay.lifecycle.deliveries.policies import policy_for, policy_of
from forebay.lifecycle.facts import may_take_effect_late
from forebay.lifecycle.orphans import Orphans, RecordedInstances, adoptions, orphans_seen, powered_on_late
from forebay.lifecycle.steps import Adopt, DeleteRecord
from forebay.model.kept import among, kept
from forebay.model.reasons import Reason
from forebay.model.sources import SourceKey
from forebay.model.spans import human
from forebay.planning.candidates import CandidateContext, candidates
from forebay.planning.plan import Candidate
from forebay.reconcile.rented_groups import into_groups
from forebay.reconcile.snapshot import OperatorRules, Snapshot


def adopt_orphans(snapshot: Snapshot) -> tuple[tuple[Adopt | DeleteRecord, ...], Orphans]:
    """Adoptions of orphans, and the orphans seen so far.

    An owned machine that is on again has its old GPUInstance (Gone) deleted first: both have the machine's name.
    """
    sources = snapshot.sources.values()
    previous = {each.metadata.name: each for each in among(snapshot.records, _is_previous_run)}
    recorded = _recorded_instances(snapshot.records)
    seen = orphans_seen(snapshot.memory.orphans, sources, recorded)
    found: list[Adopt | DeleteRecord] = []
    by_late_calls: set[str] = set()
    made = adoptions(seen, sources, recorded, snapshot.nodes, snapshot.now)
    for adopt in into_groups(snapshot, _into_pools(snapshot, made)):
        if snapshot.unreadable_records and (
            not policy_for(adopt.spec.delivers).configured_by_name or adopt.name in snapshot.unreadable_records
        ):
            # What seems to have no GPUInstance may be the instance of one that cannot be read.
            continue
        if adopt.name in previous:
            sentence = (
                f"Machine {adopt.name} is on again. This GPUInstance of its previous run is replaced by a new one."
            )
            found.append(DeleteRecord(record=previous[adopt.name], reason=Reason.ADOPTED, sentence=sentence))
            late = may_take_effect_late(previous[adopt.name])
        else:
            late = adopt.name in snapshot.memory.orphans.powered_on_late
        if late:
            by_late_calls.add(adopt.name)
        found.append(powered_on_late(adopt) if late else adopt)
    return tuple(found), msgspec.structs.replace(seen, powered_on_late=frozenset(by_late_calls))


def _into_pools(snapshot: Snapshot, adopted: Sequence[Adopt]) -> Iterator[Adopt]:
    """The adoptions, those of owned machines into the pool that would buy them: its `disruption` holds for them too."""
    if not adopted:
        return
    # Neither nodes nor records: the machine is on, and is to be judged as if it were not.
    context = CandidateContext(
        now=snapshot.now,
        namespaces=snapshot.namespaces,
        remembered=snapshot.nodes,
        operator_namespace=snapshot.rules.namespace,
    )
    offering = candidates(snapshot.sources, snapshot.pools, snapshot.classes, context)
    best: dict[tuple[SourceKey, str], Candidate] = {}
    for each in sorted(offering.candidates, key=lambda each: (-each.weight, each.pool)):
        best.setdefault((each.source, each.offer.node_name or ""), each)
    for adopt in adopted:
        key = SourceKey(adopt.spec.node_class_name or "", adopt.spec.provider)
        candidate = best.get((key, adopt.name))
        stays = policy_for(adopt.spec.delivers).adopted_when_found
        yield _into_pool(adopt, candidate, snapshot.rules) if stays else adopt


def _into_pool(adopt: Adopt, candidate: Candidate | None, rules: OperatorRules) -> Adopt:
    """The adoption with its pool and that pool's labels, and with what comes next in its sentence."""
    spec, grace = adopt.spec, f", not within {human(rules.adoption_grace)}" if rules.adoption_grace else ""
    if candidate is not None and candidate.pool.name:
        pool = candidate.pool
        # Not the pool's taints: the pods that run there now may not tolerate them.
        node = msgspec.structs.replace(spec.node, labels=dict(candidate.node.labels)) if spec.node else None
        reference = PoolRef(namespace=pool.namespace, name=pool.name)
        spec = msgspec.structs.replace(spec, pool_ref=reference, node=node)
        following = f"GPUNodePool {pool.namespace}/{pool.name} says when it is powered off{grace}."
    else:
        following = f"No GPUNodePool of class {spec.node_class_name} uses it, so Forebay does not power it off."
    sentence = f"{adopt.sentence} {following}"
    spec = msgspec.structs.replace(spec, why=sentence)
    first = adopt.status.transitions[-1]
    status = msgspec.structs.replace(
        adopt.status,
        message=sentence,
        transitions=(*adopt.status.transitions[:-1], msgspec.structs.replace(first, message=sentence)),
    )
    return msgspec.structs.replace(adopt, spec=spec, status=status, sentence=sentence)


@kept
def _recorded_instances(records: tuple[GPUInstance, ...]) -> RecordedInstances:
    return RecordedInstances(records, besides=[each.metadata.name for each in among(records, _is_previous_run)])


def _is_previous_run(record: GPUInstance) -> bool:
    return is_gone(record) and policy_of(record).configured_by_name
