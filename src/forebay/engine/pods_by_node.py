"""Pods that occupy each node, cached between ticks until a pod of the node changes."""

from collections.abc import Callable

from forebay.model.kept import KeptMapping
from forebay.model.workloads import Pod


class PodsByNode:
    """Cache invalidated by the informer of pods."""

    def __init__(self) -> None:
        self._cached: dict[str, tuple[Pod, ...]] = {}
        #: What `of_all` returned last, and for which nodes; None after a change.
        self._last: tuple[tuple[str, ...], KeptMapping[str, tuple[Pod, ...]]] | None = None

    def add(self, new: Pod) -> None:
        if self._cached:  # empty during the first listing, when nothing can be outdated
            self.change(None, new)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            if pod is not None and pod.node is not None and self._cached.pop(pod.node, None) is not None:
                self._last = None

    def of(self, node: str, bound_to: Callable[[str], tuple[Pod, ...]]) -> tuple[Pod, ...]:
        """Pods that occupy the node. `bound_to` returns every pod bound to a node; it is called on a cache miss."""
        pods = self._cached.get(node)
        if pods is None:
            pods = self._cached[node] = tuple(pod for pod in bound_to(node) if pod.occupies_node)
        return pods

    def of_all(
        self, nodes: tuple[str, ...], bound_to: Callable[[str], tuple[Pod, ...]]
    ) -> KeptMapping[str, tuple[Pod, ...]]:
        """Pods that occupy each of the nodes: the same mapping as before, where they are the same."""
        if self._last is not None and self._last[0] is nodes:
            return self._last[1]
        known = self._cached
        found = KeptMapping((node, known[node] if node in known else self.of(node, bound_to)) for node in nodes)
        self._last = nodes, found
        return found
