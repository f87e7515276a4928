"""Due lifecycle steps: at most one for each GPUInstance, and adoption of orphans (instances without a GPUInstance)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState, PoolRef
from forebay.api.names import STARTUP_TAINT
from forebay.demand.refusal import refusal_holds
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.next_step import step_or_wait
from forebay.lifecycle.orphans import Orphans, adoptions, orphans_seen
from forebay.lifecycle.record_fields import initial_status
from forebay.lifecycle.steps import Adopt, AnyStep, DeleteRecord, Launch, WriteStatus
from forebay.lifecycle.unhealthy_limit import replacement_paused
from forebay.model.fit import CORDON_TAINT, misfit
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery, Source, SourceKey
from forebay.model.spans import human
from forebay.planning.candidates import CandidateContext, candidates
from forebay.planning.plan import Candidate
from forebay.reconcile.orders import source_of
from forebay.reconcile.snapshot import OperatorRules, Snapshot

Pool = tuple[str, str]


def paused_replacements(snapshot: Snapshot) -> Mapping[Pool, str]:
    """Pools in which too many nodes are unhealthy for any to be replaced now, with the sentence why.

    The key ("", "") stands for machines without a pool.
    """
    by_pool: defaultdict[Pool, list[GPUInstance]] = defaultdict(list)
    for record in snapshot.records:
        by_pool[_pool(record)].append(record)
    found = {pool: replacement_paused(records, snapshot.nodes) for pool, records in by_pool.items()}
    return {pool: why for pool, why in found.items() if why is not None}


class DueSteps(NamedTuple):
    #: Of all GPUInstances.
    steps: tuple[AnyStep, ...]
    #: The steps to apply now: all but deletions of GPUInstances whose cost is not stored yet.
    allowed: tuple[AnyStep, ...]
    #: When the next step may be due without any change.
    requeue_at: datetime | None
    #: GPUInstances, by name, whose next step could not be computed because of a bug. The others go on.
    errors: Mapping[str, Exception]


def due_steps(snapshot: Snapshot, paused: Mapping[Pool, str]) -> DueSteps:
    """The next step of each GPUInstance that has one, by `lifecycle.next_step`."""
    pools = {pool.key for pool in snapshot.pools} | snapshot.unreadable_pools
    classes = {each.metadata.name for each in snapshot.classes if each.metadata.deletion_timestamp is None}
    classes |= snapshot.unreadable_classes
    waiting = {pod.uid for pod in snapshot.pending}
    owned_machines = _owned_machines(snapshot.sources)
    steps: list[AnyStep] = []
    due: list[datetime] = []
    errors: dict[str, Exception] = {}
    for record in snapshot.records:
        if record.metadata.name in snapshot.calls_in_flight:
            continue
        try:
            facts = _facts(record, snapshot, waiting, paused)
            facts = msgspec.structs.replace(facts, pool_exists=_owner_exists(record, pools, classes))
            configured = owned_machines.get(source_of(record))
            if configured is not None and instance_id(record) not in configured:
                # No longer configured: no listing can show the machine, and nobody can power it off.
                facts = msgspec.structs.replace(facts, capabilities=None)
            step, at = _initial_step(record) or step_or_wait(facts, snapshot.now)
        except Exception as error:  # noqa: BLE001 (the boundary between records; the loop logs and counts it)
            errors[record.metadata.name] = error
            continue
        if step is not None:
            steps.append(step)
        elif at is not None:
            due.append(at)
    postponed, next_power_on = _postponed_power_ons(snapshot, steps)
    if next_power_on is not None:
        due.append(next_power_on)
    allowed = (
        step
        for step in steps
        if step.record.metadata.name not in postponed
        and not (isinstance(step, DeleteRecord) and step.record.uid in snapshot.unrecorded_cost)
    )
    return DueSteps(tuple(steps), tuple(allowed), min(due, default=None), errors)


def _postponed_power_ons(snapshot: Snapshot, steps: Iterable[AnyStep]) -> tuple[set[str], datetime | None]:
    """Records (by name) whose power-on waits for the next interval, and when that begins: the oldest goes first."""
    interval = snapshot.rules.power_on_interval
    calls = [step for step in steps if isinstance(step, Launch) and step.record.spec.delivers is Delivery.POWER]
    if not interval or not calls:
        return set(), None
    latest = max(
        (
            record.status.attempted_at
            for record in snapshot.records
            if record.spec.delivers is Delivery.POWER
            and record.status is not None
            and record.status.attempted_at is not None
            # Afterwards it is the time of the power-off call.
            and record.state in (InstanceState.LAUNCHING, InstanceState.LAUNCHED)
        ),
        default=None,
    )
    if latest is not None and snapshot.now < latest + interval:
        return {step.record.metadata.name for step in calls}, latest + interval
    first = min(calls, key=lambda step: (step.record.metadata.creation_timestamp or snapshot.now, step.record.uid))
    return {step.record.metadata.name for step in calls if step is not first}, snapshot.now + interval


def _initial_step(record: GPUInstance) -> tuple[WriteStatus, None] | None:
    """Writes the status that the GPUInstance was created with, where its status is still empty.

    The API server drops the status from a create request, so it takes a second write.
    """
    status = initial_status(record)
    if status is None:
        return None
    sentence = status.message or "Initial status of the GPUInstance."
    reason = Reason(status.reason) if status.reason is not None else Reason.CAPACITY_NEEDED
    return WriteStatus(record=record, reason=reason, sentence=sentence, status=status), None


def adopt_orphans(snapshot: Snapshot) -> tuple[tuple[Adopt | DeleteRecord, ...], Orphans]:
    """Adoptions of orphans, and the orphans seen so far.

    An owned machine that is on again has its old GPUInstance (Gone) deleted first: both have the machine's name.
    """
    sources = snapshot.sources.values()
    seen = orphans_seen(snapshot.memory.orphans, sources, snapshot.records)
    previous = {each.metadata.name: each for each in snapshot.records if _is_previous_run(each)}
    live = [each for each in snapshot.records if each.metadata.name not in previous]
    found: list[Adopt | DeleteRecord] = []
    for adopt in _into_pools(snapshot, adoptions(seen, sources, live, snapshot.nodes, snapshot.now)):
        if adopt.name in previous:
            sentence = (
                f"Machine {adopt.name} is on again. This GPUInstance of its previous run is replaced by a new one."
            )
            found.append(DeleteRecord(record=previous[adopt.name], reason=Reason.ADOPTED, sentence=sentence))
        found.append(adopt)
    return tuple(found), seen


def _into_pools(snapshot: Snapshot, adopted: Sequence[Adopt]) -> Iterator[Adopt]:
    """The adoptions, those of owned machines into the pool that would buy them: its `disruption` holds for them too."""
    if not any(each.spec.delivers is Delivery.POWER for each in adopted):
        yield from adopted
        return
    # Neither nodes nor records: the machine is on, and is to be judged as if it were not.
    context = CandidateContext(now=snapshot.now, namespaces=snapshot.namespaces, remembered=snapshot.nodes)
    offering = candidates(snapshot.sources, snapshot.pools, snapshot.classes, context)
    best: dict[tuple[SourceKey, str], Candidate] = {}
    for each in sorted(offering.candidates, key=lambda each: (-each.weight, each.pool)):
        best.setdefault((each.source, each.offer.node_name or ""), each)
    for adopt in adopted:
        key = SourceKey(adopt.spec.node_class_name or "", adopt.spec.provider)
        candidate = best.get((key, adopt.name))
        yield adopt if adopt.spec.delivers is not Delivery.POWER else _into_pool(adopt, candidate, snapshot.rules)


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
    elif spec.node_class_name is None:
        following = f"Forebay powers it off when it is idle{grace}."
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


def _is_previous_run(record: GPUInstance) -> bool:
    return record.spec.delivers is Delivery.POWER and record.state is InstanceState.GONE


def _facts(record: GPUInstance, snapshot: Snapshot, waiting: set[str], paused: Mapping[Pool, str]) -> Facts:
    source = snapshot.sources.get(source_of(record))
    name = record.node_name
    pool = _pool(record)
    return Facts(
        record=record,
        capabilities=None if source is None else source.capabilities,
        listing=None if source is None else source.listing,
        node=None if name is None else snapshot.nodes.get(name),
        pods=() if name is None else snapshot.pods_by_node.get(name, ()),
        wanted=any(pod.uid in waiting for pod in record.spec.pods),
        needed=record.state is InstanceState.TERMINATING and _is_needed(record, snapshot),
        replacement_paused=pool in paused,
        cordon_wait=snapshot.rules.drain_delay,
    )


def _is_needed(record: GPUInstance, snapshot: Snapshot) -> bool:
    """Whether an unschedulable pod would fit on the node of a terminating GPUInstance, but for the cordon."""
    node = snapshot.nodes.get(record.node_name or "")
    accepted = record.status is not None and record.status.termination_accepted_at is not None
    if node is None or not node.ready or accepted:
        return False
    passing = (STARTUP_TAINT, CORDON_TAINT)
    taints = tuple(taint for taint in node.taints if taint.key not in passing)
    uncordoned = msgspec.structs.replace(node, unschedulable=False, taints=taints)
    return any(
        pod.unschedulable_since is not None
        and not refusal_holds(pod)
        and misfit(pod.shape, uncordoned, uncordoned.allocatable) is None
        for pod in snapshot.pending
    )


def _owned_machines(sources: Mapping[SourceKey, Source]) -> dict[SourceKey, set[str]]:
    """Names of the configured machines, for each source of owned machines whose offers are known."""
    return {
        key: {offer.instance_type for offer in source.offers}
        for key, source in sources.items()
        if source.capabilities.delivers is Delivery.POWER and source.offers is not None
    }


def _owner_exists(record: GPUInstance, pools: set[Pool], classes: set[str]) -> bool:
    """Whether the pool and the class of the GPUInstance exist and are not being deleted."""
    if record.spec.pool_ref is not None and _pool(record) not in pools:
        return False
    return record.spec.node_class_name is None or record.spec.node_class_name in classes


def _pool(record: GPUInstance) -> Pool:
    pool = record.spec.pool_ref
    return ("", "") if pool is None else (pool.namespace, pool.name)
