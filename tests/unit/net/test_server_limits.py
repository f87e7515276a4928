"""What a stranger can make the health port hold: no bodies, no half-open connections, no more than so many."""

import asyncio

import pytest

from forebay.net.serve import ServerLimits, serving
from forebay.net.transport import Response

pytestmark = pytest.mark.real_time

LIMITS = ServerLimits(body=0, connections=3, header_timeout=0.3)
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def greet(_request):
    return Response(200, {}, b"hello")


async def opened(url):
    host, port = url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def test_a_body_is_refused_before_any_of_it_is_read():
    async with serving(greet, limits=LIMITS) as url, asyncio.timeout(10):
        reader, writer = await opened(url)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\nabc")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 413")
        writer.close()


async def test_an_answer_does_not_say_which_versions_serve_it():
    async with serving(greet, limits=LIMITS) as url, asyncio.timeout(10):
        reader, writer = await opened(url)
        writer.write(ASK)
        answer = await reader.read()
        assert b"\r\nServer: forebay\r\n" in answer
        assert b"aiohttp" not in answer
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HT", ASK, ASK + b"GET /"], ids=["none", "half", "one", "one and a half"])
async def test_a_connection_on_which_no_request_comes_is_closed(sent):
    async with serving(greet, limits=LIMITS) as url, asyncio.timeout(10):
        reader, writer = await opened(url)
        writer.write(sent)
        answer = b""
        while chunk := await _read(reader):
            answer += chunk
        assert (b"hello" in answer) == sent.startswith(ASK)
        writer.close()


async def test_whoever_has_asked_may_wait_for_the_answer_longer_than_a_request_may_take():
    async def slow(_request):
        await asyncio.sleep(2 * LIMITS.header_timeout)
        return Response(200, {}, b"hello")

    async with serving(slow, limits=LIMITS) as url, asyncio.timeout(10):
        reader, writer = await opened(url)
        writer.write(ASK)
        answer = b""
        while chunk := await _read(reader):
            answer += chunk
        assert answer.endswith(b"hello")
        writer.close()


async def test_whoever_holds_all_connections_does_not_keep_others_out():
    async with serving(greet, limits=ServerLimits(body=0, connections=3)) as url, asyncio.timeout(10):
        held = [await opened(url) for _ in range(30)]
        reader, writer = await opened(url)
        writer.write(ASK)
        assert b"200 OK" in await reader.readline()
        closed = [one for one, _ in held[:27] if not await _read(one)]
        assert len(closed) == 27
        for _, other in (*held, (reader, writer)):
            other.close()


@pytest.mark.parametrize(
    ("version", "chunked", "body"),
    [
        (b"1.1", True, b"\r\n\r\n6\r\nonetwo\r\n0\r\n\r\n"),
        (b"1.0", False, b"\r\n\r\nonetwo"),
    ],
)
async def test_a_stream_is_framed_as_the_client_can_read_it(version, chunked, body):
    async def stream(_request):
        async def parts():
            yield b"one"
            yield b"two"

        return Response(200, {}, parts())

    async with serving(stream, limits=ServerLimits(header_timeout=0.3)) as url, asyncio.timeout(10):
        reader, writer = await opened(url)
        writer.write(b"GET / HTTP/" + version + b"\r\nHost: x\r\n\r\n")
        answer = b""
        while chunk := await _read(reader):
            answer += chunk
        assert answer.endswith(body)
        assert (b"Transfer-Encoding: chunked" in answer) is chunked
        writer.close()


async def _read(reader):
    try:
        return await reader.read(4096)
    except ConnectionError:
        return b""
