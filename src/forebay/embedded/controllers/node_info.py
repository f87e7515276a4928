"""One node as the scheduler sees it: what it has, what is taken, and what it says to a pod of some shape."""

from collections import Counter
from datetime import UTC, datetime

import msgspec

from forebay.embedded.api.objects import ObjectKey
from forebay.model.fit import Filter, barred, preference
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.requirements import tolerates
from forebay.model.workloads import POD_COUNT, PodShape

#: The real scheduler does not say which, since there may be one per node.
_UNTOLERATED = "node(s) had untolerated taint(s)"
_NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
_TOO_MANY = "Too many pods"
#: What a pod that asks for no cpu or memory is taken to use when nodes are compared, as the real scheduler does.
_ASSUMED = {"cpu": 100, "memory": 200 * 2**20}
_MOST_OPINIONS = 256

UNKNOWN = Node(
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
    """A pod's shape, one object for all pods alike."""

    shape: PodShape
    #: The same for all that want the same of a node's labels and taints, whatever they request.
    taste: int
    #: What it asks for that this scheduler does not do.
    unsupported: str
    requests: Resources
    #: cpu and memory as they count when nodes are compared.
    weight: tuple[int, ...]

    @classmethod
    def of(cls, shape: PodShape, taste: int, unsupported: str = "") -> "SchedulingShape":
        weight = tuple(shape.requests.amount(name) or least for name, least in _ASSUMED.items())
        return cls(shape=shape, taste=taste, unsupported=unsupported, requests=shape.requests, weight=weight)


class FilterResult(msgspec.Struct, frozen=True, gc=False):
    """What one node says to one shape: how much it likes it, or why not and whether emptying the node would help."""

    score: int = 0
    reasons: tuple[str, ...] = ()
    resolvable: bool = False


class NodeInfo:
    """One node: what it has, what is taken and what is kept for nominated pods."""

    __slots__ = ("kept", "node", "opinions", "ports", "taken", "used", "weight")

    def __init__(self) -> None:
        self.node = UNKNOWN
        self.used: Counter[str] = Counter()
        self.weight = [0, 0]
        self.ports: Counter[tuple[int, str]] = Counter()
        self.taken: dict[ObjectKey, SchedulingShape] = {}
        self.kept: dict[ObjectKey, SchedulingShape] = {}
        #: What the parts that do not change with the pods on the node say to each shape: a reason, or liking.
        self.opinions: dict[int, str | int] = {}

    def take(self, key: ObjectKey, ask: SchedulingShape) -> None:
        self.taken[key] = ask
        self._book(ask, 1)

    def give_back(self, key: ObjectKey) -> None:
        self._book(self.taken.pop(key), -1)

    def _book(self, ask: SchedulingShape, by: int) -> None:
        for name, amount in ask.requests.items():
            self.used[name] += by * amount
        for port in ask.shape.host_ports:
            self.ports[port] += by
        cpu, memory = ask.weight
        self.weight[0] += by * cpu
        self.weight[1] += by * memory

    def opinion(self, ask: SchedulingShape) -> str | int:
        known = self.opinions.get(ask.taste)
        if known is None:
            if len(self.opinions) > _MOST_OPINIONS:
                self.opinions.clear()
            known = self.opinions[ask.taste] = self._form_opinion(ask.shape)
        return known

    def _form_opinion(self, shape: PodShape) -> str | int:
        misfit = barred(shape, self.node)
        if misfit is not None:
            return _UNTOLERATED if misfit.filter is Filter.TAINT_TOLERATION else str(misfit)
        disliked = sum(not taint.repels and not tolerates(shape.tolerations, taint) for taint in self.node.taints)
        # The plugins' weights; the real ones are scaled so that the best node of each gets 100.
        return 2 * min(preference(shape, self.node), 100) - 3 * 100 * disliked

    def free(self, ask: SchedulingShape, but: ObjectKey | None) -> dict[str, int]:
        """Of what is asked for, less what is kept: room is kept against pods of equal or lower priority."""
        have = self.node.allocatable
        free = {name: have.amount(name) - self.used[name] for name in ask.requests}
        for key, other in self.kept.items():
            if key != but and other.shape.priority >= ask.shape.priority:
                for name, amount in other.requests.items():
                    if name in free:
                        free[name] -= amount
        return free

    def ports_clash(self, ask: SchedulingShape, but: ObjectKey | None) -> bool:
        wanted = ask.shape.host_ports
        if not wanted:
            return False
        kept = {port for key, other in self.kept.items() if key != but for port in other.shape.host_ports}
        return any(self.ports[port] or port in kept for port in wanted)

    def judge(self, ask: SchedulingShape, but: ObjectKey | None = None) -> FilterResult:
        opinion = self.opinion(ask)
        if isinstance(opinion, str):
            return FilterResult(reasons=(opinion,))
        if self.ports_clash(ask, but):
            return FilterResult(reasons=(_NO_PORTS,), resolvable=True)
        free = self.free(ask, but)
        short = [name for name, amount in ask.requests.items() if amount > free[name]]
        if short:
            hopeless = any(ask.requests[name] > self.node.allocatable.amount(name) for name in short)
            return FilterResult(reasons=tuple(_short_of(name) for name in short), resolvable=not hopeless)
        return FilterResult(score=opinion + self._emptiness(ask))

    def _emptiness(self, ask: SchedulingShape) -> int:
        """LeastAllocated over cpu and memory, 0 to 100."""
        total = 0
        for name, used, asked in zip(_ASSUMED, self.weight, ask.weight, strict=True):
            have = self.node.allocatable.amount(name)
            if have > 0:
                total += max(0, have - used - asked) * 100 // have
        return total // 2

    def room(self, ask: SchedulingShape) -> int:
        """How many more pods of this shape would fit."""
        if isinstance(self.opinion(ask), str) or self.ports_clash(ask, None):
            return 0
        free = self.free(ask, None)
        return max(0, min(free[name] // amount for name, amount in ask.requests.items()))


def _short_of(name: str) -> str:
    return _TOO_MANY if name == POD_COUNT else f"Insufficient {name}"
