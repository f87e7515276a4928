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
    with pytest.raises(NeverSent, match="the transport is closed") as refused:
        await transport.request(Request(method="GET", url="http://here"))
    assert refused.value.lasting


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


def asked(**fields) -> Request:
    return Request(method="GET", url="http://here", **fields)


def time() -> float:
    return asyncio.get_running_loop().time()


class Streaming:
    """A handler whose body has a chunk every so many seconds, and notes when it was stopped."""

    def __init__(self, every=20, chunks=1000):
        self.every, self.chunks, self.stopped = every, chunks, []

    async def __call__(self, _: Request) -> Response:
        return Response(200, {}, self.body())

    async def body(self) -> AsyncIterator[bytes]:
        try:
            for number in range(self.chunks):
                await asyncio.sleep(self.every)
                yield b"%d" % number
        finally:
            self.stopped.append(time())


@pytest.mark.parametrize(
    ("own", "of_transport", "when"),
    [
        (None, Timeouts(read=30, total=60), 30),
        (None, Timeouts(read=60, total=30), 30),
        (Timeouts(read=5, total=60), Timeouts(read=30, total=60), 5),
        (Timeouts(read=None, total=7), Timeouts(read=5, total=5), 7),
        (Timeouts(read=8, total=None), Timeouts(read=5, total=5), 8),
    ],
)
async def test_a_handler_that_does_not_answer_is_given_up_at_the_first_limit(own, of_transport, when):
    async def handler(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(AnswerLost, match="sent, but no response in time"):
        await InProcess(handler, timeouts=of_transport).request(asked(timeouts=own))
    assert time() == when


async def test_a_request_without_any_limit_is_waited_for():
    async def handler(_: Request) -> Response:
        await asyncio.sleep(10_000)
        return Response(204)

    answer = await InProcess(handler).request(asked(timeouts=Timeouts(read=None, total=None)))
    assert (answer.status, time()) == (204, 10_000)


async def test_a_time_limit_of_the_handler_itself_is_its_own():
    async def handler(_: Request) -> Response:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await InProcess(handler).request(asked())


async def test_silence_is_counted_from_chunk_to_chunk_and_only_while_somebody_reads():
    handler = Streaming(every=20, chunks=10)
    answer = await InProcess(handler).request(asked(timeouts=Timeouts(read=30, total=None)))
    chunks = answer.chunks()
    assert await anext(chunks) == b"0"
    await asyncio.sleep(500)
    assert [each async for each in chunks][-1] == b"9"
    assert time() == 20 + 500 + 9 * 20
    assert len(handler.stopped) == 1
    assert await answer.read() == b""


async def test_a_reader_that_is_cancelled_stops_the_handler():
    handler = Streaming(every=20)
    answer = await InProcess(handler).request(asked(timeouts=Timeouts(read=None, total=None)))
    reading = asyncio.create_task(answer.read())
    await asyncio.sleep(50)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert handler.stopped == [50]


@pytest.mark.parametrize(
    ("close", "why"),
    [
        (lambda transport, _: transport.close(), "the transport was closed"),
        (lambda _, answer: answer.close(), "the response was closed"),
    ],
    ids=["transport", "response"],
)
async def test_whoever_reads_when_it_is_closed_is_told_so_and_the_handler_stops(close, why):
    handler = Streaming(every=20)
    transport = InProcess(handler)
    answer = await transport.request(asked(timeouts=Timeouts(read=30, total=100)))
    reading = asyncio.create_task(answer.read())
    await asyncio.sleep(50)
    await close(transport, answer)
    with pytest.raises(AnswerCut, match=why):
        await reading
    assert (time(), handler.stopped) == (50, [50])
    assert not reading.cancelled()
    await transport.close()


async def test_a_reader_that_is_cancelled_when_its_stream_is_cut_is_cancelled():
    transport = InProcess(Streaming())
    answer = await transport.request(asked())
    reading = asyncio.create_task(answer.read())
    await asyncio.sleep(10)
    await transport.close()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_stream_that_nobody_reads_ends_with_the_transport_and_says_so_later():
    handler = Streaming(every=0)
    transport = InProcess(handler)
    answer = await transport.request(asked())
    chunks = answer.chunks()
    await anext(chunks)
    await transport.close()
    assert handler.stopped == [0]
    with pytest.raises(AnswerCut, match="the transport was closed"):
        await anext(chunks)


async def test_a_stream_that_was_closed_by_its_reader_is_read_no_more():
    handler = Streaming(every=1)
    answer = await InProcess(handler).request(asked())
    async for chunk in answer.chunks():
        assert chunk == b"0"
        break
    await answer.close()
    await answer.close()
    assert handler.stopped == [1]
    assert await answer.read() == b""


async def test_a_handler_whose_body_fails_is_stopped_and_its_error_passed_on():
    async def body() -> AsyncIterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    async def handler(_: Request) -> Response:
        return Response(200, {}, body())

    transport = InProcess(handler)
    answer = await transport.request(asked())
    with pytest.raises(ZeroDivisionError):
        await answer.read()
    assert await answer.read() == b""
    await transport.close()
