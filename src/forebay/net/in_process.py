"""A transport without a network: it calls the handler that a server would call."""

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
    """Keeps the promises of a socket: timeouts hold, a closed response stops its handler, closing ends every stream.

    What the handler raises that is not a `TransportError` is a fault of the handler and is not hidden.
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
                # A network gives everybody else a turn; without this a busy client would starve them.
                await asyncio.sleep(0)
                answer = await self._handler(request)
        except TimeoutError:
            if not limit.expired():
                raise
            why = self._why_ended("no answer in time")
            raise AnswerLost(f"{request}: sent, but {why}", request) from None
        finally:
            self._calls.discard(limit)
        if answer.buffered is not None:
            return answer
        stream = _Stream(request, answer, timeouts.read, deadline, self)
        await self._admit(stream)
        return Response(answer.status, answer.headers, stream, on_close=stream.aclose)

    async def close(self) -> None:
        self._closed = True
        now = asyncio.get_running_loop().time()
        for limit in self._calls:
            if not limit.expired():
                limit.reschedule(now)
        for stream in tuple(self._streams):
            await stream.cut("the transport was closed")

    async def _admit(self, stream: "_Stream") -> None:
        self._streams.add(stream)
        if self._closed:  # in the very turn in which the handler answered
            await stream.cut("the transport was closed")

    def _why_ended(self, otherwise: str) -> str:
        return "the transport was closed" if self._closed else otherwise


class _Stream(AsyncIterator[bytes]):
    """The handler's body, under the caller's timeouts.

    One timer watches the whole stream, and only while somebody reads: a timer for each chunk would cost more than the
    chunk, and one for an unread stream would keep a virtual clock running.
    """

    def __init__(
        self, request: Request, answer: Response, silence: float | None, deadline: float | None, owner: InProcess
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._request = request
        self._answer = answer
        self._chunks = answer.chunks()
        self._silence = silence
        self._deadline = deadline
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._since = 0.0
        self._why_cut: str | None = None
        self._ended = False

    async def __anext__(self) -> bytes:
        if (cut := self._cut()) is not None:
            raise cut
        if self._ended:
            raise StopAsyncIteration
        reader = self._reader = asyncio.current_task()
        self._since = self._loop.time()
        if self._timer is None:
            self._watch()
        try:
            return await anext(self._chunks)
        except asyncio.CancelledError:
            await self.aclose()
            if (cut := self._cut()) is not None and reader is not None and not reader.uncancel():
                raise cut from None
            raise
        except BaseException:
            # Its end or its own failure: in each case there is nothing more to read.
            await self.aclose()
            raise
        finally:
            self._reader = None

    def _cut(self) -> AnswerCut | None:
        return None if self._why_cut is None else AnswerCut(f"{self._request}: {self._why_cut}", self._request)

    async def cut(self, why: str) -> None:
        """Whoever reads, now or later, gets an `AnswerCut`."""
        if self._reader is None:
            self._why_cut = why
            await self.aclose()
        else:
            self._interrupt(why)

    async def aclose(self) -> None:
        """Stop the handler's generator, here and now."""
        if self._ended:
            return
        if self._reader not in {None, asyncio.current_task()}:
            await self.cut("the response was closed")
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._owner._streams.discard(self)  # noqa: SLF001 (one class in two halves)
        await self._chunks.aclose()
        await self._answer.close()

    def _watch(self) -> None:
        end = _earlier(None if self._silence is None else self._since + self._silence, self._deadline)
        self._timer = None if end is None else self._loop.call_at(end, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._reader is None:
            return
        now = self._loop.time()
        if self._deadline is not None and now >= self._deadline:
            self._interrupt("the answer was not complete in time")
        elif self._silence is not None and now >= self._since + self._silence:
            self._interrupt("the answer stopped")
        else:
            self._watch()

    def _interrupt(self, why: str) -> None:
        # Once only: `__anext__` takes back one cancellation, a second would look like the reader's own.
        if self._why_cut is None and self._reader is not None:
            self._why_cut = why
            self._reader.cancel()


def _earlier(one: float | None, other: float | None) -> float | None:
    return min((end for end in (one, other) if end is not None), default=None)
