"""Room for the pods of some nodes on the others, if these nodes were not there."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.demand.free_capacity import FreeNode, free_nodes
from forebay.demand.maintenance import keeps_machine
from forebay.demand.replacements import replaced, without_pods, without_promised
from forebay.demand.reservation import Reservations, reserve
from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import Snapshot


class RoomElsewhere:
    """Free room of the nodes besides those of `leaving`, less what pending pods will take of it."""

    def __init__(
        self,
        snapshot: Snapshot,
        leaving: Sequence[GPUInstance],
        *,
        launching: Iterable[str] = (),
        among: Collection[str] | None = None,
    ) -> None:
        """`launching` names GPUInstances that count as if their nodes were there; `among`, the only nodes to use."""
        self._snapshot = snapshot
        names = {each.node_name for each in leaving}
        found = free_nodes(
            snapshot.nodes,
            snapshot.used,
            snapshot.records,
            ports=snapshot.ports,
            daemons=snapshot.daemons,
            gpu_resources=snapshot.rules.gpu_resources,
        )
        others = [
            each for each in snapshot.records if each.state is InstanceState.DRAINING and each.node_name not in names
        ]
        # Pods of these count as pending, so no room has to be kept for them besides.
        drained = frozenset(each.uid for each in (*leaving, *others))
        found = without_promised(found, snapshot.records, snapshot.pods_by_node, drained)
        # A replacement is up, and its startup taint keeps it for the pods of these.
        own = {each.uid for each in leaving}
        counted = {
            *launching,
            *(
                new.metadata.name
                for old, new in replaced(snapshot.records)
                if old.uid in own and new.state is InstanceState.READY
            ),
        }
        usable = [each for each in found if each.node.name not in names]
        pending = [*(pod for pod in snapshot.pending if _waits(pod)), *movable_pods(snapshot, others)]
        placed = self._reserve(pending, usable).placed
        by_uid = {pod.uid: pod for pod in pending}
        taken: dict[str, list[Pod]] = {}
        for uid, reservation in placed.items():
            taken.setdefault(reservation.node, []).append(by_uid[uid])
        self._free = [
            without_pods(each, taken.get(each.node.name, ()))
            for each in usable
            if (each.ready or each.launching in counted) and (among is None or each.node.name in among)
        ]

    def left(self, pods: Sequence[Pod]) -> tuple[Pod, ...]:
        """Those of the pods that have no room."""
        return self._reserve(pods, self._free).left if pods else ()

    def places(self, pods: Sequence[Pod]) -> dict[str, str]:
        """By UID of a pod, the node that would take it."""
        return {uid: each.node for uid, each in self._reserve(pods, self._free).placed.items()}

    def nodes_of(self, pods: Sequence[Pod]) -> tuple[str, ...]:
        """Names of the nodes that would take the pods."""
        return tuple(sorted(set(self.places(pods).values())))

    def _reserve(self, pods: Iterable[Pod], free: Iterable[FreeNode]) -> Reservations:
        snapshot = self._snapshot
        return reserve(
            pods,
            free,
            snapshot.now,
            pods_by_node=snapshot.pods_by_node,
            gpu_resources=snapshot.rules.gpu_resources,
        )


def movable_pods(snapshot: Snapshot, records: Iterable[GPUInstance]) -> tuple[Pod, ...]:
    """Pods on the nodes of the GPUInstances that need a GPU elsewhere, as if they had no node. Others fit anywhere."""
    return tuple(
        replace(pod, node=None, nominated_node=None)
        for record in records
        for pod in snapshot.pods_by_node.get(record.node_name or "", ())
        if pod.deleted is None and keeps_machine(pod, snapshot.rules.gpu_resources)
    )


def without_nodes(snapshot: Snapshot, records: Iterable[GPUInstance]) -> Snapshot:
    """The snapshot as if the nodes of the GPUInstances, and the pods there, were not. Limits still count them."""
    names = {each.node_name for each in records}
    if not names:
        return snapshot
    return replace(
        snapshot,
        nodes={name: node for name, node in snapshot.nodes.items() if name not in names},
        pods_by_node={name: pods for name, pods in snapshot.pods_by_node.items() if name not in names},
    )


def _waits(pod: Pod) -> bool:
    return pod.node is None and pod.deleted is None and not pod.phase.ended and not pod.shape.scheduling_gates
