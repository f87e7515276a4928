"""default-scheduler: binds pods to nodes, or says in an event and the PodScheduled condition why it cannot.

Filters are kube-scheduler's: requests, node selector and required node affinity, taints, cordons, host ports, required
pod (anti-)affinity. Scores resemble its defaults: least allocated, preferred node affinity, PreferNoSchedule taints.
Preemption, volumes and resource claims are left out; required topology spread is refused.

A pod that fits nowhere waits until a node changes so that the pod could fit; then as many pods are tried as would fit.
For the others the message is computed again soon after nodes have come, gone or changed.
"""

import asyncio
import heapq
from collections.abc import Iterable

import msgspec

from forebay.embedded.api.conditions import pod_condition, with_status_condition
from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.objects import Json, StoredKey
from forebay.embedded.api.subresources import bind_pod
from forebay.embedded.controllers.cluster_state import ClusterState, PodView, node_of
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.device_slices import DeviceSlices
from forebay.embedded.controllers.inter_pod_affinity import LabelledPod, term_matches
from forebay.embedded.controllers.node_info import SchedulingShape
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.scheduler_cache import SchedulerCache
from forebay.embedded.controllers.shapes import ShapeCache
from forebay.embedded.controllers.workqueue import OBJECT_ERRORS

SCHEDULER_NAME = "default-scheduler"

_FIRST_BACKOFF, _MAX_BACKOFF = 1.0, 10.0
#: Pods tried before other callbacks of the loop run.
_BATCH = 100
#: Unschedulable pods whose message is computed again per second: with many pods and a growing cluster, messages must
#: not become most of the work.
_REFRESHED_PER_SECOND = 10


class _QueuedPod(msgspec.Struct, eq=False):
    """A pod in the scheduling queue."""

    pod: PodView
    shape: SchedulingShape
    #: Priority (negated), creation time, arrival.
    order: tuple[int, str, int]
    attempts: int = 0
    #: Why the pod is unschedulable, as last written.
    message: str = ""
    #: Loop time until which all other pods go first. As in kube-scheduler since 1.33, an idle scheduler does not wait.
    backoff_until: float = 0.0
    #: In the active queue, about to be tried.
    active: bool = False


