"""A handler called in process and served on a socket behaves the same."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.in_process import InProcess
from forebay.net.serve import serving
from forebay.net.tls import TlsOptions
from forebay.net.transport import (
    AnswerCut,
    AnswerLost,
    Handler,
    Headers,
    NeverSent,
    Request,
    Response,
    Timeouts,
    Transport,
)
from tests.pki import Authority

Reach = Callable[[Handler], AbstractAsyncContextManager[tuple[Transport, str]]]


@asynccontextmanager
async def in_process(handler: Handler) -> AsyncIterator[tuple[Transport, str]]:
    wire = InProcess(handler)
    yield wire, "http://here"
    await wire.close()


@asynccontextmanager
async def over_a_socket(handler: Handler) -> AsyncIterator[tuple[Transport, str]]:
    async with serving(handler) as url:
        wire = AiohttpTransport()
        yield wire, url
        await wire.close()


both = pytest.mark.parametrize("reach", [in_process, over_a_socket])
pytestmark = pytest.mark.real_time


@both
async def test_a_handler_sees_the_request_and_its_answer_comes_back(reach: Reach):
    seen: list[Request] = []

    async def handler(request: Request) -> Response:
        seen.append(request)
        return Response(422, {"Content-Type": "application/json", "X-Mine": "1"}, b'{"why":"because"}')

    async with reach(handler) as (wire, url):
        headers = Headers({"Content-Type": "a/b"})
        sent = Request(method="PATCH", url=f"{url}/a%2Fb?x=1%2C2&y", headers=headers, body=b"{}")
        answer = await wire.request(sent)
        assert (answer.status, answer.headers["x-mine"], await answer.read()) == (422, "1", b'{"why":"because"}')
        assert answer.headers["content-type"] == "application/json"
        empty = await wire.request(Request(method="DELETE", url=f"{url}/"))
        await empty.close()
    assert (seen[0].method, seen[0].url, seen[0].headers["content-type"], seen[0].body) == (
        sent.method,
        sent.url,
        "a/b",
        sent.body,
    )
    assert seen[1].body is None


@both
async def test_a_stream_arrives_piece_by_piece_and_closing_it_stops_the_handler(reach: Reach):
    stopped = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            number = 0
            while True:
                yield b"%d\n" % number
                number += 1
                await asyncio.sleep(0.01)
        finally:
            stopped.set()

    async def handler(_request: Request) -> Response:
        return Response(200, {}, endless())

    async with reach(handler) as (wire, url):
        async with await wire.request(Request(method="GET", url=f"{url}/")) as answer:
            received = b""
            async for chunk in answer.chunks():
                received += chunk
                if received.endswith(b"3\n"):
                    break
        assert received == b"0\n1\n2\n3\n"
        async with asyncio.timeout(5):
            await stopped.wait()


@both
async def test_a_response_may_be_closed_by_another_task_than_its_reader(reach: Reach):
    async def quiet() -> AsyncIterator[bytes]:
        yield b"hello"
        await asyncio.Event().wait()

    async def handler(_request: Request) -> Response:
        return Response(200, {}, quiet())

    async with reach(handler) as (wire, url):
        answer = await wire.request(Request(method="GET", url=f"{url}/"))
        reading = asyncio.create_task(answer.read())
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await answer.close()
            with pytest.raises(AnswerCut):
                await reading


@both
async def test_closing_the_transport_cuts_streams_whether_somebody_reads_them_or_not(reach: Reach):
    stopped = 0

    async def quiet() -> AsyncIterator[bytes]:
        nonlocal stopped
        try:
            yield b"hello"
            await asyncio.Event().wait()
        finally:
            stopped += 1

    async def handler(request: Request) -> Response:
        if request.url.endswith("/never"):
            await asyncio.Event().wait()
        return Response(200, {}, quiet())

    async with reach(handler) as (wire, url):
        read, unread = [await wire.request(Request(method="GET", url=f"{url}/")) for _ in range(2)]
        reading = asyncio.create_task(read.read())
        waiting = asyncio.create_task(wire.request(Request(method="POST", url=f"{url}/never")))
        await asyncio.sleep(0.05)
        await wire.close()
        with pytest.raises(AnswerCut):
            await reading
        with pytest.raises(AnswerLost):
            await waiting
        with pytest.raises(AnswerCut):
            await unread.read()
        with pytest.raises(NeverSent):
            await wire.request(Request(method="GET", url=f"{url}/"))
        async with asyncio.timeout(5):
            while stopped < (1 if reach is in_process else 2):  # noqa: ASYNC110 (the server notices when it does)
                await asyncio.sleep(0.001)


@both
async def test_a_transport_error_of_a_handler_reaches_the_client(reach: Reach):
    async def broken(request: Request) -> AsyncIterator[bytes]:
        yield b"half"
        raise AnswerCut("as told", request)

    async def handler(request: Request) -> Response:
        if request.method == "POST":
            raise AnswerLost("as told", request)
        return Response(200, {}, broken(request))

    async with reach(handler) as (wire, url):
        with pytest.raises(AnswerLost):
            await wire.request(Request(method="POST", url=f"{url}/"))
        with pytest.raises(AnswerCut):
            await (await wire.request(Request(method="GET", url=f"{url}/"))).read()


@both
async def test_timeouts_apply(reach: Reach):
    async def slow() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"."
            await asyncio.sleep(0.02)
        await asyncio.Event().wait()

    async def handler(request: Request) -> Response:
        if request.method == "POST":
            await asyncio.Event().wait()
        return Response(200, {}, slow())

    async with reach(handler) as (wire, url):
        for limits in (Timeouts(read=0.1, total=None), Timeouts(read=None, total=0.1)):
            with pytest.raises(AnswerLost):
                await wire.request(Request(method="POST", url=f"{url}/", timeouts=limits))
        answer = await wire.request(Request(method="GET", url=f"{url}/", timeouts=Timeouts(read=1, total=0.2)))
        with pytest.raises(AnswerCut):
            await answer.read()


@both
async def test_a_large_body_and_a_hundred_thousand_small_ones_arrive_whole(reach: Reach):
    async def large() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b"x" * 1_000_000

    async def small() -> AsyncIterator[bytes]:
        for number in range(100_000):
            yield b'{"type":"ADDED","object":%d}\n' % number

    async def handler(request: Request) -> Response:
        return Response(200, {}, large() if request.url.endswith("/large") else small())

    async with reach(handler) as (wire, url):
        async with await wire.request(Request(method="GET", url=f"{url}/large")) as answer:
            assert sum([len(chunk) async for chunk in answer.chunks()]) == 64_000_000
        lines = (await (await wire.request(Request(method="GET", url=f"{url}/small"))).read()).splitlines()
        assert len(lines) == 100_000
        assert lines[-1] == b'{"type":"ADDED","object":99999}'


async def test_a_busy_caller_in_process_does_not_starve_other_tasks():
    turns: list[str] = []

    async def handler(request: Request) -> Response:
        turns.append(request.method)
        return Response(200)

    async def caller(method: str) -> None:
        for _ in range(3):
            await wire.request(Request(method=method, url="http://here/"))

    wire = InProcess(handler)
    await asyncio.gather(caller("A"), caller("B"))
    assert turns == ["A", "B"] * 3


async def test_a_bug_in_a_handler_is_not_reported_as_a_network_failure():
    async def handler(_request: Request) -> Response:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await InProcess(handler).request(Request(method="GET", url="http://here/"))


async def test_a_handler_served_with_tls(tmp_path):
    authority = Authority()

    async def handler(request: Request) -> Response:
        return Response(200, {}, request.url.encode())

    async with serving(handler, context=authority.server_context(tmp_path)) as url:
        assert url.startswith("https://127.0.0.1:")
        wire = AiohttpTransport(tls=TlsOptions(authority_data=authority.certificate))
        assert await (await wire.request(Request(method="GET", url=f"{url}/x?y=1"))).read() == f"{url}/x?y=1".encode()
        await wire.close()


async def test_leaving_the_block_does_not_wait_for_endless_streams():
    async def endless() -> AsyncIterator[bytes]:
        yield b"."
        await asyncio.Event().wait()

    async def handler(_request: Request) -> Response:
        return Response(200, {}, endless())

    wire = AiohttpTransport()
    async with asyncio.timeout(5):
        async with serving(handler) as url:
            answer = await wire.request(Request(method="GET", url=f"{url}/"))
        with pytest.raises(AnswerCut):
            await answer.read()
    await wire.close()


async def test_a_stream_that_starts_while_the_transport_closes_is_cut():
    async def stream():
        yield b"first"

    async def handler(request):
        await wire.close()
        return Response(200, {}, stream())

    wire = InProcess(handler)
    answer = await wire.request(Request(method="GET", url="http://a/"))
    with pytest.raises(AnswerCut, match="the transport was closed"):
        await answer.read()
