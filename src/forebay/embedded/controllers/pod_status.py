"""Pod statuses as a kubelet writes them."""

from collections.abc import Callable
from typing import Any

from forebay.embedded.api.conditions import with_conditions
from forebay.embedded.api.objects import Json
from forebay.embedded.controllers.cluster_state import PodView

State = dict[str, Any]


def creating(pod: PodView, now: str, host: Json) -> Json:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    status = {**pod.status, **host, "phase": "Pending", "startTime": now}
    status["containerStatuses"] = [_container(pod, c, waiting, 0) for c in pod.spec["containers"]]
    return _conditions(pod, status, now, ready=False)


def running(pod: PodView, now: str, host: Json, ip: str, restarts: int) -> Json:
    status = {**pod.status, **host, "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]}
    status.setdefault("startTime", now)
    started = {"running": {"startedAt": now}}
    status["containerStatuses"] = [
        _container(pod, c, started, restarts, last=_last_termination(pod, c["name"])) for c in pod.spec["containers"]
    ]
    if pod.spec.get("initContainers"):
        done = _exit_state(0, now, now)
        status["initContainerStatuses"] = [
            _container(pod, c, started if c.get("restartPolicy") == "Always" else done, 0, ready=True)
            for c in pod.spec["initContainers"]
        ]
    return _conditions(pod, status, now, ready=True)


def exited(pod: PodView, now: str, code: int, restarts: int) -> Json:
    """Status between the containers' exit and their first restart: the pod stays Running."""
    return _not_running(
        pod, now, restarts, lambda name: _exit_state(code, _started(pod, name, now), now), keep_last=True
    )


def crash_loop(pod: PodView, now: str, code: int, restarts: int, backoff: float) -> Json:
    """Status of a pod in CrashLoopBackOff: its containers have exited and wait for their next start."""

    def waiting(name: str) -> State:
        message = f"back-off {go_duration(backoff)} restarting failed container={name} pod={_long_name(pod)}"
        return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}

    ended = {c["name"]: _exit_state(code, _started(pod, c["name"], now), now) for c in pod.spec["containers"]}
    status = _not_running(pod, now, restarts, waiting, keep_last=False)
    for container in status["containerStatuses"]:
        container["lastState"] = ended[container["name"]]
    return status


def finished(pod: PodView, now: str, code: int, restarts: int) -> Json:
    """Status of a pod that has Succeeded or Failed."""
    phase = "Succeeded" if code == 0 else "Failed"
    status = {**pod.status, "phase": phase}
    if pod.status.get("containerStatuses"):
        status["containerStatuses"] = [
            _container(pod, c, _last_exit(pod, c["name"], code, now), restarts, last=_last_state(pod, c["name"]))
            for c in pod.spec["containers"]
        ]
    return _conditions(pod, status, now, ready=False, reason="PodCompleted" if code == 0 else "PodFailed")


def rejected(pod: PodView, reason: str, message: str) -> Json:
    return {**pod.status, "phase": "Failed", "reason": reason, "message": message}


def go_duration(seconds: float) -> str:
    """A duration as Go prints it: `10s`, `1m20s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _long_name(pod: PodView) -> str:
    return f"{pod.key[1]}_{pod.key[0]}({pod.uid})"


def _not_running(pod: PodView, now: str, restarts: int, state: Callable[[str], State], *, keep_last: bool) -> Json:
    status = {
        **pod.status,
        "containerStatuses": [
            _container(pod, c, state(c["name"]), restarts, last=_last_state(pod, c["name"]) if keep_last else None)
            for c in pod.spec["containers"]
        ],
    }
    return _conditions(pod, status, now, ready=False)


def _container(
    pod: PodView, container: Json, state: State, restarts: int, *, last: State | None = None, ready: bool | None = None
) -> Json:
    alive = "running" in state
    created = "waiting" not in state
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        **({"containerID": f"embedded://{pod.uid}/{container['name']}/{restarts}"} if created else {}),
        "ready": alive if ready is None else ready,
        "started": alive,
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
    }


def _exit_state(code: int, started: str, now: str) -> State:
    reason = "Completed" if code == 0 else "Error"
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}}


def _last_exit(pod: PodView, name: str, code: int, now: str) -> State:
    """Last state of a container in a pod that ends; one that was waiting for a restart keeps its earlier exit."""
    state = _container_state(pod, name, "state")
    return state if "terminated" in state else _exit_state(code, _started(pod, name, now), now)


def _container_state(pod: PodView, name: str, field: str) -> State:
    found: Json = next((c for c in pod.status.get("containerStatuses") or () if c["name"] == name), {})
    state: State = found.get(field) or {}
    return state


def _started(pod: PodView, name: str, now: str) -> str:
    started: str = (_container_state(pod, name, "state").get("running") or {}).get("startedAt", now)
    return started


def _last_termination(pod: PodView, name: str) -> State:
    state = _container_state(pod, name, "state")
    return state if "terminated" in state else _container_state(pod, name, "lastState")


def _last_state(pod: PodView, name: str) -> State:
    return _container_state(pod, name, "lastState")


def _conditions(pod: PodView, status: Json, now: str, *, ready: bool, reason: str = "ContainersNotReady") -> Json:
    names = " ".join(container["name"] for container in pod.spec["containers"])
    why: Json = {}
    if not ready:
        why = {"reason": reason}
        if reason == "ContainersNotReady":
            why["message"] = f"containers with unready status: [{names}]"
    state = "True" if ready else "False"
    has_sandbox = ready or reason == "ContainersNotReady"
    conditions: list[Json] = [
        {"type": "PodReadyToStartContainers", "status": "True" if has_sandbox else "False"},
        {"type": "Initialized", "status": "True", **({"reason": reason} if reason == "PodCompleted" else {})},
        {"type": "Ready", "status": state, **why},
        {"type": "ContainersReady", "status": state, **why},
    ]
    return with_conditions(status, ({**condition, "lastProbeTime": None} for condition in conditions), now)
