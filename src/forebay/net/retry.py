"""Sends again what may be sent again.

| what happened                           | repeated                                                              |
|-----------------------------------------|-----------------------------------------------------------------------|
| NeverSent                               | any method, unless it is `lasting`                                    |
| OutcomeUnknown, AnswerCut               | only `request.safe_to_repeat`                                         |
| 429 with Retry-After                    | any method: a rate limiter turned it away and invites to come again   |
| 429 without                             | only `request.safe_to_repeat`: it may be a refusal on the merits      |
| 502, 503, 504, Retry-After or not       | only `request.safe_to_repeat`: a gateway may say so of a server that acted |

An `AnswerCut` in the middle of a body that the caller already reads is the caller's.
"""

import asyncio
import random

import msgspec

from forebay.net import clock
from forebay.net.server_hints import retry_after
from forebay.net.transport import NeverSent, Request, Response, Transport, TransportError

_TOO_MANY_REQUESTS = 429
_TRY_LATER = frozenset({502, 503, 504})


class RetryPolicy(msgspec.Struct, frozen=True):
    """Seconds. The pause doubles from `first` to `cap`, and half of each is left to chance."""

    attempts: int = 5
    first: float = 0.2
    cap: float = 10.0
    #: From the first attempt: no attempt begins later, and no pause is started that would end later.
    deadline: float | None = 60.0

    def pause(self, failures: int, chance: random.Random) -> float:
        """After so many failures. The fixed half keeps a crowd from coming back at once, the other half together."""
        longest = min(self.cap, self.first * 2.0 ** min(failures - 1, 64))
        return longest * (0.5 + 0.5 * chance.random())


class Retrying:
    """A transport that repeats. The last answer or error is passed on as it is."""

    def __init__(
        self,
        inner: Transport,
        *,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 (immutable)
        chance: random.Random | None = None,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._chance = chance or random.Random()  # noqa: S311 (jitter, not a secret)

    async def request(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        began = loop.time()
        failures = 0
        while True:
            failures += 1
            answer: Response | None = None
            try:
                answer = await self._inner.request(request)
            except TransportError as error:
                if not _may_repeat_error(request, error):
                    raise
                pause = self._policy.pause(failures, self._chance)
                if self._enough(failures, loop.time() + pause - began):
                    raise
            else:
                if not _may_repeat_answer(request, answer):
                    return answer
                pause = self._policy.pause(failures, self._chance)
                asked = retry_after(answer.headers, clock.now())
                if asked is not None:
                    # Never earlier than asked, and not all who were turned away at the same moment.
                    pause = max(pause, asked * (1 + 0.1 * self._chance.random()))
                if self._enough(failures, loop.time() + pause - began):
                    return answer
                await answer.close()
            await asyncio.sleep(pause)

    async def close(self) -> None:
        await self._inner.close()

    def _enough(self, failures: int, elapsed_at_next: float) -> bool:
        policy = self._policy
        return failures >= policy.attempts or (policy.deadline is not None and elapsed_at_next > policy.deadline)


def _may_repeat_error(request: Request, error: TransportError) -> bool:
    if isinstance(error, NeverSent):
        return not error.lasting
    return request.safe_to_repeat


def _may_repeat_answer(request: Request, answer: Response) -> bool:
    if answer.status == _TOO_MANY_REQUESTS:
        return request.safe_to_repeat or "Retry-After" in answer.headers
    return answer.status in _TRY_LATER and request.safe_to_repeat
