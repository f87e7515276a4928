"""The dashboard: read-only pages about what a leading operator sees and decides, live by server-sent events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from forebay.budgets.assessment import Assessor
from forebay.net.redaction import Redactor
from forebay.net.transport import Request, Response
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.observation import Observation, Standby
from forebay.web.layout import SECURITY_HEADERS, Frame, document, static_file
from forebay.web.markup import Content, h
from forebay.web.views import PAGES, NoSuchObject, PageQuery, ViewedPage

_HTML: Final = {"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store", **SECURITY_HEADERS}
_JSON: Final = {**_HTML, "Content-Type": "application/json"}
_TEXT: Final = {**_HTML, "Content-Type": "text/plain; charset=utf-8"}
_STREAM: Final = {**_HTML, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
_FILE: Final = {**SECURITY_HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
#: Pages that are kept until the next tick: many browsers may look at the same one.
_MOST_CACHED: Final = 64
#: Looks for a new tick between two comments that keep the connection open, and until the stream ends. The browser
#: connects again, so that a token that was revoked ends what it opened.
_LOOKS_PER_COMMENT: Final = 15
_LOOKS_PER_STREAM: Final = 300
_LONGEST_QUERY: Final = 100
_LARGEST_PAGE: Final = 6


class Dashboard:
    """Serves the pages. `observe` returns what there is to show; `refresh` is the time between two looks for a new
    tick, in seconds of the event loop.
    """

    def __init__(
        self, observe: Callable[[], Observation | Standby], redactor: Redactor, *, refresh: float = 1.0
    ) -> None:
        self._observe = observe
        self._redactor = redactor
        self._refresh = refresh
        # A separate assessor, because a tick may run in another thread.
        self._assessor = Assessor()
        self._snapshot: Snapshot | None = None
        self._cached: dict[tuple[str, PageQuery], bytes] = {}

    async def handle(self, request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, {**_TEXT, "Allow": "GET, HEAD"}, b"read only\n")
        target = urlsplit(request.url)
        parts = tuple(unquote(part) for part in target.path.strip("/").split("/"))
        if parts == ("events",):
            return Response(HTTPStatus.OK, _STREAM, self._ticks())
        if parts[0] == "static":
            found = static_file("/".join(parts[1:]))
            if found is not None:
                return Response(HTTPStatus.OK, {**_FILE, "Content-Type": found[1]}, found[0])
        return self._page(parts, _page_query(target.query))

    def _page(self, parts: tuple[str, ...], query: PageQuery) -> Response:
        seen = self._observe()
        if isinstance(seen, Standby):
            return self._standby(seen)
        if seen.snapshot is not self._snapshot:
            self._snapshot = seen.snapshot
            self._cached.clear()
        as_json = parts[-1].endswith(".json")
        first = parts[0].removesuffix(".json") if len(parts) == 1 else parts[0]
        make = PAGES.get(("" if first == "overview" else first, len(parts)))
        if make is None:
            return self._missing("There is no such page.", seen)
        key = ("/".join(parts), query)
        body = self._cached.get(key)
        if body is None:
            try:
                page = make(seen, self._assessor, query, parts)
            except NoSuchObject as missing:
                return self._missing(str(missing), seen)
            body = self._json(page) if as_json and len(parts) == 1 else self._html(page, seen)
            if len(self._cached) < _MOST_CACHED:
                self._cached[key] = body
        return Response(HTTPStatus.OK, _JSON if as_json and len(parts) == 1 else _HTML, body)

    def _html(self, page: ViewedPage, seen: Observation) -> bytes:
        return document(self._frame(page.title, page.current, seen), page.content(), self._redactor.text)

    def _json(self, page: ViewedPage) -> bytes:
        shown: Any = self._redactor.data(msgspec.to_builtins(page.view))
        return msgspec.json.format(msgspec.json.encode(shown)) + b"\n"

    def _frame(self, title: str, current: str, seen: Observation) -> Frame:
        snapshot = seen.snapshot
        counts: Mapping[str, int] = {
            "demand": len(snapshot.waiting),
            "machines": len(snapshot.records),
            "budgets": len(snapshot.budgets),
        }
        return Frame(title=title, current=current, at=snapshot.now, cluster=snapshot.cluster, counts=counts)

    def _missing(self, sentence: str, seen: Observation) -> Response:
        content: list[Content] = [h("p", sentence, " ", h("a", "Back to the overview", href="/"))]
        body = document(self._frame("Not found", "-", seen), content, self._redactor.text)
        return Response(HTTPStatus.NOT_FOUND, _HTML, body)

    def _standby(self, standby: Standby) -> Response:
        if standby.waits_for is not None:
            content: list[Content] = [h("p", f"This replica leads and waits for: {standby.waits_for}", class_="lead")]
        else:
            who = f"The leader is {standby.leader}." if standby.leader else "No replica leads at the moment."
            content = [
                h("p", f"This replica is a standby, and has nothing to show. {who}", class_="lead"),
                h("p", "Open the page of the leader's pod: kubectl port-forward pod/NAME PORT. This page looks again."),
            ]
        title = "Standby" if standby.waits_for is None else "Starting"
        body = document(Frame(title=title, current="-"), content, self._redactor.text)
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, {**_HTML, "Retry-After": "5"}, body)

    async def _ticks(self) -> AsyncIterator[bytes]:
        """One event for each new snapshot, at most one in each `refresh`."""
        last: object = self._current()
        yield b"retry: 3000\n\n"
        for look in range(1, _LOOKS_PER_STREAM):
            await asyncio.sleep(self._refresh)
            now = self._current()
            if now is not last:
                last = now
                yield b"event: tick\ndata: new\n\n"
            elif look % _LOOKS_PER_COMMENT == 0:
                yield b": nothing new\n\n"

    def _current(self) -> object:
        seen = self._observe()
        return None if isinstance(seen, Standby) else seen.snapshot


def _page_query(text: str) -> PageQuery:
    """What the query asks for. Values that make no sense count as not given: there is nothing they could change."""
    try:
        given = parse_qs(text, max_num_fields=8)
    except ValueError:
        return PageQuery()
    page = given.get("page", ["1"])[0]
    number = int(page) if page.isascii() and page.isdecimal() and len(page) <= _LARGEST_PAGE else 1
    return PageQuery(
        q=given.get("q", [""])[0][:_LONGEST_QUERY].strip(),
        page=number,
        state=given.get("state", [""])[0][:_LONGEST_QUERY],
        span=given.get("span", ["24h"])[0],
    )
