"""What the record of a container says about the container of its pod."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState, Transition
from forebay.model.reasons import Reason
from forebay.offload.pod_status import RemoteContainer, RemoteEnd

#: The provider took the container away. Nothing that ran in it can have failed by itself.
_LOST: Final = frozenset({Reason.VANISHED, Reason.RECLAIMED})
_NO_REPORT: Final = (
    "The container has exited, but its command has not reported an exit code: the container was stopped or killed, or "
    "its image has no /bin/sh."
)


_NO_RECORD: Final = (
    "The GPUInstance of the container was removed by hand, and with it all that is known of the container: what ran in "
    "it counts as lost."
)
_DELETED: Final = "The pod was deleted, and its container is gone."


class ReportedExit(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell around the command has reported in the log so far."""

    #: None while the command runs.
    exit_code: int | None = None
    #: When the command ended; never later than when that was read.
    at: datetime | None = None
    restarts: int = 0
    last_exit_code: int | None = None
    #: When the last restarts, at most two, were reported by the provider's clock; fewer where it did not say.
    restarted: tuple[datetime, ...] = ()
    #: The container has ended, and its log was read to the end: nothing more will be reported.
    whole: bool = False


def remote_container(
    records: Iterable[GPUInstance],
    container: str,
    image: str,
    reported: ReportedExit | None = None,
    *,
    has_command: bool = False,
    deleted: bool = False,
) -> RemoteContainer:
    """The container of a pod by its records, of which all but the last are proven gone; `reported` is of the last one.

    A container that never ran is no end of its pod: Forebay launches another one, and the pod waits. One that ran and
    was lost is: what it did is gone, and the pod's own controller decides what follows. With `has_command` a shell
    reports the exit code and then waits: a container that exits without such a report has not succeeded. A `deleted`
    pod goes on as it was until all its containers are proven gone: its Job may start the next one only then.
    """
    records = tuple(records)
    found = _by_records(records, container, image, reported, has_command=has_command, deleted=deleted)
    if not deleted or found.ended is not None or any(each.state is not InstanceState.GONE for each in records):
        return found
    return msgspec.structs.replace(found, ended=RemoteEnd.DELETED, message=_DELETED)


def _by_records(
    records: tuple[GPUInstance, ...],
    container: str,
    image: str,
    reported: ReportedExit | None,
    *,
    has_command: bool,
    deleted: bool,
) -> RemoteContainer:
    told = reported or ReportedExit()
    last = container_of_pod(records)
    if last is None:
        return RemoteContainer(container=container, image=image, message="Waiting for a remote container.")
    status = last.status
    shown = RemoteContainer(
        container=container,
        image=image,
        id=status.instance_id if status is not None else None,
        started=_at(_entered(last, InstanceState.RUNNING)),
        restarts=told.restarts,
        last_exit_code=told.last_exit_code,
        message=(status.message or "") if status is not None else "",
    )
    if told.exit_code is not None:
        return msgspec.structs.replace(
            shown,
            # A command may be over before a listing has shown that its container runs.
            started=shown.started or told.at,
            ended=RemoteEnd.EXITED,
            exit_code=told.exit_code,
            finished=told.at,
            message="",
        )
    return _with_end(shown, last, told, has_command=has_command, deleted=deleted)


def without_record(container: str, image: str, started: datetime) -> RemoteContainer:
    """The container of a pod that has run, and whose GPUInstance somebody has taken away: a pod runs once, and nothing
    tells any more how its run ended.
    """
    return RemoteContainer(container=container, image=image, started=started, ended=RemoteEnd.LOST, message=_NO_RECORD)


def container_of_pod(records: Iterable[GPUInstance]) -> GPUInstance | None:
    """The record of the container that ran, or will run, the pod; None where none was ordered.

    A pod runs once: the first container that did anything for it decides, whatever was ordered later.
    """
    in_order = sorted(records, key=_created)
    return next(filter(did_anything, in_order), in_order[-1] if in_order else None)


def _with_end(
    shown: RemoteContainer, record: GPUInstance, told: ReportedExit, *, has_command: bool, deleted: bool
) -> RemoteContainer:
    finished = _entered(record, InstanceState.FINISHED)
    if finished is not None:
        if finished.reason == Reason.CONTAINER_FINISHED:
            exit_code = record.status.exit_code if record.status is not None else None
            if exit_code is None and has_command:
                if record.state is InstanceState.FINISHED and not told.whole:
                    # The report may be in what was not read of the log yet.
                    return shown
                return msgspec.structs.replace(
                    shown, ended=RemoteEnd.UNREPORTED, finished=finished.at, message=_NO_REPORT
                )
            return msgspec.structs.replace(
                shown, ended=RemoteEnd.EXITED, exit_code=exit_code, finished=finished.at, message=""
            )
        # What the provider stopped after it had run was lost; what never ran could not start.
        end = RemoteEnd.LOST if shown.started is not None else RemoteEnd.BROKEN
        return msgspec.structs.replace(shown, ended=end, finished=finished.at, message=finished.message)
    if not _is_over(record):
        return shown
    ending = _entered(record, InstanceState.TERMINATING) or _entered(record, InstanceState.GONE)
    if shown.started is None:
        # Why it did not run, and not how far its termination is.
        return msgspec.structs.replace(shown, id=None, message=ending.message if ending is not None else shown.message)
    lost = [each for each in _transitions(record) if each.reason in _LOST]
    why = lost[0] if lost else ending
    if why is None or (deleted and not lost):
        return shown
    # Also where somebody deleted the record: the pod did not end by itself.
    return msgspec.structs.replace(shown, ended=RemoteEnd.LOST, finished=why.at, message=why.message)


def did_anything(record: GPUInstance) -> bool:
    """Whether the container has run, or has ended: its pod has had its run then."""
    return any(_entered(record, state) is not None for state in (InstanceState.RUNNING, InstanceState.FINISHED))


def _is_over(record: GPUInstance) -> bool:
    return record.state in {InstanceState.TERMINATING, InstanceState.GONE}


def _transitions(record: GPUInstance) -> tuple[Transition, ...]:
    return record.status.transitions if record.status is not None else ()


def _entered(record: GPUInstance, state: InstanceState) -> Transition | None:
    return next((each for each in _transitions(record) if each.state is state), None)


def _at(transition: Transition | None) -> datetime | None:
    return None if transition is None else transition.at


def _created(record: GPUInstance) -> tuple[float, str]:
    created = record.metadata.creation_timestamp
    return created.timestamp() if created is not None else 0.0, record.uid
