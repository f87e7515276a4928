"""The startup taint: a new node takes the pods it was launched for before any other.

Otherwise the scheduler would scatter small pods over nodes that large pods need whole. A node carries the taint
`forebay.dev/startup=<UID of its GPUInstance>` from its first moment: the join method registers the node with it, and an
owned machine, whose Node object stays while it is off, has it put there before it is powered on. Any other node gets it
on sight. While the machine boots, its planned pods get a toleration for exactly that value. kube-scheduler then binds
them as soon as the GPUs are allocatable, and tries nobody else there. The taint goes when they are bound, or
`STARTUP_TAINT_TTL` after the node could take them. A replacement stays reserved until the pods of the node that it
replaces have left that: whatever their controllers create in their place gets the toleration.

Everything follows from the cluster: a process that dies at any point is continued by the next.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import STARTUP_TAINT
from forebay.demand.co_location import has_anti_affinity, violates_anti_affinity
from forebay.demand.free_capacity import Port
from forebay.demand.initialization import has_a_gpu
from forebay.demand.planned_pods import is_leaving
from forebay.demand.replacements import expected_pods, moved_at, succeeds
from forebay.demand.reservation import service_order
from forebay.model.fit import misfit
from forebay.model.kept import among
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.requirements import Taint, tolerates
from forebay.model.workloads import Pod

_BOOTING: Final = (InstanceState.LAUNCHED, InstanceState.JOINED)
_UP: Final = (InstanceState.JOINED, InstanceState.READY)
_NOTHING: Final = Resources()
_NO_PORTS: Final[frozenset[Port]] = frozenset()

#: How long a ready node stays reserved for its planned pods. The scheduler backs off a pod for 10 s at the most, but
#: binding hundreds of pods takes longer.
STARTUP_TAINT_TTL: Final = timedelta(seconds=60)
#: How long a Ready node without its GPUs stays reserved. The DaemonSet of the device plugin may not tolerate our taint,
#: and the GPUs never come without it. The node is reserved again when they are there.
GPUS_AWAITED: Final = timedelta(seconds=15)


class ReserveNode(msgspec.Struct, frozen=True, kw_only=True):
    """Put the startup taint of the GPUInstance on the node, in place of any other, and the `others` that it lacks."""

    record: GPUInstance
    node: Node
    #: Startup taints of the plan, which somebody else removes.
    others: tuple[Taint, ...] = ()


class AddToleration(msgspec.Struct, frozen=True, kw_only=True):
    """Give a pod a toleration for the startup taint of the node that was launched for it."""

    record: GPUInstance
    pod: Pod


class OpenNode(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the startup taint, which opens the node to all pods."""

    node: Node


def startup_taint(record: GPUInstance) -> Taint:
    return Taint(STARTUP_TAINT, record.uid)


def startup_taints(
    records: Sequence[GPUInstance],
    nodes: Mapping[str, Node],
    pending: Iterable[Pod],
    used: Mapping[str, Resources],
    now: datetime,
    *,
    tainted: Collection[Node],
    to_launch: Collection[str] = (),
    ports: Mapping[str, frozenset[Port]] | None = None,
    pods_by_node: Mapping[str, Collection[Pod]] | None = None,
    refused: Collection[str] = (),
    intolerant: Collection[str] = (),
) -> tuple[ReserveNode | AddToleration | OpenNode, ...]:
    """Startup taints to put on nodes and to remove, and tolerations to give to planned pods.

    `tainted` are those of the nodes that carry a startup taint.
    `pending` are all GPU pods without a node. `to_launch` names the GPUInstances that are launched next. `refused` are
    pods (by UID) that the scheduler does not place on their planned node; `intolerant` ones that cannot be given a
    toleration. Neither keeps a node reserved.

    Each node that is opened makes the scheduler retry all pending pods. A full node is therefore opened only when no
    other node is reserved any more.
    """
    waiting = {pod.uid: pod for pod in pending if _waits(pod) and pod.uid not in refused}
    found: list[ReserveNode | AddToleration | OpenNode] = []
    full: list[OpenNode] = []
    any_reserved = False
    reserved = {node.name for node in tainted}
    expected = expected_pods(records, pods_by_node or {}) if tainted else {}
    by_uid = {record.uid: record for record in records} if tainted else {}
    for record in records if reserved or to_launch else among(records, _is_booting):
        booting = _is_booting(record)
        launched_next = record.metadata.name in to_launch
        if not (booting or launched_next or (record.state is InstanceState.READY and record.node_name in reserved)):
            continue  # the most frequent case
        node = nodes.get(record.node_name or "")
        if is_leaving(record):
            continue
        present = _startup_taint_of(node)
        if not (waiting or present):
            continue
        planned = [waiting[pod.uid] for pod in record.spec.pods if pod.uid in waiting]
        if record.spec.replaces:
            planned += (pod for pod in waiting.values() if succeeds(pod, record))
        if record.state is InstanceState.READY and node is not None:
            room = _RemainingCapacity(node, used, ports, pods_by_node)
            planned = [pod for pod in sorted(planned, key=service_order) if room.add_if_fits(pod)]
            awaited = any(pod.uid not in intolerant for pod in planned)
            if record.uid in expected:
                # Kept for pods that are still on the node which it replaces, however long they take to leave.
                any_reserved = True
            elif not awaited or now >= _reserved_until(record, now, moved_at(record, by_uid)):
                of_use = awaited or int(room.free.gpus()) > 0
                (found if of_use else full).append(OpenNode(node=node))
                continue
            any_reserved = True
        if node is not None and planned and present != startup_taint(record) and _to_reserve(record, node, now):
            found.append(ReserveNode(record=record, node=node, others=_others(record, node)))
        elif node is not None and present is not None and _awaits_daemons(record, node, now):
            found.append(OpenNode(node=node))
        if not launched_next:
            lacking = (pod for pod in planned if not tolerates(pod.shape.tolerations, startup_taint(record)))
            found += (AddToleration(record=record, pod=pod) for pod in lacking if pod.uid not in intolerant)
    return (*found, *(() if any_reserved else full), *_left_behind(records, tainted))


