"""Pods that occupy each node, cached between ticks until a pod of the node changes."""

from collections.abc import Callable, Iterable

from forebay.model.workloads import Pod


class PodsByNode:
    """Cache invalidated by the informer of pods."""

    def __init__(self) -> None:
        self._cached: dict[str, tuple[Pod, ...]] = {}

    def add(self, new: Pod) -> None:
        if self._cached:  # empty during the first listing, when nothing can be outdated
            self.change(None, new)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            if pod is not None and pod.node is not None:
                self._cached.pop(pod.node, None)

    def of(self, node: str, bound_to: Callable[[str], tuple[Pod, ...]]) -> tuple[Pod, ...]:
        """Pods that occupy the node. `bound_to` returns every pod bound to a node; it is called on a cache miss."""
        pods = self._cached.get(node)
        if pods is None:
            pods = self._cached[node] = tuple(pod for pod in bound_to(node) if pod.occupies_node)
        return pods

    def of_all(self, nodes: Iterable[str], bound_to: Callable[[str], tuple[Pod, ...]]) -> dict[str, tuple[Pod, ...]]:
        """Pods that occupy each of the nodes."""
        known = self._cached
        return {node: known[node] if node in known else self.of(node, bound_to) for node in nodes}
