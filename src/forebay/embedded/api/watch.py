"""One watch: a stream of changes as JSON lines from a resource version on, which a later watch can resume."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.failures import ApiFailure, gone
from forebay.embedded.api.forms import Form
from forebay.embedded.api.kinds import CRD_KIND, ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store
from forebay.kube.decoders import ADDED, DELETED, MODIFIED

_BOOKMARK_EVERY = 60.0
_LAST_BOOKMARK_BEFORE_END = 2.0
_INITIAL_BATCH = 500
_END_OF_LIST = {"k8s.io/initial-events-end": "true"}
#: A client that falls further behind gets a 410 and has to list again.
MAX_PENDING_CHANGES = 50_000


class Watch:
    """A watch that follows the store from its creation on, so that no change before the first read is missed.

    Must be closed.
    """

    def __init__(
        self,
        store: Store,
        kind: ApiKind,
        *,
        namespace: str | None,
        matches: Callable[[Json], bool],
        form: Form,
        since: int | None,
        bookmarks: bool,
        end_of_list: bool,
        timeout: float,
    ) -> None:
        self._store = store
        self._kind = kind
        self._namespace = namespace
        self._matches = matches
        self._form = form
        self._bookmarks = bookmarks
        self._end_of_list = end_of_list
        self._timeout = timeout
        self._wake = asyncio.Event()
        self._pending: deque[StoredChange] = deque()
        self._expired: ApiFailure | None = None
        self._initial: list[Json] | None = None
        self._since = since or 0
        if since is None:
            self._initial = [obj for obj in store.list(kind, namespace) if matches(obj)]
            self._since = store.version
        else:
            try:
                self._pending.extend(store.changes_since(kind, since))
            except ApiFailure as failure:
                # A real server has answered 200 before it finds the version too old, so the error goes into the stream.
                self._expired = failure
        self._unsubscribe = [store.subscribe(kind, self._on_change)]
        if kind.custom:
            self._unsubscribe.append(store.subscribe(CRD_KIND, lambda _: self._wake.set()))

    async def close(self) -> None:
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def _on_change(self, change: StoredChange) -> None:
        if len(self._pending) < MAX_PENDING_CHANGES:
            self._pending.append(change)
        else:
            self._expired = gone("the client does not keep up with the changes")
        self._wake.set()

    async def lines(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        if self._initial is not None:
            async for batch in self._initial_lines(self._initial):
                yield batch
        end = loop.time() + self._timeout
        # The last bookmark comes shortly before the end, so that the next watch begins where this one stopped.
        bookmark = min(loop.time() + _BOOKMARK_EVERY, max(loop.time(), end - _LAST_BOOKMARK_BEFORE_END))
        while loop.time() < end:
            if self._expired is not None:
                yield _line("ERROR", self._expired.status())
                return
            if self._pending:
                batch = b"".join(self._pending_lines())
                if batch:
                    yield batch
                continue
            if (
                self._kind.custom
                and self._store.kinds.at(self._kind.group, self._kind.version, self._kind.plural) is None
            ):
                return
            self._wake.clear()
            try:
                async with asyncio.timeout_at(min(end, bookmark) if self._bookmarks else end):
                    await self._wake.wait()
            except TimeoutError:
                if self._bookmarks and not self._pending and loop.time() < end:
                    last = end - _LAST_BOOKMARK_BEFORE_END
                    bookmark = min(loop.time() + _BOOKMARK_EVERY, last) if loop.time() < last else end
                    yield self._bookmark()

    async def _initial_lines(self, objects: list[Json]) -> AsyncIterator[bytes]:
        version = self._since
        for start in range(0, len(objects), _INITIAL_BATCH):
            part = objects[start : start + _INITIAL_BATCH]
            yield b"".join(_line(ADDED, self._form.event(obj)) for obj in part)
        if self._end_of_list:
            yield self._bookmark(version, _END_OF_LIST)

    def _pending_lines(self) -> Iterator[bytes]:
        while self._pending:
            change = self._pending.popleft()
            if change.version <= self._since:
                continue
            self._since = change.version
            line = self._event_line(change)
            if line is not None:
                yield line

    def _event_line(self, change: StoredChange) -> bytes | None:
        """The change as an event for a client that sees only what the selectors match; None where it sees nothing."""
        if self._namespace is not None and change.new["metadata"].get("namespace") != self._namespace:
            return None
        before = change.old is not None and self._matches(change.old)
        after = change.type != DELETED and self._matches(change.new)
        if after:
            return _line(MODIFIED if before else ADDED, self._form.event(change.new))
        if not before:
            return None
        if change.type == DELETED:
            return _line(DELETED, self._form.event(change.new))
        # The object no longer matches: the event shows its last matching state, with the version of the change.
        assert change.old is not None
        meta = {**change.old["metadata"], "resourceVersion": change.new["metadata"]["resourceVersion"]}
        return _line(DELETED, self._form.event({**change.old, "metadata": meta}))

    def _bookmark(self, version: int | None = None, annotations: Json | None = None) -> bytes:
        # No older event can follow: every change so far has been sent or is queued in order.
        meta: Json = {"resourceVersion": str(version or max(self._store.version, self._since))}
        if annotations:
            meta["annotations"] = annotations
        return _line("BOOKMARK", self._form.bookmark(meta))


def _line(event: str, obj: Json) -> bytes:
    return msgspec.json.encode({"type": event, "object": obj}) + b"\n"
