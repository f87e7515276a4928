"""Client-side rate limit: a token bucket, and the limits that the server announces in headers."""

import asyncio
import itertools
from bisect import insort
from collections.abc import Callable
from typing import Final, NamedTuple

from forebay.net import clock
from forebay.net.server_hints import retry_after, windows
from forebay.net.transport import NeverSent, Request, Response, Transport

_TOO_MANY_REQUESTS = 429
_UNAVAILABLE = 503

#: Longest pause that a server can ask for, in seconds: a termination is repeated so often, whatever it asks for.
_MAX_PAUSE = 300.0
_PAUSED = "the server asked for a pause"
_CROWDED = "too many requests are queued"


class Lane(NamedTuple):
    """Requests that wait in one queue. Of several lanes in which requests wait, each is served by its share."""

    name: str
    share: float = 1.0


_ONLY_LANE: Final = Lane("")


class RateBudget:
    """A transport that sends at most `burst + qps * t` requests in any `t` seconds.

    Within a lane: first come, first served. Between lanes: by their shares, so that a crowd in one delays no other for
    long. Without `lane_of` there is one.

    `Retry-After` on a 429 or 503 pauses all requests. So do `RateLimit` headers (the present and earlier forms of the
    IETF draft, and `X-RateLimit-*`) when a quota is used up. A request that would wait longer than `longest_wait`
    raises `NeverSent`, at once if that is already known.
    """

    def __init__(
        self,
        inner: Transport,
        *,
        qps: float,
        burst: int,
        longest_wait: float = 30.0,
        lane_of: Callable[[Request], Lane] | None = None,
    ) -> None:
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
        self._lane_of = lane_of
        #: Requests that wait, the next one first.
        self._queue: list[_Turn] = []
        self._arrivals = itertools.count()
        #: Place of the request that was sent last, and of the last request of each lane.
        self._served = 0.0
        self._last_places: dict[str, float] = {}
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
        turn = self._turn(_ONLY_LANE if self._lane_of is None else self._lane_of(request))
        before = sum(each < turn for each in self._queue)
        self._refuse_if_too_long(request, self._ready_at(arrived) + before * self._interval - arrived)
        self._last_places[turn.lane] = turn.place
        insort(self._queue, turn)
        try:
            while (ready := self._when(turn, loop.time())) is None or ready > loop.time():
                if ready is not None:
                    self._refuse_if_too_long(request, ready - arrived, loop.time() - arrived)
                    await self._until(ready)
                elif not await turn.is_next_before(arrived + self._longest_wait + self._interval):
                    raise self._refused(request, loop.time() - arrived, _CROWDED)
            self._served = turn.place
            self._full_at = max(self._full_at, loop.time()) + self._interval
            for quota in self._quotas.values():
                quota.left -= 1
        finally:
            self._queue.remove(turn)
            if self._queue:
                self._queue[0].next.set()

    def _turn(self, lane: Lane) -> "_Turn":
        """The place of a request that comes now: one share after the last one of its lane, or after what is served."""
        if not self._queue:
            self._last_places.clear()
        last = max(self._last_places.get(lane.name, 0.0), self._served)
        return _Turn(last + 1.0 / lane.share, next(self._arrivals), lane.name)

    def _when(self, turn: "_Turn", now: float) -> float | None:
        """When the request may be sent; None while others come before it."""
        if self._queue[0] is not turn:
            turn.next.clear()
            return None
        return self._ready_at(now)

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

    def _refuse_if_too_long(self, request: Request, wait: float, waited: float = 0.0) -> None:
        if wait > self._longest_wait:
            raise self._refused(request, wait, _PAUSED if wait > waited + self._own_wait() else _CROWDED)

    def _refused(self, request: Request, wait: float, why: str) -> NeverSent:
        return NeverSent(
            f"{request}: the rate limit would delay the request by {wait:.0f} s, "
            f"more than {self._longest_wait:g} s ({why})",
            request,
            lasting=True,
        )

    def _own_wait(self) -> float:
        now = asyncio.get_running_loop().time()
        return max(0.0, self._full_at - self._tolerance - now) + (len(self._queue) + 1) * self._interval

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


class _Turn:
    """A request that waits."""

    __slots__ = ("arrival", "lane", "next", "place")

    def __init__(self, place: float, arrival: int, lane: str) -> None:
        self.place = place
        self.arrival = arrival
        self.lane = lane
        #: Set when it may have become the next one.
        self.next = asyncio.Event()

    def __lt__(self, other: "_Turn") -> bool:
        return (self.place, self.arrival) < (other.place, other.arrival)

    async def is_next_before(self, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline):
                await self.next.wait()
        except TimeoutError:
            return False
        return True


class _Quota:
    __slots__ = ("ends", "left")

    def __init__(self, left: int, ends: float) -> None:
        self.left = left
        self.ends = ends
