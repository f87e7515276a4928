"""What capacity is there or on its way, and how much of it is free."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState, PlannedNode
from forebay.api.names import CORDONED_ANNOTATION, STARTUP_TAINT
from forebay.api.values import Figure
from forebay.demand.initialization import is_initialized
from forebay.demand.planned_pods import is_leaving
from forebay.model.fit import barred
from forebay.model.nodes import Node
from forebay.model.quantities import CPU, Resources
from forebay.model.requirements import NodeSelectorTerm, Taint
from forebay.model.sources import AMPLE
from forebay.model.workloads import POD_COUNT, Pod, PodShape

Port = tuple[int, str]

#: Every machine has these. Where nobody has said how much, there is enough.
_ALWAYS_THERE: Final = (CPU, "memory", "ephemeral-storage", POD_COUNT)
#: Taints by which Kubernetes says how a node fares at the moment.
PASSING_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_NOTHING: Final = Resources()
_NO_PORTS: Final[frozenset[Port]] = frozenset()
_NOBODY: Final[frozenset[str]] = frozenset()


class FreeNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node with a GPU to spare, as it is or will be."""

    node: Node
    free: Resources
    #: Host ports in use.
    ports: frozenset[Port] = _NO_PORTS
    #: UIDs of the pods that it was obtained for.
    promised: frozenset[str] = _NOBODY
    #: Name of the GPUInstance that is still on its way; None for a node that is there.
    coming: str | None = None

    @property
    def ready(self) -> bool:
        return self.coming is None


def free_nodes(
    nodes: Mapping[str, Node],
    used: Mapping[str, Resources],
    records: Iterable[GPUInstance] = (),
    *,
    ports: Mapping[str, frozenset[Port]] | None = None,
    daemons: Collection[PodShape] = (),
    holding: Iterable[Pod] = (),
    gpu_resources: Collection[str] | None = None,
) -> tuple[FreeNode, ...]:
    """Only those with a GPU to spare: no other can help a pod that asks for one.

    A GPUInstance is coming capacity from Requested until its node can be used, with the figures of its plan. One that
    is on its way out is none, nor is a node that is cordoned or not ready. `daemons` (a shape for each DaemonSet) will
    be on every new node they fit; `holding` are pods for which the scheduler keeps room on the node it nominated.
    """
    kept: defaultdict[str, Resources] = defaultdict(Resources)
    for pod in holding:
        if pod.nominated_node is not None and pod.node is None:
            kept[pod.nominated_node] += pod.shape.requests
    found: list[FreeNode] = []
    obtained: set[str] = set()
    for record in records:
        state, name = record.state, record.node_name
        if name is None or state is InstanceState.GONE:
            continue
        obtained.add(name)
        node, taken = nodes.get(name), used.get(name, _NOTHING)
        if state is InstanceState.READY and node is not None and not _spare(node, taken, gpu_resources):
            continue  # as most are, at most times
        room = None if is_leaving(record) else _obtained(record, state, node, taken, daemons)
        if room is not None:
            found.append(room)
    for name, node in nodes.items():
        if name not in obtained and _takes_pods(node):
            taken = used.get(name, _NOTHING)
            if _spare(node, taken, gpu_resources):
                found.append(FreeNode(node=node, free=node.allocatable - taken))
    if kept:
        found = [_less(room, kept) for room in found]
    if ports:
        found = [replace(room, ports=ports.get(room.node.name, _NO_PORTS)) for room in found]
    return tuple(room for room in found if int(room.free.gpus(gpu_resources)) > 0)


def _less(room: FreeNode, kept: Mapping[str, Resources]) -> FreeNode:
    taken = kept.get(room.node.name)
    return room if taken is None else replace(room, free=room.free - taken)


def _spare(node: Node, used: Resources, gpu_resources: Collection[str] | None) -> bool:
    return node.allocatable.gpus(gpu_resources) > used.gpus(gpu_resources)


def _takes_pods(node: Node) -> bool:
    return node.ready and not node.unschedulable and node.deleted is None


