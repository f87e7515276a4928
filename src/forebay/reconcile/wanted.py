"""Whether a GPUInstance is still wanted, asked by its purpose."""

from collections.abc import Callable, Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance, Purpose
from forebay.demand.planned_pods import live_containers
from forebay.reconcile.snapshot import Snapshot


class Wanted:
    """Answers for all GPUInstances of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._waiting = {pod.uid for pod in snapshot.pending}
        self._pods_by_node = snapshot.pods_by_node
        self._container_pods = snapshot.container_pods
        self._containers = live_containers(snapshot.records)

    def __call__(self, record: GPUInstance) -> bool:
        return _BY_PURPOSE[record.purpose](self, record)

    def _for_pods(self, record: GPUInstance) -> bool:
        """Its pods still wait, or are bound where it serves them."""
        if not record.spec.delivers.has_node:
            return any(self._runs(record, pod.uid) for pod in record.spec.pods)
        if any(pod.uid in self._waiting for pod in record.spec.pods):
            return True
        bound = self._pods_by_node.get(record.node_name or "", ())
        planned = {pod.uid for pod in record.spec.pods} if bound else set()
        return any(pod.uid in planned for pod in bound)

    def _runs(self, record: GPUInstance, uid: str) -> bool:
        """Whether the pod exists, has not ended, and is for this container: not for an earlier one of two, nor for a
        node that the scheduler has bound it to.
        """
        pod, first = self._container_pods.get(uid), self._containers.get(uid)
        if pod is None or pod.deleted is not None or pod.phase.ended or first is None or first.uid != record.uid:
            return False
        container = record.spec.container
        virtual_node = container.node_name if container is not None else None
        return pod.node is None or virtual_node is None or pod.node == virtual_node

    def _until_revoked(self, _record: GPUInstance) -> bool:
        """Until its pool, class or NodeProvisioner is deleted, or whoever sizes these terminates it."""
        return True


_BY_PURPOSE: Final[Mapping[Purpose, Callable[[Wanted, GPUInstance], bool]]] = {
    Purpose.PODS: Wanted._for_pods,  # noqa: SLF001 (its own class)
    Purpose.STATIC: Wanted._until_revoked,  # noqa: SLF001
    Purpose.GROUP: Wanted._until_revoked,  # noqa: SLF001
    Purpose.ADOPTED: Wanted._until_revoked,  # noqa: SLF001
}
