"""When the containers of a pod ran, read from its container statuses."""

from datetime import datetime

import msgspec
from msgspec import Raw

from forebay.model.workloads import Phase


class _Ran(msgspec.Struct, rename="camel"):
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _State(msgspec.Struct):
    running: _Ran | None = None
    terminated: _Ran | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    state: _State | None = None
    last_state: _State | None = None
    restart_count: int = 0


_container_statuses = msgspec.json.Decoder(list[_ContainerStatus] | None)


def run_times(init: Raw, main: Raw, phase: Phase) -> tuple[datetime | None, datetime | None, bool]:
    """Start, end and whether a container restarted, which means that earlier starts may be missing.

    The start is the earliest of any container, init containers and sidecars included. The end is the latest of any
    container, None until the pod has ended and every container that ran reports its end.
    """
    starts: list[datetime] = []
    ends: list[datetime] = []
    restarted, complete = False, phase.ended
    for statuses in (init, main):
        for container in (_container_statuses.decode(statuses) if statuses else None) or ():
            restarted |= container.restart_count > 0
            for state in (container.state, container.last_state):
                ran = state and (state.running or state.terminated)
                if ran:
                    if ran.started_at is not None:
                        starts.append(ran.started_at)
                    if ran.finished_at is not None:
                        ends.append(ran.finished_at)
                    elif state is container.state:
                        complete = False
    return min(starts, default=None), max(ends, default=None) if complete else None, restarted
