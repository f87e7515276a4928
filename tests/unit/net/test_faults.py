"""Injected faults."""

import asyncio
import random

import pytest

from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerCut, AnswerLost, NeverSent, Request, Response, TransportError
from tests.net.faults import (
    Answer,
    CutAfter,
    Delay,
    Faulty,
    LoseAnswer,
    LoseRequest,
    Reset,
    Scripted,
    Sometimes,
    When,
)

GET = Request(method="GET", url="http://here/")
POST = Request(method="POST", url="http://here/")


class World:
    def __init__(self):
        self.acted = 0
        self.streams_open = 0

    async def __call__(self, _request):
        self.acted += 1
        return Response(200, {}, self.stream())

    async def stream(self):
        self.streams_open += 1
        try:
            for _ in range(3):
                yield b"12345"
        finally:
            self.streams_open -= 1


@pytest.mark.parametrize(
    ("fault", "outcome", "acted"),
    [
        (Reset(), NeverSent, 0),
        (LoseRequest(), AnswerLost, 0),
        (LoseAnswer(), AnswerLost, 1),
        (Answer(502), 502, 0),
        (Delay(3), 200, 1),
        (None, 200, 1),
    ],
)
async def test_each_fault_has_its_effect_on_the_caller_and_on_the_server(fault, outcome, acted):
    world = World()
    wire = Faulty(InProcess(world), Scripted([fault]))
    if isinstance(outcome, int):
        async with await wire.request(POST) as answer:
            assert answer.status == outcome
    else:
        with pytest.raises(outcome):
            await wire.request(POST)
    assert world.acted == acted
    assert asyncio.get_running_loop().time() == (3 if isinstance(fault, Delay) else 0)
    async with await wire.request(POST) as answer:
        assert await answer.read() == b"12345" * 3
    assert world.streams_open == 0


@pytest.mark.parametrize("size", [0, 3, 5, 7, 15])
async def test_a_stream_is_cut_after_so_many_bytes(size):
    world = World()
    wire = Faulty(InProcess(world), Scripted([CutAfter(size)]))
    received = b""
    async with await wire.request(GET) as answer:
        with pytest.raises(AnswerCut):  # noqa: PT012 (what came before the cut counts)
            async for chunk in answer.chunks():
                received += chunk
    assert received == (b"12345" * 3)[:size]
    assert world.streams_open == 0


async def test_a_cut_beyond_the_end_cuts_nothing():
    wire = Faulty(InProcess(World()), Scripted([CutAfter(16)]))
    assert len(await (await wire.request(GET)).read()) == 15


async def test_faults_combine_and_an_answer_may_have_retry_after():
    wire = Faulty(InProcess(World()), Scripted([[Delay(2), Answer(429, "7", b"slow down")]]))
    answer = await wire.request(GET)
    assert (answer.status, answer.headers["retry-after"], await answer.read()) == (429, "7", b"slow down")
    assert asyncio.get_running_loop().time() == 2


async def test_a_fault_for_those_requests_only():
    wire = Faulty(InProcess(World()), When(lambda request: request.method == "POST", Reset(), times=2))
    outcomes = []
    for request in (GET, POST, GET, POST, POST):
        try:
            await (await wire.request(request)).close()
            outcomes.append("ok")
        except NeverSent:
            outcomes.append("reset")
    assert outcomes == ["ok", "reset", "ok", "reset", "ok"]


async def test_chance_is_the_same_for_the_same_seed():
    async def run_of(seed):
        wire = Faulty(
            InProcess(World()), Sometimes(random.Random(seed), {Reset(): 0.2, LoseAnswer(): 0.2, Answer(): 0.1})
        )
        outcomes = []
        for _ in range(200):
            try:
                async with await wire.request(GET) as answer:
                    outcomes.append(str(answer.status))
            except TransportError as error:
                outcomes.append(type(error).__name__)
        return outcomes

    assert await run_of(7) == await run_of(7)
    assert await run_of(7) != await run_of(8)
    assert {"200", "503", "NeverSent", "AnswerLost"} == set(await run_of(7))


class Crash(BaseException):
    """A BaseException, so that no `except Exception` catches it."""


@pytest.mark.parametrize(("place", "acted"), [("before", 0), ("after", 1)])
async def test_a_hook_can_crash_before_and_after_any_request(place, acted):
    async def crash(_request):
        raise Crash

    world = World()
    wire = Faulty(InProcess(world), **{place: crash})
    with pytest.raises(Crash):
        await wire.request(POST)
    assert (world.acted, world.streams_open) == (acted, 0)


async def test_the_hooks_see_every_request_also_those_that_fail():
    seen = []

    async def before(request):
        seen.append(("before", request.method))

    async def after(request):
        seen.append(("after", request.method))

    wire = Faulty(InProcess(World()), Scripted([None, Reset()]), before=before, after=after)
    await (await wire.request(GET)).close()
    with pytest.raises(NeverSent):
        await wire.request(POST)
    assert seen == [("before", "GET"), ("after", "GET"), ("before", "POST"), ("after", "POST")]
