"""Due lifecycle steps: at most one for each GPUInstance."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_class import EndpointsFrom, GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.names import STARTUP_TAINT
from forebay.demand.planned_pods import live_containers
from forebay.demand.refusal import refusal_holds
from forebay.lifecycle.cooldown import Cooldown, cooldowns, offer_key, without_usable_nodes
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.facts import (
    Facts,
    instance_id,
    kept_by,
    machine_sources,
    serving_source,
    source_of,
)
from forebay.lifecycle.group_members import left_in_group
from forebay.lifecycle.late_nodes import cordon_late_node
from forebay.lifecycle.next_step import step_or_wait
from forebay.lifecycle.node_identity import is_stranger
from forebay.lifecycle.record_fields import initial_status
from forebay.lifecycle.steps import AnyStep, DeleteRecord, WriteStatus
from forebay.lifecycle.transitions import cause
from forebay.lifecycle.unhealthy_limit import replacement_paused
from forebay.model.fit import CORDON_TAINT, misfit
from forebay.model.kept import KeptMapping, KeptTuple, among, kept
from forebay.model.nodes import Node
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import CooldownKey, Source, SourceKey, SourcePoolKey, cooldown_keys
from forebay.model.workloads import Pod
from forebay.reconcile.call_pace import postponed_calls
from forebay.reconcile.provider_accounts import ProviderAccounts
from forebay.reconcile.room_elsewhere import RoomElsewhere, movable_pods
from forebay.reconcile.settled import LASTING, Settled, SettledRecord
from forebay.reconcile.snapshot import OperatorRules, Snapshot, revisions
from forebay.reconcile.wanted import Wanted
from forebay.reconcile.withdrawn_orders import withdrawn_orders

Pool = tuple[str, str]
_ENDING: Final = (InstanceState.DRAINING, InstanceState.TERMINATING)
_BOOTING: Final = (InstanceState.LAUNCHED, InstanceState.JOINED)
#: States in which a machine or container that is no longer wanted is ended for that alone.
_ASKED_IF_WANTED: Final = frozenset(
    {
        InstanceState.REQUESTED,
        InstanceState.LAUNCHING,
        InstanceState.LAUNCHED,
        InstanceState.RUNNING,
        InstanceState.FINISHED,
    }
)


def paused_replacements(snapshot: Snapshot) -> Mapping[Pool, str]:
    """Pools in which too many nodes are unhealthy for any to be replaced now, with the sentence why.

    The key ("", "") stands for machines without a pool, ("", NAME) for those of a NodeProvisioner.
    """
    return _paused(snapshot.records, snapshot.nodes)


@kept
def _paused(records: tuple[GPUInstance, ...], nodes: Mapping[str, Node]) -> Mapping[Pool, str]:
    by_pool: defaultdict[Pool, list[GPUInstance]] = defaultdict(list)
    for record in records:
        if not record.in_instance_group:
            by_pool[kept_by(record)].append(record)
    found = {pool: replacement_paused(each, nodes) for pool, each in by_pool.items()}
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
    #: GPUInstances without a step, for the next tick.
    settled: Settled
    #: The other GPUInstances: those that this tick looked at.
    looked_at: tuple[GPUInstance, ...]


def due_steps(snapshot: Snapshot, paused: Mapping[Pool, str]) -> DueSteps:
    """The next step of each GPUInstance that has one, by `lifecycle.next_step`."""
    context = _context(snapshot, paused)
    seen = _seen(snapshot)
    settled, looked_at = _still_settled(snapshot, context, seen)
    by_key = {pool.key: pool for pool in snapshot.pools}
    pools = by_key.keys() | snapshot.unreadable_pools
    classes = {each.metadata.name for each in snapshot.classes if each.metadata.deletion_timestamp is None}
    classes |= snapshot.unreadable_classes
    wanted, accounts = Wanted(snapshot), ProviderAccounts(snapshot)
    groups = {each.metadata.name: each.spec.existing_instance_group_names for each in snapshot.provisioners}
    provisioners = groups.keys() | snapshot.unreadable_provisioners
    machines = machine_sources(snapshot.sources) if looked_at else {}
    cooling = _cooling_down(snapshot)
    withdrawn = withdrawn_orders(snapshot)
    steps: list[AnyStep] = []
    newly_settled: dict[str, SettledRecord] = {}
    due: list[datetime] = []
    errors: dict[str, Exception] = {}
    for record in looked_at:
        name = record.metadata.name
        if name in snapshot.unreadable_records:
            continue
        if name in snapshot.calls_in_flight:
            if (cordon := cordon_late_node(record, _own_node(record, snapshot))) is not None:
                steps.append(cordon)
            continue
        try:
            source = serving_source(record, machines)
            facts = accounts.told(_facts(record, snapshot, source, wanted, paused), source)
            facts = msgspec.structs.replace(
                facts,
                pool_exists=(record.spec.pool_ref is None or record.pool_key in pools)
                and (record.spec.provisioner_ref is None or record.spec.provisioner_ref.name in provisioners),
                class_exists=not source.node_class or source.provisioner is not None or source.node_class in classes,
                gpu_count_variable=_gpu_count_variable(record, snapshot.rules)
                if not source.node_class or source.node_class in _of_environment(snapshot.classes)
                else None,
                cooling_down=_cooldown_of(record, cooling) if cooling else None,
                withdrawn=withdrawn.get(record.uid),
                most_hourly_price=_most_hourly_price(record, by_key.get(record.pool_key)),
            )
            if _is_unconfigured(record, snapshot.sources.get(source), machines):
                # No longer configured: no listing can show the machine, and nobody can power it off.
                facts = msgspec.structs.replace(facts, capabilities=None)
            step, at = (
                _initial_step(record) or _left_in_group(facts, groups, snapshot) or step_or_wait(facts, snapshot.now)
            )
        except Exception as error:  # noqa: BLE001 (the boundary between records; the loop logs and counts it)
            errors[name] = error
            continue
        if step is not None:
            steps.append(step)
            continue
        if record.state in LASTING:
            newly_settled[name] = _settled(record, snapshot, source, at)
        elif at is not None:
            due.append(at)
    postponed, next_call = postponed_calls(snapshot, steps)
    if next_call is not None:
        due.append(next_call)
    allowed = (
        step
        for step in steps
        if step.record.metadata.name not in postponed
        and not (isinstance(step, DeleteRecord) and step.record.uid in snapshot.unrecorded_cost)
    )
    after = _after(snapshot, context, seen, settled, newly_settled)
    if after.until is not None:
        due.append(after.until)
    return DueSteps(
        steps=tuple(steps),
        allowed=tuple(allowed),
        requeue_at=min(due, default=None),
        errors=errors,
        settled=after,
        looked_at=looked_at,
    )


def _seen(snapshot: Snapshot) -> tuple[object, ...]:
    """All that a settled GPUInstance is compared with. Only collections that never change can be told by identity."""
    of_containers = (snapshot.container_pods,) if snapshot.container_pods else ()
    kept_objects = (snapshot.records, snapshot.nodes, snapshot.pods_by_node, *of_containers)
    if not all(isinstance(each, KeptTuple | KeptMapping) for each in kept_objects):
        return (object(),)
    return (*kept_objects, *snapshot.sources.values())


def _after(
    snapshot: Snapshot,
    context: tuple[object, ...],
    seen: tuple[object, ...],
    settled: Mapping[str, SettledRecord],
    newly: Mapping[str, SettledRecord],
) -> Settled:
    """The settled GPUInstances, for the next tick."""
    before = snapshot.memory.settled
    if settled is before.records and not newly:
        return msgspec.structs.replace(before, at=snapshot.now)
    records = {**settled, **newly}
    return Settled(
        at=snapshot.now,
        context=context,
        records=records,
        seen=seen,
        unsettled=tuple(record for record in snapshot.records if record.metadata.name not in records),
        until=min((each.until for each in records.values() if each.until is not None), default=None),
    )


def _context(snapshot: Snapshot, paused: Mapping[Pool, str]) -> tuple[object, ...]:
    """What the next step of any GPUInstance depends on, besides the objects of its own."""
    return (
        # Which source serves an owned machine. The rest of its source is compared for each GPUInstance.
        tuple((key, source.offers) for key, source in snapshot.sources.items()),
        snapshot.classes,
        snapshot.pools,
        snapshot.provisioners,
        snapshot.unreadable_classes,
        snapshot.unreadable_pools,
        snapshot.unreadable_provisioners,
        frozenset(paused),
        snapshot.rules,
    )


def _settled(record: GPUInstance, snapshot: Snapshot, served_by: SourceKey, until: datetime | None) -> SettledRecord:
    node, pods = snapshot.nodes.get(record.node_name or ""), _own_pods(record, snapshot)
    return SettledRecord(record, node, pods, served_by, snapshot.sources.get(served_by), until)


def _own_pods(record: GPUInstance, snapshot: Snapshot) -> tuple[Pod, ...] | Pod | None:
    """The pods on its node; of a container the pod that it runs, unless another container is to run that."""
    if record.state is not InstanceState.RUNNING:
        return snapshot.pods_by_node.get(record.node_name or "", ())
    uid = next((pod.uid for pod in record.spec.pods), "")
    return snapshot.container_pods.get(uid) if live_containers(snapshot.records).get(uid) is record else None


def _still_settled(
    snapshot: Snapshot, context: tuple[object, ...], seen: tuple[object, ...]
) -> tuple[Mapping[str, SettledRecord], tuple[GPUInstance, ...]]:
    """The GPUInstances that are settled as they were, by name, and those to look at."""
    last = snapshot.memory.settled
    before = last.still(snapshot.now, context)
    if not before:
        return {}, snapshot.records
    if not (snapshot.calls_in_flight or snapshot.unreadable_records) and last.as_seen(snapshot.now, context, seen):
        return before, last.unsettled
    now, nodes, sources = snapshot.now, snapshot.nodes, snapshot.sources
    excluded = snapshot.calls_in_flight | snapshot.unreadable_records.keys()
    settled: dict[str, SettledRecord] = {}
    looked_at: list[GPUInstance] = []
    for record in snapshot.records:
        name = record.metadata.name
        known = before.get(name)
        if (
            known is not None
            and known.record is record
            and known.node is nodes.get(record.node_name or "")
            and known.pods is _own_pods(record, snapshot)
            and known.source is sources.get(known.served_by)
            and (known.until is None or now < known.until)
            and name not in excluded
        ):
            settled[name] = known
        else:
            looked_at.append(record)
    return settled, tuple(looked_at)


def _left_in_group(
    facts: Facts, groups: Mapping[str, Collection[str]], snapshot: Snapshot
) -> tuple[AnyStep, None] | None:
    """The end of the record of a member whose NodeProvisioner was deleted, or no longer names its group."""
    reference = facts.record.spec.provisioner_ref
    if reference is None or not facts.record.in_instance_group or facts.record.state is InstanceState.GONE:
        return None
    if reference.name in snapshot.unreadable_provisioners or reference.group in groups.get(reference.name, ()):
        return None
    return left_in_group(facts, snapshot.now), None


def _cooling_down(snapshot: Snapshot) -> Mapping[CooldownKey, Cooldown]:
    """What is cooling down, where a GPUInstance waits for its launch."""
    if not among(snapshot.records, _is_requested):
        return {}
    return cooldowns(snapshot.records, snapshot.now, revisions(snapshot))


def _is_requested(record: GPUInstance) -> bool:
    return record.state is InstanceState.REQUESTED


def _cooldown_of(record: GPUInstance, cooling: Mapping[CooldownKey, Cooldown]) -> str | None:
    own = offer_key(record)
    if own is None or record.state is not InstanceState.REQUESTED:
        return None
    keys = cooldown_keys(source_of(record), own, kept_by(record))
    return next((cooling[key].sentence for key in keys if key in cooling), None)


def _most_hourly_price(record: GPUInstance, pool: GPUNodePool | None) -> UsdPerHour | None:
    """What the pool of a machine that is booting allows. One that serves stays, whatever the pool allows later."""
    if pool is None or record.state is not InstanceState.LAUNCHED:
        return None
    return UsdPerHour(pool.spec.max_hourly_price)


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


@kept
def _of_environment(classes: tuple[GPUNodeClass, ...]) -> frozenset[str]:
    """The classes that the operator's environment variables configure."""
    return frozenset(
        each.metadata.name
        for each in classes
        if any(entry.endpoints_from is EndpointsFrom.ENVIRONMENT for entry in each.spec.providers)
    )


