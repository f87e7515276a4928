"""default-scheduler: binds pods to nodes, and says why where it cannot.

Filters as the real one does: requests, node selector and required node affinity, taints, cordons, host ports, required
pod (anti-)affinity. Scores like its defaults, roughly: the emptiest node, preferred affinity, PreferNoSchedule. It
does not preempt, does not know volumes or claims, and refuses required topology spread. A pod that fits nowhere waits
until a node has changed so that it could fit; then as many pods are tried as would fit. The others are told anew why
they wait, soon after nodes have come, gone or changed.
"""

import asyncio
import heapq
from collections.abc import Iterable

import msgspec

from forebay.embedded.api.conditions import pod_condition, with_status_condition
from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.objects import Json, ObjectKey
from forebay.embedded.api.subresources import bind_pod
from forebay.embedded.controllers.cluster_state import ClusterState, PodView, node_of
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.inter_pod_affinity import LabelledPod, term_matches
from forebay.embedded.controllers.node_info import SchedulingShape
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.scheduler_cache import SchedulerCache
from forebay.embedded.controllers.shapes import ShapeCache
from forebay.embedded.controllers.workqueue import OBJECT_ERRORS

SCHEDULER_NAME = "default-scheduler"

_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 10.0
#: Pods tried before other callbacks of the loop get their turn.
_BATCH = 100
#: Waiting pods told anew per second while nodes change: many pods and a growing cluster must not be mostly messages.
_RETOLD_PER_SECOND = 10


class _Waiting(msgspec.Struct, eq=False):
    """A pod in the queue."""

    pod: PodView
    ask: SchedulingShape
    order: tuple[int, str, int]
    attempts: int = 0
    #: Why it waits.
    told: str = ""
    #: Until then, in loop time, all others come first. As in the real one since 1.33, an idle scheduler does not wait.
    backing_off: float = 0.0
    active: bool = False


