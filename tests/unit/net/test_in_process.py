"""Calls in process keep their time limits in virtual time too, to the moment."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerCut, Request, Response, Timeouts


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
