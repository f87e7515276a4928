"""A pod's log: Server-Sent Events, of which the stream never ends by itself while the pod runs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from forebay.net.json_body import decode_body
from forebay.providers.base import InstanceGone, LogLine, Unavailable
from forebay.providers.cloud_calls import CloudCalls
from forebay.providers.runpod.errors import PodNotFound
from forebay.providers.runpod.wire import PODS, RunpodLogEvent, RunpodPod

#: Most lines that RunPod sends of what was written before.
MOST_LINES: Final = 5000
#: Seconds without an event after which what was written before has been sent.
_QUIET: Final = 2.0
#: Seconds before a stream that ended is opened again.
_PAUSE: Final = 5.0
_ENDED: Final = frozenset({"EXITED", "ERROR", "TERMINATED"})


class _Event(NamedTuple):
    id: str
    line: LogLine


async def log_lines(
    calls: CloudCalls,
    pod: str,
    *,
    follow: bool,
    since: datetime | None,
    tail: int | None,
    opened: Callable[[], None] | None = None,
) -> AsyncIterator[LogLine]:
    """Lines of the container, oldest first. Raises where the log breaks off."""
    query = {"source": "container"}
    if since is not None:
        query["since"] = since.isoformat().replace("+00:00", "Z")
    else:
        query["tail"] = str(MOST_LINES if tail is None else min(tail, MOST_LINES))
    if since is not None and tail is not None:
        # RunPod ignores `tail` beside `since`.
        written = [each async for each in _opened(calls, pod, query, None, quiet=True, opened=opened)]
        for each in written[len(written) - min(tail, len(written)) :]:
            yield each.line
        if not follow:
            return
        last = written[-1].id if written else None
    else:
        last = None
        async for each in _opened(calls, pod, query, None, quiet=not follow, opened=opened):
            last = each.id or last
            yield each.line
    while follow and not await _has_ended(calls, pod):
        await asyncio.sleep(_PAUSE)
        async for each in _opened(calls, pod, query, last, quiet=False):
            if each.id != last:
                yield each.line
            last = each.id or last


async def _has_ended(calls: CloudCalls, pod: str) -> bool:
    try:
        found = await calls.get(f"{PODS}/{quote(pod, safe='')}", RunpodPod)
    except PodNotFound:
        return True
    return found.status in _ENDED


async def _opened(
    calls: CloudCalls,
    pod: str,
    query: dict[str, str],
    last: str | None,
    *,
    quiet: bool,
    opened: Callable[[], None] | None = None,
) -> AsyncIterator[_Event]:
    """Events of one stream, until it ends, or (`quiet`) until nothing has come for a while."""
    path = f"{PODS}/{quote(pod, safe='')}/logs?{urlencode(query)}"
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
    try:
        chunks = calls.stream(path, headers, quiet=_QUIET if quiet else None, opened=opened)
        buffer = b""
        async for chunk in chunks:
            *whole, buffer = (buffer + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
            for text in whole:
                if (event := _event(text)) is not None:
                    yield event
        if (event := _event(buffer)) is not None:
            yield event
    except PodNotFound:
        raise InstanceGone(f"RunPod has no pod {pod}, and no log of it.") from None


def _event(text: bytes) -> _Event | None:
    number, data = "", b""
    for line in text.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id":
            number = value.decode("utf-8", "replace")
        elif name == b"data":
            data += value
    if not data:
        return None
    try:
        found = decode_body(data, RunpodLogEvent)
    except msgspec.DecodeError as error:
        raise Unavailable(f"A line of RunPod's log cannot be read: {error}.") from None
    return _Event(number, LogLine(at=found.ts, text=found.line))