class Scheduler(Controller):
    COMPONENT = SCHEDULER_NAME

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        self._asks = ShapeCache()
        self._placement = SchedulerCache()
        self._queue: dict[ObjectKey, _Waiting] = {}
        #: Pods that fit nowhere, by shape.
        self._stuck: dict[SchedulingShape, dict[ObjectKey, _Waiting]] = {}
        self._active: list[tuple[bool, tuple[int, str, int], ObjectKey]] = []
        self._arrivals = 0
        self._turn: asyncio.Handle | None = None
        self._retelling: asyncio.TimerHandle | None = None
        cluster.on_nodes(self._node_changed)
        cluster.on_pods(self._pod_changed)

    def start(self) -> None:
        self._wake_up()

    def stop(self) -> None:
        for handle in (self._turn, self._retelling):
            if handle is not None:
                handle.cancel()
        self._turn = self._retelling = None

    def _node_changed(self, old: Json | None, new: Json | None) -> None:
        if new is None:
            assert old is not None
            self._placement.forget_node(old["metadata"]["name"])
        elif old is None or _placing(old) != _placing(new):
            self._placement.describe(node_of(new))
        else:
            return
        self._retell_soon()
        self._wake_up()

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        same = old is not None and new is not None and old.uid == new.uid
        if old is not None and (not same or (new is not None and new.ended)):
            self._forget(old.key)
        if new is None or new.ended:
            return
        if same and old is not None and old.node == new.node and old.labels == new.labels:
            if new.node:
                return
            waiting = self._queue.get(new.key)
            if waiting is not None and old.deleting == new.deleting and _generation(old) == _generation(new):
                # Only its status has changed. A nomination keeps room but is no reason to try again.
                waiting.pod = new
                self._placement.keep(new.key, new.status.get("nominatedNodeName"), waiting.ask)
                return
        self._admit(new, same=same)

    def _admit(self, pod: PodView, *, same: bool) -> None:
        waiting = self._drop(pod.key)
        try:
            # Binding changes nothing that the pod asks for.
            ask = waiting.ask if waiting is not None and same and pod.node else self._asks.of(pod)
        except OBJECT_ERRORS as trouble:
            # The store is still telling everybody about the pod: the answer waits for the next turn.
            asyncio.get_running_loop().call_soon(self._refuse_current, pod.key, str(trouble))
            return
        if pod.node:
            self._placement.take(pod.key, pod.node, ask, pod.labels)
            self._welcome(pod, ask)
        elif _wants_scheduling(pod):
            self._placement.keep(pod.key, pod.status.get("nominatedNodeName"), ask)
            self._arrivals += 1
            order = (-ask.shape.priority, pod.object["metadata"]["creationTimestamp"], self._arrivals)
            self._activate(_Waiting(pod, ask, order))
        else:
            self._placement.keep(pod.key, None, ask)
        self._wake_up()

    def _welcome(self, pod: PodView, ask: SchedulingShape) -> None:
        """Tries one of each shape that waits for such company; where it can follow, the next of its shape may too."""
        neighbour = LabelledPod(pod.key[0], pod.labels, ask.shape)
        for other, group in tuple(self._stuck.items()):
            terms, (namespace, _) = other.shape.pod_affinity, next(iter(group))
            if terms and (other is ask or any(term_matches(term, namespace, neighbour) for term in terms)):
                self._activate(*_first(group.values(), 1))

    def _forget(self, key: ObjectKey) -> None:
        waiting = self._queue.get(key)
        if waiting is not None:
            self._placement.keep(key, None, waiting.ask)
            self._drop(key)
        self._placement.give_back(key)
        self._wake_up()

    def _activate(self, waiting: _Waiting) -> None:
        self._unstick(waiting)
        self._queue[waiting.pod.key] = waiting
        if not waiting.active:
            waiting.active = True
            late = asyncio.get_running_loop().time() < waiting.backing_off
            heapq.heappush(self._active, (late, waiting.order, waiting.pod.key))
            self._wake_up()

    def _drop(self, key: ObjectKey) -> _Waiting | None:
        waiting = self._queue.pop(key, None)
        if waiting is not None:
            self._unstick(waiting)
            waiting.active = False
        return waiting

    def _unstick(self, waiting: _Waiting) -> None:
        group = self._stuck.get(waiting.ask)
        if group is not None and group.pop(waiting.pod.key, None) is not None and not group:
            del self._stuck[waiting.ask]

    def _wake_up(self) -> None:
        if self._turn is None and (self._active or (self._placement.improved and self._stuck)):
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._release_stuck()
        for _ in range(_BATCH):
            if not self._active:
                break
            _, order, key = heapq.heappop(self._active)
            waiting = self._queue.get(key)
            if waiting is not None and waiting.active and waiting.order == order:
                waiting.active = False
                self._attempt(waiting)
        self._wake_up()

    def _release_stuck(self) -> None:
        """Sends those back to the queue for which there may be room now, the ones nominated for it first."""
        improved, self._placement.improved = self._placement.improved, {}
        for ask, group in tuple(self._stuck.items()) if improved else ():
            room = self._placement.room(ask, improved)
            nominated: list[_Waiting] = []
            others: list[_Waiting] = []
            for waiting in group.values():
                (nominated if waiting.pod.status.get("nominatedNodeName") in improved else others).append(waiting)
            for waiting in nominated:
                self._activate(waiting)
            for waiting in _first(others, room):
                if self._suits_any(waiting, improved):
                    self._activate(waiting)
                else:
                    waiting.attempts += 1

    def _suits_any(self, waiting: _Waiting, nodes: Iterable[str]) -> bool:
        """Room has been seen to: this is about the pods it wants near it or far from it."""
        pod, ask = waiting.pod, waiting.ask
        if not ask.shape.pod_affinity and not ask.shape.pod_anti_affinity:
            return True
        return any(self._placement.fits_on(node, pod.key, ask, pod.labels) for node in nodes)

    def _attempt(self, waiting: _Waiting) -> None:
        pod, ask = waiting.pod, waiting.ask
        nominated = pod.status.get("nominatedNodeName")
        where: str | None = None
        if not ask.unsupported:
            if nominated and self._placement.fits_on(nominated, pod.key, ask, pod.labels):
                where = nominated
            else:
                where = self._placement.best(pod.key, ask, pod.labels)
        if where is None:
            self._give_up(waiting, self._why_not(waiting))
            return
        try:
            bind_pod(self._store, *pod.key, {"metadata": {"uid": pod.uid}, "target": {"kind": "Node", "name": where}})
        except ApiFailure as failure:
            self._give_up(waiting, f"binding rejected: {failure}")
            return
        self._recorder.normal(
            SCHEDULER_NAME, pod.object, "Scheduled", f"Successfully assigned {'/'.join(pod.key)} to {where}"
        )

    def _give_up(self, waiting: _Waiting, why: str) -> None:
        waiting.attempts += 1
        backoff = min(_FIRST_BACKOFF * 2.0 ** min(waiting.attempts - 1, 10), _LONGEST_BACKOFF)
        waiting.backing_off = asyncio.get_running_loop().time() + backoff
        self._stuck.setdefault(waiting.ask, {})[waiting.pod.key] = waiting
        if waiting.told and not waiting.pod.status.get("nominatedNodeName"):
            self._retell_soon()
        else:
            waiting.told = why
            self._refuse(waiting.pod, "Unschedulable", why)

    def _why_not(self, waiting: _Waiting) -> str:
        pod, ask = waiting.pod, waiting.ask
        return ask.unsupported or self._placement.why_not(pod.key, ask, pod.labels)

    def _retell_soon(self) -> None:
        if self._retelling is None and self._stuck:
            delay = max(1.0, sum(map(len, self._stuck.values())) / _RETOLD_PER_SECOND)
            self._retelling = asyncio.get_running_loop().call_later(delay, self._retell)

    def _retell(self) -> None:
        self._retelling = None
        for waiting in [one for group in self._stuck.values() for one in group.values()]:
            # A failed attempt would cost a nominated pod its nomination, and this is none.
            why = "" if waiting.pod.status.get("nominatedNodeName") else self._why_not(waiting)
            if why not in {"", waiting.told}:
                waiting.told = why
                self._refuse(waiting.pod, "Unschedulable", why)

    def _refuse_current(self, key: ObjectKey, why: str) -> None:
        pod = self._cluster.pods.get(key)
        if pod is not None and not pod.node:
            self._refuse(pod, "SchedulerError", why)

    def _refuse(self, pod: PodView, reason: str, why: str) -> None:
        refused = pod_condition("PodScheduled", "False", reason=reason, message=why)
        refused["observedGeneration"] = _generation(pod)
        status = with_status_condition(pod.status, refused, self._store.timestamp())
        # A nomination does not outlive a failed attempt.
        status.pop("nominatedNodeName", None)
        self._recorder.warning(SCHEDULER_NAME, pod.object, "FailedScheduling", why)
        if status != pod.status:
            self._cluster.write_status(pod, status)


def _first(group: Iterable[_Waiting], count: int) -> list[_Waiting]:
    """Those tried less often first: what keeps one pod of a shape from the others need not keep all."""
    return heapq.nsmallest(count, group, key=lambda one: (one.order[0], one.attempts, one.order)) if count > 0 else []


def _wants_scheduling(pod: PodView) -> bool:
    spec = pod.spec
    return not pod.deleting and spec.get("schedulerName") == SCHEDULER_NAME and not spec.get("schedulingGates")


def _generation(pod: PodView) -> object:
    return pod.object["metadata"].get("generation")


def _placing(node: Json) -> tuple[object, ...]:
    """What of a node matters for placing: heartbeats do not."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return (meta.get("labels"), spec.get("taints"), spec.get("unschedulable"), status.get("allocatable"))
