"""Life lines: the states that GPUInstances went through, on one time axis."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_instance import InstanceState
from forebay.reporting.machines import MachineView

_SHORTEST_AXIS: Final = timedelta(minutes=10)
_LONGEST_AXIS: Final = timedelta(hours=24)


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One state of a GPUInstance, from one moment to another."""

    state: str
    start: datetime
    end: datetime


def axis_start(machines: Iterable[MachineView], now: datetime) -> datetime:
    """Where an axis that ends now must begin to show these machines: 10 minutes to a day ago."""
    first = min((each.history[0].at for each in machines if each.history), default=now)
    return max(min(first, now - _SHORTEST_AXIS), now - _LONGEST_AXIS)


def life_line(machine: MachineView, start: datetime, now: datetime) -> list[Segment]:
    """The states of the machine between `start` and `now`. The time after it is Gone is left out."""
    steps = [(step.state, step.at) for step in machine.history]
    if not steps and machine.since is not None:
        steps = [(machine.state, machine.since)]
    return [
        Segment(state=state, start=max(since, start), end=min(until, now))
        for (state, since), until in zip(steps, _ends(steps, now), strict=True)
        if state != InstanceState.GONE and until > start and since < now
    ]


def _ends(steps: Sequence[tuple[str, datetime]], now: datetime) -> list[datetime]:
    return [at for _, at in steps[1:]] + [now] if steps else []
