"""Calls in process keep their time limits in virtual time too, to the moment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerCut, AnswerLost, NeverSent, Request, Response, Timeouts


@pytest.mark.parametrize(
    ("limits", "why", "when"),
    [
        (Timeouts(read=None, total=5), "the answer was not complete in time", 5),
        (Timeouts(read=30, total=5), "the answer was not complete in time", 5),
        (Timeouts(read=30, total=None), "the answer stopped", 36),
    ],
)
async def test_an_answer_is_cut_at_its_limit(limits, why, when):
    async def body() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"."
            await asyncio.sleep(2)
        await asyncio.Event().wait()

    async def handler(_: Request) -> Response:
        return Response(200, {}, body())

    answer = await InProcess(handler).request(Request(method="GET", url="http://here", timeouts=limits))
    with pytest.raises(AnswerCut, match=why):
        await answer.read()
    assert asyncio.get_running_loop().time() == when


async def test_a_call_that_waits_when_the_transport_is_closed_fails_at_once():
    async def handler(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    transport = InProcess(handler)
    waits = asyncio.ensure_future(transport.request(Request(method="GET", url="http://here")))
    await asyncio.sleep(1)
    await transport.close()
    with pytest.raises(AnswerLost, match="sent, but the transport was closed"):
        await waits
    assert asyncio.get_running_loop().time() == 1
    with pytest.raises(NeverSent, match="the transport is closed"):
        await transport.request(Request(method="GET", url="http://here"))


async def test_the_handler_is_told_once_that_nobody_reads_any_more():
    told = []

    async def body() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async def on_close() -> None:
        told.append("closed")

    async def handler(_: Request) -> Response:
        return Response(200, {}, body(), on_close=on_close)

    transport = InProcess(handler)
    whole = await transport.request(Request(method="GET", url="http://here"))
    assert await whole.read() == b"onetwo"
    assert told == ["closed"]
    await whole.close()
    await transport.close()
    assert told == ["closed"]
