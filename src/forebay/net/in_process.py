"""A transport without a network: calls a handler directly."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from forebay.net.transport import (
    AnswerCut,
    AnswerLost,
    Handler,
    NeverSent,
    Request,
    Response,
    Timeouts,
)


class InProcess:
    """Behaves like a socket: timeouts apply, closing a response stops its handler, `close` ends every stream.

    An exception of the handler other than `TransportError` is a bug of the handler and is passed on.
    """

    def __init__(self, handler: Handler, *, timeouts: Timeouts = Timeouts()) -> None:  # noqa: B008 (immutable)
        self._handler = handler
        self._timeouts = timeouts
        self._calls: set[asyncio.Timeout] = set()
        self._streams: set[_Stream] = set()
        self._closed = False

    async def request(self, request: Request) -> Response:
        if self._closed:
            raise NeverSent(f"{request}: the transport is closed", request, lasting=True)
        timeouts = request.timeouts or self._timeouts
        now = asyncio.get_running_loop().time()
        deadline = None if timeouts.total is None else now + timeouts.total
        limit = asyncio.timeout_at(_earlier(None if timeouts.read is None else now + timeouts.read, deadline))
        self._calls.add(limit)
        try:
            async with limit:
                # Yield as a network would: otherwise a busy client would starve other tasks.
                await asyncio.sleep(0)
                response = await self._handler(request)
        except TimeoutError:
            if not limit.expired():
                raise
            why = self._reason("no response in time")
            raise AnswerLost(f"{request}: sent, but {why}", request) from None
        finally:
            self._calls.discard(limit)
        if response.buffered is not None:
            return response
        stream = _Stream(request, response, timeouts.read, deadline, self)
        await self._register(stream)
        return Response(response.status, response.headers, stream, on_close=stream.aclose)

    async def close(self) -> None:
        self._closed = True
        now = asyncio.get_running_loop().time()
        for limit in self._calls:
            if not limit.expired():
                limit.reschedule(now)
        for stream in tuple(self._streams):
            await stream.cut("the transport was closed")

    async def _register(self, stream: "_Stream") -> None:
        self._streams.add(stream)
        if self._closed:  # while the handler was answering
            await stream.cut("the transport was closed")

    def _reason(self, otherwise: str) -> str:
        return "the transport was closed" if self._closed else otherwise


class _Stream(AsyncIterator[bytes]):
    """The body of a handler's response, under the timeouts of the request.

    One timer serves the whole stream, and runs only during reads: a timer per chunk would cost more than the chunk, and
    a timer of an unread stream would keep a virtual clock running.
    """

    def __init__(
        self, request: Request, response: Response, silence: float | None, deadline: float | None, transport: InProcess
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._response = response
        self._chunks = response.chunks()
        self._silence = silence
        self._deadline = deadline
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._since = 0.0
        self._cut_reason: str | None = None
        self._ended = False

    async def __anext__(self) -> bytes:
        if (cut := self._cut()) is not None:
            raise cut
        if self._ended:
            raise StopAsyncIteration
        reader = self._reader = asyncio.current_task()
        self._since = self._loop.time()
        if self._timer is None:
            self._start_timer()
        try:
            return await anext(self._chunks)
        except asyncio.CancelledError:
            await self.aclose()
            if (cut := self._cut()) is not None and reader is not None and not reader.uncancel():
                raise cut from None
            raise
        except BaseException:
            # The end or an error: there is nothing more to read.
            await self.aclose()
            raise
        finally:
            self._reader = None

    def _cut(self) -> AnswerCut | None:
        return None if self._cut_reason is None else AnswerCut(f"{self._request}: {self._cut_reason}", self._request)

    async def cut(self, why: str) -> None:
        """Ends the stream: readers, present or later, get an `AnswerCut`."""
        if self._reader is None:
            self._cut_reason = why
            await self.aclose()
        else:
            self._interrupt(why)

    async def aclose(self) -> None:
        """Stops the handler's generator."""
        if self._ended:
            return
        if self._reader not in {None, asyncio.current_task()}:
            await self.cut("the response was closed")
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._transport._streams.discard(self)  # noqa: SLF001 (one class in two halves)
        await self._chunks.aclose()
        await self._response.close()

    def _start_timer(self) -> None:
        end = _earlier(None if self._silence is None else self._since + self._silence, self._deadline)
        self._timer = None if end is None else self._loop.call_at(end, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._reader is None:
            return
        now = self._loop.time()
        if self._deadline is not None and now >= self._deadline:
            self._interrupt("the answer was not complete in time")
        elif self._silence is not None and now >= self._since + self._silence:
            self._interrupt("the answer stopped")
        else:
            self._start_timer()

    def _interrupt(self, why: str) -> None:
        # Cancel only once: `__anext__` undoes one cancellation; a second would look like one of the reader's task.
        if self._cut_reason is None and self._reader is not None:
            self._cut_reason = why
            self._reader.cancel()


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((end for end in (one, other) if end is not None), default=None)
