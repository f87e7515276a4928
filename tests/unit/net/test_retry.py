"""What is sent again, how often, and when."""

import asyncio
import random
from datetime import timedelta
from email.utils import format_datetime

import pytest

from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.retry import Retrying, RetryPolicy
from forebay.net.transport import AnswerCut, Headers, NeverSent, OutcomeUnknown, Request, Response

POST = Request(method="POST", url="http://here/")
GET = Request(method="GET", url="http://here/")
KEYED = Request(method="POST", url="http://here/", repeatable=True)


class Line:
    """Answers or fails as told, one entry for each request, then 200; remembers when it was asked."""

    def __init__(self, *entries):
        self._entries = list(entries)
        self.asked_at: list[float] = []
        self.closed: list[int] = []

    async def request(self, request):
        self.asked_at.append(asyncio.get_running_loop().time())
        entry = self._entries.pop(0) if self._entries else 200
        if isinstance(entry, type):
            raise entry("as told", request)
        if isinstance(entry, Exception):
            raise entry
        status, headers = entry if isinstance(entry, tuple) else (entry, {})

        async def note():
            self.closed.append(status)

        return Response(status, headers, b"", on_close=note)

    async def close(self):
        pass


def retrying(line, **policy):
    return Retrying(line, policy=RetryPolicy(**policy), chance=random.Random(1))


@pytest.mark.parametrize(
    ("request_", "trouble", "attempts"),
    [
        (POST, NeverSent, 2),
        (GET, NeverSent, 2),
        (POST, OutcomeUnknown, 1),
        (GET, OutcomeUnknown, 2),
        (KEYED, OutcomeUnknown, 2),
        (POST, AnswerCut, 1),
        (GET, AnswerCut, 2),
        (POST, 429, 1),
        (GET, 429, 2),
        (POST, (429, {"Retry-After": "1"}), 2),
        (POST, (503, {"Retry-After": "1"}), 1),
        (KEYED, (503, {"Retry-After": "1"}), 2),
        (GET, 502, 2),
        (GET, 503, 2),
        (GET, 504, 2),
        (POST, 504, 1),
        (GET, 500, 1),
        (GET, 404, 1),
        (GET, 409, 1),
    ],
)
async def test_only_what_is_safe_is_repeated(request_, trouble, attempts):
    line = Line(trouble)
    if isinstance(trouble, type) and attempts == 1:
        with pytest.raises(trouble):
            await retrying(line).request(request_)
    else:
        answer = await retrying(line).request(request_)
        assert (answer.status == 200) == (attempts == 2)
    assert len(line.asked_at) == attempts


async def test_a_failure_that_will_last_is_not_repeated():
    line = Line(NeverSent("expired", GET, lasting=True))
    with pytest.raises(NeverSent):
        await retrying(line).request(GET)
    assert len(line.asked_at) == 1


async def test_pauses_double_up_to_the_cap_and_half_of_each_is_chance():
    line = Line(*[NeverSent] * 9)
    await retrying(line, attempts=10, first=1, cap=8, deadline=None).request(POST)
    pauses = [later - earlier for earlier, later in zip(line.asked_at, line.asked_at[1:], strict=False)]
    for pause, longest in zip(pauses, [1, 2, 4, 8, 8, 8, 8, 8, 8], strict=True):
        assert longest / 2 <= pause <= longest
    assert len({round(pause, 6) for pause in pauses[3:]}) == 6


async def test_after_the_last_attempt_the_caller_gets_what_there_is():
    line = Line(*[503] * 9)
    answer = await retrying(line, attempts=3).request(GET)
    assert (answer.status, len(line.asked_at)) == (503, 3)
    assert line.closed == [503, 503]  # the last one is the caller's to read
    line = Line(*[OutcomeUnknown] * 9)
    with pytest.raises(OutcomeUnknown):
        await retrying(line, attempts=3).request(GET)
    assert len(line.asked_at) == 3


async def test_no_attempt_begins_after_the_deadline():
    line = Line(*[NeverSent] * 99)
    with pytest.raises(NeverSent):
        await retrying(line, attempts=99, first=1, cap=4, deadline=10).request(GET)
    assert 6 < line.asked_at[-1] <= 10
    assert asyncio.get_running_loop().time() <= 10


async def test_retry_after_is_obeyed_in_seconds_and_as_a_date():
    line = Line((429, {"Retry-After": "7"}))
    await retrying(line).request(POST)
    assert 7 <= line.asked_at[1] - line.asked_at[0] <= 7.7
    date = format_datetime(clock.now() + timedelta(seconds=20), usegmt=True)
    line = Line((503, {"Retry-After": date}))
    await retrying(line).request(GET)
    # HTTP dates have no fractions of a second.
    assert 19 <= line.asked_at[1] - line.asked_at[0] <= 22


async def test_a_server_that_asks_for_longer_than_there_is_time_is_answered_by_not_waiting():
    line = Line((429, {"Retry-After": "3600"}))
    answer = await retrying(line, deadline=60).request(GET)
    assert (answer.status, asyncio.get_running_loop().time()) == (429, 0)


async def test_retry_after_zero_does_not_become_a_storm():
    line = Line(*[(429, {"Retry-After": "0"})] * 4)
    await retrying(line, first=1, cap=1).request(GET)
    pauses = [later - earlier for earlier, later in zip(line.asked_at, line.asked_at[1:], strict=False)]
    assert min(pauses) >= 0.5


async def test_it_stands_in_front_of_any_transport():
    turns = iter([503, 503, 200])

    async def handler(_request):
        return Response(next(turns), Headers(), b"body")

    wire = Retrying(InProcess(handler), chance=random.Random(1))
    answer = await wire.request(GET)
    assert (answer.status, await answer.read()) == (200, b"body")
    await wire.close()
    with pytest.raises(NeverSent, match="closed"):
        await wire.request(GET)
