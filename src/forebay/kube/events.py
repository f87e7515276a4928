"""Recorder of Kubernetes events, as shown by `kubectl describe`. Events are written in the background.

Repeats of an event become one Event object with a series, whose count is patched at most every 30 s. The number of new
events per object and the length of the queue are limited; events beyond a limit are counted and dropped. Recording an
event never raises.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

import msgspec
import structlog

from forebay.api.meta import ObjectMeta
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import AlreadyExists, KubeError, NotFound, ServerUnavailable, TooManyRequests, Unauthorized
from forebay.kube.right_of_way import RightOfWay
from forebay.kube.types import EVENTS, Event, EventSeries, MicroTime, ObjectReference, micro_time
from forebay.net import clock
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

CONTROLLER = "forebay.dev/operator"

#: Bytes; the API server refuses more.
_NOTE_LIMIT = 1024
_FIELD_LIMIT = 128
_NAME_LIMIT = 253
#: New events per object, as in client-go's spam filter: a burst, then one every five minutes.
_BURST = 25
_REFILL = 300.0
#: A series ends when no event repeats it for this long. Its count is written at most once per period.
_SERIES_END = 360.0
_SERIES_PERIOD = 30.0
_REMEMBERED = 4096
_RETRIES = (1.0, 2.0, 4.0, 8.0)


class EventCounts(msgspec.Struct):
    """Numbers of events by outcome."""

    written: int = 0
    #: Added to the series of an earlier event.
    repeated: int = 0
    #: Over the limit of their object.
    limited: int = 0
    #: The queue was full, or the recorder closed.
    dropped: int = 0
    #: Refused by the server, or not delivered in spite of retries.
    failed: int = 0


class _Series(msgspec.Struct, kw_only=True, eq=False):
    """One event and its repeats."""

    key: Hashable
    event: Event
    last: float
    last_observed: MicroTime = ""
    count: int = 1
    written: int = 0
    written_at: float = 0.0
    #: Whether the series is queued, or waits for its period to end.
    due: bool = True
    timer: asyncio.TimerHandle | None = None


class _Bucket(msgspec.Struct):
    tokens: float
    at: float


class EventRecorder:
    """Writes events. `instance` is the `reportingInstance` of the events: the name of this process."""

    def __init__(
        self,
        client: Client,
        *,
        instance: str,
        controller: str = CONTROLLER,
        queue: int = 5000,
        way: RightOfWay | None = None,
    ) -> None:
        self.counts = EventCounts()
        #: The error of the last write that failed.
        self.last_error: str | None = None
        self._client = client
        self._instance = instance[:_FIELD_LIMIT]
        self._controller = controller
        self._way = way or RightOfWay()
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(queue)
        self._series: OrderedDict[Hashable, _Series] = OrderedDict()
        self._buckets: OrderedDict[ObjectReference, _Bucket] = OrderedDict()
        self._writer: asyncio.Task[None] | None = None
        self._closed = False
        self._last_stamp = 0

    @property
    def queued(self) -> int:
        """Events that are not written yet."""
        return self._queue.qsize()

    def event(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        note: str,
        type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002 (the field's own name)
        action: str = "",
        related: ObjectReference | None = None,
    ) -> bool:
        """Queues an event about an object, without waiting. `action` is the reason if empty.

        False where there was no room in the queue: the caller may try again later.
        """
        now = asyncio.get_running_loop().time()
        key = (regarding, related, type, reason, action, note)
        series = self._series.get(key)
        if self._closed:
            self.counts.dropped += 1
        elif series is not None and now - series.last <= _SERIES_END:
            self._series.move_to_end(key)
            series.count += 1
            series.last = now
            series.last_observed = micro_time(clock.now())
            self.counts.repeated += 1
            self._schedule(series)
        elif self._allowed(regarding, now):
            event = Event(
                # `kubectl describe` looks for the events of cluster-scoped objects in namespace "default".
                metadata=ObjectMeta(name=self._name(regarding), namespace=regarding.namespace or "default"),
                event_time=micro_time(clock.now()),
                reporting_controller=self._controller,
                reporting_instance=self._instance,
                action=_pascal(action or reason),
                reason=_pascal(reason),
                regarding=regarding,
                related=related,
                note=_shortened(note),
                type=type,
            )
            return self._remember(_Series(key=key, event=event, last=now))
        else:
            self.counts.limited += 1
        return True

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109 (what is left is counted, not raised)
        """Writes the queued events, for at most `timeout` seconds."""
        self._closed = True
        for series in list(self._series.values()):
            if series.timer is not None:
                series.timer.cancel()
                self._enqueue(series)
        if self._writer is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._queue.join()
        except TimeoutError:
            self.counts.dropped += self._queue.qsize() + 1
        self._writer.cancel()
        await asyncio.wait({self._writer})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _name(self, regarding: ObjectReference) -> str:
        # Event names must differ even for events of the same instant, which virtual time has many of.
        self._last_stamp = max(self._last_stamp + 1, int(clock.now().timestamp() * 1_000_000_000))
        suffix = f".{self._last_stamp:x}"
        labels = re.sub(r"[^a-z0-9.]", "-", regarding.name.lower()).split(".")
        base = ".".join(filter(None, (label.strip("-") for label in labels))) or "unnamed"
        return base[: _NAME_LIMIT - len(suffix)].rstrip("-.") + suffix

    def _allowed(self, regarding: ObjectReference, now: float) -> bool:
        bucket = self._buckets.setdefault(regarding, _Bucket(_BURST, now))
        self._buckets.move_to_end(regarding)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        bucket.tokens = min(float(_BURST), bucket.tokens + (now - bucket.at) / _REFILL)
        bucket.at = now
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True

    def _remember(self, series: _Series) -> bool:
        self._series[series.key] = series
        self._series.move_to_end(series.key)
        if len(self._series) > _REMEMBERED:
            _, forgotten = self._series.popitem(last=False)
            if forgotten.timer is not None:
                forgotten.timer.cancel()
        return self._enqueue(series)

    def _schedule(self, series: _Series) -> None:
        if series.due:
            return
        series.due = True
        when = series.written_at + _SERIES_PERIOD
        series.timer = asyncio.get_running_loop().call_at(when, self._enqueue, series)

    def _enqueue(self, series: _Series) -> bool:
        series.due, series.timer = True, None
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_all(), name="write events")
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self.counts.dropped += 1
            self._forget(series)
            return False
        return True

    def _forget(self, series: _Series) -> None:
        if self._series.get(series.key) is series:
            del self._series[series.key]

    async def _write_all(self) -> None:
        while True:
            series = await self._queue.get()
            if not self._closed:
                await self._way.give()
            await self._deliver(series)
            series.due = False
            if series.count > series.written:
                if self._closed:
                    self._enqueue(series)
                else:
                    self._schedule(series)
            self._queue.task_done()

    async def _deliver(self, series: _Series) -> None:
        for pause in (*_RETRIES, None):
            try:
                await self._write(series)
            except (TransportError, ServerUnavailable, TooManyRequests, Unauthorized) as error:
                self.last_error = str(error)
                if pause is not None:
                    await asyncio.sleep(pause)
                    continue
            except KubeError as error:
                self.last_error = str(error)
            else:
                self.counts.written += 1
                return
            self.counts.failed += 1
            log.warning("event not written", reason=series.event.reason, error=self.last_error)
            self._forget(series)
            series.written = series.count
            return

    async def _write(self, series: _Series) -> None:
        count = series.count
        event = series.event
        if count > 1:
            observed = EventSeries(count=count, last_observed_time=series.last_observed)
            event = msgspec.structs.replace(event, series=observed)
        if series.written and not await self._patched(event):
            # The server has deleted the event (by default after an hour): write a new one under a new name.
            metadata = ObjectMeta(name=self._name(event.regarding), namespace=event.metadata.namespace)
            series.event = event = msgspec.structs.replace(event, metadata=metadata, event_time=micro_time(clock.now()))
            series.written = 0
        if not series.written:
            with suppress(AlreadyExists):  # an earlier attempt succeeded and its response was lost
                await self._client.create(EVENTS, event)
        series.written = count
        series.written_at = asyncio.get_running_loop().time()

    async def _patched(self, event: Event) -> bool:
        """Updates the series of an event. False if the event no longer exists."""
        patch = writes.merge_patch({"series": event.series})
        try:
            await self._client.patch(EVENTS, event.metadata.name, patch, event.metadata.namespace)
        except NotFound:
            return False
        return True


def _shortened(note: str) -> str:
    # A note may quote text that cannot be encoded (half of a surrogate pair).
    encoded = note.encode("utf-8", "replace")
    if len(encoded) <= _NOTE_LIMIT:
        return encoded.decode("utf-8")
    return encoded[: _NOTE_LIMIT - 3].decode("utf-8", "ignore") + "..."


def _pascal(words: str) -> str:
    """`no capacity` or `no-capacity` as `NoCapacity`, the form of Kubernetes reasons."""
    parts = re.findall(r"[A-Za-z0-9]+", words)
    return "".join(part[0].upper() + part[1:] for part in parts)[:_FIELD_LIMIT] or "Unknown"
