"""Nominations: a node that was launched for certain pods gets these pods first.

Without nominations the scheduler would scatter small pods over nodes that large pods need whole. A node that registers
with our startup taint is therefore reserved for its planned pods first: the value of the taint is set to the UID of the
GPUInstance, and these pods get a toleration for exactly that value and are nominated to the node. The scheduler tries
no other pod there. The taint is removed once the planned pods are bound, or after `STARTUP_TAINT_TTL`.

On a node without our startup taint, pods are only nominated: the scheduler tries the nominated node first and keeps its
room from pods of equal or lower priority. A failed attempt clears the nomination, so a pod is nominated only to a node
that has room now, and again after its nomination was cleared.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import STARTUP_TAINT
from forebay.demand.co_location import has_anti_affinity, violates_anti_affinity
from forebay.demand.free_capacity import Port
from forebay.demand.initialization import is_initialized
from forebay.demand.planned_pods import is_leaving
from forebay.demand.reservation import service_order
from forebay.model.fit import misfit
from forebay.model.nodes import CONDITION_TAINTS, Node
from forebay.model.quantities import Resources
from forebay.model.workloads import Pod

_REGISTERED: Final = (InstanceState.JOINED, InstanceState.READY)
_NOTHING: Final = Resources()
_NO_PORTS: Final[frozenset[Port]] = frozenset()


#: How long a ready node stays reserved for its planned pods. The scheduler backs off a pod for 10 s at the most, but
#: binding hundreds of pods takes longer.
STARTUP_TAINT_TTL: Final = timedelta(seconds=60)


class NominatePods(msgspec.Struct, frozen=True, kw_only=True):
    """Nominate the pods to the node; with `reserve`, restrict the startup taint to them first."""

    record: GPUInstance
    node: Node
    pods: tuple[Pod, ...] = ()
    #: Set the value of the startup taint to `taint_value`, and give the pods a toleration for it.
    reserve: bool = False
    #: Remove the startup taint afterwards, which opens the node to all pods.
    untaint: bool = False

    @property
    def taint_value(self) -> str:
        """Value of the startup taint while the node is reserved for its planned pods."""
        return self.record.uid


def nominations(
    records: Iterable[GPUInstance],
    nodes: Mapping[str, Node],
    pending: Iterable[Pod],
    used: Mapping[str, Resources],
    now: datetime,
    *,
    ports: Mapping[str, frozenset[Port]] | None = None,
    pods_by_node: Mapping[str, Collection[Pod]] | None = None,
    refused: Collection[str] = (),
) -> tuple[NominatePods, ...]:
    """Nominations to all nodes of GPUInstances that are usable now, and startup taints to remove.

    `pending` are all GPU pods without a node. `refused` are pods (by UID) that the scheduler does not place on their
    planned node however often they are nominated.

    Each node that is opened makes the scheduler retry all pending pods. A full node is therefore opened only when no
    other node is reserved any more.
    """
    waiting = {pod.uid: pod for pod in pending if _may_be_nominated(pod)}
    nominated: dict[str, list[Pod]] = {}
    for pod in waiting.values():
        if pod.nominated_node is not None:
            nominated.setdefault(pod.nominated_node, []).append(pod)
    found: list[NominatePods] = []
    full: list[NominatePods] = []
    any_reserved = False
    for record in records:
        name = record.node_name if record.state in _REGISTERED else None
        node = nodes.get(name) if name is not None else None
        if node is None or node.unschedulable or not (waiting or node.taints) or is_leaving(record):
            continue
        taint = next((taint for taint in node.taints if taint.key == STARTUP_TAINT), None)
        planned = [waiting[pod.uid] for pod in record.spec.pods if pod.uid in waiting and pod.uid not in refused]
        if not (taint or planned) or node.deleted is not None or not is_initialized(record, node):
            continue
        if any(taint.key.startswith(CONDITION_TAINTS) for taint in node.taints):
            continue  # an attempt to schedule there now would fail and clear the nomination
        already = nominated.get(node.name, ())
        remaining = _RemainingCapacity(
            _without_startup_taint(node),
            used.get(node.name, _NOTHING),
            ports.get(node.name, _NO_PORTS) if ports else _NO_PORTS,
            pods_by_node.get(node.name, ()) if pods_by_node else (),
        )
        for pod in already:
            remaining.add(pod)
        chosen = [
            pod
            for pod in sorted(planned, key=service_order)
            if _has_no_nomination(pod, nodes) and remaining.add_if_fits(pod)
        ]
        for pod in chosen:
            # Another GPUInstance may have been launched for the same pod.
            del waiting[pod.uid]
        if taint is not None:
            # An operator that died after the nomination and before the toleration left these pods unable to schedule.
            chosen += [pod for pod in already if pod in planned and not tolerates_startup_taint(pod, record)]
        nomination = NominatePods(record=record, node=node, pods=tuple(chosen))
        if taint is None:
            found += [nomination] if chosen else []
        elif now >= _ready_since(record, now) + STARTUP_TAINT_TTL:
            found.append(replace(nomination, untaint=True))
        elif chosen or any(pod in planned for pod in already):
            any_reserved = True
            if chosen or taint.value != nomination.taint_value:
                found.append(replace(nomination, reserve=True))
        else:
            (found if int(remaining.free.gpus()) > 0 else full).append(replace(nomination, untaint=True))
    return (*found, *(() if any_reserved else full))


def next_taint_expiry(records: Iterable[GPUInstance], nodes: Mapping[str, Node], now: datetime) -> datetime | None:
    """Earliest time at which the startup taint of a ready node expires; None where no node carries one."""
    ends = (
        _ready_since(record, now) + STARTUP_TAINT_TTL
        for record in records
        if record.state is InstanceState.READY
        and (node := nodes.get(record.node_name or "")) is not None
        and any(taint.key == STARTUP_TAINT for taint in node.taints)
    )
    return min((end for end in ends if end > now), default=None)


def _ready_since(record: GPUInstance, now: datetime) -> datetime:
    """Since when the GPUInstance is Ready. One that is only Joined may have waited for its GPUs until now."""
    if record.status is None or record.state is not InstanceState.READY:
        return now
    return record.status.since or now


class _RemainingCapacity:
    """What is left of a node as pods are nominated to it."""

    def __init__(self, node: Node, used: Resources, ports: frozenset[Port], pods: Collection[Pod]) -> None:
        self.node = node
        self.free = node.allocatable - used
        self.ports = set(ports)
        self.pods = list(pods)
        self.anti_affinity = any(has_anti_affinity(pod) for pod in pods)

    def add_if_fits(self, pod: Pod) -> bool:
        """Adds the pod where it fits; False where it does not."""
        if misfit(pod.shape, self.node, self.free, self.ports) is not None:
            return False
        if (self.anti_affinity or has_anti_affinity(pod)) and violates_anti_affinity(pod, self.pods):
            return False
        self.add(pod)
        return True

    def add(self, pod: Pod) -> None:
        self.free -= pod.shape.requests
        self.ports.update(pod.shape.host_ports)
        self.pods.append(pod)
        self.anti_affinity = self.anti_affinity or has_anti_affinity(pod)


def _may_be_nominated(pod: Pod) -> bool:
    return pod.node is None and pod.deleted is None and not pod.phase.ended and not pod.shape.scheduling_gates


def _has_no_nomination(pod: Pod, nodes: Mapping[str, Node]) -> bool:
    """Whether the pod is not nominated. A nomination to a node that is gone or not ready does not count."""
    if pod.nominated_node is None:
        return True
    node = nodes.get(pod.nominated_node)
    return node is None or not node.ready


def tolerates_startup_taint(pod: Pod, record: GPUInstance) -> bool:
    """Whether the pod has the toleration for the startup taint of this GPUInstance's node."""
    return any(each.key == STARTUP_TAINT and each.value == record.uid for each in pod.shape.tolerations)


def _without_startup_taint(node: Node) -> Node:
    return replace(node, taints=tuple(taint for taint in node.taints if taint.key != STARTUP_TAINT))
