"""Changes to registered nodes of GPUInstances (planned labels and taints) and to their planned pods (nominations)."""

from collections.abc import Iterator
from typing import Final

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import GROUP, PREDECESSOR_PREFIX
from forebay.demand.nomination import NominatePods, nominations
from forebay.demand.planned_pods import planned_nodes
from forebay.demand.refusal import RecordRefusal, refusal_holds
from forebay.demand.reservation import Reservations
from forebay.model.nodes import Node
from forebay.model.requirements import Effect, Taint
from forebay.reconcile.decisions import SyncNode
from forebay.reconcile.snapshot import Snapshot

_REGISTERED: Final = frozenset({InstanceState.JOINED, InstanceState.READY})
#: The value tells it from one that an administrator has set.
_OUT_OF_SERVICE: Final = Taint("node.kubernetes.io/out-of-service", "forebay", Effect.NO_EXECUTE)
_OWN_PREFIXES: Final = (f"{GROUP}/", PREDECESSOR_PREFIX)


def sync_nodes(snapshot: Snapshot) -> tuple[SyncNode, ...]:
    """Nodes that lack labels or taints of their plan, such as the Node of an owned machine that existed before."""
    found: list[SyncNode] = []
    for record in snapshot.records:
        planned = record.spec.node
        node = snapshot.nodes.get(planned.name) if planned is not None else None
        if planned is None or node is None or record.state not in _REGISTERED or not node.ready:
            continue
        labels = {
            key: value
            for key, value in planned.labels.items()
            # Labels outside our prefixes may have been changed on purpose, and are not set back.
            if key not in node.labels or (key.startswith(_OWN_PREFIXES) and node.labels[key] != value)
        }
        present = {(each.key, each.effect) for each in node.taints}
        missing = (each for each in planned.taints if (each.key, each.effect.value) not in present)
        taints = tuple(Taint(each.key, each.value or "", each.effect.value) for each in missing)
        if labels or taints:
            found.append(SyncNode(record=record, node=node, labels=labels, taints=taints))
    return tuple(found)


def out_of_service(snapshot: Snapshot) -> Iterator[SyncNode]:
    """Nodes that get the out-of-service taint, because their machine is proven off under its pods, or lose it.

    Kubernetes deletes terminating pods of such a node and detaches their volumes, so that a StatefulSet recovers.
    """
    in_use = {record.node_name for record in snapshot.records if record.state is not InstanceState.GONE}
    for record in snapshot.records:
        node = snapshot.nodes.get(record.node_name or "")
        if record.state is not InstanceState.GONE or node is None or node.ready or node.name in in_use:
            continue
        pods = snapshot.pods_by_node.get(node.name, ())
        tainted = any(each.key == _OUT_OF_SERVICE.key for each in node.taints)
        if not tainted and any(pod.occupies_node for pod in pods):
            yield SyncNode(record=record, node=node, labels={}, taints=(_OUT_OF_SERVICE,))
    for node in snapshot.nodes.values():
        ours = out_of_service_taint(node) if node.taints else None
        if ours is not None and (node.ready or node.name in in_use):
            yield SyncNode(record=None, node=node, labels={}, taints=(), remove=(ours,))


def out_of_service_taint(node: Node) -> Taint | None:
    """Our out-of-service taint on the node; None if there is none, or if somebody else has set one."""
    return next((each for each in node.taints if each == _OUT_OF_SERVICE), None)


def nominate(snapshot: Snapshot, reservations: Reservations, not_synced: set[str]) -> tuple[NominatePods, ...]:
    """Nominations to all nodes but those (by name) that still lack planned labels or taints."""
    return nominations(
        [record for record in snapshot.records if record.node_name not in not_synced],
        snapshot.nodes,
        snapshot.pending,
        snapshot.used,
        snapshot.now,
        ports=snapshot.ports,
        pods_by_node=snapshot.pods_by_node,
        refused={each.pod.uid for each in reservations.refused},
    )


def record_refusals(snapshot: Snapshot, reservations: Reservations) -> tuple[RecordRefusal, ...]:
    """Refusals to record on pods, with nominations of Forebay's to take back; and recorded ones that hold no more."""
    refused = {each.pod.uid for each in reservations.refused}
    nodes = planned_nodes(snapshot.records, refused)
    found: list[RecordRefusal] = []
    for pod in snapshot.pending:
        if pod.uid in refused:
            ours = pod.nominated_node in nodes.get(pod.uid, ())
            if ours or pod.refusal is None:
                message = pod.refusal if refusal_holds(pod) else pod.unschedulable_message or ""
                found.append(RecordRefusal(pod=pod, message=message, clear_nomination=ours))
        elif pod.refusal is not None and not refusal_holds(pod):
            found.append(RecordRefusal(pod=pod, message=None))
    return tuple(found)
