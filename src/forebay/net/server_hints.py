"""`Retry-After` and rate-limit headers, in all their spellings."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from forebay.net.transport import Headers


class Window(msgspec.Struct, frozen=True):
    """A rate limit announced by the server: the remaining requests, and when the count is reset."""

    name: str
    remaining: int
    #: Seconds from now.
    resets_in: float


def retry_after(headers: Headers, now: datetime) -> float | None:
    """Seconds to wait (never negative), from a number of seconds or an HTTP date. None if absent or invalid."""
    value = headers.get("Retry-After", "").strip()
    return _seconds(value, now) if value else None


def windows(headers: Headers, now: datetime) -> list[Window]:
    """The rate limits in the headers of a response that have both a remainder and a reset time."""
    field = headers.get("RateLimit")
    if field is not None:
        return _structured(field, headers.get("RateLimit-Policy", ""))
    for prefix in ("RateLimit-", "X-RateLimit-", "X-Rate-Limit-"):
        remaining, reset = headers.get(prefix + "Remaining"), headers.get(prefix + "Reset")
        if remaining is None or reset is None:
            continue
        # With several limits the headers hold lists; the first value is for the limit nearest to exhaustion.
        left, ends = _whole(remaining.partition(",")[0]), _seconds(reset.partition(",")[0].strip(), now)
        if left is not None and ends is not None:
            return [Window(prefix, left, ends)]
    return []


# Larger numbers are dates, for no window lasts thirty years: Unix time in seconds, even larger ones in milliseconds.
_EPOCH_SECONDS = 1e9
_EPOCH_MILLISECONDS = 1e11


def _seconds(value: str, now: datetime) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return _until_date(value, now)
    if not 0 <= number < 1e15:  # noqa: PLR2004 (also drops nan and inf)
        return None
    if number >= _EPOCH_MILLISECONDS:
        number /= 1000
    return max(0.0, number - now.timestamp()) if number >= _EPOCH_SECONDS else number


def _until_date(value: str, now: datetime) -> float | None:
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        try:
            date = datetime.fromisoformat(value)
        except ValueError:
            return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - now).total_seconds())


def _whole(value: str) -> int | None:
    return int(value) if re.fullmatch(r"\s*[0-9]{1,15}\s*", value) else None


_MEMBER = re.compile(r'"(?P<name>(?:[^"\\]|\\.)*)"\s*(?P<parameters>(?:;\s*[a-z*][a-z0-9_.*-]*(?:=[^;,\s]*)?\s*)*)')
_PARAMETER = re.compile(r";\s*([a-z*][a-z0-9_.*-]*)=([0-9]{1,15})\b")
_OLDER = re.compile(r"\b(limit|remaining|reset)\s*=\s*([0-9]{1,15})\b")


def _structured(field: str, policy: str) -> list[Window]:
    """Parses `"name";r=50;t=30, ...` of the present draft, or `limit=100, remaining=50, reset=5` of earlier drafts."""
    lengths = {name: parameters.get("w") for name, parameters in _members(policy)}
    found: list[Window] = []
    for name, parameters in _members(field):
        remaining = parameters.get("r")
        # `t` is optional. Without it the length of the window is the longest possible wait.
        resets_in = parameters.get("t", lengths.get(name))
        if remaining is not None and resets_in is not None:
            found.append(Window(name, remaining, resets_in))
    if found:
        return found
    older = {key: int(value) for key, value in _OLDER.findall(field)}
    if "remaining" in older and "reset" in older:
        return [Window("", older["remaining"], older["reset"])]
    return []


def _members(field: str) -> list[tuple[str, dict[str, int]]]:
    return [
        (member["name"], {key: int(value) for key, value in _PARAMETER.findall(member["parameters"])})
        for member in _MEMBER.finditer(field)
    ]
