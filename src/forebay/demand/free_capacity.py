"""Nodes with free GPUs: those that are ready, and those that GPUInstances are launching."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState, Purpose
from forebay.api.instance_order import PlannedNode
from forebay.api.names import CORDONED_ANNOTATION, STARTUP_TAINT
from forebay.demand.initialization import is_initialized
from forebay.demand.planned_pods import is_leaving
from forebay.model.fit import barred
from forebay.model.nodes import CONDITION_TAINTS, Node, is_startup_taint
from forebay.model.quantities import CPU, Resources
from forebay.model.reasons import Reason
from forebay.model.requirements import NodeSelectorTerm, Taint
from forebay.model.sources import AMPLE
from forebay.model.workloads import POD_COUNT, Pod, PodShape

Port = tuple[int, str]

#: Resources of every machine. Where the plan states no amount, there is assumed to be enough.
_STANDARD_RESOURCES: Final = (CPU, "memory", "ephemeral-storage", POD_COUNT)
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_NOTHING: Final = Resources()
_NO_PORTS: Final[frozenset[Port]] = frozenset()
#: Reasons for which a node is not counted on, though its machine stays on: it is past its deadline, or people hold it.
_NOT_COMING: Final = frozenset({Reason.JOIN_TIMEOUT, Reason.GPUS_MISSING, Reason.UNDER_MAINTENANCE})
_NO_PODS: Final[frozenset[str]] = frozenset()


class FreeNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node that can help a pod that requests a GPU: as it is, or as it will be once its GPUInstance is ready."""

    node: Node
    free: Resources
    #: Host ports in use.
    ports: frozenset[Port] = _NO_PORTS
    #: UIDs of the pods that the node was launched for.
    planned_for: frozenset[str] = _NO_PODS
    #: Name of the GPUInstance that is launching the node; None for a ready node.
    launching: str | None = None
    #: Whether a NodeProvisioner sizes the group of the node: such a node is launched for no pod in particular.
    in_group: bool = False

    @property
    def ready(self) -> bool:
        return self.launching is None


def free_nodes(
    nodes: Mapping[str, Node],
    used: Mapping[str, Resources],
    records: Iterable[GPUInstance] = (),
    *,
    ports: Mapping[str, frozenset[Port]] | None = None,
    daemons: Collection[PodShape] = (),
    preempting: Iterable[Pod] = (),
    gpu_resources: Collection[str] | None = None,
) -> tuple[FreeNode, ...]:
    """All nodes with a free GPU, and all that are launching for pods. No other can help a pod that requests a GPU.

    A GPUInstance counts as launching from Requested until its node is usable, with the resources of its plan. Draining
    and terminating GPUInstances do not count, nor do nodes that are cordoned or not ready. `daemons` (one pod shape
    per DaemonSet) will take their part of every new node they fit. `preempting` pods have room reserved by the
    scheduler on their nominated node.
    """
    reserved: defaultdict[str, Resources] = defaultdict(Resources)
    for pod in preempting:
        if pod.nominated_node is not None and pod.node is None:
            reserved[pod.nominated_node] += pod.shape.requests
    found: list[FreeNode] = []
    recorded: set[str] = set()
    for record in records:
        state, name = record.state, record.node_name
        if name is None or state is InstanceState.GONE:
            continue
        recorded.add(name)
        node, taken = nodes.get(name), used.get(name, _NOTHING)
        if state is InstanceState.READY and node is not None and not _has_free_gpu(node, taken, gpu_resources):
            continue  # the most frequent case, decided early
        free_node = None if is_leaving(record) else _of_record(record, state, node, taken, daemons)
        if free_node is not None:
            found.append(free_node)
    for name, node in nodes.items():
        if name not in recorded and _is_schedulable(node):
            taken = used.get(name, _NOTHING)
            if _has_free_gpu(node, taken, gpu_resources):
                found.append(FreeNode(node=_without_startup_taints(node), free=node.allocatable - taken))
    if reserved:
        found = [_without_reserved(each, reserved) for each in found]
    if ports:
        found = [replace(each, ports=ports.get(each.node.name, _NO_PORTS)) for each in found]
    # A node that is launching for pods counts for these also where it seems full: pods of its previous run may still be
    # listed on it while it registers.
    return tuple(each for each in found if each.free.any_gpu(gpu_resources) or (each.launching and each.planned_for))


def _without_reserved(free_node: FreeNode, reserved: Mapping[str, Resources]) -> FreeNode:
    amounts = reserved.get(free_node.node.name)
    return free_node if amounts is None else replace(free_node, free=free_node.free - amounts)


