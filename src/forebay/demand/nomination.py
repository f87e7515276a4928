"""Keeping the plan's promise: a node that was obtained for certain pods is theirs first.

While others wait too, the scheduler would scatter small pods over nodes that large ones need whole. So a node that has
joined with our startup taint is not simply opened: first the taint is made out to its own pods, which are given a
toleration for that one node and are nominated to it. Nobody else can come, nobody else is even tried; when they are
bound, or after a while, the taint goes. Where the taint was never there, pods are only nominated: the scheduler tries a
nominated node first and keeps its room against others of equal or lower priority. A failed attempt clears the
nomination, so a pod is nominated only to a node that can take it now, and again if it was cleared.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import STARTUP_TAINT
from forebay.demand.co_location import has_anti_affinity, keeps_apart
from forebay.demand.free_capacity import PASSING_TAINTS, Port
from forebay.demand.initialization import is_initialized
from forebay.demand.planned_pods import is_leaving
from forebay.demand.reservation import service_order
from forebay.model.fit import misfit
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.workloads import Pod

_UP: Final = (InstanceState.JOINED, InstanceState.READY)
_NOTHING: Final = Resources()
_NO_PORTS: Final[frozenset[Port]] = frozenset()


#: How long a node is kept for its own pods once it is up. The scheduler lets a pod rest for 10 s at the most, but when
#: hundreds come at once all of it takes longer.
KEPT: Final = timedelta(seconds=60)


class NominatePods(msgspec.Struct, frozen=True, kw_only=True):
    """Nominate the pods to the node. Before that, make our startup taint out to them; or after that, take it off."""

    record: GPUInstance
    node: Node
    pods: tuple[Pod, ...] = ()
    keep: bool = False
    untaint: bool = False

    @property
    def pass_value(self) -> str:
        """What the taint says while the node is kept for its own pods."""
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
    """For every node that Forebay obtained and that can be used now. `pending` are all GPU pods without a node.

    Each node that is opened makes the scheduler try all pods that wait. So one that is full is opened when no other is
    being kept any more.
    `refused` are pods (by uid) that the scheduler does not take there however often it is asked.
    """
    waiting = {pod.uid: pod for pod in pending if _may_be_nominated(pod)}
    nominated: dict[str, list[Pod]] = {}
    for pod in waiting.values():
        if pod.nominated_node is not None:
            nominated.setdefault(pod.nominated_node, []).append(pod)
    found: list[NominatePods] = []
    full: list[NominatePods] = []
    keeping = False
    for record in records:
        name = record.node_name if record.state in _UP else None
        node = nodes.get(name) if name is not None else None
        if node is None or node.unschedulable or not (waiting or node.taints) or is_leaving(record):
            continue
        taint = next((taint for taint in node.taints if taint.key == STARTUP_TAINT), None)
        guests = [waiting[pod.uid] for pod in record.spec.pods if pod.uid in waiting and pod.uid not in refused]
        if not (taint or guests) or node.deleted is not None or not is_initialized(record, node):
            continue
        if any(taint.key.startswith(PASSING_TAINTS) for taint in node.taints):
            continue  # pods that were nominated now would be tried in vain
        bare = _without_ours(node)
        there = nominated.get(node.name, ())
        room = _Room(
            bare,
            used.get(node.name, _NOTHING),
            ports.get(node.name, _NO_PORTS) if ports else _NO_PORTS,
            pods_by_node.get(node.name, ()) if pods_by_node else (),
        )
        for pod in there:
            room.take(pod)
        chosen = [pod for pod in sorted(guests, key=service_order) if _is_free(pod, nodes) and room.offer(pod)]
        for pod in chosen:
            # Another record may have been made for the same pod.
            del waiting[pod.uid]
        if taint is not None:
            # Whoever nominated these died before they were let through, and they would wait for nothing.
            chosen += [pod for pod in there if pod in guests and not is_let_through(pod, record)]
        welcome = NominatePods(record=record, node=node, pods=tuple(chosen))
        if taint is None:
            found += [welcome] if chosen else []
        elif now >= _up_since(record, now) + KEPT:
            found.append(replace(welcome, untaint=True))
        elif chosen or any(pod in guests for pod in there):
            keeping = True
            if chosen or taint.value != welcome.pass_value:
                found.append(replace(welcome, keep=True))
        else:
            (found if int(room.free.gpus()) > 0 else full).append(replace(welcome, untaint=True))
    return (*found, *(() if keeping else full))


def reserved_until(records: Iterable[GPUInstance], nodes: Mapping[str, Node], now: datetime) -> datetime | None:
    """When the first of the nodes that are still closed to others is opened in any case."""
    ends = (
        _up_since(record, now) + KEPT
        for record in records
        if record.state is InstanceState.READY
        and (node := nodes.get(record.node_name or "")) is not None
        and any(taint.key == STARTUP_TAINT for taint in node.taints)
    )
    return min((end for end in ends if end > now), default=None)


def _up_since(record: GPUInstance, now: datetime) -> datetime:
    """One that has joined may have waited for its GPUs until now."""
    if record.status is None or record.state is not InstanceState.READY:
        return now
    return record.status.since or now


class _Room:
    def __init__(self, node: Node, used: Resources, ports: frozenset[Port], pods_by_node: Collection[Pod]) -> None:
        self.node = node
        self.free = node.allocatable - used
        self.ports = set(ports)
        self.company = list(pods_by_node)
        self.picky = any(has_anti_affinity(pod) for pod in pods_by_node)

    def offer(self, pod: Pod) -> bool:
        """True where the pod fits, and then it has its place."""
        if misfit(pod.shape, self.node, self.free, self.ports) is not None:
            return False
        if (self.picky or has_anti_affinity(pod)) and keeps_apart(pod, self.company):
            return False
        self.take(pod)
        return True

    def take(self, pod: Pod) -> None:
        self.free -= pod.shape.requests
        self.ports.update(pod.shape.host_ports)
        self.company.append(pod)
        self.picky = self.picky or has_anti_affinity(pod)


def _may_be_nominated(pod: Pod) -> bool:
    return pod.node is None and pod.deleted is None and not pod.phase.ended and not pod.shape.scheduling_gates


def _is_free(pod: Pod, nodes: Mapping[str, Node]) -> bool:
    """Not nominated yet; a nomination to a node that is gone or down means nothing."""
    if pod.nominated_node is None:
        return True
    node = nodes.get(pod.nominated_node)
    return node is None or not node.ready


def is_let_through(pod: Pod, record: GPUInstance) -> bool:
    return any(each.key == STARTUP_TAINT and each.value == record.uid for each in pod.shape.tolerations)


def _without_ours(node: Node) -> Node:
    return replace(node, taints=tuple(taint for taint in node.taints if taint.key != STARTUP_TAINT))
