"""A handler on a loopback socket: what `InProcess` calls directly, for clients in other processes."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from aiohttp import web

from forebay.net.transport import Handler, Headers, Request, Response, TransportError

#: Bytes that a body may be ahead of its reader.
_AHEAD = 256 * 1024
_LARGEST_REQUEST = 64 * 1024 * 1024
_LONGEST_LINE = 64 * 1024

_NO_BODY = frozenset({204, 304})


@asynccontextmanager
async def serving(
    handler: Handler, *, host: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Serves until the block ends; yields the base URL, `http://127.0.0.1:PORT` (https with a TLS context).

    A client that goes away cancels its handler, or closes the body that was being streamed to it. A `TransportError`
    from the handler or its body breaks the connection, so that a client over the socket sees what one in process does.
    Leaving the block breaks off the streams that are still open.
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
        max_line_size=_LONGEST_LINE,
        max_field_size=_LONGEST_LINE,
    )
    # Open streams would hold up the end for as long as this; they are meant to last for ever.
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
        if len(body) > _LARGEST_REQUEST:
            return web.Response(status=413, text=f"a request may have {_LARGEST_REQUEST} bytes at most\n")
    request = Request(
        method=incoming.method,
        url=base + incoming.raw_path,
        headers=Headers(incoming.headers.items()),
        body=bytes(body) if incoming.body_exists else None,
    )
    try:
        async with await handler(request) as answer:
            if answer.buffered is not None or incoming.method == "HEAD" or answer.status in _NO_BODY:
                return web.Response(status=answer.status, headers=answer.headers, body=answer.buffered)
            return await _stream(answer, incoming)
    except TransportError:
        if incoming.transport is not None:
            incoming.transport.abort()
        raise asyncio.CancelledError from None


async def _stream(answer: Response, incoming: web.BaseRequest) -> web.StreamResponse:
    """Everything that the body yields without pausing goes out in one write, however small its pieces."""
    outgoing = web.StreamResponse(status=answer.status, headers=answer.headers)
    if "Content-Length" not in answer.headers and incoming.version >= (1, 1):
        outgoing.enable_chunked_encoding()
    await outgoing.prepare(incoming)
    queue = _Queue()
    # The generator lives and dies in one task, which the writer outlives.
    pump = asyncio.create_task(queue.fill(answer.chunks))
    try:
        while batch := await queue.take():
            await outgoing.write(batch)
        await pump
    finally:
        pump.cancel()
        with suppress(asyncio.CancelledError, TransportError):
            await pump
    await outgoing.write_eof()
    return outgoing


class _Queue:
    """Chunks between the body that yields them and the socket that takes them."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._ended = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def fill(self, chunks: Callable[[], AsyncGenerator[bytes, None]]) -> None:
        try:
            async with aclosing(chunks()) as body:
                async for chunk in body:
                    self._chunks.append(chunk)
                    self._size += len(chunk)
                    self._news.set()
                    if self._size > _AHEAD:
                        self._room.clear()
                        await self._room.wait()
        finally:
            self._ended = True
            self._news.set()

    async def take(self) -> bytes:
        """All that has come since the last time; empty at the end."""
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
            self._news.clear()
            await self._news.wait()
