"""Serves a handler on a socket, for clients in other processes."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from aiohttp import web

from forebay.net.transport import Handler, Headers, Request, Response, TransportError

#: Bytes of a body that are buffered for a slow reader.
_MAX_BUFFERED = 256 * 1024
_MAX_REQUEST = 64 * 1024 * 1024
_MAX_LINE = 64 * 1024

_NO_BODY = frozenset({204, 304})


@asynccontextmanager
async def serving(
    handler: Handler, *, host: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None
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
        return await _respond(handler, base, incoming)

    server = web.Server(
        respond,
        handler_cancellation=True,
        access_log=None,
        max_line_size=_MAX_LINE,
        max_field_size=_MAX_LINE,
    )
    # Short, because watches never end by themselves and would delay the shutdown for all of this time.
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=context)
        await site.start()
        base = f"{scheme}://{shown}:{runner.addresses[0][1]}"
        yield base
    finally:
        await runner.cleanup()


async def _respond(handler: Handler, base: str, incoming: web.BaseRequest) -> web.StreamResponse:
    body = bytearray()
    async for part in incoming.content.iter_any():
        body += part
        if len(body) > _MAX_REQUEST:
            return web.Response(status=413, text=f"a request may have at most {_MAX_REQUEST} bytes\n")
    request = Request(
        method=incoming.method,
        url=base + incoming.raw_path,
        headers=Headers(incoming.headers.items()),
        body=bytes(body) if incoming.body_exists else None,
    )
    try:
        async with await handler(request) as response:
            if response.buffered is not None or incoming.method == "HEAD" or response.status in _NO_BODY:
                return web.Response(status=response.status, headers=response.headers, body=response.buffered)
            return await _stream(response, incoming)
    except TransportError:
        if incoming.transport is not None:
            incoming.transport.abort()
        raise asyncio.CancelledError from None


async def _stream(response: Response, incoming: web.BaseRequest) -> web.StreamResponse:
    """Streams a body. Chunks that are available at the same time go out in one write."""
    outgoing = web.StreamResponse(status=response.status, headers=response.headers)
    if "Content-Length" not in response.headers and incoming.version >= (1, 1):
        outgoing.enable_chunked_encoding()
    await outgoing.prepare(incoming)
    queue = _Queue()
    # The generator must be created and closed in the same task.
    reader = asyncio.create_task(queue.fill(response.chunks))
    try:
        while batch := await queue.take():
            await outgoing.write(batch)
        await reader
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
