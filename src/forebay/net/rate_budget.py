"""Client-side rate limit: a token bucket, and the limits that the server announces in headers."""

import asyncio

from forebay.net import clock
from forebay.net.server_hints import retry_after, windows
from forebay.net.transport import NeverSent, Request, Response, Transport

_TOO_MANY_REQUESTS = 429
_UNAVAILABLE = 503

#: Longest pause that a server can ask for, in seconds.
_MAX_PAUSE = 3600.0


class RateBudget:
    """A transport that sends at most `burst + qps * t` requests in any `t` seconds, first come, first served.

    `Retry-After` on a 429 or 503 pauses all requests. So do `RateLimit` headers (the present and earlier forms of the
    IETF draft, and `X-RateLimit-*`) when a quota is used up. A request that would wait longer than `longest_wait`
    raises `NeverSent`, at once if that is already known.
    """

    def __init__(self, inner: Transport, *, qps: float, burst: int, longest_wait: float = 30.0) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError("a rate budget needs qps > 0 and burst >= 1")
        self._inner = inner
        self._interval = 1.0 / qps
        self._tolerance = (burst - 1) * self._interval
        self._longest_wait = longest_wait
        #: When the bucket will be full again (the "theoretical arrival time" of the GCRA).
        self._full_at = float("-inf")
        self._paused_until = float("-inf")
        self._quotas: dict[str, _Quota] = {}
        self._in_flight = 0
        self._queued = 0
        # asyncio.Lock wakes its waiters in order of arrival: the lock is the queue.
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()

    async def request(self, request: Request) -> Response:
        await self._wait_for_token(request)
        self._in_flight += 1
        try:
            response = await self._inner.request(request)
        finally:
            self._in_flight -= 1
        self._read_limits(response)
        return response

    async def close(self) -> None:
        await self._inner.close()

    async def _wait_for_token(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        self._refuse_if_too_long(request, self._ready_at(arrived) + self._queued * self._interval - arrived)
        self._queued += 1
        try:
            async with self._lock:
                while (ready := self._ready_at(loop.time())) > loop.time():
                    self._refuse_if_too_long(request, ready - arrived)
                    await self._until(ready)
                self._full_at = max(self._full_at, loop.time()) + self._interval
                for quota in self._quotas.values():
                    quota.left -= 1
        finally:
            self._queued -= 1

    def _ready_at(self, now: float) -> float:
        """Earliest time at which the next request may be sent, as far as known at `now`."""
        self._quotas = {name: quota for name, quota in self._quotas.items() if quota.ends > now}
        used_up = (quota.ends for quota in self._quotas.values() if quota.left <= 0)
        return max(self._full_at - self._tolerance, self._paused_until, *used_up)

    async def _until(self, when: float) -> None:
        """Waits until `when`, or until a response changes the limits."""
        self._changed.clear()
        timer = asyncio.get_running_loop().call_at(when, self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    def _refuse_if_too_long(self, request: Request, wait: float) -> None:
        if wait > self._longest_wait:
            why = "the server asked for a pause" if wait > self._own_wait() else "too many requests are queued"
            raise NeverSent(
                f"{request}: the rate limit would delay the request by {wait:.0f} s, "
                f"more than {self._longest_wait:g} s ({why})",
                request,
                lasting=True,
            )

    def _own_wait(self) -> float:
        now = asyncio.get_running_loop().time()
        return max(0.0, self._full_at - self._tolerance - now) + (self._queued + 1) * self._interval

    def _read_limits(self, response: Response) -> None:
        now, date = asyncio.get_running_loop().time(), clock.now()
        if response.status in {_TOO_MANY_REQUESTS, _UNAVAILABLE}:
            pause = retry_after(response.headers, date)
            if pause is not None:
                self._paused_until = max(self._paused_until, now + min(pause, _MAX_PAUSE))
        for window in windows(response.headers, date):
            # The server has not counted the requests in flight.
            left = window.remaining - self._in_flight
            self._quotas[window.name] = _Quota(left, now + min(window.resets_in, _MAX_PAUSE))
        self._changed.set()


class _Quota:
    __slots__ = ("ends", "left")

    def __init__(self, left: int, ends: float) -> None:
        self.left = left
        self.ends = ends
