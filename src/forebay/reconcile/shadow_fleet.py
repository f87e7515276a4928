"""The machines of a dry run: what would have been bought, and what would have been terminated or powered off.

A dry run changes nothing, so the next snapshot would lead to the same purchase again. `ShadowFleet` therefore lays what
was decided before over each snapshot: a machine that would have been bought is there and Ready at once, its pods run on
it, and a machine that would have been terminated is gone.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER
from forebay.budgets.bill_shares import billed
from forebay.demand.free_capacity import future_node
from forebay.demand.reservation import Reservations
from forebay.lifecycle.facts import instance_id, machine_sources, serving_source
from forebay.lifecycle.steps import Adopt, DeleteRecord, Drain, Launch, Terminate, WriteStatus
from forebay.lifecycle.transitions import whole_seconds
from forebay.model.nodes import Node
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Found, Instance, InstancePhase, Source, SourceKey
from forebay.model.workloads import Pod
from forebay.reconcile.decisions import CreateInstance, Decision, SetClassFinalizer
from forebay.reconcile.snapshot import Snapshot

_LEAVING: Final = frozenset({InstanceState.DRAINING, InstanceState.TERMINATING, InstanceState.GONE})
_SECOND: Final = timedelta(seconds=1)
#: Machines that are kept for receipts: at one a minute, more than a month of them.
_MOST_KEPT: Final = 50_000


class MachineTime(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a machine would have been on, or off, other than in reality."""

    name: str
    #: As namespace/name; "" where it has none.
    pool: str
    provider: str
    instance_type: str
    price: UsdPerHour
    since: datetime
    #: None: it lasts.
    until: datetime | None = None
    #: Of a purchase, for how many pods.
    pods: int = 0


class _Placement(msgspec.Struct, frozen=True):
    """A pod that would run on a machine of the dry run."""

    pod: Pod
    node: str
    since: datetime


