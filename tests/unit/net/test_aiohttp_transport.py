"""The aiohttp transport: every way a socket can fail, and the error for each."""

import asyncio
import gc
import socket
import threading
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import pytest

from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.tls import TlsOptions
from forebay.net.transport import AnswerCut, AnswerLost, NeverSent, Request, Timeouts
from tests.pki import Authority
from tests.unit.net.misbehaving import scripted

pytestmark = pytest.mark.real_time

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EVERY_METHOD = ["GET", "HEAD", "PUT", "DELETE", "POST", "PATCH"]


@asynccontextmanager
async def transport(**options):
    made = AiohttpTransport(**options)
    try:
        yield made
    finally:
        await made.close()


def at(server, path="/things", method="GET", **fields):
    return Request(method=method, url=f"http://127.0.0.1:{server.port}{path}", **fields)


async def test_a_request_and_its_response_arrive_unchanged():
    async def script(talk):
        await talk.hear()
        await talk.say(b"HTTP/1.1 201 Created\r\nX-Twice: a\r\nx-twice: b\r\nContent-Length: 5\r\n\r\nhello")

    async with scripted(script) as server, transport(user_agent="forebay/test") as wire:
        request = at(
            server, "/a%2Fb?labelSelector=x%20in%20(a,b)", "POST", headers={"X-Mine": "1"}, body=b'{"kind":"Thing"}'
        )
        async with await wire.request(request) as answer:
            assert (answer.status, answer.headers["X-TWICE"], await answer.read()) == (201, "a, b", b"hello")
    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /a%2Fb?labelSelector=x%20in%20(a,b) HTTP/1.1"
    assert body == b'{"kind":"Thing"}'
    # Nothing that the caller did not ask for, except what HTTP needs.
    assert sorted(line.partition(":")[0].lower() for line in lines[1:]) == [
        "content-length",
        "host",
        "user-agent",
        "x-mine",
    ]


async def test_a_connection_is_reused():
    async def script(talk):
        while True:
            await talk.hear()
            await talk.say(OK)

    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with scripted(script) as server, transport() as wire:
        for _ in range(5):
            assert await (await wire.request(at(server))).read() == b"ok"
        # Dismissed unread: the answer is small and already here, so the connection is still good.
        for _ in range(2):
            response = await wire.request(at(server))
            await asyncio.sleep(0.02)
            await response.close()
        assert await (await wire.request(at(server))).read() == b"ok"
    assert server.connections == 1
    assert len(server.heard) == 8
    assert failures == [], "its end is noted once, however many requests it has served"


async def test_a_silent_connection_is_asked_for_signs_of_life():
    async def script(talk):
        await talk.hear()
        await talk.say(OK)

    async with scripted(script) as server, transport() as wire, await wire.request(at(server)):
        (connection,) = wire._connections.values()
        used = connection.get_extra_info("socket")
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert used.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60


async def test_a_redirect_a_cookie_and_a_compressed_body_are_left_to_the_caller():
    async def script(talk):
        await talk.hear()
        await talk.say(
            b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nSet-Cookie: a=b\r\n"
            b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08"
        )
        assert b"cookie" not in (await talk.hear()).lower()
        await talk.say(OK)

    async with scripted(script) as server, transport() as wire:
        answer = await wire.request(at(server))
        assert (answer.status, answer.headers["location"]) == (302, "/elsewhere")
        assert await answer.read() == b"\x1f\x8b\x08"
        assert (await (await wire.request(at(server))).read()) == b"ok"


async def test_a_body_streams_as_it_arrives_and_closing_it_hangs_up():
    hung_up = asyncio.Event()

    async def script(talk):
        await talk.hear()
        await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await talk.silence()
        hung_up.set()

    async with scripted(script) as server, transport() as wire:
        async with await wire.request(at(server)) as answer:
            chunks = answer.chunks()
            assert await anext(chunks) == b"first"
            await chunks.aclose()
        async with asyncio.timeout(5):
            await hung_up.wait()


async def test_a_refused_connection():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with transport() as wire:
        with pytest.raises(NeverSent, match=rf"connection refused by 127.0.0.1:{port}") as caught:
            await wire.request(Request(method="POST", url=f"http://127.0.0.1:{port}/x?api_key=s3cret"))
    assert "s3cret" not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    assert not caught.value.lasting


async def test_a_host_without_an_address():
    async with transport() as wire:
        with pytest.raises(NeverSent, match=r"no address is known for the host nowhere\.invalid"):
            await wire.request(Request(method="POST", url="http://nowhere.invalid/"))


