"""A transport that sends a read once more where it fails at once: a listing has many parts, and none may be missing."""

import asyncio
from typing import Final

from forebay.net.transport import NeverSent, Request, Response, Transport, TransportError

#: Seconds within which a failure comes at once. Who has waited for longer would wait twice as long.
_AT_ONCE: Final = 2.0
_SERVER_ERROR: Final = 500


class RepeatedReads:
    """Sends a GET that failed at once a second time; its second failure is the caller's.

    Not where the server asks for a pause, and not while nothing works: after a second failure, no request is repeated
    until one has succeeded. Bodies that are written while they are read (`Timeouts.total` is None) are the caller's.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        #: The last request that was sent twice failed twice, and none has succeeded since.
        self._outage = False

    async def request(self, request: Request) -> Response:
        if request.method != "GET" or (request.timeouts is not None and request.timeouts.total is None):
            return await self._inner.request(request)
        until = asyncio.get_running_loop().time() + _AT_ONCE
        try:
            first = await self._inner.request(request)
        except TransportError as error:
            if not self._may_repeat(until) or (isinstance(error, NeverSent) and error.lasting):
                raise
        else:
            if first.status < _SERVER_ERROR:
                self._outage = False
                return first
            if not self._may_repeat(until) or "Retry-After" in first.headers:
                return first
            await first.close()
        # Until it is known to succeed.
        self._outage = True
        second = await self._inner.request(request)
        self._outage = second.status >= _SERVER_ERROR
        return second

    async def close(self) -> None:
        await self._inner.close()

    def _may_repeat(self, until: float) -> bool:
        return not self._outage and asyncio.get_running_loop().time() < until
