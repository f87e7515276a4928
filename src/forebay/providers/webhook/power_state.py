"""Whether a machine is on, as its status endpoint says it."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec


class PowerState(StrEnum):
    ON = "On"
    STARTING = "Starting"
    STOPPING = "Stopping"
    OFF = "Off"


#: Fields that are looked at, without regard to case. `PowerState` is that of Redfish.
_FIELDS: Final = frozenset({"on", "state", "power", "powerstate", "power_state"})

_WORDS: Final = {
    **dict.fromkeys(("on", "running", "up", "true"), PowerState.ON),
    **dict.fromkeys(("starting", "booting", "poweringon"), PowerState.STARTING),
    **dict.fromkeys(("stopping", "poweringoff"), PowerState.STOPPING),
    **dict.fromkeys(("off", "stopped", "down", "false"), PowerState.OFF),
}


def power_state(body: bytes) -> PowerState | None:
    """None where the answer cannot be understood, or says two things at once: that is never taken for off."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        answer = body.decode("utf-8", "replace")
    said = {_meaning(value) for value in _values(answer)}
    return said.pop() if len(said) == 1 else None


def _values(answer: Any) -> Iterator[Any]:
    if isinstance(answer, dict):
        yield from (value for name, value in answer.items() if str(name).lower() in _FIELDS)
    else:
        yield answer


def _meaning(value: Any) -> PowerState | None:
    if isinstance(value, bool):
        return PowerState.ON if value else PowerState.OFF
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None