def _gpu_count_variable(record: GPUInstance, rules: OperatorRules) -> str:
    machine = record.metadata.name
    return rules.gpu_count_variables.get(machine, f"..._GPU_COUNT beside ..._NAME={machine}")


def _own_node(record: GPUInstance, snapshot: Snapshot) -> Node | None:
    """The node of the machine; None where that of its name is another's."""
    node = snapshot.nodes.get(record.node_name or "")
    return None if node is None or is_stranger(record, node) else node


def _facts(
    record: GPUInstance, snapshot: Snapshot, served_by: SourceKey, wanted: Wanted, paused: Mapping[Pool, str]
) -> Facts:
    source = snapshot.sources.get(served_by)
    name = record.node_name
    node = None if name is None else snapshot.nodes.get(name)
    own = _own_node(record, snapshot)
    stranger = node if own is None else None
    return Facts(
        record=record,
        capabilities=None if source is None else source.capabilities,
        listing=None if source is None else source.listing,
        node=own,
        stranger=stranger,
        pods=() if name is None or stranger is not None else snapshot.pods_by_node.get(name, ()),
        wanted=record.state not in _ASKED_IF_WANTED or wanted(record),
        gpu_resources=snapshot.rules.gpu_resources,
        needed=record.state in _ENDING and _is_needed(record, snapshot),
        replacement_paused=kept_by(record) in paused,
        others_unusable=record.state in _BOOTING
        and SourcePoolKey(*kept_by(record), *source_of(record)) in without_usable_nodes(snapshot.records),
        revision={} if source is None else source.revision,
        room_elsewhere=_has_room_elsewhere(record, snapshot),
        cordon_wait=snapshot.rules.drain_delay,
    )


def _has_room_elsewhere(record: GPUInstance, snapshot: Snapshot) -> bool:
    """Whether the pods on a node that is drained to save cost still fit on others. True of any other node."""
    if record.state is not InstanceState.DRAINING or record.status is None:
        return True
    if cause(record.status) != Reason.UNDERUTILIZED:
        return True
    pods = movable_pods(snapshot, [record])
    return not RoomElsewhere(snapshot, [record]).left(pods)


def _is_needed(record: GPUInstance, snapshot: Snapshot) -> bool:
    """Whether an unschedulable pod would fit on the node of an ending GPUInstance, but for the cordon."""
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


def _is_unconfigured(record: GPUInstance, source: Source | None, machines: Mapping[str, SourceKey]) -> bool:
    """Whether no source names the owned machine any more, though the offers of its own source are known."""
    known = source is not None and source.offers is not None
    return known and policy_of(record).configured_by_name and instance_id(record) not in machines
