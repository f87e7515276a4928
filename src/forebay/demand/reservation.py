"""Reservations: which pods free and launching nodes have room for, and which pods are left to buy capacity for."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.demand.assessment import NotDemand
from forebay.demand.best_fit import Eligibility, NodesByFreeGPUs, ShapeSearch, SimulatedNode, fits
from forebay.demand.co_location import has_anti_affinity
from forebay.demand.free_capacity import FreeNode
from forebay.demand.refusal import refusal_holds
from forebay.model.quantities import GPU_SUFFIX
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod

#: How long a pod may stay unbound although a ready node seems to fit. After that the scheduler must have a reason
#: that Forebay does not see, such as a volume's zone, and the node does not count for the pod any more.
SCHEDULER_GRACE: Final = timedelta(seconds=60)
#: kube-scheduler tries every unschedulable pod again after this long, whatever has happened.
SCHEDULER_FLUSH: Final = timedelta(minutes=5)


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Room on a node that exists or is launching, for one pod."""

    #: Name of the node, or the planned name while the node is launching.
    node: str
    #: Name of the GPUInstance while it is launching.
    launching: str | None = None
    #: FITS_EXISTING or CAPACITY_LAUNCHING.
    reason: Reason
    sentence: str


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """All demand, divided: pods with a reservation (`placed`), without one (`left`), and refused by the scheduler."""

    #: By pod UID.
    placed: Mapping[str, Reservation] = {}
    #: Pods to buy capacity for, in the order of `service_order`.
    left: tuple[Pod, ...] = ()
    #: For pods in `left` that seem to fit on an existing node (by UID): why capacity is bought all the same.
    notes: Mapping[str, str] = {}
    #: Pods whose planned node the scheduler does not use: no other machine is bought for them.
    refused: tuple[NotDemand, ...] = ()
    #: Since when each pod (by UID) has seemed to fit on a ready node. Input of the next tick's reservations.
    fitting: Mapping[str, datetime] = {}


def reserve(
    demand: Iterable[Pod],
    free_nodes: Iterable[FreeNode],
    now: datetime,
    *,
    before: Reservations | None = None,
    pods_by_node: Mapping[str, Collection[Pod]] | None = None,
    gpu_resources: Collection[str] | None = None,
    grace: timedelta = SCHEDULER_GRACE,
    await_planned: bool = False,
) -> Reservations:
    """Reserves room for pods: first on nodes planned for them, then best fit, in the order of `service_order`.

    `before` holds the reservations of the last tick, which know since when a pod has seemed to fit. `pods_by_node`
    serves anti-affinity. `await_planned`: a pod is not left while a node is launching for it, even if that seems to
    have too little room.
    """
    order = sorted(demand, key=lambda pod: service_order(pod, gpu_resources))
    if not order:
        return Reservations()
    nodes = [SimulatedNode(each, pods_by_node) for each in sorted(free_nodes, key=lambda each: each.node.name)]
    reserving = _Reserving(nodes, now, gpu_resources=gpu_resources, grace=grace)
    if before is not None:
        reserving.fitting_since = before.fitting
    return reserving.run(order, await_planned=await_planned)


def service_order(pod: Pod, gpu_resources: Collection[str] | None = None) -> tuple[int, int, datetime, str, str, str]:
    """Sort key of the order in which pods are served: by priority, then the larger first, then the older first."""
    shape = pod.shape
    return -shape.priority, -int(shape.gpus(gpu_resources)), pod.created, pod.namespace, pod.name, pod.uid


