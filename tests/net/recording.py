"""Records requests and responses, redacted, as JSON lines; and replays them as a handler.

Bodies are split at line ends, each piece with the time at which it was complete, so that a watch is replayed at its own
pace and no secret is split between two pieces.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

import msgspec

from forebay.net import clock
from forebay.net.redaction import HIDDEN, Redactor
from forebay.net.transport import (
    AnswerCut,
    AnswerLost,
    Headers,
    NeverSent,
    Request,
    Response,
    Transport,
    TransportError,
)


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """Part of a body: text, or base64 where it is not text. `after` counts seconds from the request."""

    text: str | None = None
    base64: str | None = None
    after: float = 0.0

    @classmethod
    def of(cls, data: bytes, after: float = 0.0) -> "Piece":
        try:
            return cls(text=data.decode(), after=after)
        except UnicodeDecodeError:
            return cls(base64=b64encode(data).decode(), after=after)

    def data(self) -> bytes:
        return b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


class Failure(msgspec.Struct, frozen=True):
    """The name and message of a `TransportError`. With a status: the body was cut off."""

    kind: str
    message: str
    after: float


class Exchange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request and its response or error."""

    at: datetime
    method: str
    url: str
    headers: dict[str, str]
    body: Piece | None = None
    status: int | None = None
    #: Seconds from the request to the status.
    answered: float = 0.0
    answer_headers: dict[str, str] = {}
    answer: list[Piece] = []
    failure: Failure | None = None
    #: The caller closed the response before its end.
    left: bool = False


class Sink(Protocol):
    def write(self, line: bytes, /) -> object: ...


class Recording:
    """A transport that writes each completed `Exchange` to `sink`."""

    def __init__(self, inner: Transport, sink: Sink, redactor: Redactor) -> None:
        self._inner = inner
        self._sink = sink
        self._redactor = redactor

    async def request(self, request: Request) -> Response:
        loop = asyncio.get_running_loop()
        began = loop.time()
        shown = self._redactor.request(request)
        exchange = Exchange(
            at=clock.now(),
            method=shown.method,
            url=shown.url,
            headers=dict(shown.headers),
            body=None if shown.body is None else Piece.of(shown.body),
        )
        try:
            answer = await self._inner.request(request)
        except TransportError as error:
            self._write(exchange, failure=self._failure(error, loop.time() - began))
            raise
        after = loop.time() - began
        exchange = msgspec.structs.replace(
            exchange,
            status=answer.status,
            answered=after,
            answer_headers=dict(self._redactor.headers(answer.headers)),
        )
        if answer.buffered is not None:
            data = self._redactor.body(answer.buffered)
            self._write(exchange, answer=[Piece.of(data, after)] if data else [])
            return answer
        return Response(answer.status, answer.headers, self._listen(exchange, answer, began), on_close=answer.close)

    async def close(self) -> None:
        await self._inner.close()

    async def _listen(self, exchange: Exchange, answer: Response, began: float) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        pieces: list[Piece] = []
        rest = bytearray()
        failure: Failure | None = None
        left = True

        def keep(data: bytes) -> None:
            if data:
                pieces.append(Piece.of(self._redactor.body(data), loop.time() - began))

        try:
            async for chunk in answer.chunks():
                rest += chunk
                line_end = rest.rfind(b"\n", len(rest) - len(chunk)) + 1
                # A private key has many lines and is recognised by its first and last: never split between them.
                if line_end and rest.count(b"PRIVATE KEY-----", 0, line_end) % 2 == 0:
                    keep(bytes(rest[:line_end]))
                    del rest[:line_end]
                yield chunk
            left = False
        except TransportError as error:
            failure = self._failure(error, loop.time() - began)
            left = False
            raise
        finally:
            keep(bytes(rest))
            self._write(exchange, answer=pieces, failure=failure, left=left)

    def _failure(self, error: TransportError, after: float) -> Failure:
        return Failure(type(error).__name__, self._redactor.text(str(error)), after)

    def _write(self, exchange: Exchange, **found: object) -> None:
        self._sink.write(msgspec.json.encode(msgspec.structs.replace(exchange, **found)) + b"\n")


def read_recording(lines: Iterable[bytes]) -> list[Exchange]:
    """The exchanges in lines, such as an open file. Raises `ValueError` with the number of an invalid line."""
    exchanges = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                exchanges.append(msgspec.json.decode(line, type=Exchange))
            except msgspec.DecodeError as error:
                raise ValueError(f"line {number} of the recording: {error}") from None
    return exchanges


class NotRecorded(LookupError):
    """The recording has no such request, or all of them are used."""


class Replay:
    """A handler that replays recorded responses at the recorded pace, each exchange once and in order.

    A request gets the first unused exchange with its method, path and query; redacted parts match anything.
    """

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self._unused = list(exchanges)

    @property
    def unused(self) -> list[Exchange]:
        return list(self._unused)

    async def __call__(self, request: Request) -> Response:
        exchange = next((one for one in self._unused if _matches(one, request)), None)
        if exchange is None:
            raise NotRecorded(f"the recording has no (further) {request}")
        self._unused.remove(exchange)
        loop = asyncio.get_running_loop()
        began = loop.time()
        if exchange.status is None:
            assert exchange.failure is not None
            await asyncio.sleep(exchange.failure.after)
            raise _error(exchange.failure, request)
        await asyncio.sleep(exchange.answered)
        return Response(exchange.status, Headers(exchange.answer_headers), _play(exchange, request, began))


async def _play(exchange: Exchange, request: Request, began: float) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    for piece in exchange.answer:
        await asyncio.sleep(max(0.0, began + piece.after - loop.time()))
        yield piece.data()
    if exchange.failure is not None:
        await asyncio.sleep(max(0.0, began + exchange.failure.after - loop.time()))
        raise _error(exchange.failure, request)


_KINDS: dict[str, type[TransportError]] = {kind.__name__: kind for kind in (NeverSent, AnswerLost, AnswerCut)}


def _error(failure: Failure, request: Request) -> TransportError:
    return _KINDS.get(failure.kind, AnswerLost)(failure.message, request)


def _matches(exchange: Exchange, request: Request) -> bool:
    if exchange.method != request.method:
        return False
    recorded, asked = urlsplit(exchange.url), urlsplit(request.url)
    if recorded.path != asked.path:
        return False
    then, now = (parse_qsl(url.query, keep_blank_values=True) for url in (recorded, asked))
    return len(then) == len(now) and all(
        one[0] == other[0] and (one[1] == other[1] or HIDDEN in one[1]) for one, other in zip(then, now, strict=True)
    )
