"""How far a `View` has come: complete or not, current since when, and what was received so far."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, NoReturn, cast

import msgspec

from forebay.kube.decoders import Batch, Bookmark, ObjectDecoder, UndecodableObject, Upserts, WatchEvent
from forebay.kube.errors import Expired, ServerUnavailable, Status, TooManyRequests, from_status
from forebay.kube.frozen_gc import FrozenGC
from forebay.kube.resources import T
from forebay.kube.view import View


class Counters(msgspec.Struct):
    """Totals since the start."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    #: Lists after the first.
    relists: int = 0
    failures: int = 0
    undecodable: int = 0
    unknown_events: int = 0


class MustRelist(Exception):
    """Deletions may have been missed: there is no version to resume the watch from."""


class SyncState(Generic[T]):
    """Applies what a list or a watch brings to the view."""

    def __init__(
        self, view: View[T], decoder: ObjectDecoder[Any, T], what: str, on_healthy: Callable[[], None], log: Any
    ) -> None:
        """`what` is watched; `on_healthy` is called with each event of a watch."""
        self._view = view
        self._decoder = decoder
        self._what = what
        self._on_healthy = on_healthy
        self._log = log
        #: Whether the view is complete, so that a watch can resume from its version.
        self.complete = False
        self.listed_at: float | None = None
        #: WatchLists in a row that were cut off.
        self.failed_watch_lists = 0
        self.gc = FrozenGC()
        self.counters = Counters()
        self.synced = asyncio.Event()
        #: Cleared during a relist.
        self.relisted = asyncio.Event()
        #: Loop time at which the view was last known to be up to date.
        self.current_at: float | None = None
        #: Why the view is not up to date. None while it is.
        self.last_error: str | None = None
        #: Set once the server has refused the objects for lack of permissions.
        self.forbidden = asyncio.Event()

    @property
    def progress(self) -> int:
        return self.counters.events + self.counters.bookmarks

    def handle_batch(self, batch: Batch, now: float) -> None:
        for found in self._decoder.events(batch):
            if isinstance(found, list):
                self.apply(found, now)
                changes = len(found)
            else:
                changes = self._handle_event(found, now)
            if self.complete:
                self.counters.events += changes
                self._healthy(now)

    def _handle_event(self, event: WatchEvent[T], now: float) -> int:
        """Handles any event but ADDED and MODIFIED. Returns the number of changes."""
        kind, object_ = event
        if isinstance(object_, Status):
            self._raise_status(object_)
        if isinstance(object_, Bookmark):
            self._handle_bookmark(object_, now)
        elif object_ is None:
            self.counters.unknown_events += 1
            self._log.warning("unknown watch event type", type=kind)
        else:
            self._view.apply_deleted(object_)
            return 1
        return 0

    def _handle_bookmark(self, mark: Bookmark, now: float) -> None:
        if self.complete:
            self.counters.bookmarks += 1
            self._view.apply_bookmark(mark.resource_version, now)
            if self._view.has_lost_write(now):
                raise MustRelist("the watch does not show a write that the server confirmed")
        elif mark.ends_initial_events:
            self.listed(mark.resource_version, as_of=now)

    def _raise_status(self, status: Status) -> NoReturn:
        error = from_status(status, call=f"watch of {self._what}")
        if isinstance(error, Expired | TooManyRequests | ServerUnavailable):
            raise error
        raise MustRelist(str(error))

    def apply(self, found: Upserts[T], now: float) -> None:
        if not self.complete:
            self.gc.objects_read(len(found))
        if UndecodableObject not in set(map(type, found)):
            self._view.apply_all(cast("list[T]", found), now)
            return
        for each in found:
            if isinstance(each, UndecodableObject):
                self.counters.undecodable += 1
                self._log.error("object not decodable", object="/".join(each.key).lstrip("/"), error=each.error)
                self._view.apply_undecodable(each)
            else:
                self._view.apply(each, now)

    def listed(self, version: int, as_of: float) -> None:
        now = asyncio.get_running_loop().time()
        self._view.end_list(version, now)
        self.gc.unfreeze()
        self.complete = True
        self.relisted.set()
        self.listed_at = now
        self.failed_watch_lists = 0
        self.current_at = as_of
        self.last_error = None
        if not self.synced.is_set():
            self._log.info("informer synced", objects=len(self._view), resource_version=version)
            self.synced.set()

    def _healthy(self, now: float) -> None:
        self.current_at = now
        self.last_error = None
        self._on_healthy()
