"""A pod's log: Server-Sent Events, of which the stream never ends by itself while the pod runs."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from forebay.net.json_body import decode_body
from forebay.providers.base import InstanceGone, LogLine
from forebay.providers.cloud_calls import CloudCalls
from forebay.providers.runpod.errors import PodNotFound
from forebay.providers.runpod.wire import PODS, RunpodLogEvent

#: Most lines that RunPod sends of what was written before.
MOST_LINES: Final = 5000
#: Bytes of one line: what prints more without a line's end is no log.
MOST_OF_EVENT: Final = 1024 * 1024
#: In place of such a line, and of one that cannot be read.
_LEFT_OUT: Final = b'data: {"line": "(Forebay left out a line of more than 1 MiB)"}'
_UNREADABLE: Final = "(Forebay cannot read this line of RunPod's log)"
#: Seconds without an event after which what was written before has been sent.
_QUIET: Final = 2.0
#: Seconds before a stream that ended is opened again; doubled while nothing new comes of it.
_PAUSE: Final = 5.0
_LONGEST_PAUSE: Final = 60.0
#: Seconds of silence after which a stream may be dead without anybody having closed it: that of an idle pod, whose
#: command may have ended unnoticed (doubled while nothing comes of it), and any other.
_SILENCE_OF_IDLE: Final = 300.0
_LONGEST_SILENCE: Final = 3600.0


class Following(NamedTuple):
    """How a log is followed."""

    #: Whether the pod has ended. Asked some seconds after its stream did.
    has_ended: Callable[[], Awaitable[bool]]
    #: Whether the GPUs of the pod did nothing when it was last listed.
    is_idle: Callable[[], bool]
    #: Awaited before the stream is opened again.
    turn: Callable[[], Awaitable[None]] | None = None


class _Event(NamedTuple):
    id: str
    line: LogLine


async def log_lines(
    calls: CloudCalls,
    pod: str,
    *,
    following: Following | None = None,
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
    patience = _Patience(following.is_idle) if following is not None else None
    seen = _Cursor()
    if since is not None and tail is not None:
        # RunPod ignores `tail` beside `since`.
        written = [each async for each in _opened(calls, pod, query, quiet=_QUIET, opened=opened)]
        for each in written:
            seen.passes(each)
        for each in written[len(written) - min(tail, len(written)) :]:
            yield each.line
    else:
        async for each in _opened(calls, pod, query, quiet=patience or _QUIET, opened=opened):
            seen.passes(each)
            yield each.line
    if following is None or patience is None:
        return
    pause = _PAUSE
    while True:
        await asyncio.sleep(pause)
        if await following.has_ended():
            return
        if following.turn is not None:
            await following.turn()
        pause = min(pause * 2, _LONGEST_PAUSE)
        patience.grow()
        seen.begin_again()
        async for each in _opened(calls, pod, query, seen.last, quiet=patience, opened=opened):
            if seen.passes(each):
                pause = _PAUSE
                patience.renew()
                yield each.line


class _Cursor:
    """How far a log was read. Ids are times: lines of one second may share theirs, and some come again."""

    def __init__(self) -> None:
        self.last: str | None = None
        self._texts: Counter[str] = Counter()
        self._again: Counter[str] = Counter()
        self._resumed_at: str | None = None

    def begin_again(self) -> None:
        """The log is read on from the last id."""
        self._resumed_at, self._again = self.last, Counter(self._texts)

    def passes(self, event: _Event) -> bool:
        """Whether the line is new."""
        text = event.line.text
        if event.id and event.id == self._resumed_at and self._again[text]:
            self._again[text] -= 1
            return False
        if event.id and event.id != self.last:
            self.last, self._texts = event.id, Counter()
        self._texts[text] += 1
        return True


class _Patience:
    """Whether a stream has been silent for too long."""

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle = is_idle
        self._silence = _SILENCE_OF_IDLE

    def __call__(self, silent: float) -> bool:
        return silent >= _LONGEST_SILENCE or (silent >= self._silence and self._is_idle())

    def grow(self) -> None:
        self._silence *= 2

    def renew(self) -> None:
        self._silence = _SILENCE_OF_IDLE


async def _opened(
    calls: CloudCalls,
    pod: str,
    query: dict[str, str],
    last: str | None = None,
    *,
    quiet: float | Callable[[float], bool],
    opened: Callable[[], None] | None = None,
) -> AsyncIterator[_Event]:
    """Events of one stream, until it ends or has been quiet for too long."""
    path = f"{PODS}/{quote(pod, safe='')}/logs?{urlencode(query)}"
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
    split = _Events()
    try:
        async for chunk in calls.stream(path, headers, quiet=quiet, opened=opened):
            for text in split.after(chunk):
                if (event := _event(text)) is not None:
                    yield event
        if (event := _event(split.rest)) is not None:
            yield event
    except PodNotFound:
        raise InstanceGone(f"RunPod has no pod {pod}, and no log of it.") from None


class _Events:
    """A stream divided at its empty lines. An event that does not end is not kept."""

    def __init__(self) -> None:
        #: What has come of the next one.
        self.rest = b""
        self._too_long = False

    def after(self, chunk: bytes) -> Iterator[bytes]:
        """Events that are complete now that the chunk has come."""
        *whole, self.rest = (self.rest + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
        for text in whole:
            yield _LEFT_OUT if self._too_long or len(text) > MOST_OF_EVENT else text
            self._too_long = False
        if len(self.rest) > MOST_OF_EVENT:
            # The last byte may be half of what ends it.
            self.rest, self._too_long = self.rest[-1:], True


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
    except msgspec.DecodeError:
        # The lines after it, of which one may have the exit code, can be read all the same.
        return _Event(number, LogLine(text=_UNREADABLE))
    return _Event(number, LogLine(at=found.at, text=found.line))
