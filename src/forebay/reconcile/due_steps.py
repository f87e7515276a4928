"""Due lifecycle steps: at most one for each GPUInstance, and adoption of orphans (instances without a GPUInstance)."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.next_step import step_or_wait
from forebay.lifecycle.orphans import Orphans, adoptions, orphans_seen
from forebay.lifecycle.record_fields import initial_status
from forebay.lifecycle.steps import Adopt, AnyStep, DeleteRecord, WriteStatus
from forebay.lifecycle.unhealthy_limit import replacement_paused
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery, Source, SourceKey
from forebay.reconcile.orders import source_of
from forebay.reconcile.snapshot import Snapshot

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
    allowed = (
        step for step in steps if not (isinstance(step, DeleteRecord) and step.record.uid in snapshot.unrecorded_cost)
    )
    return DueSteps(tuple(steps), tuple(allowed), min(due, default=None), errors)


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
    for adopt in adoptions(seen, sources, live, snapshot.nodes, snapshot.now):
        if adopt.name in previous:
            sentence = (
                f"Machine {adopt.name} is on again. This GPUInstance of its previous run is replaced by a new one."
            )
            found.append(DeleteRecord(record=previous[adopt.name], reason=Reason.ADOPTED, sentence=sentence))
        found.append(adopt)
    return tuple(found), seen


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
        replacement_paused=pool in paused,
        cordon_wait=snapshot.rules.drain_delay,
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
