"""Who is on the nodes that Forebay looks after, kept from tick to tick where nothing has changed."""

from collections.abc import Callable

from forebay.model.workloads import Pod


class PodsByNode:
    """Kept current with the view of pods. `on` are the pods bound to a node, whoever they are."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Pod, ...]] = {}

    def add(self, new: Pod) -> None:
        if self._known:  # which is not so while the view fills
            self.change(None, new)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        for pod in (old, new):
            if pod is not None and pod.node is not None:
                self._known.pop(pod.node, None)

    def of(self, node: str, on: Callable[[str], tuple[Pod, ...]]) -> tuple[Pod, ...]:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = tuple(pod for pod in on(node) if pod.occupies_node)
        return found