def _has_free_gpu(node: Node, used: Resources, gpu_resources: Collection[str] | None) -> bool:
    there = node.allocatable
    if there.gpus(gpu_resources):
        return there.gpus(gpu_resources) > used.gpus(gpu_resources)
    return there.any_gpu(gpu_resources) and (there - used).any_gpu(gpu_resources)


def _is_schedulable(node: Node) -> bool:
    return node.ready and not node.unschedulable and node.deleted is None


def _without_startup_taints(node: Node) -> Node:
    """The node without the taints that go by themselves in a moment; `reserve` waits for that as long as its grace."""
    if not any(is_startup_taint(taint.key) for taint in node.taints):
        return node
    return replace(node, taints=tuple(taint for taint in node.taints if not is_startup_taint(taint.key)))


def _of_record(
    record: GPUInstance, state: InstanceState, node: Node | None, used: Resources, daemons: Collection[PodShape]
) -> FreeNode | None:
    """The node of a GPUInstance, as it is or as it will be; None where it takes no pods."""
    planned_for = frozenset([pod.uid for pod in record.spec.pods])
    if state is InstanceState.READY and (node is None or not node.ready):
        return None  # was ready and is not now: `lifecycle` decides what becomes of it
    if node is not None:
        joined = state is InstanceState.JOINED and node.deleted is None
        up = state is InstanceState.READY or (joined and is_initialized(record, node))
        if up and not any(taint.key == STARTUP_TAINT for taint in node.taints):
            if not _is_schedulable(node):
                return None
            return FreeNode(
                node=_without_startup_taints(node),
                free=node.allocatable - used,
                planned_for=planned_for,
                in_group=record.purpose is Purpose.GROUP,
            )
        if node.unschedulable and CORDONED_ANNOTATION not in node.annotations:
            return None  # cordoned by somebody else, who wants no pods there
    if record.status is not None and record.status.reason in _NOT_COMING:
        return None
    planned = future_node(record, node)
    if planned is None:
        return None
    taken = daemon_overhead(planned, daemons)
    if node is not None and node.ready:
        # Pods on the node may already include DaemonSets: the larger of the two is the better estimate.
        taken = used.max(taken)
    # A machine that is off may still have pods of its previous run listed on its Node. The plan did not count these,
    # and counting them here would buy a second machine for the same pods.
    return FreeNode(
        node=planned, free=planned.allocatable - taken, planned_for=planned_for, launching=record.metadata.name
    )


def future_node(record: GPUInstance, node: Node | None) -> Node | None:
    """The node as it will be once ready: as planned, corrected by the Node object where that is ready already."""
    planned = record.spec.node
    if planned is None:
        return None
    amounts = planned_amounts(planned)
    taints = tuple(Taint(taint.key, taint.value or "", taint.effect.value) for taint in planned.taints)
    labels: Mapping[str, str] = planned.labels
    if node is not None and node.ready:
        starting = {STARTUP_TAINT, *(taint.key for taint in planned.startup_taints)}
        taints = tuple(
            taint for taint in node.taints if taint.key not in starting and not taint.key.startswith(CONDITION_TAINTS)
        )
        labels = {**labels, **node.labels}
        # The device plugin may still be starting: fewer devices are allocatable now than will be.
        devices = {name: max(amount, node.allocatable.amount(name)) for name, amount in amounts.items() if "/" in name}
        amounts = Resources({**amounts, **node.allocatable, **devices})
    return Node(
        name=planned.name,
        uid=node.uid if node is not None else "",
        resource_version=node.resource_version if node is not None else 0,
        created=node.created if node is not None else record.metadata.creation_timestamp or _EARLIEST,
        labels=labels,
        taints=taints,
        capacity=amounts,
        allocatable=amounts,
        ready=False,
    )


def planned_amounts(planned: PlannedNode) -> Resources:
    """Allocatable resources of a planned node, AMPLE for a standard resource that the plan does not state."""
    return Resources({**dict.fromkeys(_STANDARD_RESOURCES, AMPLE), **Resources.parse(planned.allocatable)})


def daemon_overhead(node: Node, daemons: Iterable[PodShape]) -> Resources:
    """Resources that DaemonSet pods will take of a new node, counting those whose selector and tolerations fit it.

    The DaemonSet controller replaces the node affinity of its pods by the name of their node. What the affinity was is
    not known then, so such a DaemonSet counts on every node. Labels that other controllers add later are not foreseen.
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
