"""The power state of a machine in the response of its status endpoint."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import msgspec

from forebay.net.json_body import decode_body


class PowerState(StrEnum):
    ON = "On"
    STARTING = "Starting"
    STOPPING = "Stopping"
    OFF = "Off"


#: JSON fields that may hold the state, in any case. `PowerState` is that of Redfish.
_FIELDS: Final = frozenset({"on", "state", "power", "powerstate", "power_state"})

_WORDS: Final = {
    **dict.fromkeys(("on", "running", "up", "true"), PowerState.ON),
    **dict.fromkeys(("starting", "booting", "poweringon"), PowerState.STARTING),
    **dict.fromkeys(("stopping", "poweringoff"), PowerState.STOPPING),
    **dict.fromkeys(("off", "stopped", "down", "false"), PowerState.OFF),
}


def power_state(body: bytes) -> PowerState | None:
    """The state; None (unknown, never off) where the body is not understood or contradicts itself."""
    try:
        document = decode_body(body, object)
    except msgspec.DecodeError:
        document = body.decode("utf-8", "replace")
    states = {_parse(value) for value in _values(document)}
    return states.pop() if len(states) == 1 else None


def _values(document: Any) -> Iterator[Any]:
    if isinstance(document, dict):
        yield from (value for name, value in document.items() if str(name).lower() in _FIELDS)
    else:
        yield document


def _parse(value: Any) -> PowerState | None:
    if isinstance(value, bool):
        return PowerState.ON if value else PowerState.OFF
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None
