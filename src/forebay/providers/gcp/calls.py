"""HTTP calls to Google's APIs, each sent once unless its token was refused, and lists of all zones.

A call that acts (POST, DELETE) and whose answer is lost raises `OutcomeUnknown`; any other raises `Unavailable`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from forebay.net.json_body import decode_body
from forebay.net.redaction import Redactor
from forebay.net.transport import Headers, NeverSent, Request, Response, Timeouts, Transport, TransportError
from forebay.providers.base import OutcomeUnknown, ProviderError, RateLimited, Unavailable
from forebay.providers.gcp.auth import GoogleIdentity
from forebay.providers.gcp.errors import GoogleErrors, NameTaken
from forebay.providers.gcp.wire import AggregatedPage, Operation, ScopedList, SkuPage, Warned, last_part

T = TypeVar("T")

COMPUTE: Final = "https://compute.googleapis.com"
BILLING: Final = "https://cloudbilling.googleapis.com"
#: Compute Engine, in the catalog of prices.
_SERVICE: Final = "services/6F81-5844-456A"
#: Seconds for a call, and for a page of a list.
CALL_SECONDS: Final = 10.0
LIST_SECONDS: Final = 30.0
#: Seconds that an operation is waited for.
OPERATION_SECONDS: Final = 90.0
_PAGE: Final = 500
_SKU_PAGE: Final = 5000
#: A list of more pages is given up: one that never ends must not hold the source.
_MOST_PAGES: Final = 500
_MAX_BODY: Final = 64 * 1024 * 1024
_UNAUTHORIZED: Final = 401
#: Seconds between two looks at an operation: the first, and the longest.
_FIRST_LOOK: Final = 0.5
_LONGEST_LOOK: Final = 4.0
#: The only warning that a complete list has.
_NOTHING_THERE: Final = "NO_RESULTS_ON_PAGE"


class ZoneList(NamedTuple):
    """What a list has of one zone."""

    zone: str
    listed: ScopedList
    #: Why the zone may have more; None where the list is complete.
    missing: Warned | None


class GoogleCalls:
    """Sends calls for one project. `root` replaces the hosts of both APIs."""

    def __init__(  # noqa: PLR0917 (its dependencies)
        self,
        transport: Transport,
        identity: GoogleIdentity,
        redactor: Redactor,
        clock: Callable[[], datetime],
        root: str | None = None,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._call_seconds = call_seconds
        self._transport = transport
        self._redactor = redactor
        self._compute = f"{(root or COMPUTE).rstrip('/')}/compute/v1"
        self._billing = f"{(root or BILLING).rstrip('/')}/v1"
        self._closed = False
        self.identity = identity
        self.errors = GoogleErrors(redactor, clock)

    async def get(self, path: str, answer: type[T], *, seconds: float | None = None) -> T:
        """What is at `path` of the project. Raises `InstanceGone` where nothing is there."""
        body = await self._call("GET", await self._url(path), seconds=seconds)
        return self._decoded(body, answer, Unavailable)

    async def post(self, path: str, body: object, answer: type[T]) -> T:
        """Raises `NameTaken` where there is something of that name already. `body` None: the call has none."""
        text = None if body is None else msgspec.json.encode(body)
        sent = await self._call("POST", await self._url(path), text, acts=True)
        return self._decoded(sent, answer, OutcomeUnknown)

    async def read(self, path: str, answer: type[T]) -> T:
        """What a POST without a body returns that acts on nothing."""
        sent = await self._call("POST", await self._url(path), seconds=LIST_SECONDS)
        return self._decoded(sent, answer, Unavailable)

    async def delete(self, path: str) -> Operation:
        """Raises `InstanceGone` where nothing is there."""
        sent = await self._call("DELETE", await self._url(path), acts=True)
        return self._decoded(sent, Operation, OutcomeUnknown)

    async def aggregated(self, resource: str, matching: str) -> AsyncIterator[ZoneList]:
        """All pages of a list over all zones, by `filter` expression. Raises where any page cannot be read.

        A zone that Google could not reach has `missing`: the caller decides whether that is an error.
        """
        token = ""
        for _ in range(_MOST_PAGES):
            query = {"filter": matching, "maxResults": str(_PAGE)} | ({"pageToken": token} if token else {})
            url = await self._url(f"aggregated/{resource}?{urlencode(query)}")
            page = self._decoded(await self._call("GET", url, lists=True), AggregatedPage, Unavailable)
            for scope, listed in page.items.items():
                yield ZoneList(last_part(scope), listed, _incomplete(listed.warning))
            for scope in page.unreachables:
                yield ZoneList(last_part(scope), ScopedList(), Warned(code="UNREACHABLE"))
            if (missing := _incomplete(page.warning)) is not None:
                yield ZoneList("", ScopedList(), missing)
            token = page.next_page_token
            if not token:
                return
        raise Unavailable(f"Google's list of {resource} has no end after {_MOST_PAGES} pages.")

    async def skus(self) -> AsyncIterator[SkuPage]:
        """The prices of Compute Engine, page by page."""
        token = ""
        for _ in range(_MOST_PAGES):
            query = {"currencyCode": "USD", "pageSize": str(_SKU_PAGE)} | ({"pageToken": token} if token else {})
            url = f"{self._billing}/{_SERVICE}/skus?{urlencode(query)}"
            page = self._decoded(await self._call("GET", url, lists=True), SkuPage, Unavailable)
            yield page
            token = page.next_page_token
            if not token:
                return
        raise Unavailable(f"Google's list of prices has no end after {_MOST_PAGES} pages.")

    async def finished(self, place: str, operation: Operation, *, what: str) -> Operation:
        """The operation, once it is done. `place` is `zones/NAME` or `regions/NAME`.

        Raises `OutcomeUnknown` where that takes too long or cannot be seen: the request itself was accepted.
        """
        loop = asyncio.get_running_loop()
        until, pause, error = loop.time() + OPERATION_SECONDS, _FIRST_LOOK, ""
        while operation.status != "DONE":
            if loop.time() + pause > until:
                why = f" ({error})" if error else ""
                raise OutcomeUnknown(f"{what} was accepted and not done within {OPERATION_SECONDS:.0f} s{why}.")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_LOOK)
            try:
                operation = await self.get(f"{place}/operations/{quote(operation.name, safe='')}", Operation)
            except (Unavailable, RateLimited) as failed:
                error = str(failed).rstrip(".")
            except ProviderError as failed:
                raise OutcomeUnknown(f"{what} was accepted, but its operation cannot be seen: {failed}") from None
        return operation

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._transport.close()

    async def _url(self, path: str) -> str:
        self._check_open()
        project = await self.identity.project()
        return f"{self._compute}/projects/{quote(project, safe=':')}/{path}"

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("No call was sent, because the source was reconfigured or Forebay is shutting down.")

    async def _call(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        *,
        acts: bool = False,
        lists: bool = False,
        seconds: float | None = None,
    ) -> bytes:
        """Body of a 2xx response. `acts`: an unanswered call may have had an effect. `lists`: it asks for a page."""
        self._check_open()
        seconds = seconds or (LIST_SECONDS if lists else self._call_seconds)
        token = await self.identity.token()
        status, headers, text = await self._send(method, url, body, token, acts=acts, seconds=seconds)
        if status == _UNAUTHORIZED:
            # The token ended early or the Secret has changed: Google has refused it, and not acted.
            self.identity.reject(token)
            token = await self.identity.token()
            status, headers, text = await self._send(method, url, body, token, acts=acts, seconds=seconds)
            if status == _UNAUTHORIZED:
                self.identity.reject(token)
        if 200 <= status < 300:  # noqa: PLR2004 (HTTP's own numbers)
            return text
        said = self.identity.described
        raise self.errors.of_response(status, headers, text, acts=acts, identity=said, lists=lists)

    async def _send(
        self, method: str, url: str, body: bytes | None, token: str, *, acts: bool, seconds: float
    ) -> tuple[int, Headers, bytes]:
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        timeouts = Timeouts(connect=5.0, read=seconds, total=seconds)
        request = Request(method=method, url=url, headers=Headers(headers), body=body, timeouts=timeouts, safe=not acts)
        try:
            async with await self._transport.request(request) as response:
                return response.status, response.headers, await _read(response)
        except NeverSent as error:
            raise Unavailable(f"{self._redactor.text(str(error))}.") from None
        except TransportError as error:
            text = self._redactor.text(str(error))
            if acts:
                raise OutcomeUnknown(f"{text}. Google may have acted all the same.") from None
            raise Unavailable(f"{text}.") from None

    @staticmethod
    def _decoded(body: bytes, answer: type[T], otherwise: type[ProviderError]) -> T:
        try:
            return decode_body(body, answer)
        except msgspec.DecodeError as error:
            raise otherwise(f"An answer of Google's cannot be read: {error}.") from None


async def _read(response: Response) -> bytes:
    body = bytearray()
    async for chunk in response.chunks():
        body += chunk
        if len(body) > _MAX_BODY:
            return b""
    return bytes(body)


def _incomplete(warning: Warned | None) -> Warned | None:
    return None if warning is None or warning.code == _NOTHING_THERE else warning


__all__ = ["COMPUTE", "GoogleCalls", "NameTaken", "ZoneList"]