def _obtained(
    record: GPUInstance, state: InstanceState, node: Node | None, used: Resources, daemons: Collection[PodShape]
) -> FreeNode | None:
    promised = frozenset([pod.uid for pod in record.spec.pods])
    if state is InstanceState.READY and (node is None or not node.ready):
        return None  # it was, and is not now: lifecycle looks after it
    if node is not None:
        joined = state is InstanceState.JOINED and node.deleted is None
        up = state is InstanceState.READY or (joined and is_initialized(record, node))
        if up and not any(taint.key == STARTUP_TAINT for taint in node.taints):
            return FreeNode(node=node, free=node.allocatable - used, promised=promised) if _takes_pods(node) else None
        if node.unschedulable and CORDONED_ANNOTATION not in node.annotations:
            return None  # somebody does not want pods there
    planned = future_node(record, node)
    if planned is None:
        return None
    taken = daemon_overhead(planned, daemons)
    if node is not None and node.ready:
        # What is there already may include DaemonSets: the larger of the two is the better guess.
        taken = used.max(taken)
    # While it is off, pods of its last time may still be said to be on it. Whoever bought it did not count them, and
    # would buy another for the same pods.
    return FreeNode(node=planned, free=planned.allocatable - taken, promised=promised, coming=record.metadata.name)


def future_node(record: GPUInstance, node: Node | None) -> Node | None:
    """The node as it will be once it is ready: as planned, corrected by what it says of itself when it is up."""
    planned = record.spec.node
    if planned is None:
        return None
    amounts = planned_amounts(planned)
    taints = tuple(Taint(taint.key, taint.value or "", taint.effect.value) for taint in planned.taints)
    labels: Mapping[str, str] = planned.labels
    if node is not None and node.ready:
        starting = {STARTUP_TAINT, *(taint.key for taint in planned.startup_taints)}
        taints = tuple(
            taint for taint in node.taints if taint.key not in starting and not taint.key.startswith(PASSING_TAINTS)
        )
        labels = {**labels, **node.labels}
        # Its driver may still be starting, and then it has fewer devices than it will.
        devices = {name: max(amount, node.allocatable.amount(name)) for name, amount in amounts.items() if "/" in name}
        amounts = Resources({**amounts, **node.allocatable, **devices})
    return Node(
        name=planned.name,
        uid=node.uid if node is not None else "",
        resource_version=node.resource_version if node is not None else 0,
        created=node.created if node is not None else record.metadata.creation_timestamp or _LONG_AGO,
        labels=labels,
        taints=taints,
        capacity=amounts,
        allocatable=amounts,
        ready=False,
    )


def planned_amounts(planned: PlannedNode) -> Resources:
    """In the scheduler's integers, AMPLE where the plan does not say."""
    return Resources({**dict.fromkeys(_ALWAYS_THERE, AMPLE), **Resources.parse(planned.allocatable)})


def planned_figures(amounts: Resources) -> dict[str, Figure]:
    """The same as a `PlannedNode` states it: Kubernetes quantities, and nothing where nobody knows."""
    return {
        name: f"{amount}m" if name == CPU else amount for name, amount in amounts.items() if 0 < amount < AMPLE // 2
    }


def daemon_overhead(node: Node, daemons: Iterable[PodShape]) -> Resources:
    """What DaemonSets will take of a new node: of those whose node selector and tolerations fit it.

    A DaemonSet writes the name of the node over the node affinity of its pods, so what that had been is not known;
    such a one counts everywhere. Labels that another controller adds to the node later are not foreseen.
    """
    total = _NOTHING
    for shape in daemons:
        anywhere = replace(shape, node_affinity=_without_names(shape.node_affinity))
        if barred(anywhere, node) is None:
            total += shape.requests
    return total


def _without_names(terms: tuple[NodeSelectorTerm, ...] | None) -> tuple[NodeSelectorTerm, ...] | None:
    kept = tuple(NodeSelectorTerm(term.match_expressions) for term in terms or () if term.match_expressions)
    return kept or None
