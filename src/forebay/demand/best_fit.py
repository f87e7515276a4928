"""Best-fit search: among nodes that fill up one pod at a time, the fitting node with the fewest free GPUs."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from forebay.demand.co_location import has_anti_affinity, violates_anti_affinity
from forebay.demand.free_capacity import FreeNode, Port
from forebay.model.fit import barred
from forebay.model.workloads import Pod, PodShape


class SimulatedNode:
    """A node with the pods on it and what they leave free, as in kube-scheduler's NodeInfo. Changes as pods are added.

    `anti_affinity` says whether any pod on the node has required anti-affinity on the hostname: without any on either
    side, the comparison pod by pod is skipped.
    """

    __slots__ = ("anti_affinity", "free", "free_node", "pods", "ports")

    def __init__(self, free_node: FreeNode, pods_by_node: Mapping[str, Collection[Pod]] | None) -> None:
        self.free_node = free_node
        self.free = free_node.free
        self.ports: set[Port] | frozenset[Port] = free_node.ports
        self.pods: list[Pod] = list(pods_by_node.get(free_node.node.name, ())) if pods_by_node else []
        self.anti_affinity = any(has_anti_affinity(pod) for pod in self.pods)

    def has_room(self, shape: PodShape) -> bool:
        """Whether resources and host ports are free: the part of `fit.misfit` that changes as pods are added."""
        if shape.host_ports and any(port in self.ports for port in shape.host_ports):
            return False
        return shape.requests.fits_within(self.free)

    def allows(self, pod: Pod, *, anti_affinity: bool) -> bool:
        """Whether no anti-affinity stands between the pod and the pods on the node."""
        return not (anti_affinity or self.anti_affinity) or not violates_anti_affinity(pod, self.pods)

    def add(self, pod: Pod, *, anti_affinity: bool) -> None:
        self.free -= pod.shape.requests
        if pod.shape.host_ports:
            self.ports = {*self.ports, *pod.shape.host_ports}
        self.pods.append(pod)
        self.anti_affinity = self.anti_affinity or anti_affinity


class Eligibility(NamedTuple):
    """Which nodes (by index) taints, selectors and node affinity allow; nodes not checked yet are in neither set.

    Shared by all shapes that differ in their requests only.
    """

    ineligible: set[int]
    eligible: set[int]


class ShapeSearch(NamedTuple):
    """The search for one pod shape, shared by its pods. Nodes only fill up: what was too small once stays too small."""

    shape: PodShape
    #: The GPU resource by which nodes are ordered, and the requested amount of it.
    gpu: str
    amount: int
    anti_affinity: bool
    eligibility: Eligibility
    #: Nodes, by index, without enough room for the shape.
    too_small: set[int]


class NodesByFreeGPUs:
    """Nodes ordered by their free amount of each GPU resource, the smallest first."""

    def __init__(self, nodes: Sequence[SimulatedNode], indexes: Iterable[int]) -> None:
        self._nodes = nodes
        self._orders: dict[str, list[tuple[int, int]]] = {}
        #: Shapes (by `id`) that no node here has room for any more.
        self._exhausted: set[int] = set()
        for index in indexes:
            for name, amount in nodes[index].free.items():
                # Every extended resource, not only `*/gpu`: the user may have configured others as GPUs.
                if "/" in name and amount > 0:
                    self._orders.setdefault(name, []).append((amount, index))
        for order in self._orders.values():
            order.sort()

    def find(self, search: ShapeSearch, pod: Pod) -> int | None:
        """Index of the best-fitting node for the pod; None where no node fits."""
        if id(search.shape) in self._exhausted:
            return None
        too_small, ineligible = search.too_small, search.eligibility.ineligible
        order = self._orders.get(search.gpu, [])
        any_room = False
        for _, index in islice(order, bisect_left(order, (search.amount, -1)), None):
            if index in ineligible or index in too_small:
                continue
            node = self._nodes[index]
            if not fits(search, index, node):
                continue
            if node.allows(pod, anti_affinity=search.anti_affinity):
                return index
            # Anti-affinity depends on the pod's labels and namespace: another pod of this shape may fit there.
            any_room = True
        if not any_room:
            self._exhausted.add(id(search.shape))
        return None

    def update(self, index: int, node: SimulatedNode, added: PodShape) -> None:
        """Restores the order after a pod of shape `added` was added to the node."""
        for name, amount in added.requests.items():
            if (order := self._orders.get(name)) is not None:
                # A node that had room for it is in the order.
                free = node.free.amount(name)
                del order[bisect_left(order, (free + amount, index))]
                if free > 0:
                    insort(order, (free, index))


def fits(search: ShapeSearch, index: int, node: SimulatedNode) -> bool:
    """Whether the node is eligible for the shape and has room for it. Remembers the answer in `search`."""
    ineligible, eligible = search.eligibility
    if index not in eligible:
        if index in ineligible:
            return False
        if barred(search.shape, node.free_node.node) is not None:
            ineligible.add(index)
            return False
        eligible.add(index)
    if not node.has_room(search.shape):
        search.too_small.add(index)
        return False
    return True
