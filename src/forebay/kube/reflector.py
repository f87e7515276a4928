"""Reflector: keeps a `View` equal to the objects on the API server.

list      by WatchList if the server supports it, else in pages; objects that the list does not bring are deleted
watch     from the last version seen; bookmarks advance that version
failure   after progress the watch resumes at once; otherwise the next attempt waits, longer each time
expiry    410 at any point means that deletions may have been missed: list again
"""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from itertools import islice
from typing import Any, Final, Generic, NoReturn
from urllib.parse import urlencode

import msgspec
import structlog

from forebay.kube.backoff import Backoff
from forebay.kube.decoders import (
    LineSplitter,
    ObjectDecoder,
    decoder_for,
)
from forebay.kube.errors import (
    ApiError,
    BadRequest,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Unreadable,
    Unsupported,
    from_response,
)
from forebay.kube.resources import Resource, T
from forebay.kube.sync_state import Counters, MustRelist, SyncState
from forebay.kube.view import View
from forebay.net.transport import Headers, Request, Response, Timeouts, Transport, TransportError

log = structlog.get_logger(__name__)

PAGE_SIZE: Final = 500
#: Seconds without any data after which a watch counts as dead. The server sends a bookmark about every minute.
SILENCE_LIMIT: Final = 150.0
#: The same during a list: API Priority and Fairness may hold a request this long before its first byte.
_INITIAL_SILENCE_LIMIT: Final = 75.0
_PAGE_TIMEOUTS: Final = Timeouts(read=75.0, total=300.0)
#: No timeout in the transport: the silence limit is enforced here.
_WATCH_TIMEOUTS: Final = Timeouts(read=None, total=None)
#: Range of the random `timeoutSeconds` of a watch: clients should not reconnect all at once.
_WATCH_SECONDS: Final = (300, 600)
#: A watch that ends sooner than this without any event is a failure, even if it ended cleanly.
_SHORT_WATCH: Final = 1.0
#: A watch that lasted this long was healthy, even without events.
_HEALTHY_WATCH: Final = 30.0
#: A relist within this time after the last list waits like any other failure.
_RELIST_SOON: Final = 30.0
#: After so many WatchLists in a row that were cut off, the reflector falls back to a paged list.
_MAX_FAILED_WATCH_LISTS: Final = 3
#: Seconds of work after which the reflector yields to other tasks; checked after so many objects of a page.
_MAX_BUSY: Final = 0.01
_CHECK_EVERY: Final = 32
_HEADERS: Final = Headers({"Accept": "application/json", "Accept-Encoding": "identity"})
#: Seconds until an optional kind that the server does not serve is looked for again.
_NOT_SERVED_RECHECK: Final = 60.0
#: Without a resourceVersion the list is current, never from a lagging cache.
_WATCH_LIST: Final = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}


class _TokenExpired(Exception):
    """The server no longer has the version of a continue token."""


class _NotServed(Exception):
    """The server does not have the resource: there are no objects of it, which is a complete answer."""


class _Failure(msgspec.Struct, frozen=True):
    error: str
    #: Whether to retry without waiting.
    at_once: bool = False
    retry_after: float | None = None


