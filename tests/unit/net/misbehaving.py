"""Servers on loopback that send scripted bytes, valid HTTP or not."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Script = Callable[["Conversation"], Awaitable[None]]


class Conversation:
    """One connection, seen from the server."""

    def __init__(self, server: "ScriptedServer", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self.reader = reader
        self.writer = writer

    async def hear(self) -> bytes:
        """One whole request, head and body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(
            (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
        )
        request = head + await self.reader.readexactly(length)
        self._server.heard.append(request)
        return request

    async def say(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
        await self.writer.drain()

    def reset(self) -> None:
        """Closes with a TCP reset instead of a FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def silence(self) -> None:
        """Waits until the client disconnects."""
        await self.reader.read()


class ScriptedServer:
    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.connections = 0
        self.port = 0


@asynccontextmanager
async def scripted(script: Script, *, context: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    record = ScriptedServer()
    conversations: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        record.connections += 1
        task = asyncio.current_task()
        assert task is not None
        conversations.add(task)
        try:
            await script(Conversation(record, reader, writer))
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # the client went away, or the test is over: what every server must bear
        finally:
            conversations.discard(task)
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=context)
    record.port = server.sockets[0].getsockname()[1]
    try:
        yield record
    finally:
        server.close()
        for task in conversations:
            task.cancel()
        await asyncio.gather(*conversations, return_exceptions=True)