class Scheduler(Controller):
    COMPONENT = SCHEDULER_NAME

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        self._shapes = ShapeCache()
        self._cache = SchedulerCache()
        self._devices = DeviceSlices(cluster.store, self._devices_changed)
        #: All pods to be scheduled, active or unschedulable.
        self._queue: dict[StoredKey, _QueuedPod] = {}
        self._unschedulable: dict[SchedulingShape, dict[StoredKey, _QueuedPod]] = {}
        #: A heap of (backing off, order, key).
        self._active: list[tuple[bool, tuple[int, str, int], StoredKey]] = []
        self._arrivals = 0
        self._next_run: asyncio.Handle | None = None
        self._next_refresh: asyncio.TimerHandle | None = None
        cluster.on_nodes(self._node_changed)
        cluster.on_pods(self._pod_changed)

    def start(self) -> None:
        self._devices.start()
        self._run_soon()

    def stop(self) -> None:
        self._devices.stop()
        for handle in (self._next_run, self._next_refresh):
            if handle is not None:
                handle.cancel()
        self._next_run = self._next_refresh = None

    def _node_changed(self, old: Json | None, new: Json | None) -> None:
        if new is None:
            assert old is not None
            self._cache.remove_node(old["metadata"]["name"])
        elif old is None or _scheduling_fields(old) != _scheduling_fields(new):
            self._cache.update_node(self._devices.on(node_of(new)))
        else:
            return
        self._refresh_messages_soon()
        self._run_soon()

    def _devices_changed(self, names: Iterable[str]) -> None:
        for name in names:
            node = self._cluster.nodes.get(name)
            if node is not None:
                self._cache.update_node(self._devices.on(node_of(node)))
        self._run_soon()

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        same = old is not None and new is not None and old.uid == new.uid
        if old is not None and (not same or (new is not None and new.ended)):
            self._remove(old.key)
        if new is None or new.ended:
            return
        if same and old is not None and old.node == new.node and old.labels == new.labels:
            if new.node:
                return
            queued = self._queue.get(new.key)
            if queued is not None and old.deleting == new.deleting and _generation(old) == _generation(new):
                # Only the status has changed. A nomination reserves room but is no reason to try again.
                queued.pod = new
                self._cache.nominate(new.key, new.status.get("nominatedNodeName"), queued.shape)
                return
        self._add(new, same=same)

    def _add(self, pod: PodView, *, same: bool) -> None:
        """Puts the pod into the cache if it is bound, else into the queue if it is this scheduler's."""
        queued = self._dequeue(pod.key)
        try:
            # Binding changes nothing of the pod's shape.
            shape = queued.shape if queued is not None and same and pod.node else self._shapes.shape_of(pod)
        except OBJECT_ERRORS as error:
            # The store is still delivering this change to its subscribers: the status is written after that.
            asyncio.get_running_loop().call_soon(self._refuse_current, pod.key, str(error))
            return
        if pod.node:
            self._cache.add_pod(pod.key, pod.node, shape, pod.labels)
            self._activate_affine(pod, shape)
        elif _wants_scheduling(pod):
            self._cache.nominate(pod.key, pod.status.get("nominatedNodeName"), shape)
            self._arrivals += 1
            order = (-shape.shape.priority, pod.object["metadata"]["creationTimestamp"], self._arrivals)
            self._activate(_QueuedPod(pod, shape, order))
        else:
            self._cache.nominate(pod.key, None, shape)
        self._run_soon()

    def _activate_affine(self, pod: PodView, shape: SchedulingShape) -> None:
        """Tries one pod of each shape whose affinity selects the pod just bound, or that is of the same shape.

        Once bound itself, that pod lets the next one of its shape be tried.
        """
        bound = LabelledPod(pod.key[0], pod.labels, shape.shape)
        for other, group in tuple(self._unschedulable.items()):
            terms, (namespace, _) = other.shape.pod_affinity, next(iter(group))
            if terms and (other is shape or any(term_matches(term, namespace, bound) for term in terms)):
                self._activate(*_first(group.values(), 1))

    def _remove(self, key: StoredKey) -> None:
        queued = self._queue.get(key)
        if queued is not None:
            self._cache.nominate(key, None, queued.shape)
            self._dequeue(key)
        self._cache.remove_pod(key)
        self._run_soon()

    def _activate(self, queued: _QueuedPod) -> None:
        self._remove_unschedulable(queued)
        self._queue[queued.pod.key] = queued
        if not queued.active:
            queued.active = True
            backing_off = asyncio.get_running_loop().time() < queued.backoff_until
            heapq.heappush(self._active, (backing_off, queued.order, queued.pod.key))
            self._run_soon()

    def _dequeue(self, key: StoredKey) -> _QueuedPod | None:
        queued = self._queue.pop(key, None)
        if queued is not None:
            self._remove_unschedulable(queued)
            queued.active = False
        return queued

    def _remove_unschedulable(self, queued: _QueuedPod) -> None:
        group = self._unschedulable.get(queued.shape)
        if group is not None and group.pop(queued.pod.key, None) is not None and not group:
            del self._unschedulable[queued.shape]

    def _run_soon(self) -> None:
        if self._next_run is None and (self._active or (self._cache.improved and self._unschedulable)):
            self._next_run = asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._next_run = None
        self._activate_for_improved_nodes()
        for _ in range(_BATCH):
            if not self._active:
                break
            _, order, key = heapq.heappop(self._active)
            queued = self._queue.get(key)
            if queued is not None and queued.active and queued.order == order:
                queued.active = False
                self._schedule_one(queued)
        self._run_soon()

    def _activate_for_improved_nodes(self) -> None:
        """Moves unschedulable pods that may fit now to the active queue, those nominated for such a node first."""
        improved, self._cache.improved = self._cache.improved, {}
        for shape, group in tuple(self._unschedulable.items()) if improved else ():
            fitting = self._cache.pods_that_fit(shape, improved)
            nominated: list[_QueuedPod] = []
            others: list[_QueuedPod] = []
            for queued in group.values():
                (nominated if queued.pod.status.get("nominatedNodeName") in improved else others).append(queued)
            for queued in nominated:
                self._activate(queued)
            for queued in _first(others, fitting):
                if self._affinity_allows(queued, improved):
                    self._activate(queued)
                else:
                    queued.attempts += 1

    def _affinity_allows(self, queued: _QueuedPod, nodes: Iterable[str]) -> bool:
        """Whether one of the nodes fits by inter-pod affinity too; resources have been checked before."""
        pod, shape = queued.pod, queued.shape
        if not shape.shape.pod_affinity and not shape.shape.pod_anti_affinity:
            return True
        return any(self._cache.fits_on(node, pod.key, shape, pod.labels) for node in nodes)

    def _schedule_one(self, queued: _QueuedPod) -> None:
        pod, shape = queued.pod, queued.shape
        nominated = pod.status.get("nominatedNodeName")
        node: str | None = None
        if not shape.unsupported:
            if nominated and self._cache.fits_on(nominated, pod.key, shape, pod.labels):
                node = nominated
            else:
                node = self._cache.best_node(pod.key, shape, pod.labels)
        if node is None:
            self._handle_failure(queued, self._unschedulable_message(queued))
            return
        binding = {"metadata": {"uid": pod.uid}, "target": {"kind": "Node", "name": node}}
        try:
            bind_pod(self._store, *pod.key, binding)
        except ApiFailure as failure:
            self._handle_failure(queued, f"binding rejected: {failure}")
            return
        message = f"Successfully assigned {'/'.join(pod.key)} to {node}"
        self._recorder.normal(SCHEDULER_NAME, pod.object, "Scheduled", message)

    def _handle_failure(self, queued: _QueuedPod, message: str) -> None:
        queued.attempts += 1
        backoff = min(_FIRST_BACKOFF * 2.0 ** min(queued.attempts - 1, 10), _MAX_BACKOFF)
        queued.backoff_until = asyncio.get_running_loop().time() + backoff
        self._unschedulable.setdefault(queued.shape, {})[queued.pod.key] = queued
        if queued.message and not queued.pod.status.get("nominatedNodeName"):
            self._refresh_messages_soon()
        else:
            queued.message = message
            must_not_preempt = queued.pod.spec.get("preemptionPolicy") == "Never"
            keeps = bool(queued.shape.unsupported) or must_not_preempt
            self._write_unscheduled(queued.pod, "Unschedulable", message, keeps_nomination=keeps)

    def _unschedulable_message(self, queued: _QueuedPod) -> str:
        pod, shape = queued.pod, queued.shape
        return shape.unsupported or self._cache.unschedulable_message(pod.key, shape, pod.labels)

    def _refresh_messages_soon(self) -> None:
        if self._next_refresh is None and self._unschedulable:
            delay = max(1.0, sum(map(len, self._unschedulable.values())) / _REFRESHED_PER_SECOND)
            self._next_refresh = asyncio.get_running_loop().call_later(delay, self._refresh_messages)

    def _refresh_messages(self) -> None:
        self._next_refresh = None
        for queued in [one for group in self._unschedulable.values() for one in group.values()]:
            # Writing the condition ends a nomination as a failed attempt does, and this is no attempt.
            message = "" if queued.pod.status.get("nominatedNodeName") else self._unschedulable_message(queued)
            if message not in {"", queued.message}:
                queued.message = message
                self._write_unscheduled(queued.pod, "Unschedulable", message)

    def _refuse_current(self, key: StoredKey, message: str) -> None:
        pod = self._cluster.pods.get(key)
        if pod is not None and not pod.node:
            self._write_unscheduled(pod, "SchedulerError", message)

    def _write_unscheduled(self, pod: PodView, reason: str, message: str, *, keeps_nomination: bool = False) -> None:
        """Writes the outcome of a failed attempt.

        As in kube-scheduler, that ends a nomination only where preemption was tried: not after an error (of volumes,
        say), nor for a pod that must not preempt.
        """
        condition = pod_condition("PodScheduled", "False", reason=reason, message=message)
        condition["observedGeneration"] = _generation(pod)
        status = with_status_condition(pod.status, condition, self._store.timestamp())
        if not keeps_nomination:
            status.pop("nominatedNodeName", None)
        self._recorder.warning(SCHEDULER_NAME, pod.object, "FailedScheduling", message)
        if status != pod.status:
            self._cluster.write_status(pod, status)


def _first(group: Iterable[_QueuedPod], count: int) -> list[_QueuedPod]:
    """The next pods to try: within a priority the least tried first, since affinity may stop one pod and not others."""
    return heapq.nsmallest(count, group, key=lambda one: (one.order[0], one.attempts, one.order)) if count > 0 else []


def _wants_scheduling(pod: PodView) -> bool:
    spec = pod.spec
    return not pod.deleting and spec.get("schedulerName") == SCHEDULER_NAME and not spec.get("schedulingGates")


def _generation(pod: PodView) -> object:
    return pod.object["metadata"].get("generation")


def _scheduling_fields(node: Json) -> tuple[object, ...]:
    """The fields of a node that scheduling depends on; heartbeats change none of them."""
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return (meta.get("labels"), spec.get("taints"), spec.get("unschedulable"), status.get("allocatable"))
