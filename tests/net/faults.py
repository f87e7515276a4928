"""Fault injection at the transport, scripted or by seeded chance, and hooks at which a test can crash the program.

plan = Scripted([None, LoseAnswer(), Delay(3)])           the second request loses its answer, the third is slow
plan = Sometimes(random.Random(7), {Reset(): 0.05, CutAfter(100): 0.02})
transport = Faulty(inner, plan)
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

import msgspec

from forebay.net.transport import AnswerCut, AnswerLost, Headers, NeverSent, Request, Response, Transport


class Delay(msgspec.Struct, frozen=True):
    """Sends the request later."""

    seconds: float


class Reset(msgspec.Struct, frozen=True):
    """The connection breaks before anything is sent: `NeverSent`."""


class LoseRequest(msgspec.Struct, frozen=True):
    """Loses the request: the server never sees it, which the client cannot know: `AnswerLost`."""

    after: float = 0.0


class LoseAnswer(msgspec.Struct, frozen=True):
    """Loses the answer after the server has acted: `AnswerLost`."""

    after: float = 0.0


class CutAfter(msgspec.Struct, frozen=True):
    """Cuts the body off after so many bytes: `AnswerCut`."""

    size: int


class Answer(msgspec.Struct, frozen=True):
    """Answers instead of the server, which never sees the request, as a proxy may do."""

    status: int = 503
    retry_after: str | None = None
    body: bytes = b""


Fault: TypeAlias = Delay | Reset | LoseRequest | LoseAnswer | CutAfter | Answer

#: Returns the faults for a request; several faults are combined.
Plan: TypeAlias = Callable[[Request], Fault | Iterable[Fault] | None]

#: Called with each request. Exceptions pass through unchanged: crash tests raise theirs here.
Hook: TypeAlias = Callable[[Request], Awaitable[None]]


class Scripted:
    """One entry for each request, in order; no faults afterwards."""

    def __init__(self, entries: Iterable[Fault | Iterable[Fault] | None]) -> None:
        self._entries = iter(entries)

    def __call__(self, _request: Request) -> Fault | Iterable[Fault] | None:
        return next(self._entries, None)


class When:
    """A fault for the first `times` requests that `applies` selects."""

    def __init__(self, applies: Callable[[Request], bool], fault: Fault, *, times: int | None = 1) -> None:
        self._applies = applies
        self._fault = fault
        self._left = times

    def __call__(self, request: Request) -> Fault | None:
        if self._left == 0 or not self._applies(request):
            return None
        if self._left is not None:
            self._left -= 1
        return self._fault


class Sometimes:
    """Each fault with its own probability, the same for the same seed and the same order of requests."""

    def __init__(self, chance: random.Random, faults: Mapping[Fault, float]) -> None:
        self._chance = chance
        self._faults = dict(faults)

    def __call__(self, _request: Request) -> list[Fault]:
        # One random number per fault, always: changing the rate of one fault does not change the others.
        return [fault for fault, rate in self._faults.items() if self._chance.random() < rate]


class Faulty:
    """A transport with the faults of a plan.

    `before` is awaited before a request is sent, `after` when its response or error is there but not yet returned.
    """

    def __init__(
        self, inner: Transport, plan: Plan | None = None, *, before: Hook | None = None, after: Hook | None = None
    ) -> None:
        self._inner = inner
        self._plan = plan
        self._before = before
        self._after = after

    async def request(self, request: Request) -> Response:
        if self._before is not None:
            await self._before(request)
        try:
            answer = await self._send(request, self._faults_for(request))
        except Exception:
            if self._after is not None:
                await self._after(request)
            raise
        if self._after is not None:
            try:
                await self._after(request)
            except BaseException:
                await answer.close()
                raise
        return answer

    async def close(self) -> None:
        await self._inner.close()

    def _faults_for(self, request: Request) -> tuple[Fault, ...]:
        planned = self._plan(request) if self._plan is not None else None
        if planned is None:
            return ()
        return tuple(planned) if isinstance(planned, Iterable) else (planned,)

    async def _send(self, request: Request, faults: tuple[Fault, ...]) -> Response:
        cut: CutAfter | None = None
        lose: LoseAnswer | None = None
        for fault in faults:
            match fault:
                case Delay(seconds):
                    await asyncio.sleep(seconds)
                case Reset():
                    raise NeverSent(f"{request}: reset before anything was sent (injected)", request)
                case LoseRequest(after):
                    await asyncio.sleep(after)
                    raise AnswerLost(f"{request}: sent, but no answer came back (injected)", request)
                case Answer(status, again, body):
                    return Response(status, Headers({} if again is None else {"Retry-After": again}), body)
                case LoseAnswer():
                    lose = fault
                case CutAfter():
                    cut = fault
        answer = await self._inner.request(request)
        if lose is not None:
            await answer.close()
            await asyncio.sleep(lose.after)
            raise AnswerLost(f"{request}: sent, but no answer came back (injected)", request)
        if cut is not None:
            return Response(answer.status, answer.headers, _cut(answer, cut.size, request), on_close=answer.close)
        return answer


async def _cut(answer: Response, size: int, request: Request) -> AsyncIterator[bytes]:
    left = size
    async for chunk in answer.chunks():
        if len(chunk) >= left:
            if left:
                yield chunk[:left]
            raise AnswerCut(f"{request}: the answer was cut off after {size} bytes (injected)", request)
        left -= len(chunk)
        yield chunk
    # A body shorter than `size` arrives whole.