class _Reserving:
    """One call of `reserve`: the nodes as they fill up, and the result as it grows."""

    def __init__(
        self,
        nodes: Sequence[SimulatedNode],
        now: datetime,
        *,
        gpu_resources: Collection[str] | None,
        grace: timedelta,
    ) -> None:
        self.nodes = nodes
        self.now = now
        self.fitting_since: Mapping[str, datetime] = {}
        self.gpu_resources = gpu_resources
        self.grace = grace
        self.ready = NodesByFreeGPUs(nodes, (at for at, each in enumerate(nodes) if each.free_node.ready))
        self.launching = NodesByFreeGPUs(nodes, (at for at, each in enumerate(nodes) if not each.free_node.ready))
        self.searches: dict[int, ShapeSearch] = {}
        self.eligibilities: dict[object, Eligibility] = {}
        self.placed: dict[str, Reservation] = {}
        self.left: list[Pod] = []
        self.notes: dict[str, str] = {}
        self.refused: list[NotDemand] = []
        self.fitting: dict[str, datetime] = {}

    def run(self, order: Sequence[Pod], *, await_planned: bool) -> Reservations:
        planned: dict[str, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for uid in node.free_node.planned_for:
                planned.setdefault(uid, []).append(index)
        waiting: list[Pod] = []
        for pod in order:
            if refusal_holds(pod):
                self.refused.append(_refused_before(pod))
            else:
                waiting.append(pod)
        rest = [pod for pod in waiting if pod.uid not in planned or not self._use_planned(pod, planned[pod.uid])]
        for pod in rest:
            if not self._use_any(pod) and not (await_planned and self._await(pod, planned.get(pod.uid, ()))):
                self.left.append(pod)
        return Reservations(
            placed=self.placed,
            left=tuple(self.left),
            notes=self.notes,
            refused=tuple(self.refused),
            fitting=self.fitting,
        )

    def _use_planned(self, pod: Pod, indexes: Iterable[int]) -> bool:
        """Reserves room on a node launched for the pod. False where none of these nodes has room (any more)."""
        search = self._search(pod)
        for index in indexes:
            node = self.nodes[index]
            free_node = node.free_node
            if not fits(search, index, node) or not node.allows(pod, anti_affinity=search.anti_affinity):
                continue
            name = free_node.node.name
            if free_node.ready and self._past_grace(pod):
                self.refused.append(_refused(pod, f"node {name} was launched for it, is Ready and has room"))
                return True
            if free_node.ready:
                sentence = f"Node {name} was launched for the pod and is Ready; kube-scheduler will place it."
            else:
                sentence = f"GPUInstance {free_node.launching} is launching for the pod."
            self._place(pod, search, index, sentence)
            return True
        return False

    def _await(self, pod: Pod, indexes: Iterable[int]) -> bool:
        """Leaves the pod with a node that is launching for it, though that seems to have too little room.

        What such a node will have for pods is an estimate, which may change or be wrong. To buy by it before the node
        is ready would be to buy one machine after the other.
        """
        for index in indexes:
            free_node = self.nodes[index].free_node
            if free_node.ready:
                continue
            self.placed[pod.uid] = Reservation(
                node=free_node.node.name,
                launching=free_node.launching,
                reason=Reason.CAPACITY_LAUNCHING,
                sentence=f"GPUInstance {free_node.launching} is launching for the pod. By now its node seems to have"
                " too little room for it: if it has, other capacity is looked for once the node is Ready.",
            )
            return True
        return False

    def _use_any(self, pod: Pod) -> bool:
        """Reserves room on any node, a ready one before one that is launching. False where there is none."""
        search = self._search(pod)
        ready = self.ready.find(search, pod)
        past_grace = ready is not None and self._past_grace(pod)
        if ready is not None and not past_grace:
            name = self.nodes[ready].free_node.node.name
            self._place(pod, search, ready, f"Node {name} has room for the pod; kube-scheduler will place it.")
            return True
        launching = self.launching.find(search, pod)
        if launching is not None:
            instance = self.nodes[launching].free_node.launching
            sentence = f"GPUInstance {instance} is launching and will have room for the pod."
            self._place(pod, search, launching, sentence)
            return True
        grown = self._grown_for(pod, search) if ready is not None else None
        if grown is not None:
            name = self.nodes[grown].free_node.node.name
            if self._past_grace(pod, self.grace + SCHEDULER_FLUSH):
                self.refused.append(_refused(pod, f"its group got node {name} for it, which is Ready and has room"))
            else:
                self._place(pod, search, grown, f"Node {name} was added to its group and has room for the pod.")
            return True
        if ready is not None:
            name = self.nodes[ready].free_node.node.name
            self.notes[pod.uid] = (
                f"Node {name} seems to have room, but the scheduler has not used it for"
                f" {human(self.now - self.fitting[pod.uid])}: {_scheduler_message(pod)} Looking for other capacity."
            )
        return False

    def _grown_for(self, pod: Pod, search: ShapeSearch) -> int | None:
        """A Ready node that its group got while the pod waited: one more of them would fare no better."""
        since = pod.unschedulable_since or pod.created
        for index, node in enumerate(self.nodes):
            free_node = node.free_node
            if not (free_node.in_group and free_node.ready and free_node.node.created >= since):
                continue
            if fits(search, index, node) and node.allows(pod, anti_affinity=search.anti_affinity):
                return index
        return None

    def _past_grace(self, pod: Pod, grace: timedelta | None = None) -> bool:
        """Whether the pod has seemed to fit for longer than the scheduler needs. Remembers since when."""
        since = self.fitting[pod.uid] = self.fitting_since.get(pod.uid, self.now)
        return self.now - since >= (self.grace if grace is None else grace)

    def _place(self, pod: Pod, search: ShapeSearch, index: int, sentence: str) -> None:
        node = self.nodes[index]
        node.add(pod, anti_affinity=search.anti_affinity)
        free_node = node.free_node
        (self.ready if free_node.ready else self.launching).update(index, node, pod.shape)
        self.placed[pod.uid] = Reservation(
            node=free_node.node.name,
            launching=free_node.launching,
            reason=Reason.FITS_EXISTING if free_node.ready else Reason.CAPACITY_LAUNCHING,
            sentence=sentence,
        )

    def _search(self, pod: Pod) -> ShapeSearch:
        shape = pod.shape
        found = self.searches.get(id(shape))
        if found is None:
            constraints = (tuple(sorted(shape.node_selector.items())), shape.node_affinity, shape.tolerations)
            gpu = min((name for name in shape.requests if self._is_gpu(name)), default="")
            found = self.searches[id(shape)] = ShapeSearch(
                shape=shape,
                gpu=gpu,
                amount=shape.requests.amount(gpu),
                anti_affinity=has_anti_affinity(pod),
                eligibility=self.eligibilities.setdefault(constraints, Eligibility(set(), set())),
                too_small=set(),
            )
        return found

    def _is_gpu(self, name: str) -> bool:
        return name.endswith(GPU_SUFFIX) if self.gpu_resources is None else name in self.gpu_resources


def _refused(pod: Pod, although: str) -> NotDemand:
    return NotDemand(
        pod=pod,
        reason=Reason.SCHEDULER_REFUSES,
        sentence=f"The scheduler does not place the pod although {although}. Its message: {_scheduler_message(pod)}"
        " Another machine would not help: resolve what the message names.",
    )


def _refused_before(pod: Pod) -> NotDemand:
    return NotDemand(
        pod=pod,
        reason=Reason.SCHEDULER_REFUSES,
        sentence=f'The scheduler did not place the pod on a node launched for it. Its message: "{_text(pod.refusal)}".'
        " Nothing else is launched for the pod: resolve what the message names, or create the pod anew.",
    )


def _text(message: str | None) -> str:
    return (message or "none").rstrip(".")


def _scheduler_message(pod: Pod) -> str:
    return f'"{_text(pod.unschedulable_message)}".'