class ShadowFleet:
    """What a dry run has decided so far, and how the cluster would look. Lives as long as the process."""

    def __init__(self, run_time: timedelta) -> None:
        """`run_time`: how long a pod is assumed to run that in reality gets no node."""
        self._run_time = run_time
        #: By name, GPUInstances of this dry run, and those of the cluster with what was decided about them.
        self._records: dict[str, GPUInstance] = {}
        #: Machines that are only imagined: name, and the number of their `MachineTime`.
        self._bought: dict[str, int] = {}
        #: Machines that run in reality and would be off: name, GPUInstance, and the number of their `MachineTime`.
        self._off: dict[str, tuple[GPUInstance, int]] = {}
        self._placed: dict[str, _Placement] = {}
        #: UIDs of pods that would have ended by now, and in reality still wait.
        self._ended: set[str] = set()
        #: UIDs of classes that would have Forebay's finalizer.
        self._held_classes: set[str] = set()
        self._made = 0
        self._purchases: dict[int, MachineTime] = {}
        self._savings: dict[int, MachineTime] = {}

    @property
    def purchases(self) -> Sequence[MachineTime]:
        """Machines that would have been bought."""
        return tuple(self._purchases.values())

    @property
    def savings(self) -> Sequence[MachineTime]:
        """Times of machines that run, and would have been off."""
        return tuple(self._savings.values())

    def overlay(
        self,
        real: Snapshot,
        find: Callable[[tuple[str, str]], Pod | None],
        pods_on: Callable[[str], tuple[Pod, ...]],
    ) -> Snapshot:
        """The snapshot as it would be. `find` returns a pod as it is in reality, by namespace and name; `pods_on` those
        on a node.
        """
        self._follow_records(real.records)
        self._follow_machines(real)
        self._follow_pods(real, find)
        off = self._nodes_off()
        nodes = {name: node for name, node in real.nodes.items() if name not in off}
        used, on_nodes = dict(real.used), dict(real.pods_by_node)
        for record in self._records.values():
            if record.node_name is not None and record.node_name not in on_nodes:
                on_nodes[record.node_name] = pods_on(record.node_name)
        for name in self._bought:
            record = self._records[name]
            planned = future_node(record, real.nodes.get(record.node_name or ""))
            if planned is not None:
                nodes[planned.name] = _ready(planned, real.now)
                used[planned.name], on_nodes[planned.name] = Resources(), ()
        placed: defaultdict[str, list[Pod]] = defaultdict(list)
        for each in self._placed.values():
            placed[each.node].append(replace(each.pod, node=each.node))
        for node, pods in placed.items():
            on_nodes[node] = (*on_nodes.get(node, ()), *pods)
            used[node] = sum((pod.shape.requests for pod in pods), start=used.get(node, Resources()))
        away = self._placed.keys() | self._ended
        records = tuple(self._records.values())
        return replace(
            real,
            classes=tuple(self._held(each) for each in real.classes),
            nodes=nodes,
            used=used,
            pods_by_node=on_nodes,
            pending=tuple(pod for pod in real.pending if pod.uid not in away),
            records=records,
            sources=self._sources(real.sources),
            # What was never written is not stored, and need not be.
            unrecorded_cost=frozenset(),
        )

    def apply(self, decisions: Iterable[Decision], reservations: Reservations, seen: Snapshot) -> None:
        """Takes note of what a tick decided on `seen`, the snapshot that `overlay` returned."""
        now = seen.now
        for decision in decisions:
            match decision:
                case CreateInstance() if decision.spec.delivers.has_node:
                    self._buy(decision.name, decision.spec, decision.sentence, now)
                case Adopt():
                    record = self._new_record(decision.name, decision.spec, decision.status, now)
                    self._records[decision.name] = record
                    if record.state in _LEAVING:
                        self._end(decision.name, now)
                case Launch():
                    record = decision.record
                    self._buy(record.metadata.name, record.spec, decision.sentence, now)
                case WriteStatus() | Terminate() | Drain():
                    self._step(decision, now)
                case DeleteRecord():
                    self._records.pop(decision.record.metadata.name, None)
                case SetClassFinalizer(present=True):
                    self._held_classes.add(decision.node_class.uid)
                case _:
                    pass
        nodes = {self._records[name].node_name for name in self._bought}
        for pod in seen.pending:
            reservation = reservations.placed.get(pod.uid)
            if reservation is not None and reservation.node in nodes:
                self._placed[pod.uid] = _Placement(pod, reservation.node, now)

    def _buy(self, name: str, spec: GPUInstanceSpec, sentence: str, now: datetime) -> None:
        status = GPUInstanceStatus(
            state=InstanceState.READY,
            reason=Reason.NODE_READY,
            message=sentence,
            since=whole_seconds(now),
            instance_id=f"dry-run-{self._made + 1}",
            node_name=spec.node.name if spec.node is not None else None,
            billed_from=whole_seconds(now),
        )
        record = self._records[name] = self._new_record(name, spec, status, now)
        self._bought[name] = self._made
        self._purchases[self._made] = _time_of(record, now)
        _forget_oldest(self._purchases)

    def _new_record(self, name: str, spec: GPUInstanceSpec, status: GPUInstanceStatus, now: datetime) -> GPUInstance:
        self._made += 1
        meta = ObjectMeta(name=name, uid=f"dry-run-{self._made}", creation_timestamp=whole_seconds(now))
        return GPUInstance(metadata=meta, spec=spec, status=status)

    def _step(self, step: WriteStatus | Terminate | Drain, now: datetime) -> None:
        name, status = step.record.metadata.name, step.status
        if name not in self._records:
            return
        if isinstance(step, Drain | Terminate) or (status is not None and status.state in _LEAVING):
            self._end(name, now)
        elif status is not None:
            self._records[name] = replace(self._records[name], status=status)

    def _end(self, name: str, now: datetime) -> None:
        """The machine would be terminated or powered off now. Pods on it wait again."""
        record = self._records.pop(name)
        number = self._bought.pop(name, None)
        if number is not None:
            if number in self._purchases:
                self._purchases[number] = replace(self._purchases[number], until=_paid_until(record, now))
            self._placed = {uid: each for uid, each in self._placed.items() if each.node != record.node_name}
        elif record.state is not InstanceState.GONE:
            self._made += 1
            self._savings[self._made] = replace(_time_of(record, now), pods=0)
            self._off[name] = (record, self._made)
            _forget_oldest(self._savings)

    def _follow_records(self, real: Iterable[GPUInstance]) -> None:
        """GPUInstances of the cluster, as far as the dry run has not decided otherwise: there may be an operator."""
        seen = set()
        for record in real:
            name = record.metadata.name
            seen.add(name)
            known = self._records.get(name)
            newer = known is None or (known.uid == record.uid and known.resource_version < record.resource_version)
            if name not in self._bought and name not in self._off and newer:
                self._records[name] = record
        gone = [name for name, each in self._records.items() if each.resource_version and name not in seen]
        for name in gone:
            del self._records[name]

    def _follow_machines(self, real: Snapshot) -> None:
        """A machine that would be off no longer saves anything when it is off in reality, or is used again."""
        for name, (record, number) in list(self._off.items()):
            node = real.nodes.get(record.node_name or "")
            used = real.used.get(record.node_name or "", Resources()).any_gpu(real.rules.gpu_resources)
            listed = record.node_name is None and _is_listed(record, real.sources)
            if listed or (node is not None and node.ready and not used):
                continue
            del self._off[name]
            if number in self._savings:
                self._savings[number] = replace(self._savings[number], until=real.now)

    def _follow_pods(self, real: Snapshot, find: Callable[[tuple[str, str]], Pod | None]) -> None:
        """Pods end when they end in reality; those that get no node there, after the assumed run time."""
        for uid, each in list(self._placed.items()):
            pod = find(each.pod.key)
            if pod is None or pod.uid != uid or pod.phase.ended or pod.deleted is not None:
                del self._placed[uid]
            elif pod.node is None and real.now - each.since >= self._run_time:
                del self._placed[uid]
                self._ended.add(uid)
        self._ended &= {pod.uid for pod in real.pending}

    def _held(self, node_class: GPUNodeClass) -> GPUNodeClass:
        meta = node_class.metadata
        if node_class.uid not in self._held_classes or CLASS_FINALIZER in meta.finalizers:
            return node_class
        return replace(node_class, metadata=replace(meta, finalizers=[*meta.finalizers, CLASS_FINALIZER]))

    def _nodes_off(self) -> set[str]:
        return {record.node_name for record, _ in self._off.values() if record.node_name is not None}

    def _sources(self, real: Mapping[SourceKey, Source]) -> Mapping[SourceKey, Source]:
        """Listings with the machines of the dry run, and without those that would be off."""
        machines = machine_sources(real)
        hidden: defaultdict[SourceKey, set[str]] = defaultdict(set)
        shown: defaultdict[SourceKey, list[Instance]] = defaultdict(list)
        for record in (record for record, _ in self._off.values()):
            hidden[serving_source(record, machines)].add(instance_id(record) or "")
        for name in self._bought:
            record = self._records[name]
            key, own = serving_source(record, machines), instance_id(record) or ""
            hidden[key].add(own)
            shown[key].append(
                Instance(id=own, phase=InstancePhase.RUNNING, owner=record.uid, node_name=record.node_name)
            )
        changed = {key: _listing(real[key], hidden[key], shown[key]) for key in hidden if key in real}
        return {**real, **changed} if changed else real


