"""A network that can be hurt: a TCP proxy on loopback, in the test's own loop. TLS goes through it unread."""

import asyncio
import contextlib
import socket
import struct
from types import TracebackType
from typing import Self

_CHUNK = 64 * 1024
#: Linger on, for no time: closing sends a reset instead of a farewell.
_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Between clients and one server on loopback. Use it in `async with`; clients connect to `port`.

    `delay`     seconds that every piece of data is under way, in each direction
    `hold()`    a black hole: connections are accepted and stay, nothing arrives; `release()` lets all of it arrive
    `cut()`     resets every connection there is
    `refuse()`  resets new ones as well, until `release()`
    """

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        #: How many connections clients have opened so far.
        self.opened = 0
        self._target = port
        self._open = asyncio.Event()
        self._open.set()
        self._refusing = False
        self._sockets: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.refuse()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._refusing = False
        self._open.set()

    def cut(self) -> None:
        for writer in self._sockets:
            _reset(writer)

    def refuse(self) -> None:
        self._refusing = True
        self.cut()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        if self._refusing:
            _reset(writer)
            return
        task = asyncio.create_task(self._connect(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._sockets.add(writer)
        try:
            # A black hole swallows the first packet too: the server learns nothing of this client.
            await self._open.wait()
            with contextlib.suppress(OSError):
                there = await asyncio.open_connection("127.0.0.1", self._target)
                self._sockets.add(there[1])
                try:
                    await self._join((reader, writer), there)
                finally:
                    self._sockets.discard(there[1])
                    there[1].transport.abort()
        finally:
            self._sockets.discard(writer)
            writer.transport.abort()

    async def _join(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        async with asyncio.TaskGroup() as both:
            both.create_task(self._carry(near[0], far[1]))
            both.create_task(self._carry(far[0], near[1]))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction, until its end has been passed on. What is under way stays in order."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def arrive() -> None:
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(due - loop.time())
                await self._open.wait()
                if not data:
                    with contextlib.suppress(OSError):
                        writer.write_eof()
                    return
                if not writer.is_closing():
                    writer.write(data)
                    with contextlib.suppress(OSError):
                        await writer.drain()

        async def leave() -> None:
            data = b"-"
            while data:
                try:
                    data = await reader.read(_CHUNK)
                except OSError:
                    # A reset is passed on as one, once what came before it has arrived.
                    data = b""
                await under_way.put((loop.time() + self.delay, data))

        async with asyncio.TaskGroup() as direction:
            direction.create_task(arrive())
            direction.create_task(leave())


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