def _is_booting(record: GPUInstance) -> bool:
    return record.state in _BOOTING


def next_taint_change(records: Iterable[GPUInstance], tainted: Collection[Node], now: datetime) -> datetime | None:
    """Earliest time at which one of the nodes with a startup taint is opened because time has passed."""
    ends: list[datetime] = []
    nodes = {node.name: node for node in tainted}
    records = tuple(records) if nodes else ()
    by_uid = {record.uid: record for record in records}
    for record in records:
        node = nodes.get(record.node_name or "")
        if node is not None and record.state in _UP:
            ready_since = node.ready_since or now
            ends.append(
                _reserved_until(record, now, moved_at(record, by_uid))
                if record.state is InstanceState.READY
                else ready_since + GPUS_AWAITED
            )
    return min((end for end in ends if end > now), default=None)


def _left_behind(records: Iterable[GPUInstance], tainted: Collection[Node]) -> list[OpenNode]:
    """Nodes that still carry the taint of a GPUInstance that is gone, such as that of a machine that never came up."""
    if not tainted:
        return []
    live = [record for record in records if record.state is not InstanceState.GONE]
    names, uids = {record.node_name for record in live}, {record.uid for record in live}
    found: list[OpenNode] = []
    for node in tainted:
        taint = _startup_taint_of(node)
        if taint is not None and taint.value and taint.value not in uids and node.name not in names:
            found.append(OpenNode(node=node))
    return found


def _startup_taint_of(node: Node | None) -> Taint | None:
    return next((taint for taint in node.taints if taint.key == STARTUP_TAINT), None) if node is not None else None


def _to_reserve(record: GPUInstance, node: Node, now: datetime) -> bool:
    return node.deleted is None and not node.unschedulable and not _awaits_daemons(record, node, now)


def _awaits_daemons(record: GPUInstance, node: Node, now: datetime) -> bool:
    """Whether the node has been Ready without its GPUs for so long that our own taint may be what keeps them away."""
    if record.state is InstanceState.READY or not node.ready or has_a_gpu(record, node):
        return False
    return now - (node.ready_since or now) >= GPUS_AWAITED


def _others(record: GPUInstance, node: Node) -> tuple[Taint, ...]:
    """Startup taints of the plan that the node lacks. A Ready node may have lost them for good already."""
    if record.spec.node is None or node.ready or record.state is InstanceState.READY:
        return ()
    present = {(each.key, each.effect) for each in node.taints}
    return tuple(
        Taint(each.key, each.value or "", each.effect.value)
        for each in record.spec.node.startup_taints
        if (each.key, each.effect.value) not in present and each.key != STARTUP_TAINT
    )


def _reserved_until(record: GPUInstance, now: datetime, moved: datetime | None) -> datetime:
    """`moved`: when the pods of a replacement had left the node before."""
    since = (record.status.since if record.status is not None else None) or now
    return (since if moved is None else max(since, moved)) + STARTUP_TAINT_TTL


class _RemainingCapacity:
    """What is left of a node as its planned pods are counted."""

    def __init__(
        self,
        node: Node,
        used: Mapping[str, Resources],
        ports: Mapping[str, frozenset[Port]] | None,
        pods_by_node: Mapping[str, Collection[Pod]] | None,
    ) -> None:
        lasting = tuple(taint for taint in node.taints if taint.key != STARTUP_TAINT)
        self.node = replace(node, taints=lasting)
        self.free = node.allocatable - used.get(node.name, _NOTHING)
        self.ports = set(ports.get(node.name, _NO_PORTS) if ports else ())
        self.pods = list(pods_by_node.get(node.name, ()) if pods_by_node else ())
        self.anti_affinity = any(has_anti_affinity(pod) for pod in self.pods)

    def add_if_fits(self, pod: Pod) -> bool:
        """Adds the pod where it fits; False where it does not."""
        if misfit(pod.shape, self.node, self.free, self.ports) is not None:
            return False
        if (self.anti_affinity or has_anti_affinity(pod)) and violates_anti_affinity(pod, self.pods):
            return False
        self.free -= pod.shape.requests
        self.ports.update(pod.shape.host_ports)
        self.pods.append(pod)
        self.anti_affinity = self.anti_affinity or has_anti_affinity(pod)
        return True


def _waits(pod: Pod) -> bool:
    return pod.node is None and pod.deleted is None and not pod.phase.ended and not pod.shape.scheduling_gates
