"""The status of a pod whose container runs remotely, as its kubelet would write it."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from forebay.model.workloads import Phase

#: As kubelets do: the exit code of a container that was lost, and of one that could not start.
LOST_EXIT_CODE: Final = 137
START_ERROR_EXIT_CODE: Final = 128


class RemoteEnd(StrEnum):
    """How a remote container ended."""

    #: The command has exited; the exit code says how.
    EXITED = "Exited"
    #: The provider took it back or lost it: a disruption, which is no fault of the pod.
    LOST = "Lost"
    #: It could not start or go on: the image cannot be pulled, say.
    BROKEN = "Broken"
    #: It exited, and the shell around its command never said how the command ended.
    UNREPORTED = "Unreported"
    #: Its pod was deleted, and it was terminated for that.
    DELETED = "Deleted"


class RemoteContainer(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the container of a pod."""

    container: str
    image: str
    #: Id at the provider; None before the launch was answered.
    id: str | None = None
    started: datetime | None = None
    ended: RemoteEnd | None = None
    finished: datetime | None = None
    #: None with `EXITED`: the provider told that it exited, and not how.
    exit_code: int | None = None
    restarts: int = 0
    last_exit_code: int | None = None
    #: What the provider says, or what Forebay waits for.
    message: str = ""


def pod_status(remote: RemoteContainer, bound: datetime, now: datetime) -> dict[str, Any]:
    """The status as a strategic merge patch; `bound` is when the pod got its node. The same facts give the same status.

    A state that ended is never left out: `null` takes the earlier one away.
    """
    phase = _phase(remote)
    ended = phase.ended
    ready = phase is Phase.RUNNING
    at = (remote.finished or now) if ended else (remote.started or bound)
    why = _why_not_ready(remote)
    conditions = [
        _condition("PodReadyToStartContainers", holds=not ended, at=at if ended else bound),
        _condition("Initialized", holds=True, at=bound, reason="PodCompleted" if phase is Phase.SUCCEEDED else ""),
        _condition("Ready", holds=ready, at=at, reason=why),
        _condition("ContainersReady", holds=ready, at=at, reason=why),
        _condition("PodScheduled", holds=True, at=bound),
    ]
    if remote.ended is RemoteEnd.LOST:
        message = remote.message or "The provider took the container back."
        conditions.append(
            _condition("DisruptionTarget", holds=True, at=at, reason="TerminationByKubelet", message=message)
        )
    status: dict[str, Any] = {
        "phase": phase.value,
        "startTime": _time(bound),
        "conditions": conditions,
        "containerStatuses": [_container(remote, bound, now)],
    }
    if remote.ended in {RemoteEnd.LOST, RemoteEnd.BROKEN, RemoteEnd.UNREPORTED}:
        status |= {"reason": _reason(remote), "message": remote.message}
    return status


def unsupported_status(container_images: Mapping[str, str], bound: datetime) -> dict[str, Any]:
    """Status of a pod that nothing runs for: one of a DaemonSet that tolerates every taint.

    Pending, not Failed: the DaemonSet's controller would replace a failed pod, again and again.
    """
    message = "No container is launched for it: only pods of Jobs marked runpod.io/managed run on the virtual node."
    waiting = {"reason": "NotSupported", "message": message}
    return {
        "phase": Phase.PENDING.value,
        "reason": "NotSupported",
        "message": message,
        "startTime": _time(bound),
        "conditions": [
            _condition("Ready", holds=False, at=bound, reason="NotSupported", message=message),
            _condition("ContainersReady", holds=False, at=bound, reason="NotSupported"),
            _condition("PodScheduled", holds=True, at=bound),
        ],
        "containerStatuses": [
            {
                "name": name,
                "image": image,
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {"waiting": waiting},
            }
            for name, image in container_images.items()
        ],
    }


def _phase(remote: RemoteContainer) -> Phase:
    match remote.ended:
        case RemoteEnd.EXITED:
            return Phase.SUCCEEDED if not remote.exit_code else Phase.FAILED
        case RemoteEnd.LOST | RemoteEnd.BROKEN | RemoteEnd.UNREPORTED | RemoteEnd.DELETED:
            return Phase.FAILED
        case None:
            return Phase.PENDING if remote.started is None else Phase.RUNNING


def _reason(remote: RemoteContainer) -> str:
    match remote.ended:
        case RemoteEnd.EXITED:
            return "Completed" if not remote.exit_code else "Error"
        case RemoteEnd.LOST | RemoteEnd.UNREPORTED:
            return "ContainerStatusUnknown"
        case RemoteEnd.BROKEN:
            return "StartError"
        case RemoteEnd.DELETED:
            # As kubelets do, also of a container that never ran.
            return "Error" if remote.started is not None else "ContainerStatusUnknown"
        case None:
            return "ContainerCreating"


def _why_not_ready(remote: RemoteContainer) -> str:
    if remote.ended is None:
        return "" if remote.started is not None else "ContainersNotReady"
    return "PodCompleted" if _phase(remote) is Phase.SUCCEEDED else "PodFailed"


def _exit_code(remote: RemoteContainer) -> int:
    if remote.exit_code is not None:
        return remote.exit_code
    match remote.ended:
        case RemoteEnd.LOST | RemoteEnd.UNREPORTED | RemoteEnd.DELETED:
            return LOST_EXIT_CODE
        case RemoteEnd.BROKEN:
            return START_ERROR_EXIT_CODE
        case _:
            return 0


def _container(remote: RemoteContainer, bound: datetime, now: datetime) -> dict[str, Any]:
    running = remote.ended is None and remote.started is not None
    state: dict[str, Any] = {"waiting": None, "running": None, "terminated": None}
    if remote.ended is not None:
        started = remote.started or bound
        # Clocks of provider and operator differ; an end before its start is refused.
        finished = max(remote.finished or now, started)
        state["terminated"] = {
            "exitCode": _exit_code(remote),
            "reason": _reason(remote),
            "message": remote.message,
            "startedAt": _time(started),
            "finishedAt": _time(finished),
            **({"containerID": f"remote://{remote.id}"} if remote.id else {}),
        }
    elif remote.started is not None:
        state["running"] = {"startedAt": _time(remote.started)}
    else:
        state["waiting"] = {"reason": _reason(remote), "message": remote.message}
    shown: dict[str, Any] = {
        "name": remote.container,
        "image": remote.image,
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": remote.restarts,
        "state": state,
    }
    if remote.id:
        shown["containerID"] = f"remote://{remote.id}"
    if remote.restarts and remote.last_exit_code is not None:
        at = remote.started or bound
        shown["lastState"] = {
            "terminated": {
                "exitCode": remote.last_exit_code,
                "reason": "Error",
                "startedAt": _time(at),
                "finishedAt": _time(at),
            }
        }
    return shown


def _condition(kind: str, *, holds: bool, at: datetime, reason: str = "", message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "lastTransitionTime": _time(at),
        "reason": reason or None,
        "message": message or None,
    }


def _time(at: datetime) -> str:
    """RFC 3339 with whole seconds, as Kubernetes keeps times."""
    return (at - timedelta(microseconds=at.microsecond)).isoformat().replace("+00:00", "Z")
