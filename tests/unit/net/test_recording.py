"""Recordings of requests and their replay."""

import asyncio
import io
import json

import pytest

from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.redaction import HIDDEN, Redactor
from forebay.net.transport import AnswerCut, AnswerLost, Headers, Request, Response, Timeouts
from tests.net.recording import NotRecorded, Recording, Replay, read_recording

PATIENT = Timeouts(read=None, total=None)


async def watch(request):
    await asyncio.sleep(1)
    yield b'{"type":"ADDED"}\n{"ty'
    await asyncio.sleep(2)
    yield b'pe":"DELETED","token":"PLAN'
    await asyncio.sleep(1)
    yield b'TED"}\n'
    await asyncio.sleep(3)
    raise AnswerCut("it broke", request)


async def handler(request):
    await asyncio.sleep(0.5)
    path = request.url.partition("?")[0].rpartition("/")[2]
    if path == "watch":
        return Response(200, {"Content-Type": "application/json"}, watch(request))
    if path == "binary":
        return Response(200, {}, b"\x1f\x8b\xff")
    if path == "lost":
        raise AnswerLost("it is lost", request)
    return Response(201, {"Set-Cookie": "PLANTED"}, b'{"api_key":"PLANTED"}')


def ask(path, method="GET", body=None, **headers):
    return Request(method=method, url=f"http://here/{path}", headers=Headers(headers), body=body, timeouts=PATIENT)


async def conversation(wire):
    """What a client sees, with times."""
    loop = asyncio.get_running_loop()
    seen = []

    def note(*what):
        seen.append((round(loop.time() - began, 6), *what))

    for request in (
        ask("plain?token=PLANTED&b=2", "POST", b'{"password":"PLANTED"}', Authorization="Bearer PLANTED"),
        ask("binary"),
        ask("lost", "DELETE"),
        ask("watch?watch=true"),
    ):
        began = loop.time()
        try:
            async with await wire.request(request) as answer:
                note(answer.status)
                lines = b""
                async for chunk in answer.chunks():
                    lines += chunk
                    while b"\n" in lines:
                        line, _, lines = lines.partition(b"\n")
                        note("TED" not in line.decode() or "a line with a secret")
                if lines:
                    note(len(lines) if lines[:1] == b"\x1f" else "text")
        except (AnswerLost, AnswerCut) as error:
            note(type(error).__name__)
    return seen


async def test_a_recording_is_replayed_with_the_same_responses_and_pace():
    sink = io.BytesIO()
    started = clock.now()
    live = await conversation(Recording(InProcess(handler), sink, Redactor()))
    exchanges = read_recording(io.BytesIO(sink.getvalue()))
    assert [exchange.method for exchange in exchanges] == ["POST", "GET", "DELETE", "GET"]
    assert exchanges[0].at == started
    replay = Replay(exchanges)
    again = await conversation(InProcess(replay))
    assert [entry[0] for entry in again] == [entry[0] for entry in live]
    assert [entry[1] for entry in again if isinstance(entry[1], int)] == [
        entry[1] for entry in live if isinstance(entry[1], int)
    ]
    assert live[-1] == again[-1] == (7.5, "AnswerCut")
    assert replay.unused == []


async def test_no_secret_is_recorded_not_even_one_split_between_two_chunks():
    sink = io.BytesIO()
    await conversation(Recording(InProcess(handler), sink, Redactor(["xPLANTEDx"])))
    assert b"PLAN" not in sink.getvalue()
    first = json.loads(sink.getvalue().splitlines()[0])
    assert first["url"] == f"http://here/plain?token={HIDDEN}&b=2"
    assert first["headers"]["Authorization"] == HIDDEN


async def test_a_stream_that_the_reader_closed_is_recorded_up_to_that_point():
    sink = io.BytesIO()
    wire = Recording(InProcess(handler), sink, Redactor())
    async with await wire.request(ask("watch")) as answer:
        async for _ in answer.chunks():
            break
    (exchange,) = read_recording(sink.getvalue().splitlines())
    assert exchange.left
    assert [piece.data() for piece in exchange.answer] == [b'{"type":"ADDED"}\n', b'{"ty']


async def test_a_request_that_was_not_recorded_is_an_error():
    sink = io.BytesIO()
    wire = Recording(InProcess(handler), sink, Redactor())
    await (await wire.request(ask("plain?limit=5"))).close()
    replay = Replay(read_recording(sink.getvalue().splitlines()))
    for other in (ask("other"), ask("plain?limit=6"), ask("plain?limit=5", "POST"), ask("plain")):
        with pytest.raises(NotRecorded, match=r"no \(further\)"):
            await replay(other)
    await replay(ask("plain?limit=5"))
    with pytest.raises(NotRecorded):
        await replay(ask("plain?limit=5"))


def test_a_broken_recording_names_its_line():
    with pytest.raises(ValueError, match="line 2 of the recording"):
        read_recording([b"\n", b"{nonsense\n"])


async def test_a_private_key_that_arrives_in_chunks_is_not_recorded():
    async def script(request):
        yield b"#cloud-config\n-----BEGIN PRIVATE KEY-----\n"
        await asyncio.sleep(1)
        yield b"MIGHAgEAMBMGByqGSM49PLANTED\n"
        yield b"-----END PRIVATE KEY-----\nruncmd: []\n"

    async def serve(request):
        return Response(200, {}, script(request))

    sink = io.BytesIO()
    answer = await Recording(InProcess(serve), sink, Redactor()).request(ask("script"))
    assert b"PLANTED" in await answer.read()
    assert b"PLANTED" not in sink.getvalue()
    assert "".join(piece.text for piece in read_recording([sink.getvalue()])[0].answer) == (
        f"#cloud-config\n{HIDDEN}\nruncmd: []\n"
    )