@pytest.mark.parametrize("url", ["not a url", "/relative", "ftp://127.0.0.1/", "http://:80/", "http://[::1/"])
async def test_a_request_without_a_valid_url_is_never_sent(url):
    async with transport() as wire:
        with pytest.raises(NeverSent, match="URL") as caught:
            await wire.request(Request(method="GET", url=url))
    assert caught.value.lasting


async def test_a_token_with_a_line_break_is_refused_without_being_shown():
    async with transport() as wire:
        with pytest.raises(NeverSent, match="the value of header Authorization contains a line break") as caught:
            await wire.request(
                Request(method="GET", url="http://127.0.0.1:1/", headers={"Authorization": "Bearer s3cret\n"})
            )
    assert "s3cret" not in repr(caught.value)
    assert caught.value.lasting, "the next request would have the same token"


async def test_a_server_that_does_not_accept_in_time():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        crowd = []
        for _ in range(4):  # fill the queue, so that the kernel no longer answers for the server
            knock = socket.socket()
            knock.setblocking(False)
            knock.connect_ex(("127.0.0.1", port))
            crowd.append(knock)
        async with transport(timeouts=Timeouts(connect=0.1)) as wire:
            with pytest.raises(NeverSent, match=rf"no connection to 127.0.0.1:{port} within 0.1 s"):
                await wire.request(Request(method="POST", url=f"http://127.0.0.1:{port}/"))
        for knock in crowd:
            knock.close()


async def test_a_tls_handshake_that_never_ends_counts_as_connecting():
    async def script(talk):
        await talk.silence()

    async with scripted(script) as server:
        for limits in (Timeouts(connect=0.1), Timeouts(connect=None, total=0.1)):
            async with transport(timeouts=limits) as wire:
                with pytest.raises(NeverSent, match=r"within 0.1 s"):
                    await wire.request(Request(method="POST", url=f"https://127.0.0.1:{server.port}/"))


@pytest.mark.parametrize("method", EVERY_METHOD)
@pytest.mark.parametrize("ending", ["reset", "close", "half a status line"])
async def test_a_connection_lost_before_the_status_is_a_lost_answer_and_the_request_is_sent_once(method, ending):
    async def script(talk):
        await talk.hear()
        if ending == "reset":
            talk.reset()
        elif ending == "half a status line":
            await talk.say(b"HTTP/1.1 20")

    async with scripted(script) as server, transport() as wire:
        with pytest.raises(AnswerLost, match="sent, but"):
            await wire.request(at(server, method=method, body=None if method in {"GET", "HEAD"} else b"{}"))
    assert len(server.heard) == 1


@pytest.mark.parametrize("method", EVERY_METHOD)
async def test_a_reused_connection_that_breaks_does_not_lead_to_a_retry(method):
    async def script(talk):
        await talk.hear()
        await talk.say(OK)
        await talk.hear()

    async with scripted(script) as server, transport() as wire:
        await (await wire.request(at(server))).read()
        with pytest.raises(AnswerLost):
            await wire.request(at(server, method=method))
    assert (len(server.heard), server.connections) == (2, 1)


async def test_a_connection_that_the_server_closed_is_not_reused():
    async def script(talk):
        await talk.hear()
        await talk.say(OK)

    async with scripted(script) as server, transport() as wire:
        for _ in range(3):
            assert await (await wire.request(at(server, method="POST"))).read() == b"ok"
            await asyncio.sleep(0.02)
    assert server.connections == 3


@pytest.mark.parametrize("limits", [Timeouts(read=0.1), Timeouts(read=None, total=0.1)], ids=["read", "total"])
async def test_a_server_that_hears_but_does_not_answer_in_time(limits):
    async def script(talk):
        await talk.hear()
        await talk.silence()

    async with scripted(script) as server, transport() as wire:
        with pytest.raises(AnswerLost, match=r"did not answer within 0.1 s"):
            await wire.request(at(server, method="POST", body=b"{}", timeouts=limits))


