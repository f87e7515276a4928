"""The kubelet of every node that has no other: runs pods as timers.

Annotations of a Pod say what would happen (durations as `30s`, `1m30s`):
- `embedded.forebay.dev/start-delay`: from binding to running. Default 1s.
- `embedded.forebay.dev/run-time`: how long the containers run. Default 10s; for ever where restartPolicy is Always.
- `embedded.forebay.dev/exit-code`: exit code of the containers. Default 0. `1,1,0` is one per start, the last repeated.
- `embedded.forebay.dev/stop-delay`: from SIGTERM to the exit of a deleted pod, at most its grace period. Default 1s.

All containers of a pod start and exit together; init containers take no time; probes always succeed.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime

import msgspec

from forebay.embedded.api.conditions import pod_condition, with_status_condition
from forebay.embedded.api.kinds import POD_KIND
from forebay.embedded.api.objects import Json, StoredKey
from forebay.embedded.controllers import pod_status as statuses
from forebay.embedded.controllers.cluster_state import ClusterState, PodView
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.nodes import annotation_seconds, kubelet_alive
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.workqueue import OBJECT_ERRORS

START_DELAY = "embedded.forebay.dev/start-delay"
RUN_TIME = "embedded.forebay.dev/run-time"
EXIT_CODE = "embedded.forebay.dev/exit-code"
STOP_DELAY = "embedded.forebay.dev/stop-delay"

_DEFAULT_START, _DEFAULT_RUN, _DEFAULT_STOP = 1.0, 10.0, 1.0
_SIGTERM, _SIGKILL = 143, 137
#: Seconds to the first restart, to the second, and the most that doubling makes of it.
_FIRST_RESTART, _FIRST_BACKOFF, _MAX_BACKOFF = 1.0, 10.0, 300.0
#: After a run of so many seconds the crash backoff starts anew.
_BACKOFF_RESET = 600.0


class _Behaviour(msgspec.Struct, frozen=True):
    """Behaviour of a pod as its annotations say it."""

    start_delay: float
    run_time: float | None
    exit_codes: tuple[int, ...]
    stop_delay: float

    def exit_code(self, restarts: int) -> int:
        return self.exit_codes[min(restarts, len(self.exit_codes) - 1)]


class _RunningPod(msgspec.Struct, eq=False):
    """A pod that this kubelet runs, with its next timer."""

    uid: str
    behaviour: _Behaviour
    timer: asyncio.TimerHandle | None = None
    restarts: int = 0
    crashes: int = 0
    stopping: bool = False
    stop_at: float = 0.0


class Kubelet(Controller):
    COMPONENT = "kubelet"

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        self._running: dict[StoredKey, _RunningPod] = {}
        self._work = self._queue_for(lambda key: self._if_alive(key, self._sync), self._pod_object)
        self._addresses = 0
        cluster.on_nodes(self._node_changed)
        cluster.on_pods(self._pod_changed)

    def stop(self) -> None:
        super().stop()
        for running in self._running.values():
            _cancel(running)
        self._running.clear()

    def _node_changed(self, old: Json | None, new: Json | None) -> None:
        was_alive, is_alive = old is not None and kubelet_alive(old), new is not None and kubelet_alive(new)
        if was_alive == is_alive:
            return
        node: Json = (new if new is not None else old) or {}
        for key in self._cluster.by_node.get(node["metadata"]["name"], {}):
            if is_alive:
                self._work.add(key)
            else:
                self._forget(key)

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        if old is not None and (new is None or new.uid != old.uid or new.ended):
            self._forget(old.key)
        if new is None or not new.node or (new.ended and not new.deleting):
            return
        running = self._running.get(new.key)
        if running is None or new.deleting:
            self._work.add(new.key)

    def _if_alive(self, key: StoredKey, step: Callable[[PodView], None]) -> None:
        """Calls `step` for the pod if it exists and the kubelet of its node is alive."""
        pod = self._cluster.pods.get(key)
        node = self._cluster.nodes.get(pod.node) if pod is not None else None
        if pod is not None and node is not None and kubelet_alive(node):
            step(pod)

    def _sync(self, pod: PodView) -> None:
        running = self._running.get(pod.key)
        if pod.ended:
            if pod.deleting:
                self._remove(pod)
            return
        if running is None or running.uid != pod.uid:
            try:
                behaviour = _behaviour(pod)
            except ValueError as error:
                self._recorder.warning(self.COMPONENT, pod.object, "InvalidAnnotation", str(error))
                self._cluster.write_status(pod, statuses.rejected(pod, "InvalidAnnotation", str(error)))
                return
            running = self._running[pod.key] = _RunningPod(pod.uid, behaviour)
            if not pod.deleting:
                self._start_timers(pod, running)
        if pod.deleting:
            self._stop(pod, running)

    def _start_timers(self, pod: PodView, running: _RunningPod) -> None:
        """Starts the timers of a new pod, or of one that was running before this kubelet (re)started."""
        if pod.phase == "Pending":
            if running.behaviour.start_delay > _DEFAULT_START:
                # ContainerCreating is written only where it lasts longer than by default: most pods save a write.
                self._cluster.write_status(pod, statuses.creating(pod, self._store.timestamp(), self._host(pod)))
            self._after(running.behaviour.start_delay, pod.key, running, self._start)
            return
        containers = pod.status.get("containerStatuses") or ()
        running.restarts = max((c.get("restartCount", 0) for c in containers), default=0)
        started = [c["state"]["running"]["startedAt"] for c in containers if (c.get("state") or {}).get("running")]
        if not started:
            self._after(_FIRST_RESTART, pod.key, running, self._restart)
            return
        if not pod.ready:
            ready = pod_condition("Ready", "True")
            self._cluster.write_status(pod, with_status_condition(pod.status, ready, self._store.timestamp()))
        if running.behaviour.run_time is not None:
            ran = (self._store.clock() - datetime.fromisoformat(min(started))).total_seconds()
            self._after(max(0.0, running.behaviour.run_time - ran), pod.key, running, self._exit)

    def _start(self, pod: PodView, running: _RunningPod) -> None:
        self._addresses += 1
        number = self._addresses
        ip = pod.status.get("podIP") or f"10.{244 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        now = self._store.timestamp()
        self._cluster.write_status(pod, statuses.running(pod, now, self._host(pod), ip, running.restarts))
        for _ in pod.spec["containers"]:
            self._recorder.normal(self.COMPONENT, pod.object, "Started", "Container started")
        if running.behaviour.run_time is not None:
            self._after(running.behaviour.run_time, pod.key, running, self._exit)

    def _restart(self, pod: PodView, running: _RunningPod) -> None:
        running.restarts += 1
        self._start(pod, running)

    def _exit(self, pod: PodView, running: _RunningPod) -> None:
        now, code = self._store.timestamp(), running.behaviour.exit_code(running.restarts)
        policy = pod.spec.get("restartPolicy")
        if policy == "Never" or (policy == "OnFailure" and code == 0):
            self._cluster.write_status(pod, statuses.finished(pod, now, code, running.restarts))
            return
        if (running.behaviour.run_time or 0.0) >= _BACKOFF_RESET:
            running.crashes = 0
        running.crashes += 1
        if running.crashes == 1:
            self._cluster.write_status(pod, statuses.exited(pod, now, code, running.restarts))
            self._after(_FIRST_RESTART, pod.key, running, self._restart)
            return
        backoff = min(_FIRST_BACKOFF * 2.0 ** (running.crashes - 2), _MAX_BACKOFF)
        self._cluster.write_status(pod, statuses.crash_loop(pod, now, code, running.restarts, backoff))
        for container in pod.spec["containers"]:
            message = (
                f"Back-off restarting failed container {container['name']} in pod {pod.key[1]}_{pod.key[0]}({pod.uid})"
            )
            self._recorder.warning(self.COMPONENT, pod.object, "BackOff", message)
        self._after(backoff, pod.key, running, self._restart)

    def _stop(self, pod: PodView, running: _RunningPod) -> None:
        now = asyncio.get_running_loop().time()
        grace = float(pod.object["metadata"].get("deletionGracePeriodSeconds") or 0)
        started = any((c.get("state") or {}).get("running") for c in pod.status.get("containerStatuses") or ())
        wait = min(running.behaviour.stop_delay, grace) if started else 0.0
        if running.stopping and running.stop_at <= now + wait:
            return
        if not running.stopping and started:
            for container in pod.spec["containers"]:
                self._recorder.normal(self.COMPONENT, pod.object, "Killing", f"Stopping container {container['name']}")
        running.stopping, running.stop_at = True, now + wait
        self._after(wait, pod.key, running, self._killed if grace < running.behaviour.stop_delay else self._stopped)

    def _stopped(self, pod: PodView, running: _RunningPod) -> None:
        self._end(pod, running, _SIGTERM)

    def _killed(self, pod: PodView, running: _RunningPod) -> None:
        self._end(pod, running, _SIGKILL)

    def _end(self, pod: PodView, running: _RunningPod, code: int) -> None:
        self._cluster.write_status(pod, statuses.finished(pod, self._store.timestamp(), code, running.restarts))
        self._remove(pod)

    def _remove(self, pod: PodView) -> None:
        """Deletes the pod with grace period 0, as nothing of it runs any more; finalizers may still keep the object."""
        current = self._cluster.pods.get(pod.key)
        if (
            current is not None
            and current.uid == pod.uid
            and current.object["metadata"].get("deletionGracePeriodSeconds")
        ):
            self._store.delete(POD_KIND, *pod.key, grace=0, preconditions={"uid": pod.uid})

    def _after(
        self, delay: float, key: StoredKey, running: _RunningPod, step: Callable[[PodView, _RunningPod], None]
    ) -> None:
        _cancel(running)
        running.timer = asyncio.get_running_loop().call_later(delay, self._due, key, running, step)

    def _due(self, key: StoredKey, running: _RunningPod, step: Callable[[PodView, _RunningPod], None]) -> None:
        if self._running.get(key) is running:
            running.timer = None
            try:
                self._if_alive(key, lambda pod: step(pod, running))
            except OBJECT_ERRORS as error:
                self._recorder.warning(self.COMPONENT, self._cluster.pods[key].object, "FailedSync", str(error))

    def _forget(self, key: StoredKey) -> None:
        running = self._running.pop(key, None)
        if running is not None:
            _cancel(running)

    def _host(self, pod: PodView) -> Json:
        status = self._cluster.nodes[pod.node].get("status") or {}
        ip = next((a["address"] for a in status.get("addresses") or () if a["type"] == "InternalIP"), None)
        return {"hostIP": ip, "hostIPs": [{"ip": ip}]} if ip else {}


def _cancel(running: _RunningPod) -> None:
    if running.timer is not None:
        running.timer.cancel()
        running.timer = None


def _behaviour(pod: PodView) -> _Behaviour:
    def delay(name: str, default: float) -> float:
        text = pod.annotations.get(name)
        return default if text is None else annotation_seconds(text, name)

    forever = pod.spec.get("restartPolicy", "Always") == "Always" and RUN_TIME not in pod.annotations
    codes = pod.annotations.get(EXIT_CODE, "0")
    parts = [part.strip() for part in codes.split(",")]
    if not all(part.isdecimal() and int(part) <= 255 for part in parts):  # noqa: PLR2004 (what a process can return)
        raise ValueError(f'{EXIT_CODE} must be a number from 0 to 255, or several separated by commas, not "{codes}"')
    return _Behaviour(
        start_delay=delay(START_DELAY, _DEFAULT_START),
        run_time=None if forever else delay(RUN_TIME, _DEFAULT_RUN),
        exit_codes=tuple(map(int, parts)),
        stop_delay=delay(STOP_DELAY, _DEFAULT_STOP),
    )
