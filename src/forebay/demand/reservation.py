"""Which of the wanted pods free and coming capacity will take, and which are left."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.demand.assessment import NotDemand
from forebay.demand.co_location import has_anti_affinity
from forebay.demand.filling import Ask, Space, Taste, Tier, may_take
from forebay.demand.free_capacity import FreeNode
from forebay.model.quantities import GPU_SUFFIX
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod

#: How long the scheduler may leave a pod alone that seems to fit: longer, and it knows a reason that is not seen here.
GRACE: Final = timedelta(seconds=60)


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    #: Name of the node, as it is or will be.
    node: str
    #: Name of the GPUInstance while that is on its way.
    coming: str | None = None
    #: FITS_EXISTING or COMING.
    reason: Reason
    sentence: str


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    #: By uid of the pod.
    placed: Mapping[str, Placed] = {}
    #: In the order in which they are to be served.
    left: tuple[Pod, ...] = ()
    #: For pods in `left` that seem to fit somewhere (by uid): why capacity is sought all the same.
    notes: Mapping[str, str] = {}
    #: Pods for which a machine was obtained that the scheduler does not use: another one is not bought.
    refused: tuple[NotDemand, ...] = ()
    #: Since when each pod has seemed to fit on a node that is there. For the next reservations.
    fitting: Mapping[str, datetime] = {}


def reserve(
    wanted: Iterable[Pod],
    rooms: Iterable[FreeNode],
    now: datetime,
    *,
    before: Reservations | None = None,
    pods_by_node: Mapping[str, Collection[Pod]] | None = None,
    refusals: Mapping[str, str] | None = None,
    gpu_resources: Collection[str] | None = None,
    grace: timedelta = GRACE,
) -> Reservations:
    """Pods in rooms: those promised to one first; then by priority, size and age, each where it leaves the least.

    `before` holds the reservations of the last tick, which know since when a pod has seemed to fit. `pods_by_node`
    serves anti-affinity. `refusals` names, by pod, the machine launched for it that the scheduler did not use.
    """
    order = sorted(wanted, key=lambda pod: service_order(pod, gpu_resources))
    if not order:
        return Reservations()
    spaces = [Space(room, pods_by_node) for room in sorted(rooms, key=lambda room: room.node.name)]
    settling = _Settling(spaces, now, refusals=refusals or {}, gpu_resources=gpu_resources, grace=grace)
    if before is not None:
        settling.since = before.fitting
    return settling.run(order)


def service_order(pod: Pod, gpu_resources: Collection[str] | None = None) -> tuple[int, int, datetime, str, str, str]:
    """Whose turn it is: the more important, then the larger, then the older first."""
    shape = pod.shape
    return -shape.priority, -int(shape.gpus(gpu_resources)), pod.created, pod.namespace, pod.name, pod.uid


class _Settling:
    def __init__(
        self,
        spaces: Sequence[Space],
        now: datetime,
        *,
        refusals: Mapping[str, str],
        gpu_resources: Collection[str] | None,
        grace: timedelta,
    ) -> None:
        self.spaces = spaces
        self.now = now
        self.since: Mapping[str, datetime] = {}
        self.refusals = refusals
        self.gpu_resources = gpu_resources
        self.grace = grace
        self.ready = Tier(spaces, (at for at, space in enumerate(spaces) if space.room.ready))
        self.coming = Tier(spaces, (at for at, space in enumerate(spaces) if not space.room.ready))
        self.asks: dict[int, Ask] = {}
        self.tastes: dict[object, Taste] = {}
        self.placed: dict[str, Placed] = {}
        self.left: list[Pod] = []
        self.notes: dict[str, str] = {}
        self.refused: list[NotDemand] = []
        self.fitting: dict[str, datetime] = {}

    def run(self, order: Sequence[Pod]) -> Reservations:
        promised: dict[str, list[int]] = {}
        for index, space in enumerate(self.spaces):
            for uid in space.room.promised:
                promised.setdefault(uid, []).append(index)
        rest = [pod for pod in order if pod.uid not in promised or not self._keep_promise(pod, promised[pod.uid])]
        for pod in rest:
            self._find_room(pod)
        return Reservations(
            placed=self.placed,
            left=tuple(self.left),
            notes=self.notes,
            refused=tuple(self.refused),
            fitting=self.fitting,
        )

    def _keep_promise(self, pod: Pod, indexes: Iterable[int]) -> bool:
        """In a machine that was obtained for it; False where none of them has room for it (any more)."""
        ask = self._ask(pod)
        for index in indexes:
            space = self.spaces[index]
            room = space.room
            if not may_take(ask, index, space) or not space.suits(pod, picky=ask.picky):
                continue
            name = room.node.name
            # The scheduler clears a nomination when it has tried the pod and failed: while one stands, it has not.
            if room.ready and self._overdue(pod) and pod.nominated_node != name:
                self.refused.append(_refused(pod, f"node {name} was obtained for the pod, is ready and has room"))
                return True
            if room.ready:
                sentence = f"Node {name} was obtained for the pod and is ready; the scheduler is told to look there."
            else:
                sentence = f"GPUInstance {room.coming} was asked for on account of the pod and is on its way."
            self._put(pod, ask, index, sentence)
            return True
        return False

    def _find_room(self, pod: Pod) -> None:
        ask = self._ask(pod)
        there = self.ready.seek(ask, pod)
        overdue = there is not None and self._overdue(pod)
        if there is not None and not overdue:
            name = self.spaces[there].room.node.name
            self._put(pod, ask, there, f"Node {name} has room for the pod; kube-scheduler will place it.")
            return
        coming = self.coming.seek(ask, pod)
        if coming is not None:
            instance = self.spaces[coming].room.coming
            self._put(pod, ask, coming, f"GPUInstance {instance} is on its way and will have room for the pod.")
        elif pod.uid in self.refusals:
            self.refused.append(_refused(pod, f"GPUInstance {self.refusals[pod.uid]} was obtained for it in vain"))
        else:
            if there is not None:
                name = self.spaces[there].room.node.name
                self.notes[pod.uid] = (
                    f"Node {name} seems to have room, but the scheduler has not used it for"
                    f" {human(self.now - self.fitting[pod.uid])}: {_words(pod)} Other capacity is sought."
                )
            self.left.append(pod)

    def _overdue(self, pod: Pod) -> bool:
        """It has seemed to fit for longer than the scheduler needs. Remembers since when."""
        since = self.fitting[pod.uid] = self.since.get(pod.uid, self.now)
        return self.now - since >= self.grace

    def _put(self, pod: Pod, ask: Ask, index: int, sentence: str) -> None:
        space = self.spaces[index]
        space.take(pod, picky=ask.picky)
        room = space.room
        (self.ready if room.ready else self.coming).moved(index, space, pod.shape)
        self.placed[pod.uid] = Placed(
            node=room.node.name,
            coming=room.coming,
            reason=Reason.FITS_EXISTING if room.ready else Reason.CAPACITY_LAUNCHING,
            sentence=sentence,
        )

    def _ask(self, pod: Pod) -> Ask:
        shape = pod.shape
        found = self.asks.get(id(shape))
        if found is None:
            taste = (tuple(sorted(shape.node_selector.items())), shape.node_affinity, shape.tolerations)
            gpu = min((name for name in shape.requests if self._is_gpu(name)), default="")
            found = self.asks[id(shape)] = Ask(
                shape=shape,
                gpu=gpu,
                amount=shape.requests.amount(gpu),
                picky=has_anti_affinity(pod),
                taste=self.tastes.setdefault(taste, Taste(set(), set())),
                hopeless=set(),
            )
        return found

    def _is_gpu(self, name: str) -> bool:
        return name.endswith(GPU_SUFFIX) if self.gpu_resources is None else name in self.gpu_resources


def _refused(pod: Pod, what: str) -> NotDemand:
    return NotDemand(
        pod=pod,
        reason=Reason.SCHEDULER_REFUSES,
        sentence=f"The scheduler does not place the pod although {what}. It says: {_words(pod)} Another machine would"
        " not help until that is settled.",
    )


def _words(pod: Pod) -> str:
    said = (pod.unschedulable_message or "nothing").rstrip(".")
    return f'"{said}".'
