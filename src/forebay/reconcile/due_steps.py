"""What is due for each GPUInstance, and for what runs without one."""

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
    """The pools (and "", "" for machines of none) in which nothing is given up as unhealthy now, with the reason."""
    by_pool: defaultdict[Pool, list[GPUInstance]] = defaultdict(list)
    for record in snapshot.records:
        by_pool[_pool(record)].append(record)
    found = {pool: replacement_paused(records, snapshot.nodes) for pool, records in by_pool.items()}
    return {pool: why for pool, why in found.items() if why is not None}


class DueSteps(NamedTuple):
    steps: list[AnyStep]
    #: When the next may be due without any news.
    look_again: datetime | None
    #: Records that could not be thought about, which is a fault of ours: the others must not suffer for it.
    faults: Mapping[str, Exception]


def due_steps(snapshot: Snapshot, paused: Mapping[Pool, str]) -> DueSteps:
    """At most one for each record."""
    pools = {pool.key for pool in snapshot.pools}
    classes = {each.metadata.name for each in snapshot.classes if each.metadata.deletion_timestamp is None}
    waiting = {pod.uid for pod in snapshot.pending}
    machines = _owned_machines(snapshot.sources)
    steps: list[AnyStep] = []
    due: list[datetime] = []
    faults: dict[str, Exception] = {}
    for record in snapshot.records:
        if record.metadata.name in snapshot.busy:
            continue
        facts = _facts(record, snapshot, waiting, paused)
        facts = msgspec.structs.replace(facts, pool_exists=_belongs(record, pools, classes))
        named = machines.get(source_of(record))
        if named is not None and instance_id(record) not in named:
            # That no list shows it says nothing about it, and nobody could switch it off.
            facts = msgspec.structs.replace(facts, capabilities=None)
        try:
            step, at = _first(record) or step_or_wait(facts, snapshot.now)
        except Exception as fault:  # noqa: BLE001 (the boundary between records; the loop logs and counts it)
            faults[record.metadata.name] = fault
            continue
        if step is not None:
            steps.append(step)
        elif at is not None:
            due.append(at)
    return DueSteps(steps, min(due, default=None), faults)


def _first(record: GPUInstance) -> tuple[WriteStatus, None] | None:
    """Writes the status that the record was made with, where it has none yet."""
    begun = initial_status(record)
    if begun is None:
        return None
    sentence = begun.message or "What was known when the record was made."
    reason = Reason(begun.reason) if begun.reason is not None else Reason.CAPACITY_NEEDED
    return WriteStatus(record=record, reason=reason, sentence=sentence, status=begun), None


def adopt_orphans(snapshot: Snapshot) -> tuple[tuple[Adopt | DeleteRecord, ...], Orphans]:
    """Records to make; and records of machines that had gone and are on again, which must make room first."""
    sources = snapshot.sources.values()
    seen = orphans_seen(snapshot.memory.unclaimed, sources, snapshot.records)
    past = {each.metadata.name: each for each in snapshot.records if _is_past(each)}
    live = [each for each in snapshot.records if each.metadata.name not in past]
    found: list[Adopt | DeleteRecord] = []
    for adopt in adoptions(seen, sources, live, snapshot.nodes, snapshot.now):
        if adopt.name in past:
            sentence = f"Machine {adopt.name} is on again; this is the record of an earlier time."
            found.append(DeleteRecord(record=past[adopt.name], reason=Reason.ADOPTED, sentence=sentence))
        found.append(adopt)
    return tuple(found), seen


def _is_past(record: GPUInstance) -> bool:
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
        cordon_wait=snapshot.rules.drain_settle,
    )


def _owned_machines(sources: Mapping[SourceKey, Source]) -> dict[SourceKey, set[str]]:
    """Of the sources that have told which they have."""
    return {
        key: {offer.instance_type for offer in source.offers}
        for key, source in sources.items()
        if source.capabilities.delivers is Delivery.POWER and source.offers is not None
    }


def _belongs(record: GPUInstance, pools: set[Pool], classes: set[str]) -> bool:
    """The pool and the class that it was obtained for are there, and are to stay."""
    if record.spec.pool_ref is not None and _pool(record) not in pools:
        return False
    return record.spec.node_class_name is None or record.spec.node_class_name in classes


def _pool(record: GPUInstance) -> Pool:
    pool = record.spec.pool_ref
    return ("", "") if pool is None else (pool.namespace, pool.name)
