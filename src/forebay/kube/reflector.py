"""Keeps a `View` equal to what the API server has, whatever the server and the network do in between.

fill      WatchList where the server has it, a paged list where not: shows everything, then deletes what was not shown
follow    the watch from the last version seen; bookmarks move that version on
fail      a cut or an end after progress resumes at once; anything else waits, longer each time
expire    410 anywhere means that deletions may have been missed: fill again
"""

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import aclosing, contextmanager
from itertools import islice
from typing import Any, ClassVar, Final, Generic, NoReturn, cast
from urllib.parse import urlencode

import msgspec
import structlog

from forebay.kube.backoff import Backoff
from forebay.kube.decoders import (
    Batch,
    Bookmark,
    LineSplitter,
    ObjectDecoder,
    Shown,
    UndecodableObject,
    WatchEvent,
    decoder_for,
)
from forebay.kube.errors import (
    ApiError,
    BadRequest,
    Expired,
    Invalid,
    ServerUnavailable,
    Status,
    TooManyRequests,
    Unreadable,
    Unsupported,
    from_response,
    from_status,
)
from forebay.kube.resources import Resource, T
from forebay.kube.view import View
from forebay.net.transport import Headers, Request, Response, Timeouts, Transport, TransportError

log = structlog.get_logger(__name__)

PAGE_SIZE: Final = 500
#: The server sends a bookmark about each minute. Two and a half without a word: nobody is there.
SILENCE_LIMIT: Final = 150.0
#: Priority and fairness may hold a request this long before its first byte.
_INITIAL_SILENCE_LIMIT: Final = 75.0
_PAGE_TIMEOUTS: Final = Timeouts(read=75.0, total=300.0)
#: Silence is timed here, chunk by chunk, so that every transport keeps the same limit.
_WATCH_TIMEOUTS: Final = Timeouts(read=None, total=None)
#: The server ends each watch after a random time in this range, so that clients do not come back all at once.
_WATCH_LASTS: Final = (300, 600)
#: A watch that ends sooner without any news is a failure, however politely it ended.
_SHORT_WATCH: Final = 1.0
#: A stream that held this long was healthy, even if nothing happened on it.
_HEALTHY_WATCH: Final = 30.0
#: Filling again within this time of the last filling waits its turn like any other failure.
_SOON: Final = 30.0
#: After so many WatchLists in a row that broke off, a paged list, which needs no stream to hold so long.
_PATIENCE_WITH_WATCH_LISTS: Final = 3
#: Seconds of work after which other tasks get a turn, looked at after so many objects of a page.
_TURN: Final = 0.01
_LOOK: Final = 32
_HEADERS: Final = Headers({"Accept": "application/json", "Accept-Encoding": "identity"})
#: Asked without a version, the answer is of the present, never of a cache that lags.
_WATCH_LIST: Final = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


