"""How each GPUInstance's node is used, and the Idle condition that keeps since when it has been idle."""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from operator import is_
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState, Purpose
from forebay.api.parts import Condition, Truth
from forebay.demand.assessment import DEFAULT_SCHEDULER
from forebay.demand.free_capacity import future_node
from forebay.demand.maintenance import held_by_people, keeps_machine
from forebay.demand.planned_pods import IDLE_CONDITION, idle_condition
from forebay.demand.reservation import Reservations
from forebay.demand.scheduler_waits import SchedulerWaits
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.deliveries.policy import DeliveryPolicy
from forebay.model.fit import misfit
from forebay.model.kept import KeptMapping, KeptTuple, among, kept_tuple
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod, pod_names

#: How long a pod for which the scheduler reports errors keeps idle machines on. kube-scheduler retries it every 10 s.
_ERRORS_AWAITED: Final = timedelta(minutes=2)


class MachineUse(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A GPUInstance with its node and the pods on it or expected on it. What follows from them is found out once."""

    record: GPUInstance
    node: Node | None = None
    #: Pods on its node for which `Pod.occupies_node` holds: no DaemonSet pods, nothing that has ended.
    pods: tuple[Pod, ...] = ()
    #: Resources by which pods request GPUs; None: every `<vendor>/gpu`.
    gpu_resources: Collection[str] | None = None
    #: A pending pod (`namespace/name`) that is expected on the node.
    awaited_by: str | None = None
    #: A pod (`namespace/name`) that the node was launched for and that the scheduler does not place there.
    refused: str | None = None
    #: What it was launched for still holds, asked by its purpose.
    wanted: bool = True
    #: False until every such pod says so itself: without that, another machine would be launched for it.
    refusal_recorded: bool = True

    @property
    def state(self) -> InstanceState:
        return self.record.state

    @property
    def name(self) -> str:
        return self.record.metadata.name

    @property
    def policy(self) -> DeliveryPolicy:
        return policy_of(self.record)

    @property
    def adopted(self) -> bool:
        """True for a machine that was found on: its record was created for no pod."""
        return self.policy.adopted_when_found and self.record.purpose is Purpose.ADOPTED

    @cached_property
    def in_service(self) -> bool:
        """True while the node is up and its provider is configured: only such a node can be idle, and be terminated."""
        return (
            self.state is InstanceState.READY
            and not self.unconfigured
            and self.record.metadata.deletion_timestamp is None
            and self.node is not None
            and self.node.ready
        )

    @property
    def unconfigured(self) -> bool:
        return self.record.status is not None and self.record.status.reason == Reason.PROVIDER_NOT_CONFIGURED

    @cached_property
    def user(self) -> str | None:
        """A pod (`namespace/name`) that keeps the machine on: a GPU pod, or one that must not be evicted."""
        return next(("/".join(pod.key) for pod in self.pods if keeps_machine(pod, self.gpu_resources)), None)

    @cached_property
    def held(self) -> str | None:
        """Why people keep the machine as it is, as a clause; None where nobody does."""
        return held_by_people(self.record, self.node, held_by_cordon=self.policy.held_by_cordon)

    @cached_property
    def idle(self) -> bool:
        return self.user is None and self.awaited_by is None and self.in_service and self.held is None

    @cached_property
    def booting(self) -> bool:
        """True while the machine has not registered, for one that may be terminated without that."""
        return (
            self.state is InstanceState.LAUNCHED
            and self.policy.ends_while_booting
            and self.record.purpose in (Purpose.PODS, Purpose.STATIC)
            and self.node is None
            and not self.unconfigured
            and self.record.metadata.deletion_timestamp is None
        )

    @cached_property
    def unneeded(self) -> bool:
        """True for a machine that boots although nobody needs it any more."""
        return self.booting and not self.wanted and self.awaited_by is None and self.held is None

    @cached_property
    def shows_idleness(self) -> bool:
        """Whether the Idle condition says what is so."""
        truth, reason, _ = _idleness(self)
        recorded = idle_condition(self.record)
        return recorded is not None and recorded.status is truth and recorded.reason == reason

    @cached_property
    def idle_since(self) -> datetime | None:
        """Since when the Idle condition has been True; None where it is not."""
        recorded = idle_condition(self.record)
        return recorded.last_transition_time if recorded is not None and recorded.status is Truth.TRUE else None


class MachineUses(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """How all machines are used, for the next tick too: it saves time and alters nothing."""

    machines: KeptTuple[MachineUse] = KeptTuple()
    #: What this follows from alone; None where pods that wait, or machines that boot, have a say.
    seen: tuple[object, ...] | None = None

    @cached_property
    def by_name(self) -> Mapping[str, MachineUse]:
        return {each.name: each for each in self.machines}


def machine_uses(
    records: Iterable[GPUInstance],
    nodes: Mapping[str, Node],
    pods_by_node: Mapping[str, Collection[Pod]],
    reservations: Reservations,
    pending: Iterable[Pod],
    *,
    now: datetime,
    gpu_resources: Collection[str] | None = None,
    wanted: Callable[[GPUInstance], bool] = lambda _: True,
    waits: SchedulerWaits | None = None,
    moving: Mapping[str, str] | None = None,
    before: "MachineUses | None" = None,
) -> "MachineUses":
    """One `MachineUse` for each record: that of an earlier tick, where `before` has it and it is the same.

    A pending pod is expected on the node where this tick reserved room for it. A pod that the scheduler has not tried
    yet is expected on every node that it fits, because it may be bound there in a moment: as long as `waits` says, for
    it may never be tried. One for which the scheduler reports errors is so for `_ERRORS_AWAITED` only. `wanted` is
    asked of machines that boot. `moving` has, by name of a node, what will be moved there.
    """
    pending, before = tuple(pending), before or MachineUses()
    seen = (records, nodes, pods_by_node, gpu_resources)
    # What nobody waits for, and nothing boots for, is used as before.
    undemanded = not (pending or reservations.placed or reservations.refused or moving)
    undemanded = undemanded and all(isinstance(each, KeptTuple | KeptMapping) for each in seen[:3])
    undemanded = undemanded and not among(records, _may_boot)
    if undemanded and before.seen is not None and all(map(is_, before.seen, seen)):
        return before
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in pending}
    waits = waits or SchedulerWaits()
    untried = [pod for pod in pending if waits.expected(pod, now) and _is_tried_soon(pod, now)]
    awaited = {**(moving or {}), **{each.node: names.get(uid, uid) for uid, each in reservations.placed.items()}}
    refused = {each.pod.uid: each.pod for each in reservations.refused}
    found: list[MachineUse] = []
    for record in records:
        name = record.node_name
        node = nodes.get(name) if name is not None else None
        last = before.by_name.get(record.metadata.name)
        if name is None or node is None:
            use = MachineUse(record=record, awaited_by=awaited.get(name or ""))
            if use.booting and use.awaited_by is None and not wanted(record):
                use = replace(use, wanted=False, awaited_by=_expected(untried, future_node(record, None), names))
            found.append(last if last is not None and _same_nodeless(last, use) else use)
            continue
        on_node = pods_by_node.get(name, ())
        if (
            last is None
            or last.record is not record
            or last.node is not node
            or last.pods is not on_node
            or last.gpu_resources is not gpu_resources
        ):
            last = MachineUse(record=record, node=node, pods=tuple(on_node), gpu_resources=gpu_resources)
        awaited_by = awaited.get(name)
        if untried and awaited_by is None and last.user is None:
            awaited_by = _expected(untried, node, names)
        unused_by = [refused[pod.uid] for pod in record.spec.pods if pod.uid in refused] if refused else []
        expected = (
            awaited_by,
            "/".join(unused_by[0].key) if unused_by else None,
            all(pod.refusal is not None for pod in unused_by),
        )
        if expected != (last.awaited_by, last.refused, last.refusal_recorded):
            awaited_by, refused_by, recorded = expected
            last = replace(last, awaited_by=awaited_by, refused=refused_by, refusal_recorded=recorded)
        found.append(last)
    return MachineUses(machines=kept_tuple(before.machines, found), seen=seen if undemanded else None)


def _same_nodeless(last: MachineUse, use: MachineUse) -> bool:
    same = last.record is use.record and last.node is None
    return same and (last.awaited_by, last.wanted) == (use.awaited_by, use.wanted)


def _may_boot(record: GPUInstance) -> bool:
    return record.state is InstanceState.LAUNCHED


def _is_tried_soon(pod: Pod, now: datetime) -> bool:
    """Whether kube-scheduler tries a pod that it has not reported on. Of others no report can be expected."""
    errors_since = pod.scheduler_error_since
    fails = errors_since is not None and now - errors_since >= _ERRORS_AWAITED
    return not fails and pod.shape.scheduler_name == DEFAULT_SCHEDULER


def _expected(untried: Iterable[Pod], node: Node | None, names: Mapping[str, str]) -> str | None:
    """The first of the pods that fits the node."""
    fitting = (pod for pod in untried if node is not None and misfit(pod.shape, node, node.allocatable) is None)
    return next((names[pod.uid] for pod in fitting), None)


class IdleUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Write `status`, as a compare-and-swap: its Idle condition says whether the node is idle, and since when."""

    record: GPUInstance
    status: GPUInstanceStatus
    reason: Reason
    sentence: str


def idle_updates(
    machines: Iterable[MachineUse], now: datetime, kept: Mapping[str, str] | None = None
) -> tuple[IdleUpdate, ...]:
    """Updates for the nodes in service, and for machines that boot, whose Idle condition is missing or not true now.

    `kept` has, by name of a machine, a sentence that says why it stays though it is idle.
    """
    found: list[IdleUpdate] = []
    for machine in among(machines, _misses_idleness):
        recorded = idle_condition(machine.record)
        truth, reason, sentence = _idleness(machine)
        if truth is Truth.TRUE and kept and machine.name in kept:
            sentence = f"{sentence} {kept[machine.name]}"
        status = machine.record.status or GPUInstanceStatus()
        condition = Condition(
            type=IDLE_CONDITION,
            status=truth,
            reason=reason,
            message=sentence,
            # The API keeps whole seconds.
            last_transition_time=recorded.last_transition_time
            if recorded is not None and recorded.status is truth
            else now.replace(microsecond=0),
        )
        others = tuple(each for each in status.conditions if each.type != IDLE_CONDITION)
        status = replace(status, conditions=(*others, condition))
        found.append(IdleUpdate(record=machine.record, status=status, reason=reason, sentence=sentence))
    return tuple(found)


def _misses_idleness(machine: MachineUse) -> bool:
    """Whether the Idle condition is to be written."""
    if not machine.in_service and not machine.unneeded:
        return machine.booting and idle_condition(machine.record) is not None and not machine.shows_idleness
    return not machine.shows_idleness


def is_idle(machine: MachineUse) -> bool:
    return machine.idle


def is_unneeded(machine: MachineUse) -> bool:
    return machine.unneeded


def _idleness(machine: MachineUse) -> tuple[Truth, Reason, str]:
    if machine.user is not None:
        return Truth.FALSE, Reason.IN_USE, "Pods run on the node: forebay explain names them."
    if machine.awaited_by is not None:
        return Truth.FALSE, Reason.AWAITED, f"The node is reserved for pending pods, such as {machine.awaited_by}."
    if machine.booting:
        if machine.wanted:
            return Truth.FALSE, Reason.AWAITED, "The machine boots, and pods wait for it."
        if machine.held is None:
            return Truth.TRUE, Reason.NOT_NEEDED, "The machine boots, but none of its pods is pending any more."
    if machine.held is not None:
        return Truth.FALSE, Reason.UNDER_MAINTENANCE, f"No GPU pod runs on the node, but it stays: {machine.held}."
    if machine.refused is not None:
        launched = machine.policy.words.launched
        sentence = (
            f"The node was {launched} for pod {machine.refused}, but the scheduler does not place the pod on it: "
            "see the events of that pod."
        )
        return Truth.TRUE, Reason.SCHEDULER_REFUSES, sentence
    if machine.pods:
        sentence = f"No GPU pod runs on the node. To be evicted when it is drained: {pod_names(machine.pods)}."
        return Truth.TRUE, Reason.IDLE, sentence
    return Truth.TRUE, Reason.IDLE, "Nothing but DaemonSet pods runs on the node."