def _listing(source: Source, hidden: set[str], shown: Sequence[Instance]) -> Source:
    if source.listing is None:
        return source
    found = source.listing.found
    kept = (each for each in found.instances if each.id not in hidden)
    changed: Found = replace(found, instances=(*kept, *shown), unknown=found.unknown - hidden)
    return replace(source, listing=replace(source.listing, found=changed))


def _is_listed(record: GPUInstance, sources: Mapping[SourceKey, Source]) -> bool:
    source = sources.get(serving_source(record, {}))
    if source is None or source.listing is None:
        return True
    return any(each.id == instance_id(record) for each in source.listing.found.instances)


def _ready(planned: Node, now: datetime) -> Node:
    return replace(planned, ready=True, ready_since=now, uid=planned.uid or f"dry-run-{planned.name}")


def _paid_until(record: GPUInstance, now: datetime) -> datetime:
    """Until when the machine would be paid for, if it were terminated now: there may be a least time."""
    status = replace(record.status or GPUInstanceStatus(), billed_until=whole_seconds(now))
    paid = billed(replace(record, status=status))
    if paid is None or paid.end is None or status.billed_from is None:
        return now
    return max(now, status.billed_from + (paid.end - paid.start) * _SECOND)


def _time_of(record: GPUInstance, now: datetime) -> MachineTime:
    spec, paid = record.spec, billed(record)
    pool = spec.pool_ref
    return MachineTime(
        name=record.metadata.name,
        pool="" if pool is None else f"{pool.namespace}/{pool.name}",
        provider=spec.provider,
        instance_type=spec.offer.instance_type if spec.offer is not None else record.metadata.name,
        price=UsdPerHour.zero() if paid is None else UsdPerHour.from_units(paid.rate),
        since=now,
        pods=len(spec.pods),
    )


def _forget_oldest(times: dict[int, MachineTime]) -> None:
    while len(times) > _MOST_KEPT:
        del times[next(iter(times))]