class Counters(msgspec.Struct):
    """All of them only grow."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    #: Fillings after the first.
    relists: int = 0
    failures: int = 0
    undecodable: int = 0
    unknown_events: int = 0


class _Lost(Exception):
    """Deletions may have been missed: there is no version to continue from."""


class _TokenExpired(Exception):
    """A continue token outlived the state it continues."""


class _Trouble(msgspec.Struct, frozen=True):
    why: str
    #: No need to wait before the next attempt.
    at_once: bool = False
    retry_after: float | None = None


class Reflector(Generic[T]):
    #: Some reflector has set old objects aside. The collector could be asked, but it would count them all.
    _any_set_aside: ClassVar[bool] = False

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        resource: Resource[T],
        view: View[T],
        *,
        decoder: ObjectDecoder[Any, T] | None = None,
        label_selector: str | None = None,
        page_size: int = PAGE_SIZE,
        backoff: Backoff | None = None,
    ) -> None:
        self._transport = transport
        self._url = base_url.rstrip("/") + resource.path()
        self._selectors = {} if label_selector is None else {"labelSelector": label_selector}
        self._view = view
        self._decoder = decoder or decoder_for(resource)
        self._page_size = page_size
        self._backoff = backoff or Backoff()
        self._watch_list = True
        self._broken_watch_lists = 0
        #: The view is whole, and the stream can be continued from its version.
        self._whole = False
        self._filled_at: float | None = None
        self._turn_began = 0.0
        self._set_aside = False
        self._log = log.bind(resource=resource.plural)
        self.counters = Counters()
        self.synced = asyncio.Event()
        #: Cleared while everything is read anew.
        self.refilled = asyncio.Event()
        #: Loop time at which the view was last known to be what the server has.
        self.current_at: float | None = None
        #: What keeps the view from being current, in one sentence. None while all is well.
        self.last_error: str | None = None

    async def run(self) -> NoReturn:
        """For as long as the task lives."""
        while True:
            began, heard = _now(), self._heard
            trouble = await self._attempt(heard)
            if self._heard == heard and _now() - began >= _HEALTHY_WATCH:
                self._backoff.reset()
            if trouble is None:
                if self._heard > heard or _now() - began >= _SHORT_WATCH:
                    continue
                trouble = _Trouble("the server ends the watch as soon as it begins")
            self.last_error = trouble.why
            self.counters.failures += 1
            wait = 0.0 if trouble.at_once else self._backoff.next_wait(trouble.retry_after)
            self._log.warning("informer interrupted", why=trouble.why, wait=round(wait, 3), synced=self.synced.is_set())
            await asyncio.sleep(wait)

    def forget_place(self) -> None:
        """What comes next is a whole listing. Only while it does not run."""
        self._whole = False
        self.refilled.clear()

    async def _attempt(self, heard: int) -> _Trouble | None:
        """One stream, or one list, until it ends. None where it ended as it should."""
        try:
            if self._whole:
                await self._stream()
            else:
                await self._fill()
        except (Expired, _Lost) as error:
            self._whole = False
            return _Trouble(str(error), at_once=self._filled_at is not None and _now() - self._filled_at > _SOON)
        except Unreadable as error:
            self._whole = False
            return _Trouble(str(error))
        except ApiError as error:
            if any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes):
                # The server has less than it once showed us: restored from a backup, or long behind another one.
                self._whole = False
            return _Trouble(str(error), retry_after=error.retry_after)
        except TransportError as error:
            return _Trouble(str(error), at_once=self._whole and self._heard > heard)
        except TimeoutError:
            return _Trouble("nothing came from the server for too long", at_once=self._whole and self._heard > heard)
        return None if self._whole else _Trouble("the server ended the stream before it had sent every object")

    @property
    def _heard(self) -> int:
        return self.counters.events + self.counters.bookmarks

    async def _fill(self) -> None:
        if self.synced.is_set():
            self.counters.relists += 1
        with self._setting_old_objects_aside():
            await self._fill_and_follow()

    async def _fill_and_follow(self) -> None:
        if self._watch_list and self._broken_watch_lists < _PATIENCE_WITH_WATCH_LISTS:
            try:
                await self._stream()
            except (BadRequest, Invalid, Unsupported) as refusal:
                self._watch_list = False
                self._log.info("the server has no WatchList, so lists are read in pages", answer=str(refusal))
            else:
                return
        await self._list()
        await self._stream()

    @contextmanager
    def _setting_old_objects_aside(self) -> Iterator[None]:
        """Until the view is whole: so many new objects make the garbage collector go through all old ones, in vain."""
        # Whoever has set objects aside already has reasons, and would not get them back in their order.
        self._set_aside = not Reflector._any_set_aside and gc.get_freeze_count() == 0
        if self._set_aside:
            Reflector._any_set_aside = True
            gc.freeze()
        try:
            yield
        finally:
            self._bring_old_objects_back()

    def _bring_old_objects_back(self) -> None:
        if self._set_aside:
            self._set_aside = Reflector._any_set_aside = False
            gc.unfreeze()

    async def _list(self) -> None:
        began = _now()
        self.counters.lists += 1
        try:
            version = await self._read_pages(self._page_size)
        except _TokenExpired:
            # The state that the pages were of is compacted away. Once more, and if that too is slower than the
            # server's compaction, in one piece, which cannot expire.
            try:
                version = await self._read_pages(self._page_size)
            except _TokenExpired:
                version = await self._read_pages(None)
        self._filled(version, as_of=began)

    async def _read_pages(self, limit: int | None) -> int:
        """Shows every object to the view; returns the version that all of it is of."""
        self._view.begin_listing()
        version: int | None = None
        query: dict[str, str] = {} if limit is None else {"limit": str(limit)}
        while True:
            try:
                async with await self._open(query, _PAGE_TIMEOUTS) as response:
                    meta, objects = self._decoder.page(await response.read())
            except Expired as error:
                if "continue" in query:
                    raise _TokenExpired from error
                raise
            while some := list(islice(objects, _LOOK)):
                self._show(some, _now())
                await self._give_turn()
            if version is None:
                version = int(meta.resource_version)
            if not meta.continue_token:
                return version
            query["continue"] = meta.continue_token

    async def _stream(self) -> None:
        """Follows the watch. Where the view is not whole, a WatchList fills it first, on the same stream."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._backoff.between(*_WATCH_LASTS)),
        }
        if self._whole:
            query["resourceVersion"] = str(self._view.resource_version)
        else:
            self._view.begin_listing()
            query |= _WATCH_LIST
        self.counters.watches += 1
        lines = LineSplitter()
        async with asyncio.timeout(self._silence_limit) as silence:
            async with await self._open(query, _WATCH_TIMEOUTS) as response, aclosing(response.chunks()) as chunks:
                # Until its end mark it counts as broken off.
                self._broken_watch_lists += not self._whole
                async for chunk in chunks:
                    silence.reschedule(_now() + self._silence_limit)
                    for batch in lines.feed(chunk):
                        self._take(batch, _now())
                        await self._give_turn()
        # Half a line at the end is not lost: the next stream begins after the last whole one.

    @property
    def _silence_limit(self) -> float:
        return SILENCE_LIMIT if self._whole else _INITIAL_SILENCE_LIMIT

    async def _open(self, query: Mapping[str, str], timeouts: Timeouts) -> Response:
        url = f"{self._url}?{urlencode({**self._selectors, **query})}"
        request = Request(method="GET", url=url, headers=_HEADERS, timeouts=timeouts)
        response = await self._transport.request(request)
        if not response.ok:
            raise from_response(response.status, response.headers, await response.read(), call=str(request))
        return response

    def _take(self, batch: Batch, now: float) -> None:
        for found in self._decoder.events(batch):
            if isinstance(found, list):
                self._show(found, now)
                changes = len(found)
            else:
                changes = self._take_event(found, now)
            if self._whole:
                self.counters.events += changes
                self._healthy(now)

    def _take_event(self, event: WatchEvent[T], now: float) -> int:
        """Of anything but objects that are there. How many changes it told."""
        kind, about = event
        if isinstance(about, Status):
            self._refused(about)
        if isinstance(about, Bookmark):
            self._take_bookmark(about, now)
        elif about is None:
            self.counters.unknown_events += 1
            self._log.warning("informer got an event of a type it does not know", type=kind)
        else:
            self._view.show_deleted(about)
            return 1
        return 0

    def _take_bookmark(self, mark: Bookmark, now: float) -> None:
        if self._whole:
            self.counters.bookmarks += 1
            self._view.show_bookmark(mark.resource_version, now)
            if self._view.mistrusts(now):
                raise _Lost("the server does not show a write that it confirmed to us a while ago")
        elif mark.ends_initial_events:
            self._filled(mark.resource_version, as_of=now)

    def _refused(self, status: Status) -> NoReturn:
        error = from_status(status, call=f"watch of {self._url}")
        if isinstance(error, Expired | TooManyRequests | ServerUnavailable):
            raise error
        raise _Lost(str(error))

    def _show(self, found: Shown[T], now: float) -> None:
        if UndecodableObject not in set(map(type, found)):
            self._view.show_all(cast("list[T]", found), now)
            return
        for each in found:
            if isinstance(each, UndecodableObject):
                self.counters.undecodable += 1
                self._log.error("informer cannot read an object", key="/".join(each.key), why=each.why)
                self._view.show_undecodable(each)
            else:
                self._view.show(each, now)

    def _filled(self, version: int, as_of: float) -> None:
        now = _now()
        self._view.end_listing(version, now)
        self._bring_old_objects_back()
        self._whole = True
        self.refilled.set()
        self._filled_at = now
        self._broken_watch_lists = 0
        self.current_at = as_of
        self.last_error = None
        if not self.synced.is_set():
            self._log.info("informer synced", objects=len(self._view), resource_version=version)
            self.synced.set()

    def _healthy(self, now: float) -> None:
        self.current_at = now
        self.last_error = None
        self._backoff.reset()

    async def _give_turn(self) -> None:
        if _now() - self._turn_began > _TURN:
            await asyncio.sleep(0)
            self._turn_began = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()
