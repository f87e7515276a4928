"""Resources and host ports that pods use on each node, updated with every change of a pod.

usage = NodeUsage()
pods = Informer(transport, base_url, PODS, indexes=pod_indexes(), handlers=(usage,))
...
usage.all_used(), usage.all_ports(), usage.daemons()
"""

from datetime import datetime
from typing import Final

from forebay.demand.free_capacity import Port
from forebay.model.quantities import Resources
from forebay.model.workloads import Phase, Pod, PodShape

#: Module constants, because reading an enum member is slow.
_SUCCEEDED: Final = Phase.SUCCEEDED
_FAILED: Final = Phase.FAILED


class _Daemon:
    """A DaemonSet, as far as its pods show it."""

    __slots__ = ("created", "pods", "shape")

    def __init__(self, pod: Pod) -> None:
        self.pods = 0
        self.created: datetime = pod.created
        self.shape: PodShape = pod.shape


class NodeUsage:
    """Counts the pods that are bound and have not ended. A pod that is being deleted counts until it is gone."""

    def __init__(self) -> None:
        self._amounts: dict[str, dict[str, int]] = {}
        self._ports: dict[str, dict[Port, int]] = {}
        self._daemons: dict[str, _Daemon] = {}
        #: The last result of `all_used`, out of date for the nodes in `_changed`.
        self._used: dict[str, Resources] = {}
        self._changed: set[str] = set()
        #: Pods not counted yet: counting would slow down the first list.
        self._new: list[Pod] = []

    def add(self, new: Pod) -> None:
        if new.node is not None:
            self._new.append(new)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        self._count_new()
        if old is not None:
            if new is not None and _same_usage(old, new):
                return
            self._subtract(old)
        if new is not None:
            self._add_pod(new)

    def _count_new(self) -> None:
        if self._new:
            for pod in self._new:
                self._add_pod(pod)
            self._new.clear()

    def _add_pod(self, new: Pod) -> None:
        node = new.node
        phase = new.phase
        if node is None or phase is _SUCCEEDED or phase is _FAILED:
            return
        shape = new.shape
        amounts = self._amounts.get(node)
        if amounts is None:
            self._amounts[node] = dict(shape.requests.items())
        else:
            for name, amount in shape.requests.items():
                amounts[name] = amounts.get(name, 0) + amount
        self._changed.add(node)
        if shape.host_ports:
            ports = self._ports.setdefault(node, {})
            for port in shape.host_ports:
                ports[port] = ports.get(port, 0) + 1
        owner = new.owner
        if owner is not None and owner.kind == "DaemonSet":
            self._add_daemon(owner.uid, new)

    def _subtract(self, old: Pod) -> None:
        node = old.node
        if node is None or old.phase.ended:
            return
        amounts = self._amounts.get(node, {})
        for name, amount in old.shape.requests.items():
            left = amounts[name] - amount
            if left:
                amounts[name] = left
            else:
                del amounts[name]
        if not amounts:
            self._amounts.pop(node, None)
        self._changed.add(node)
        if old.shape.host_ports:
            ports = self._ports[node]
            for port in old.shape.host_ports:
                ports[port] -= 1
                if not ports[port]:
                    del ports[port]
            if not ports:
                del self._ports[node]
        if old.owner is not None and old.owner.kind == "DaemonSet":
            daemon = self._daemons[old.owner.uid]
            daemon.pods -= 1
            if not daemon.pods:
                del self._daemons[old.owner.uid]

    def _add_daemon(self, uid: str, pod: Pod) -> None:
        daemon = self._daemons.get(uid)
        if daemon is None:
            daemon = self._daemons[uid] = _Daemon(pod)
        elif pod.created >= daemon.created:
            # The newest pod has the newest template.
            daemon.created, daemon.shape = pod.created, pod.shape
        daemon.pods += 1

    def all_used(self) -> dict[str, Resources]:
        """Requests of the pods on each node, summed as the scheduler does it. The caller owns the result."""
        self._count_new()
        for node in self._changed:
            amounts = self._amounts.get(node)
            if amounts is None:
                self._used.pop(node, None)
            else:
                self._used[node] = Resources(amounts)
        self._changed.clear()
        return self._used.copy()

    def all_ports(self) -> dict[str, frozenset[Port]]:
        """Host ports in use on each node."""
        self._count_new()
        return {node: frozenset(ports) for node, ports in self._ports.items()}

    def daemons(self) -> tuple[PodShape, ...]:
        """The shape of the newest pod of each DaemonSet that has a pod on a node."""
        self._count_new()
        return tuple(daemon.shape for daemon in self._daemons.values())


def _same_usage(old: Pod, new: Pod) -> bool:
    """Whether usage is the same: most changes of pods are of conditions and container statuses."""
    return old.node == new.node and old.shape is new.shape and old.phase is new.phase and old.owner is new.owner
