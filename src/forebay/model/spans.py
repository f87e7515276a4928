"""Durations as kubectl prints them: `5s`, `3m20s`, `2d4h`."""

from datetime import timedelta

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400


def hours(span: timedelta) -> str:
    """The window of a budget as its spec has it, in hours: `24h`."""
    return f"{span // timedelta(hours=1)}h"


def human(span: timedelta) -> str:
    """The duration as Kubernetes' HumanDuration prints it: the longer, the coarser, and never more than two units."""
    seconds = int(span.total_seconds())
    if seconds < 0:
        # A clock that is a second ahead is no reason to worry anybody.
        return "<invalid>" if seconds < -1 else "0s"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    for limit, large, small, names in (
        (10 * _MINUTE, _MINUTE, 1, "ms"),
        (3 * _HOUR, _MINUTE, 0, "m"),
        (8 * _HOUR, _HOUR, _MINUTE, "hm"),
        (2 * _DAY, _HOUR, 0, "h"),
        (8 * _DAY, _DAY, _HOUR, "dh"),
        (2 * _YEAR, _DAY, 0, "d"),
        (8 * _YEAR, _YEAR, _DAY, "yd"),
    ):
        if seconds < limit:
            rest = seconds % large // small if small else 0
            return f"{seconds // large}{names[0]}" + (f"{rest}{names[1]}" if rest else "")
    return f"{seconds // _YEAR}y"