async def test_an_answer_that_is_not_http():
    async def script(talk):
        await talk.hear()
        await talk.say(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")

    async with scripted(script) as server, transport() as wire:
        with pytest.raises(AnswerLost, match="is not HTTP"):
            await wire.request(at(server, method="POST"))


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst"


ENDINGS = [(CHUNKED, ending) for ending in ("reset", "close", "silence", "total", "garbage")] + [
    (COUNTED, ending) for ending in ("reset", "close", "silence", "total")
]


@pytest.mark.parametrize(("head", "ending"), ENDINGS)
async def test_a_body_that_is_cut_off_is_an_answer_cut(head, ending):
    async def script(talk):
        await talk.hear()
        await talk.say(head)
        if ending == "garbage":
            await asyncio.sleep(0.02)
            await talk.say(b"zz\r\n")
        if ending in {"silence", "total", "garbage"}:
            await talk.silence()
        await asyncio.sleep(0.02)  # let the first part arrive
        if ending == "reset":
            talk.reset()

    limits = Timeouts(read=0.1 if ending == "silence" else 5, total=0.1 if ending == "total" else 5)
    async with scripted(script) as server, transport(timeouts=limits) as wire:
        async with await wire.request(at(server)) as answer:
            with pytest.raises(AnswerCut) as caught:
                await answer.read()
        assert str(caught.value).startswith(f"GET http://127.0.0.1:{server.port}/things: the answer")
        if ending in {"silence", "total"}:
            assert "within 0.1 s" in str(caught.value)


async def test_closing_the_transport_ends_requests_in_flight():
    heard = asyncio.Event()

    async def script(talk):
        request = await talk.hear()
        if b"/stream" in request:
            await talk.say(CHUNKED)
        elif b"/until-close" in request:
            await talk.say(b"HTTP/1.0 200 OK\r\n\r\nfirst")
        else:
            heard.set()
        await talk.silence()

    async with scripted(script) as server, transport() as wire:
        waiting = asyncio.create_task(wire.request(at(server, "/waiting", "POST")))
        streams = [await wire.request(at(server, path)) for path in ("/stream", "/until-close")]
        reads = [asyncio.create_task(stream.read()) for stream in streams]
        await heard.wait()
        await asyncio.sleep(0.02)
        await wire.close()
        with pytest.raises(AnswerLost):
            await waiting
        for read in reads:
            with pytest.raises(AnswerCut):
                await read
        with pytest.raises(NeverSent, match="the transport is closed"):
            await wire.request(at(server))


async def test_closing_does_not_wait_for_a_server_that_does_not_read():
    endless = Timeouts(connect=None, read=None, total=None)
    with ExitStack() as sockets:
        deaf = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))

        async def accepted():
            connection = sockets.enter_context((await asyncio.to_thread(deaf.accept))[0])
            await asyncio.to_thread(connection.recv, 1)

        async with transport(timeouts=endless) as wire:
            where = f"127.0.0.1:{deaf.getsockname()[1]}"
            sending = asyncio.create_task(
                wire.request(Request(method="POST", url=f"http://{where}/", body=bytes(20_000_000)))
            )
            async with asyncio.timeout(5):
                await accepted()
            connecting = asyncio.create_task(wire.request(Request(method="POST", url=f"https://{where}/")))
            await accepted()
            async with asyncio.timeout(5):
                await wire.close()
                with pytest.raises(AnswerLost, match="sent, but the transport was closed"):
                    await sending
                with pytest.raises(NeverSent, match="the transport was closed"):
                    await connecting


async def test_a_body_that_was_complete_is_complete_after_the_transport_was_closed():
    async def script(talk):
        await talk.hear()
        await talk.say(b"HTTP/1.1 204 No Content\r\n\r\n")
        await talk.silence()

    async with scripted(script) as server, transport() as wire:
        answer = await wire.request(at(server))
        await wire.close()
        assert await answer.read() == b""


async def test_a_large_body_arrives_whole():
    async def script(talk):
        await talk.hear()
        await talk.say(OK)

    body = bytes(range(256)) * 20_000
    async with scripted(script) as server, transport() as wire:
        assert await (await wire.request(at(server, method="POST", body=body))).read() == b"ok"
    head, _, arrived = server.heard[0].partition(b"\r\n\r\n")
    assert arrived == body
    assert b"content-disposition" not in head.lower()


async def test_a_stream_of_many_chunks_arrives_whole_at_a_slow_reader():
    events = [b"%07d " % number * 500 for number in range(1_000)]

    async def script(talk):
        await talk.hear()
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
        await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")

    async with scripted(script) as server, transport() as wire:
        answer = await wire.request(at(server))
        arrived = []
        async for chunk in answer.chunks():
            arrived.append(chunk)
            await asyncio.sleep(0.002)
    assert b"".join(arrived) == b"".join(events)
    # He was not sent more than he could take.
    assert max(map(len, arrived)) < 1_000_000


