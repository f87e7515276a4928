"""Serves a handler on a socket, for clients in other processes."""

import asyncio
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from forebay.net.transport import Handler, Headers, PeerCertificate, Request, Response, TransportError

#: Bytes of a body that are buffered for a slow reader.
_MAX_BUFFERED = 256 * 1024
_MAX_LINE = 64 * 1024

#: What answers call their server; the libraries and their versions are nobody's business.
_NAME: Final = "forebay"
_NO_BODY = frozenset({204, 304})


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What clients may make the server hold. The defaults are for clients that are trusted."""

    #: Bytes of a request's body. 0: requests with a body are refused before any of it is read.
    body: int = 64 * 1024 * 1024
    #: Open connections. The oldest is closed for a new one: whoever holds many cannot keep others out.
    connections: int = sys.maxsize
    #: Seconds until the first request of a connection must have come, and between two of them. None: no limit.
    header_timeout: float | None = None


#: For a port that anybody in the cluster can reach and that only answers short questions.
PUBLIC: Final = ServerLimits(body=0, connections=128, header_timeout=5.0)


@asynccontextmanager
async def serving(
    handler: Handler,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    context: ssl.SSLContext | None = None,
    limits: ServerLimits = ServerLimits(),  # noqa: B008 (immutable)
) -> AsyncIterator[str]:
    """Serves until the block ends. Yields the base URL, `http://127.0.0.1:PORT` (https with a TLS context).

    When a client disconnects, its handler is cancelled or its streamed body closed. A `TransportError` of the handler
    or its body aborts the connection, so that clients over a socket see the same as in-process ones. The end of the
    block cuts off open streams.
    """
    scheme = "http" if context is None else "https"
    shown = f"[{host}]" if ":" in host else host
    base = ""

    async def respond(incoming: web.BaseRequest) -> web.StreamResponse:
        server.heard(incoming.protocol)
        return await _respond(handler, base, incoming, limits.body)

    server = _Server(
        respond,
        limits,
        handler_cancellation=True,
        access_log=None,
        max_line_size=_MAX_LINE,
        max_field_size=_MAX_LINE,
    )
    # Shut down quickly, because watches never end by themselves and would delay the shutdown for all of this time.
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=context)
        await site.start()
        base = f"{scheme}://{shown}:{runner.addresses[0][1]}"
        yield base
    finally:
        await runner.cleanup()


class _Server(web.Server):
    """Enforces the limits on connections."""

    def __init__(
        self, respond: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], limits: ServerLimits, **options: Any
    ) -> None:
        if limits.header_timeout is not None:
            options |= {"keepalive_timeout": limits.header_timeout, "lingering_time": 0.0}
        super().__init__(respond, **options)
        self._limits = limits
        #: Open connections, the oldest first; with the timer of those from which no request has come yet.
        self._open: dict[RequestHandler, tuple[asyncio.Transport, asyncio.TimerHandle | None]] = {}

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        timeout = self._limits.header_timeout
        timer = None if timeout is None else asyncio.get_running_loop().call_later(timeout, transport.abort)
        self._open[handler] = (transport, timer)
        if len(self._open) > self._limits.connections:
            oldest = next(iter(self._open))
            self._forget(oldest)

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        self._forget(handler)
        super().connection_lost(handler, exc)

    def heard(self, handler: RequestHandler) -> None:
        """Notes that a complete request has come. From now on the keep-alive timeout applies."""
        transport, timer = self._open.get(handler, (None, None))
        if transport is not None and timer is not None:
            timer.cancel()
            self._open[handler] = (transport, None)

    def _forget(self, handler: RequestHandler) -> None:
        transport, timer = self._open.pop(handler, (None, None))
        if timer is not None:
            timer.cancel()
        if transport is not None:
            transport.abort()


async def _respond(handler: Handler, base: str, incoming: web.BaseRequest, most: int) -> web.StreamResponse:
    if incoming.body_exists and not most:
        answer = web.Response(status=413, text="a request to this port has no body\n")
        answer.force_close()
        return answer
    body = bytearray()
    async for part in incoming.content.iter_any():
        body += part
        if len(body) > most:
            return web.Response(status=413, text=f"a request may have at most {most} bytes\n")
    request = Request(
        method=incoming.method,
        url=base + incoming.raw_path,
        headers=Headers(incoming.headers.items()),
        body=bytes(body) if incoming.body_exists else None,
        client=_client(incoming),
    )
    try:
        async with await handler(request) as response:
            if response.buffered is not None or incoming.method == "HEAD" or response.status in _NO_BODY:
                answer = web.Response(status=response.status, headers=response.headers, body=response.buffered)
                answer.headers.setdefault("Server", _NAME)
                return answer
            return await _stream(response, incoming)
    except TransportError:
        if incoming.transport is not None:
            incoming.transport.abort()
        raise asyncio.CancelledError from None


def _client(incoming: web.BaseRequest) -> PeerCertificate | None:
    session = None if incoming.transport is None else incoming.transport.get_extra_info("ssl_object")
    # Empty unless an authority of the context has signed it.
    certificate = session.getpeercert() if session is not None else None
    if not certificate:
        return None
    parts = [part for name in certificate["subject"] for part in name]
    names = [value for key, value in parts if key == "commonName"]
    return PeerCertificate(
        common_name=names[0] if len(names) == 1 else "",
        organizations=tuple(value for key, value in parts if key == "organizationName"),
    )


async def _stream(response: Response, incoming: web.BaseRequest) -> web.StreamResponse:
    """Streams a body. Chunks that are available at the same time go out in one write."""
    outgoing = web.StreamResponse(status=response.status, headers=response.headers)
    outgoing.headers.setdefault("Server", _NAME)
    try:
        await outgoing.prepare(incoming)
    except ConnectionResetError:
        # As below.
        return outgoing
    queue = _Queue()
    # The generator must be created and closed in the same task.
    reader = asyncio.create_task(queue.fill(response.chunks))
    try:
        while batch := await queue.take():
            await outgoing.write(batch)
        await reader
    except ConnectionResetError:
        # The client has left in this very moment: nobody is there to be told anything.
        return outgoing
    finally:
        reader.cancel()
        with suppress(asyncio.CancelledError, TransportError):
            await reader
    await outgoing.write_eof()
    return outgoing


class _Queue:
    """Chunks between a body and its socket, with a bounded buffer."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._ended = False
        self._available = asyncio.Event()
        self._room = asyncio.Event()

    async def fill(self, chunks: Callable[[], AsyncGenerator[bytes, None]]) -> None:
        try:
            async with aclosing(chunks()) as body:
                async for chunk in body:
                    self._chunks.append(chunk)
                    self._size += len(chunk)
                    self._available.set()
                    if self._size > _MAX_BUFFERED:
                        self._room.clear()
                        await self._room.wait()
        finally:
            self._ended = True
            self._available.set()

    async def take(self) -> bytes:
        """All chunks since the last call; empty at the end."""
        while True:
            if self._chunks:
                batch = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
                self._chunks.clear()
                self._size = 0
                self._room.set()
                if batch:
                    return batch
            if self._ended:
                return b""
            self._available.clear()
            await self._available.wait()
