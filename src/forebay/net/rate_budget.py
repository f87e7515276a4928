"""No more requests than agreed: a token bucket of our own, and the quotas that the server tells us about."""

import asyncio

from forebay.net import clock
from forebay.net.server_hints import retry_after, windows
from forebay.net.transport import NeverSent, Request, Response, Transport

_TOO_MANY_REQUESTS = 429
_UNAVAILABLE = 503

#: A server that asks for more than this is taken at its word for this long, then asked again.
_LONGEST_PAUSE = 3600.0


class RateBudget:
    """At most `burst + qps * t` requests in any `t` seconds, first come, first served.

    `Retry-After` on a 429 or 503 stops everything until then; `RateLimit` headers (the IETF draft's present and earlier
    forms, and `X-RateLimit-*`) stop it when a quota is used up. A request that would wait longer than `longest_wait`
    is not sent, and says so at once where that can be known.
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
        self._under_way = 0
        self._queued = 0
        # asyncio's lock wakes its waiters in the order in which they came: that is the whole queue.
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()

    async def request(self, request: Request) -> Response:
        await self._take(request)
        self._under_way += 1
        try:
            answer = await self._inner.request(request)
        finally:
            self._under_way -= 1
        self._learn(answer)
        return answer

    async def close(self) -> None:
        await self._inner.close()

    async def _take(self, request: Request) -> None:
        loop = asyncio.get_running_loop()
        came = loop.time()
        self._refuse_if_too_long(request, self._ready_at(came) + self._queued * self._interval - came)
        self._queued += 1
        try:
            async with self._turn:
                while (ready := self._ready_at(loop.time())) > loop.time():
                    self._refuse_if_too_long(request, ready - came)
                    await self._until(ready)
                self._full_at = max(self._full_at, loop.time()) + self._interval
                for quota in self._quotas.values():
                    quota.left -= 1
        finally:
            self._queued -= 1

    def _ready_at(self, now: float) -> float:
        """The earliest time at which the next request may leave, as far as is known now."""
        self._quotas = {name: quota for name, quota in self._quotas.items() if quota.ends > now}
        used_up = (quota.ends for quota in self._quotas.values() if quota.left <= 0)
        return max(self._full_at - self._tolerance, self._paused_until, *used_up)

    async def _until(self, when: float) -> None:
        """Waits for the time, or for a word from the server that changes it."""
        self._news.clear()
        timer = asyncio.get_running_loop().call_at(when, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()

    def _refuse_if_too_long(self, request: Request, wait: float) -> None:
        if wait > self._longest_wait:
            why = "the server asked for a pause" if wait > self._own_wait() else "too many requests are in the queue"
            raise NeverSent(
                f"{request}: the rate budget would hold it back for {wait:.0f} s, longer than {self._longest_wait:g} s "
                f"({why})",
                request,
                lasting=True,
            )

    def _own_wait(self) -> float:
        now = asyncio.get_running_loop().time()
        return max(0.0, self._full_at - self._tolerance - now) + (self._queued + 1) * self._interval

    def _learn(self, answer: Response) -> None:
        now, date = asyncio.get_running_loop().time(), clock.now()
        if answer.status in {_TOO_MANY_REQUESTS, _UNAVAILABLE}:
            pause = retry_after(answer.headers, date)
            if pause is not None:
                self._paused_until = max(self._paused_until, now + min(pause, _LONGEST_PAUSE))
        for window in windows(answer.headers, date):
            # The server has not counted what is still on its way there.
            left = window.remaining - self._under_way
            self._quotas[window.name] = _Quota(left, now + min(window.resets_in, _LONGEST_PAUSE))
        self._news.set()


class _Quota:
    __slots__ = ("ends", "left")

    def __init__(self, left: int, ends: float) -> None:
        self.left = left
        self.ends = ends