@contextmanager
def talkative(context):
    """A TLS server in a thread that goes on sending after the client has closed, as during a watch."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as talk, suppress(OSError):
                talk.recv(65536)
                talk.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                while True:
                    talk.sendall(b"5\r\nevent\r\n")

        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[1]
        server.join()


def test_after_close_no_connection_is_left_even_if_the_loop_ends_at_once(tmp_path):
    authority = Authority()
    complaints = []

    async def leave_a_watch(port):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        before = len(loop._selector.get_map())
        async with (
            transport(tls=TlsOptions(authority_data=authority.certificate)) as wire,
            await wire.request(Request(method="GET", url=f"https://127.0.0.1:{port}/")) as answer,
        ):
            chunks = answer.chunks()
            await anext(chunks)
            await chunks.aclose()
        return len(loop._selector.get_map()) - before

    with talkative(authority.server_context(tmp_path)) as port:
        loop = asyncio.new_event_loop()
        sockets_left = loop.run_until_complete(leave_a_watch(port))
        loop.close()
    gc.collect()
    assert sockets_left == 0
    assert complaints == []


async def relay(talk, heard):
    """A minimal HTTP proxy: CONNECT, then bytes both ways."""
    head = (await talk.reader.readuntil(b"\r\n\r\n")).decode()
    heard.append(head.split("\r\n")[0])
    host, _, port = head.split()[1].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    await talk.say(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def pump(source, sink):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
        sink.close()

    await asyncio.gather(pump(talk.reader, writer), pump(reader, talk.writer))


async def test_a_proxy_carries_https_through_a_tunnel(tmp_path):
    authority = Authority()

    async def script(talk):
        await talk.hear()
        await talk.say(OK)

    heard: list[str] = []
    async with (
        scripted(script, context=authority.server_context(tmp_path)) as server,
        scripted(lambda talk: relay(talk, heard)) as proxy,
        transport(tls=TlsOptions(authority_data=authority.certificate), proxy=f"http://127.0.0.1:{proxy.port}") as wire,
    ):
        answer = await wire.request(Request(method="GET", url=f"https://127.0.0.1:{server.port}/x"))
        assert await answer.read() == b"ok"
    assert heard == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
            "the proxy {} refused to connect to 127.0.0.1:1 (403)",
        ),
        (b"", "the connection to 127.0.0.1:1 through the proxy {} broke before anything was sent"),
    ],
)
async def test_a_proxy_that_does_not_connect_means_never_sent(answer, why):
    async def script(talk):
        await talk.hear()
        await talk.say(answer)

    async with scripted(script) as proxy, transport(proxy=f"http://user:s3cret@127.0.0.1:{proxy.port}") as wire:
        with pytest.raises(NeverSent) as caught:
            await wire.request(Request(method="POST", url="https://127.0.0.1:1/x"))
    assert why.format(f"127.0.0.1:{proxy.port}") in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_an_error_of_the_proxy_names_the_proxy():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for url in ("https://127.0.0.1:1/x", "http://127.0.0.1:1/x"):
        async with transport(proxy=f"http://user:s3cret@127.0.0.1:{port}") as wire:
            with pytest.raises(NeverSent, match=f"connection refused by the proxy 127.0.0.1:{port}") as caught:
                await wire.request(Request(method="POST", url=url))
        assert "s3cret" not in str(caught.value)
    async with transport(proxy="http://nowhere.invalid:3128") as wire:
        with pytest.raises(NeverSent, match=r"no address is known for the proxy nowhere\.invalid:3128"):
            await wire.request(Request(method="POST", url="https://127.0.0.1:1/x"))


async def test_a_timeout_through_a_proxy_names_the_proxy():
    async def script(talk):
        await talk.hear()
        await talk.silence()

    limits = Timeouts(connect=0.1)
    async with scripted(script) as proxy, transport(proxy=f"http://127.0.0.1:{proxy.port}", timeouts=limits) as wire:
        with pytest.raises(NeverSent, match=rf"to 127.0.0.1:1 through the proxy 127.0.0.1:{proxy.port} within 0.1 s"):
            await wire.request(Request(method="POST", url="https://127.0.0.1:1/x"))


async def test_https_to_a_port_without_tls_says_so():
    async def script(talk):
        await talk.reader.read(10)
        await talk.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with scripted(script) as server, transport() as wire:
        with pytest.raises(NeverSent, match="does not support TLS"):
            await wire.request(Request(method="GET", url=f"https://127.0.0.1:{server.port}/"))
