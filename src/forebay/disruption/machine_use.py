"""Machines with what is known of their use, and the mark that keeps since when one has been idle."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.api.parts import Condition, Truth
from forebay.demand.assessment import DEFAULT_SCHEDULER
from forebay.demand.planned_pods import IDLE_CONDITION, idle_condition
from forebay.demand.reservation import Reservations
from forebay.model.fit import misfit
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod


class MachineUse(msgspec.Struct, frozen=True, kw_only=True):
    record: GPUInstance
    node: Node | None = None
    #: Pods on its node that count (`occupies_node`).
    pods: tuple[Pod, ...] = ()
    #: A waiting pod (`namespace/name`) that is expected on it.
    awaited_by: str | None = None
    #: A pod that it was obtained for and that the scheduler does not place there.
    refused: str | None = None

    @property
    def state(self) -> InstanceState:
        return self.record.state

    @property
    def name(self) -> str:
        return self.record.metadata.name

    @property
    def in_service(self) -> bool:
        """Its node is there and up: only then can it be told whether it is idle. And somebody can switch it off."""
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

    @property
    def idle(self) -> bool:
        return not self.pods and self.awaited_by is None and self.in_service

    @property
    def marked_refused(self) -> bool:
        mark = idle_condition(self.record)
        return mark is not None and mark.status is Truth.TRUE and mark.reason == Reason.SCHEDULER_REFUSES

    @property
    def idle_since(self) -> datetime | None:
        """As its mark says; None where it was not idle when that was written."""
        mark = idle_condition(self.record)
        return mark.last_transition_time if mark is not None and mark.status is Truth.TRUE else None


def machine_uses(
    records: Iterable[GPUInstance],
    nodes: Mapping[str, Node],
    pods_by_node: Mapping[str, Collection[Pod]],
    reservations: Reservations,
    pending: Iterable[Pod],
) -> tuple[MachineUse, ...]:
    """One for each record. A pod waits for the machine on which it was settled in this tick; and one that the scheduler
    has not tried yet, for any machine that it may be put on in a moment.
    """
    pending = tuple(pending)
    names = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in pending}
    untried = [pod for pod in pending if _untried(pod)]
    awaited = {placed.node: names.get(uid, uid) for uid, placed in reservations.placed.items()}
    refused = {each.pod.uid: f"{each.pod.namespace}/{each.pod.name}" for each in reservations.refused}
    found: list[MachineUse] = []
    for record in records:
        name = record.node_name
        node = nodes.get(name) if name is not None else None
        if name is None or node is None:
            found.append(MachineUse(record=record))
            continue
        on_it = tuple(pods_by_node.get(name, ()))
        awaited_by = awaited.get(name)
        if untried and awaited_by is None and not on_it:
            awaited_by = next((names[pod.uid] for pod in untried if _may_go_to(pod, node)), None)
        vain = next((refused[pod.uid] for pod in record.spec.pods if pod.uid in refused), None) if refused else None
        found.append(MachineUse(record=record, node=node, pods=on_it, awaited_by=awaited_by, refused=vain))
    return tuple(found)


def _untried(pod: Pod) -> bool:
    """Other schedulers need not ever say anything about a pod."""
    shape = pod.shape
    waits = pod.node is None and pod.deleted is None and not pod.phase.ended
    return (
        waits
        and pod.unschedulable_since is None
        and not shape.scheduling_gates
        and shape.scheduler_name == DEFAULT_SCHEDULER
    )


def _may_go_to(pod: Pod, node: Node) -> bool:
    return misfit(pod.shape, node, node.allocatable) is None


class IdleMark(msgspec.Struct, frozen=True, kw_only=True):
    """Write `status`, as a compare-and-swap: it says whether the machine is idle, and since when."""

    record: GPUInstance
    status: GPUInstanceStatus
    reason: Reason
    sentence: str


def idle_marks(machines: Iterable[MachineUse], now: datetime) -> tuple[IdleMark, ...]:
    """For the machines in service whose mark does not say what is so."""
    found: list[IdleMark] = []
    for machine in machines:
        if not machine.in_service:
            continue
        truth, reason, sentence = _fact(machine)
        said = idle_condition(machine.record)
        if said is not None and said.status is truth and said.reason == reason:
            continue
        status = machine.record.status or GPUInstanceStatus()
        condition = Condition(
            type=IDLE_CONDITION,
            status=truth,
            reason=reason,
            message=sentence,
            # The API keeps whole seconds.
            last_transition_time=said.last_transition_time
            if said is not None and said.status is truth
            else now.replace(microsecond=0),
        )
        others = tuple(each for each in status.conditions if each.type != IDLE_CONDITION)
        status = replace(status, conditions=(*others, condition))
        found.append(IdleMark(record=machine.record, status=status, reason=reason, sentence=sentence))
    return tuple(found)


def _fact(machine: MachineUse) -> tuple[Truth, Reason, str]:
    if machine.pods:
        return Truth.FALSE, Reason.IN_USE, "Pods run on it."
    if machine.awaited_by is not None:
        return Truth.FALSE, Reason.AWAITED, f"It is kept for pods that still wait, such as {machine.awaited_by}."
    if machine.refused is not None:
        sentence = f"It was obtained for pod {machine.refused}, which the scheduler does not place here: see that pod."
        return Truth.TRUE, Reason.SCHEDULER_REFUSES, sentence
    return Truth.TRUE, Reason.IDLE, "Nothing but DaemonSets runs on it."
