"""The `Transport` protocol: `Request` in, `Response` out, and errors that say how far the request got.

    TransportError
    ├── NeverSent        nothing was sent: safe to send again, whatever the method
    ├── AnswerLost       sent, at least in part, and no status came back: the server may or may not have acted
    └── AnswerCut        a status came back, then the body was cut off: the server has acted

A response with an error status is no exception here: the caller decides what it means.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec


class TransportError(Exception):
    """No complete response to `request`. The message is one sentence that a user can act on."""

    def __init__(self, message: str, request: "Request") -> None:
        super().__init__(message)
        self.request = request

    def with_message(self, message: str, request: "Request") -> Self:
        """The same error with another message and request, such as redacted ones."""
        return type(self)(message, request)


class NeverSent(TransportError):
    """Nothing was sent: DNS failed, connection refused, TLS failed, or the rate budget is exhausted.

    `lasting`: retrying at once would fail again, because something must be corrected first (a certificate, an address,
    a header).
    """

    def __init__(self, message: str, request: "Request", *, lasting: bool = False) -> None:
        super().__init__(message, request)
        self.lasting = lasting

    def with_message(self, message: str, request: "Request") -> Self:
        return type(self)(message, request, lasting=self.lasting)


class AnswerLost(TransportError):
    """The request was sent, at least in part, and no status came back. The server may or may not have acted."""


class AnswerCut(TransportError):
    """The status arrived, but not the whole body. The server has acted."""


class Headers(Mapping[str, str]):
    """Immutable, case-insensitive header fields. Repeated fields are joined with commas (RFC 9110)."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        pairs = fields.items() if isinstance(fields, Mapping) else fields
        joined: dict[str, tuple[str, str]] = {}
        for name, value in pairs:
            key = name.lower()
            before = joined.get(key)
            joined[key] = (name, value) if before is None else (before[0], f"{before[1]}, {value}")
        self._fields = joined

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._fields.values())

    def __len__(self) -> int:
        return len(self._fields)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._fields

    def __repr__(self) -> str:
        # Values may be credentials: names only.
        return f"Headers({', '.join(self)})"

    def with_(self, fields: Mapping[str, str]) -> "Headers":
        """A copy with `fields` added or replaced."""
        kept = [(name, self[name]) for name in self if name.lower() not in {key.lower() for key in fields}]
        return Headers([*kept, *fields.items()])


class Timeouts(msgspec.Struct, frozen=True):
    """Timeouts of a request in seconds. None means no limit."""

    connect: float | None = 10.0
    #: Longest silence, before the status or between two parts of the body.
    read: float | None = 30.0
    #: From the request to the last byte of the body.
    total: float | None = 60.0


class PeerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """Who a client is by the certificate that it showed, which an authority of the server has signed."""

    #: Empty where the certificate has none, or several.
    common_name: str
    organizations: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    url: str
    headers: Headers = Headers()
    body: bytes | None = None
    #: None: the defaults of the transport.
    timeouts: Timeouts | None = None
    #: A POST that changes nothing at the server, so that a dry run may send it.
    safe: bool = False
    #: Of a request that a server has received by TLS from a client with a certificate.
    client: PeerCertificate | None = None

    def __str__(self) -> str:
        # Queries, user names in URLs, header values and bodies may hold credentials: none of them is shown.
        scheme, separator, rest = self.url.partition("?")[0].partition("://")
        host, slash, path = rest.partition("/")
        return f"{self.method} {scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"

    def __repr__(self) -> str:
        return f"Request({self})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("call", str(self))]


class Response:
    """Status, headers, and a body that can be read once, whole or in chunks. Close it, or use `async with`."""

    def __init__(
        self,
        status: int,
        headers: Headers | Mapping[str, str] = Headers(),  # noqa: B008 (immutable)
        body: bytes | AsyncIterator[bytes] = b"",
        *,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.status = status
        self.headers = headers if isinstance(headers, Headers) else Headers(headers)
        self._body = body
        #: The body while `chunks` reads it.
        self._source: AsyncIterator[bytes] | None = None
        self._on_close = on_close
        self._closed = False

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300  # noqa: PLR2004 (HTTP's own numbers)

    @property
    def buffered(self) -> bytes | None:
        """The whole body if it has already arrived and was not read yet, else None."""
        return self._body if isinstance(self._body, bytes) else None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises `AnswerCut` if it is cut off."""
        body, self._body = self._body, b""
        if isinstance(body, bytes):
            if body:
                yield body
            return
        self._source = body
        try:
            async for chunk in body:
                yield chunk
        finally:
            await _stop(body)

    async def read(self) -> bytes:
        """The whole body. Closes the response."""
        try:
            if isinstance(self._body, bytes):
                body, self._body = self._body, b""
                return body
            return b"".join([chunk async for chunk in self.chunks()])
        finally:
            await self.close()

    async def close(self) -> None:
        """Releases the connection and drops the unread part of the body. May be called twice."""
        if self._closed:
            return
        self._closed = True
        body, self._body = self._body, b""
        source = self._source if isinstance(body, bytes) else body
        if source is not None:
            await _stop(source)
        if self._on_close is not None:
            await self._on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _stop(body: AsyncIterator[bytes]) -> None:
    """Closes an unfinished async generator, which must not be left to the garbage collector."""
    # A generator that another task is reading cannot be closed; closing its connection ends it.
    if isinstance(body, AsyncGenerator) and getattr(body, "ag_running", False):
        return
    aclose = getattr(body, "aclose", None)
    if aclose is not None:
        await aclose()


class Transport(Protocol):
    """Sends requests."""

    async def request(self, request: Request) -> Response:
        """The response, whatever its status, once its headers have arrived. Raises `TransportError` without one."""
        ...

    async def close(self) -> None:
        """Closes all connections. Requests in flight end in a `TransportError`."""
        ...


#: A server as a function: the embedded API server and every conformance server is a handler.
Handler = Callable[[Request], Awaitable[Response]]
