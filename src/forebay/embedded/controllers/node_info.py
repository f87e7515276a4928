"""NodeInfo: one node in the scheduler's cache with the requests of its pods, and how it filters and scores a pod."""

from collections import Counter
from datetime import UTC, datetime

import msgspec

from forebay.embedded.api.objects import StoredKey
from forebay.model.fit import Filter, barred, preference
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.requirements import tolerates
from forebay.model.workloads import POD_COUNT, PodShape

#: kube-scheduler does not name the taint, which may differ from node to node.
_UNTOLERATED = "node(s) had untolerated taint(s)"
_NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
_TOO_MANY_PODS = "Too many pods"
#: What scoring assumes of a pod that requests no cpu or no memory (kube-scheduler's non-zero requests).
_NON_ZERO_DEFAULTS = {"cpu": 100, "memory": 200 * 2**20}
_MAX_CACHED_FILTERS = 256

#: Stands for a node that pods are bound to or nominated for and that does not exist.
MISSING_NODE = Node(
    name="",
    uid="",
    resource_version=0,
    created=datetime.min.replace(tzinfo=UTC),
    labels={},
    capacity=Resources(),
    allocatable=Resources(),
    ready=False,
)


class SchedulingShape(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A pod's shape as the scheduler uses it: one object for all pods that are alike, compared by identity."""

    shape: PodShape
    #: Equal for shapes with equal tolerations, node selector and node affinity, whatever they request.
    node_filter: int
    #: A feature in the pod's spec that this scheduler does not implement, as a sentence; empty where there is none.
    unsupported: str
    requests: Resources
    #: cpu and memory as scoring counts them.
    non_zero_requests: tuple[int, ...]

    @classmethod
    def of(cls, shape: PodShape, node_filter: int, unsupported: str = "") -> "SchedulingShape":
        non_zero = tuple(shape.requests.amount(name) or least for name, least in _NON_ZERO_DEFAULTS.items())
        return cls(
            shape=shape,
            node_filter=node_filter,
            unsupported=unsupported,
            requests=shape.requests,
            non_zero_requests=non_zero,
        )


class FilterResult(msgspec.Struct, frozen=True, gc=False):
    """Result of one node for one shape: its score, or the reasons against it.

    `resolvable`: an empty node would do, so preemption could help (kube-scheduler's Unschedulable, in contrast to
    UnschedulableAndUnresolvable).
    """

    score: int = 0
    reasons: tuple[str, ...] = ()
    resolvable: bool = False


class NodeInfo:
    """One node, the pods bound to it, and the pods nominated for it."""

    __slots__ = ("filters", "node", "nominated", "non_zero_requested", "pods", "requested", "used_ports")

    def __init__(self) -> None:
        self.node = MISSING_NODE
        self.requested: Counter[str] = Counter()
        self.non_zero_requested = [0, 0]
        self.used_ports: Counter[tuple[int, str]] = Counter()
        self.pods: dict[StoredKey, SchedulingShape] = {}
        self.nominated: dict[StoredKey, SchedulingShape] = {}
        #: By node filter, the results that do not depend on the node's pods: a reason against the node, or a score.
        self.filters: dict[int, str | int] = {}

    def add_pod(self, key: StoredKey, shape: SchedulingShape) -> None:
        self.pods[key] = shape
        self._count(shape, 1)

    def remove_pod(self, key: StoredKey) -> None:
        self._count(self.pods.pop(key), -1)

    def _count(self, shape: SchedulingShape, by: int) -> None:
        for name, amount in shape.requests.items():
            self.requested[name] += by * amount
        for port in shape.shape.host_ports:
            self.used_ports[port] += by
        cpu, memory = shape.non_zero_requests
        self.non_zero_requested[0] += by * cpu
        self.non_zero_requested[1] += by * memory

    def _node_filter(self, shape: SchedulingShape) -> str | int:
        """The reason of a taint, label or cordon against the node, or its score for taints and preferred affinity."""
        known = self.filters.get(shape.node_filter)
        if known is None:
            if len(self.filters) > _MAX_CACHED_FILTERS:
                self.filters.clear()
            known = self.filters[shape.node_filter] = self._run_node_filter(shape.shape)
        return known

    def _run_node_filter(self, shape: PodShape) -> str | int:
        misfit = barred(shape, self.node)
        if misfit is not None:
            return _UNTOLERATED if misfit.filter is Filter.TAINT_TOLERATION else str(misfit)
        disliked = sum(not taint.repels and not tolerates(shape.tolerations, taint) for taint in self.node.taints)
        # The weights of kube-scheduler's plugins, which scales their scores so that the best node gets 100.
        return 2 * min(preference(shape, self.node), 100) - 3 * 100 * disliked

    def _free(self, shape: SchedulingShape, besides: StoredKey | None) -> dict[str, int]:
        """Free amounts of the requested resources, less what is nominated to pods of equal or higher priority.

        The nomination of `besides` does not count: it is the pod's own.
        """
        have = self.node.allocatable
        free = {name: have.amount(name) - self.requested[name] for name in shape.requests}
        for key, other in self.nominated.items():
            if key != besides and other.shape.priority >= shape.shape.priority:
                for name, amount in other.requests.items():
                    if name in free:
                        free[name] -= amount
        return free

    def _ports_conflict(self, shape: SchedulingShape, besides: StoredKey | None) -> bool:
        wanted = shape.shape.host_ports
        if not wanted:
            return False
        nominated = {port for key, other in self.nominated.items() if key != besides for port in other.shape.host_ports}
        return any(self.used_ports[port] or port in nominated for port in wanted)

    def evaluate(self, shape: SchedulingShape, besides: StoredKey | None = None) -> FilterResult:
        """All filters but inter-pod affinity, and the score where they pass. `besides` is the pod's own key."""
        node_filter = self._node_filter(shape)
        if isinstance(node_filter, str):
            return FilterResult(reasons=(node_filter,))
        if self._ports_conflict(shape, besides):
            return FilterResult(reasons=(_NO_PORTS,), resolvable=True)
        free = self._free(shape, besides)
        short = [name for name, amount in shape.requests.items() if amount > free[name]]
        if short:
            too_small = any(shape.requests[name] > self.node.allocatable.amount(name) for name in short)
            return FilterResult(reasons=tuple(_insufficient(name) for name in short), resolvable=not too_small)
        return FilterResult(score=node_filter + self._least_allocated(shape))

    def _least_allocated(self, shape: SchedulingShape) -> int:
        """LeastAllocated over cpu and memory, 0 to 100."""
        total = 0
        for name, used, asked in zip(_NON_ZERO_DEFAULTS, self.non_zero_requested, shape.non_zero_requests, strict=True):
            have = self.node.allocatable.amount(name)
            if have > 0:
                total += max(0, have - used - asked) * 100 // have
        return total // 2

    def pods_that_fit(self, shape: SchedulingShape) -> int:
        """How many more pods of this shape would fit."""
        if isinstance(self._node_filter(shape), str) or self._ports_conflict(shape, None):
            return 0
        free = self._free(shape, None)
        return max(0, min(free[name] // amount for name, amount in shape.requests.items()))


def _insufficient(resource: str) -> str:
    return _TOO_MANY_PODS if resource == POD_COUNT else f"Insufficient {resource}"