class Reflector(Generic[T]):
    """Runs lists and watches of one resource, as client-go's Reflector does, and feeds the view."""

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        resource: Resource[T],
        view: View[T],
        *,
        decoder: ObjectDecoder[Any, T] | None = None,
        label_selector: str | None = None,
        optional: bool = False,
        field_selector: str | None = None,
        page_size: int = PAGE_SIZE,
        backoff: Backoff | None = None,
    ) -> None:
        """`optional`: a server that does not serve the resource has no objects of it."""
        self._optional = optional
        self._transport = transport
        self._url = base_url.rstrip("/") + resource.path()
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: text for name, text in selectors.items() if text is not None}
        self._view = view
        self._decoder = decoder or decoder_for(resource)
        self._page_size = page_size
        self._backoff = backoff or Backoff()
        self._watch_list = True
        self._busy_since = 0.0
        self._log = log.bind(resource=resource.plural)
        self._sync = SyncState(view, self._decoder, self._url, self._backoff.reset, self._log)

    @property
    def counters(self) -> Counters:
        return self._sync.counters

    @property
    def synced(self) -> asyncio.Event:
        return self._sync.synced

    @property
    def relisted(self) -> asyncio.Event:
        return self._sync.relisted

    @property
    def current_at(self) -> float | None:
        return self._sync.current_at

    @property
    def last_error(self) -> str | None:
        return self._sync.last_error

    @property
    def forbidden(self) -> asyncio.Event:
        return self._sync.forbidden

    async def run(self) -> NoReturn:
        """Runs until the task is cancelled."""
        while True:
            started, progress = _now(), self._sync.progress
            failure = await self._attempt(progress)
            if self._sync.progress == progress and _now() - started >= _HEALTHY_WATCH:
                self._backoff.reset()
            if failure is None:
                if self._sync.progress > progress or _now() - started >= _SHORT_WATCH:
                    continue
                failure = _Failure("the server ends every watch at once")
            self._sync.last_error = failure.error
            self.counters.failures += 1
            wait = 0.0 if failure.at_once else self._backoff.next_wait(failure.retry_after)
            self._log.warning(
                "informer interrupted", error=failure.error, retry_in=round(wait, 3), synced=self.synced.is_set()
            )
            await asyncio.sleep(wait)

    def require_list(self) -> None:
        """Makes the next `run` start with a list. Call it only while `run` is not running."""
        self._sync.complete = False
        self.relisted.clear()

    async def _attempt(self, progress: int) -> _Failure | None:
        """One watch, or one list with its watch, until it ends. None if it ended normally."""
        try:
            if self._sync.complete:
                await self._watch()
            else:
                await self._list_and_watch()
        except _NotServed:
            self._view.begin_list()
            self._sync.listed(self._view.resource_version, as_of=_now())
            self._sync.complete = False
            await asyncio.sleep(_NOT_SERVED_RECHECK)
            return None
        except (Expired, MustRelist) as error:
            self._sync.complete = False
            listed_at = self._sync.listed_at
            return _Failure(str(error), at_once=listed_at is not None and _now() - listed_at > _RELIST_SOON)
        except Unreadable as error:
            self._sync.complete = False
            return _Failure(str(error))
        except ApiError as error:
            if any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes):
                # The server is at an older version than before: restored from a backup, or a lagging replica.
                self._sync.complete = False
            if isinstance(error, Forbidden):
                self.forbidden.set()
            return _Failure(str(error), retry_after=error.retry_after)
        except TransportError as error:
            return _Failure(str(error), at_once=self._sync.complete and self._sync.progress > progress)
        except TimeoutError:
            return _Failure(
                "the server sent nothing for too long", at_once=self._sync.complete and self._sync.progress > progress
            )
        return (
            None if self._sync.complete else _Failure("the server ended the WatchList before it had sent every object")
        )

    async def _list_and_watch(self) -> None:
        if self.synced.is_set():
            self.counters.relists += 1
        try:
            await self._list_then_watch()
        finally:
            self._sync.gc.unfreeze()

    async def _list_then_watch(self) -> None:
        if self._watch_list and self._sync.failed_watch_lists < _MAX_FAILED_WATCH_LISTS:
            try:
                await self._watch()
            except (BadRequest, Invalid, Unsupported) as refusal:
                self._watch_list = False
                self._log.info("watchlist not supported", error=str(refusal))
            else:
                return
        await self._list()
        await self._watch()

    async def _list(self) -> None:
        started = _now()
        self.counters.lists += 1
        try:
            version = await self._read_pages(self._page_size)
        except _TokenExpired:
            # The version of the pages was compacted away. Try once more, then without pages, which cannot expire.
            try:
                version = await self._read_pages(self._page_size)
            except _TokenExpired:
                version = await self._read_pages(None)
        self._sync.listed(version, as_of=started)

    async def _read_pages(self, limit: int | None) -> int:
        """Stores every object in the view; returns the resourceVersion of the list."""
        self._view.begin_list()
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
            while some := list(islice(objects, _CHECK_EVERY)):
                self._sync.apply(some, _now())
                await self._yield_if_busy()
            if version is None:
                version = int(meta.resource_version)
            if not meta.continue_token:
                return version
            query["continue"] = meta.continue_token

    async def _watch(self) -> None:
        """Runs a watch. If the view is not complete, the watch starts with a WatchList."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._backoff.between(*_WATCH_SECONDS)),
        }
        if self._sync.complete:
            query["resourceVersion"] = str(self._view.resource_version)
        else:
            self._view.begin_list()
            query |= _WATCH_LIST
        self.counters.watches += 1
        lines = LineSplitter()
        async with asyncio.timeout(self._silence_limit) as silence:
            async with await self._open(query, _WATCH_TIMEOUTS) as response, aclosing(response.chunks()) as chunks:
                # A WatchList counts as cut off until its end bookmark has come.
                self._sync.failed_watch_lists += not self._sync.complete
                async for chunk in chunks:
                    arrived = _now()
                    silence.reschedule(arrived + self._silence_limit)
                    for batch in lines.feed(chunk):
                        self._sync.handle_batch(batch, _now())
                        await self._yield_if_busy()
                    # Again: with the end of the list the limit of a watch begins to hold, not that of a list.
                    silence.reschedule(arrived + self._silence_limit)
        # An incomplete last line is not lost: the next watch resumes after the last complete one.

    @property
    def _silence_limit(self) -> float:
        return SILENCE_LIMIT if self._sync.complete else _INITIAL_SILENCE_LIMIT

    async def _open(self, query: Mapping[str, str], timeouts: Timeouts) -> Response:
        url = f"{self._url}?{urlencode({**self._selectors, **query})}"
        request = Request(method="GET", url=url, headers=_HEADERS, timeouts=timeouts)
        response = await self._transport.request(request)
        if not response.ok:
            error = from_response(response.status, response.headers, await response.read(), call=str(request))
            raise _NotServed if self._optional and isinstance(error, NotFound) else error
        return response

    async def _yield_if_busy(self) -> None:
        if _now() - self._busy_since > _MAX_BUSY:
            await asyncio.sleep(0)
            self._busy_since = _now()


def _now() -> float:
    return asyncio.get_running_loop().time()
