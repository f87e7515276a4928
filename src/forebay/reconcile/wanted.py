"""Whether a GPUInstance is still wanted, asked by its purpose."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState, Purpose
from forebay.demand.planned_pods import is_leaving, live_containers
from forebay.demand.replacements import replaced
from forebay.model.kept import among
from forebay.reconcile.snapshot import Snapshot

PoolName = tuple[str, str]


def static_nodes(snapshot: Snapshot) -> dict[PoolName, frozenset[str]]:
    """By pool, the GPUInstances (UIDs) that make up its minNodes: the oldest that are not on their way out."""
    live: defaultdict[PoolName, list[GPUInstance]] = defaultdict(list)
    if not among(snapshot.records, _is_static):
        return {}
    for record in snapshot.records:
        pool = record.spec.pool_ref
        if pool is not None and counts_as_node(record):
            live[pool.namespace, pool.name].append(record)
    return {
        pool.key: frozenset(each.uid for each in sorted(live[pool.key], key=_by_age)[: pool.spec.min_nodes])
        for pool in snapshot.pools
    }


def _is_static(record: GPUInstance) -> bool:
    return record.purpose is Purpose.STATIC


def counts_as_node(record: GPUInstance) -> bool:
    """Whether the GPUInstance is a node of its pool, or becomes one and stays."""
    return record.spec.delivers.has_node and record.state is not InstanceState.GONE and not is_leaving(record)


def _by_age(record: GPUInstance) -> tuple[bool, float, str]:
    created = record.metadata.creation_timestamp
    return created is None, created.timestamp() if created is not None else 0.0, record.uid


class Wanted:
    """Answers for all GPUInstances of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._waiting = {pod.uid for pod in snapshot.pending}
        self._pods_by_node = snapshot.pods_by_node
        self._container_pods = snapshot.container_pods
        self._containers = live_containers(snapshot.records)
        self._static = static_nodes(snapshot)
        self._replacing = {each.by.uid for each in replaced(snapshot.records)}

    def __call__(self, record: GPUInstance) -> bool:
        return record.uid in self._replacing or _BY_PURPOSE[record.purpose](self, record)

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

    def _for_min_nodes(self, record: GPUInstance) -> bool:
        """Its pool has not enough nodes without it, or pods are bound there. Of a pool that is not known, all are."""
        pool = record.spec.pool_ref
        static = self._static.get((pool.namespace, pool.name)) if pool is not None else None
        return static is None or record.uid in static or bool(self._pods_by_node.get(record.node_name or "", ()))

    def _until_revoked(self, _record: GPUInstance) -> bool:
        """Until its pool, class or NodeProvisioner is deleted, or whoever sizes these terminates it."""
        return True


_BY_PURPOSE: Final[Mapping[Purpose, Callable[[Wanted, GPUInstance], bool]]] = {
    Purpose.PODS: Wanted._for_pods,  # noqa: SLF001 (its own class)
    Purpose.STATIC: Wanted._for_min_nodes,  # noqa: SLF001
    Purpose.GROUP: Wanted._until_revoked,  # noqa: SLF001
    Purpose.ADOPTED: Wanted._until_revoked,  # noqa: SLF001
}
