"""Changes to nodes of GPUInstances (planned labels, taints, startup taints) and to their planned pods."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.instance_order import PlannedNode
from forebay.api.names import (
    ANNOTATED_ANNOTATION,
    GROUP,
    OUT_OF_SERVICE_TAINT,
    OUT_OF_SERVICE_VALUE,
    PREDECESSOR_PREFIX,
    STARTUP_TAINT,
    WELL_KNOWN_LABELS,
)
from forebay.api.parts import TaintEffect
from forebay.demand.planned_pods import is_gone
from forebay.demand.refusal import RecordRefusal, refusal_holds
from forebay.demand.reservation import Reservations
from forebay.demand.startup_taint import AddToleration, OpenNode, ReserveNode, startup_taints
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.steps import AnyStep, Launch, WriteStatus
from forebay.model.kept import among, kept
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.requirements import Effect, Taint
from forebay.planning.pool_permissions import is_clusters_label
from forebay.reconcile.decisions import SyncNode
from forebay.reconcile.snapshot import Snapshot

_REGISTERED: Final = frozenset({InstanceState.JOINED, InstanceState.READY})
_OUT_OF_SERVICE: Final = Taint(OUT_OF_SERVICE_TAINT, OUT_OF_SERVICE_VALUE, Effect.NO_EXECUTE)
_OWN_PREFIXES: Final = (f"{GROUP}/", PREDECESSOR_PREFIX)


#: From so many pods on that lack a toleration, or are to be bound now, the API server is what pods wait for.
RUSH: Final = 20
#: So many tolerations are written in one tick.
TOLERATIONS_AT_ONCE: Final = 150
#: In a rush, news of a node that has been Ready for less than this may wait.
NEWS_WAIT: Final = timedelta(seconds=15)
_NEWS: Final = frozenset({Reason.NODE_JOINED, Reason.NODE_READY})


class SyncedNodes(NamedTuple):
    decisions: tuple[SyncNode, ...]
    #: GPUInstances, by name, of nodes that are not as planned yet, or may not be.
    pending: frozenset[str]


def sync_nodes(snapshot: Snapshot, records: Iterable[GPUInstance], besides: Collection[str] = ()) -> SyncedNodes:
    """Nodes of these records that lack labels or taints of their plan, such as the Node of an owned machine that
    existed before.

    Not those named in `besides`, which are being changed already.
    """
    found: list[SyncNode] = []
    pending: set[str] = set()
    for record in records:
        planned = record.spec.node
        if planned is None or record.state not in _REGISTERED:
            continue
        node = snapshot.nodes.get(planned.name)
        if planned.name in besides or planned.name != record.node_name:
            # What is settled follows the node that the record has, not the planned one.
            pending.add(record.metadata.name)
        if node is None or not node.ready or node.name in besides:
            continue
        labels = {
            key: value
            for key, value in planned.labels.items()
            # Labels outside our prefixes may have been changed on purpose, and are not set back.
            if (key not in node.labels and _is_writable(key))
            or (key.startswith(_OWN_PREFIXES) and node.labels.get(key) != value)
        }
        present = {(each.key, each.effect) for each in node.taints}
        # A taint that evicts is not put on a node where pods may run already.
        written = (each for each in planned.taints if each.effect is not TaintEffect.NO_EXECUTE)
        missing = (each for each in written if (each.key, each.effect.value) not in present)
        taints = tuple(Taint(each.key, each.value or "", each.effect.value) for each in missing)
        annotations = _missing_annotations(planned, node)
        if labels or taints or annotations:
            pending.add(record.metadata.name)
            found.append(SyncNode(record=record, node=node, labels=labels, taints=taints, annotations=annotations))
    return SyncedNodes(tuple(found), frozenset(pending))


def _missing_annotations(planned: PlannedNode, node: Node) -> Mapping[str, str]:
    """Planned annotations, once: annotations of others are not read, so one of Forebay's says which were written."""
    if not planned.annotations:
        return {}
    text = "\n".join(f"{key}={value}" for key, value in sorted(planned.annotations.items()))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    if node.annotations.get(ANNOTATED_ANNOTATION) == digest:
        return {}
    return {**planned.annotations, ANNOTATED_ANNOTATION: digest}


def _is_writable(key: str) -> bool:
    """Whether Forebay writes the label. Others of Kubernetes' own domains a node has from its kubelet or administrator,
    whatever is planned: pods trust them.
    """
    return key in WELL_KNOWN_LABELS or not is_clusters_label(key)


