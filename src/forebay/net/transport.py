"""The seam itself: `Request` in, `Response` out, and errors that say what became of the request.

    TransportError
    ├── NeverSent        nothing left this machine: safe to send again, whatever the method
    ├── AnswerLost       it was sent, at least in part, and no status came back: only a look at the server can tell
    └── AnswerCut        a status came back, then the body broke off: the server has acted

A response with an error status is not an exception here: it is an answer. What it means is the caller's business.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec


class TransportError(Exception):
    """No complete answer. `request` says which call it was; the message is one sentence a user can act on."""

    def __init__(self, message: str, request: "Request") -> None:
        super().__init__(message)
        self.request = request

    def retold(self, message: str, request: "Request") -> Self:
        """The same failure in other words (without its secrets, say)."""
        return type(self)(message, request)


class NeverSent(TransportError):
    """Nothing left this machine (no address, refused, TLS failed, gave up waiting for the rate budget).

    `lasting`: it would end the same way if tried again at once, because something must be put right first (a
    certificate, an address, a header).
    """

    def __init__(self, message: str, request: "Request", *, lasting: bool = False) -> None:
        super().__init__(message, request)
        self.lasting = lasting

    def retold(self, message: str, request: "Request") -> Self:
        return type(self)(message, request, lasting=self.lasting)


class AnswerLost(TransportError):
    """Sent, at least in part, and no status came back. The server may or may not have acted."""


class AnswerCut(TransportError):
    """The status arrived, the body did not arrive whole. The server has acted."""


class Headers(Mapping[str, str]):
    """Immutable header fields, looked up without regard to case. A repeated field is joined with commas (RFC 9110)."""

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
        """These fields and `fields`, which win."""
        kept = [(name, self[name]) for name in self if name.lower() not in {key.lower() for key in fields}]
        return Headers([*kept, *fields.items()])


class Timeouts(msgspec.Struct, frozen=True):
    """Seconds. `None` is no limit."""

    connect: float | None = 10.0
    #: The longest silence: before the status, and between two parts of the body.
    read: float | None = 30.0
    #: From the call to the last byte of the body.
    total: float | None = 60.0


class Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    url: str
    headers: Headers = Headers()
    body: bytes | None = None
    #: The transport's own limits where None.
    timeouts: Timeouts | None = None

    def __str__(self) -> str:
        # Queries and user names in a URL may be credentials, as header values and bodies may: none of them is shown.
        scheme, separator, rest = self.url.partition("?")[0].partition("://")
        host, slash, path = rest.partition("/")
        return f"{self.method} {scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"

    def __repr__(self) -> str:
        return f"Request({self})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("call", str(self))]


class Response:
    """A status, headers, and a body that is read once, whole or in chunks. Close it, or use it in `async with`."""

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
        """The body, if it is already here as a whole and was not read yet."""
        return self._body if isinstance(self._body, bytes) else None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises `AnswerCut` where it breaks off."""
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
        """The whole body; the response is closed afterwards."""
        try:
            if isinstance(self._body, bytes):
                body, self._body = self._body, b""
                return body
            return b"".join([chunk async for chunk in self.chunks()])
        finally:
            await self.close()

    async def close(self) -> None:
        """Give the connection back; what was not read is dropped. May be called twice."""
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
    """An async generator left half-way must be closed here and now, not by the garbage collector."""
    # One that another task is reading this very moment cannot be; closing its connection ends it.
    if isinstance(body, AsyncGenerator) and getattr(body, "ag_running", False):
        return
    aclose = getattr(body, "aclose", None)
    if aclose is not None:
        await aclose()


class Transport(Protocol):
    """Sends one request and returns as soon as the status and headers are there."""

    async def request(self, request: Request) -> Response:
        """The answer, whatever its status. Raises `TransportError` when there is none. Cancelling it sends no more."""
        ...

    async def close(self) -> None:
        """Release connections. Requests under way end in a `TransportError`."""
        ...


#: What answers on the other side: the embedded API server and every conformance server is one.
Handler = Callable[[Request], Awaitable[Response]]