def out_of_service(snapshot: Snapshot) -> Iterator[SyncNode]:
    """Nodes that get the out-of-service taint, because their machine is proven off under its pods, or lose it.

    Kubernetes deletes terminating pods of such a node and detaches their volumes, so that a StatefulSet recovers.
    """
    in_use = _in_use(snapshot.records)
    for record in among(snapshot.records, is_gone):
        node = snapshot.nodes.get(record.node_name or "")
        if node is None or node.ready or node.name in in_use:
            continue
        if not policy_of(record).node_outlives_it:
            continue  # the Node is deleted instead
        pods = snapshot.pods_by_node.get(node.name, ())
        tainted = any(each.key == _OUT_OF_SERVICE.key for each in node.taints)
        if not tainted and any(pod.occupies_node for pod in pods):
            yield SyncNode(record=record, node=node, labels={}, taints=(_OUT_OF_SERVICE,))
    for node in snapshot.nodes_by_taint.get(OUT_OF_SERVICE_TAINT, ()):
        ours = out_of_service_taint(node)
        if ours is not None and (node.ready or node.name in in_use):
            yield SyncNode(record=None, node=node, labels={}, taints=(), remove=(ours,))


@kept
def _in_use(records: tuple[GPUInstance, ...]) -> frozenset[str | None]:
    return frozenset(record.node_name for record in records if record.state is not InstanceState.GONE)


def out_of_service_taint(node: Node) -> Taint | None:
    """Our out-of-service taint on the node; None if there is none, or if somebody else has set one."""
    return next((each for each in node.taints if each == _OUT_OF_SERVICE), None)


def reserve_nodes(
    snapshot: Snapshot, reservations: Reservations, steps: Iterable[AnyStep]
) -> tuple[ReserveNode | AddToleration | OpenNode, ...]:
    """Startup taints and tolerations, before the launches among `steps`."""
    return startup_taints(
        snapshot.records,
        snapshot.nodes,
        snapshot.pending,
        snapshot.soon_used.by_node,
        snapshot.now,
        tainted=snapshot.nodes_by_taint.get(STARTUP_TAINT, ()),
        to_launch={step.record.metadata.name for step in steps if isinstance(step, Launch)},
        ports=snapshot.ports,
        pods_by_node=snapshot.pods_by_node,
        refused={each.pod.uid for each in reservations.refused},
        intolerant=snapshot.intolerant,
    )


def most_urgent(
    snapshot: Snapshot, reserved: Sequence[ReserveNode | AddToleration | OpenNode]
) -> tuple[ReserveNode | AddToleration | OpenNode, ...]:
    """`reserved`, of tolerations only as many as are written within seconds: those for nodes that are Ready first.

    The scheduler cannot bind a pod whose node is not Ready yet, but tries. The next tick knows more Ready nodes.
    """
    tolerations = [each for each in reserved if isinstance(each, AddToleration)]
    if len(tolerations) <= TOLERATIONS_AT_ONCE:
        return tuple(reserved)

    def comes_later(each: AddToleration) -> bool:
        node = snapshot.nodes.get(each.record.node_name or "")
        return node is None or not node.ready

    others = (each for each in reserved if not isinstance(each, AddToleration))
    return (*others, *sorted(tolerations, key=comes_later)[:TOLERATIONS_AT_ONCE])


def giving_way(
    snapshot: Snapshot, steps: tuple[AnyStep, ...], reserved: Iterable[ReserveNode | AddToleration | OpenNode]
) -> tuple[AnyStep, ...]:
    """The steps; in a rush, without those that only tell of nodes that have registered or are Ready.

    Pods are bound as soon as they have their tolerations, whatever the records say of the nodes. When hundreds of
    machines come up at once, the last pods would wait seconds for that to be written: for their tolerations, and then
    for the scheduler, whose bindings go through the same API server. The next tick decides it again.
    """
    news = [step for step in steps if isinstance(step, WriteStatus) and _is_news(snapshot, step)]
    if not news:
        return steps
    pending = {pod.uid for pod in snapshot.pending}
    to_bind = sum(pod.uid in pending for step in news for pod in step.record.spec.pods)
    if max(to_bind, sum(isinstance(each, AddToleration) for each in reserved)) < RUSH:
        return steps
    later = {step.record.metadata.name for step in news}
    return tuple(step for step in steps if step.record.metadata.name not in later)


def _is_news(snapshot: Snapshot, step: WriteStatus) -> bool:
    node = snapshot.nodes.get(step.record.node_name or "") if step.reason in _NEWS else None
    return node is not None and node.ready_since is not None and snapshot.now < node.ready_since + NEWS_WAIT


def record_refusals(snapshot: Snapshot, reservations: Reservations) -> tuple[RecordRefusal, ...]:
    """Refusals to record on pods, and recorded ones that hold no more."""
    refused = {each.pod.uid for each in reservations.refused}
    found: list[RecordRefusal] = []
    for pod in snapshot.pending:
        if pod.uid in refused and pod.refusal is None:
            found.append(RecordRefusal(pod=pod, message=pod.unschedulable_message or ""))
        elif pod.uid not in refused and pod.refusal is not None and not refusal_holds(pod):
            found.append(RecordRefusal(pod=pod, message=None))
    return tuple(found)
