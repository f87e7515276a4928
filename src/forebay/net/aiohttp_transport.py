"""The transport of production: HTTP/1.1 over sockets, by aiohttp.

Each request is sent once. aiohttp by itself would send GET, HEAD, OPTIONS, TRACE, PUT and DELETE a second time when the
connection breaks before a status (it takes the connection for a stale one); a DELETE that worked would then be reported
as 404. Whether to repeat is the caller's decision.
"""

import asyncio
import errno
import io
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from forebay import __version__
from forebay.net.tls import TlsOptions, alert_against_our_certificate, tls_failure
from forebay.net.transport import (
    AnswerCut,
    AnswerLost,
    Headers,
    NeverSent,
    Request,
    Response,
    Timeouts,
    TransportError,
)

_FAILURES = (aiohttp.ClientError, OSError, TimeoutError, HttpProcessingError)

#: Chosen by the caller or not at all. Without Accept-Encoding no server compresses, so bodies arrive as they are.
_NOT_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

_READ_BUFFER = 256 * 1024

_LARGEST_PIECE = 512 * 1024

#: Seconds that closing waits for connections which it has broken off, and which end at once unless the loop is busy.
_LONGEST_GOODBYE = 1.0


class AiohttpTransport:
    """Keeps connections alive and uses them again; follows no redirect, keeps no cookie, decompresses nothing.

    The first request binds it to the running loop. `proxy` is the URL of an HTTP proxy: https is tunnelled (CONNECT).
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 (immutable)
        tls: TlsOptions | None = None,
        proxy: str | None = None,
        user_agent: str = f"forebay/{__version__}",
    ) -> None:
        """Raises `BadTlsOptions`."""
        self._timeouts = timeouts
        self._context = tls.client_context() if tls is not None else None
        self._server_name = tls.server_name if tls is not None else None
        self._proxy = proxy
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
        self._calls: set[asyncio.Timeout] = set()
        #: Every connection that was ever used and is not gone, by the future of its end.
        self._connections: dict[asyncio.Future[None], asyncio.Transport] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"AiohttpTransport({'closed' if self._closed else 'open'})"

    async def request(self, request: Request) -> Response:
        call = _Call(request, request.timeouts or self._timeouts, self._server_name, self._proxy)
        if self._closed:
            raise NeverSent(f"{request}: the transport is closed", request, lasting=True)
        call.check()
        if self._session is None:
            self._session = self._open_session()
        until_closed = asyncio.timeout(None)
        self._calls.add(until_closed)
        try:
            async with until_closed:
                response = await self._session.request(
                    request.method,
                    call.url,
                    headers=call.headers(self._user_agent),
                    data=call.data(),
                    allow_redirects=False,
                    timeout=call.limits,
                    proxy=self._proxy,
                    server_hostname=self._server_name,
                    ssl=self._context if self._context is not None else True,
                    trace_request_ctx=call,
                    middlewares=(call.only_once,),
                )
        except _FAILURES as error:
            failure = call.when_closed() if until_closed.expired() else call.failure(error)
        else:
            body = self._body(call, response, complete=response.connection is None)
            return Response(response.status, Headers(response.headers.items()), body, on_close=_release(response))
        finally:
            self._calls.discard(until_closed)
        # Out here it has neither cause nor context: aiohttp's own messages hold URLs with their queries.
        raise failure

    async def close(self) -> None:
        self._closed = True
        if self._session is None:
            return
        now = asyncio.get_running_loop().time()
        for until_closed in self._calls:
            if not until_closed.expired():
                until_closed.reschedule(now)
        # aiohttp waits for connections to be closed politely, or forgets them while they are. The first may never come
        # to an end, with a peer who does not read; after the second the loop may end too early, which leaves a socket
        # open, or an exception that nobody took.
        ending = dict(self._connections)
        for connection in ending.values():
            connection.abort()
        await self._session.close()
        if ending:
            await asyncio.wait(ending, timeout=_LONGEST_GOODBYE)

    def _open_session(self) -> aiohttp.ClientSession:
        noticing = self._notice

        class Noticed(aiohttp.ClientRequest):
            async def send(self, conn: Connection) -> aiohttp.ClientResponse:
                noticing(conn)
                return await super().send(conn)

        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_note_sent)
        trace.on_connection_reuseconn.append(_note_reused)
        return aiohttp.ClientSession(
            # A watch keeps a connection busy for as long as it lasts: no limit to their number.
            connector=aiohttp.TCPConnector(limit=0),
            request_class=Noticed,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NOT_ADDED,
            read_bufsize=_READ_BUFFER,
            max_field_size=64 * 1024,
            trace_configs=[trace],
        )

    def _notice(self, connection: Connection) -> None:
        closed = connection.protocol.closed if connection.protocol is not None else None
        if closed is not None and connection.transport is not None and closed not in self._connections:
            self._connections[closed] = connection.transport
            closed.add_done_callback(self._forget)

    def _forget(self, closed: "asyncio.Future[None]") -> None:
        del self._connections[closed]
        if not closed.cancelled():
            closed.exception()  # taken, or it would be logged

    async def _body(self, call: "_Call", response: aiohttp.ClientResponse, *, complete: bool) -> AsyncIterator[bytes]:
        cut: str | None = None
        _ask_for_more_when_empty(response.content)
        with _told_of_the_end(response):
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            # RuntimeError: "Connection closed.", where reading began after the session was closed.
            except (*_FAILURES, RuntimeError) as error:
                cut = "the transport was closed" if self._closed else call.why_cut(error)
        counted = "Content-Length" in response.headers or "Transfer-Encoding" in response.headers
        if self._closed and not (complete or counted):
            # It ends where its connection does, and that was our doing.
            cut = "the transport was closed"
        if cut is not None:
            raise AnswerCut(f"{call.request}: {cut}", call.request)


class _Call:
    """One request under way: how far it got, and what its failure means."""

    def __init__(self, request: Request, timeouts: Timeouts, server_name: str | None, proxy: str | None) -> None:
        self.request = request
        #: The head was handed to the socket: from here on the server may have seen it.
        self.sent = False
        #: On a connection that had carried another before.
        self.reused = False
        self._timeouts = timeouts
        self._proxy = URL(proxy) if proxy is not None else None
        # As given: the caller has encoded what needs encoding, and a second opinion would change selectors.
        try:
            self.url = URL(request.url, encoded=True)
            self._where = f"{self.url.host_subcomponent}:{self.url.port}"
        except ValueError:
            raise NeverSent(f"{request}: this is not a URL", request, lasting=True) from None
        self._name = server_name or self.url.host or ""
        self.limits = aiohttp.ClientTimeout(
            total=timeouts.total, connect=timeouts.connect, sock_read=timeouts.read, ceil_threshold=60
        )

    def check(self) -> None:
        """What aiohttp would refuse with an error that shows too much or says too little."""
        if self.url.scheme not in {"http", "https"} or not self.url.host:
            raise NeverSent(f"{self.request}: this is not an http or https URL", self.request, lasting=True)
        for name, value in self.request.headers.items():
            if any(character in value for character in "\r\n\0"):
                message = f"{self.request}: the value of {name} has a line break in it: does its file end with one?"
                raise NeverSent(message, self.request, lasting=True)

    def headers(self, user_agent: str) -> dict[str, str]:
        return {"User-Agent": user_agent, **self.request.headers}

    def data(self) -> bytes | io.BytesIO | None:
        body = self.request.body
        # In one piece it would hold up the loop, and aiohttp would warn of that.
        return io.BytesIO(body) if body is not None and len(body) > _LARGEST_PIECE else body

    async def only_once(
        self, sending: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Around each attempt of aiohttp: a failure in our own terms is one that it does not repeat."""
        try:
            return await send(sending)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            failure = self.failure(error)
        raise failure

    def when_closed(self) -> TransportError:
        if not self.sent:
            return NeverSent(f"{self.request}: the transport was closed", self.request, lasting=True)
        return AnswerLost(f"{self.request}: sent, but the transport was closed", self.request)

    def failure(self, error: BaseException) -> TransportError:
        # The end of a handshake, not of a connection that has worked.
        if not self.reused and alert_against_our_certificate(error.__cause__) is not None:
            message = f"{self.request}: {tls_failure(error.__cause__ or error, self._where, self._name)}"
            return NeverSent(message, self.request, lasting=True)
        if not self.sent or isinstance(error, aiohttp.ClientConnectorError):
            sentence, lasting = self._why_not_connected(error)
            return NeverSent(f"{self.request}: {sentence}", self.request, lasting=lasting)
        return AnswerLost(f"{self.request}: sent, but {self._why_no_status(error)}", self.request)

    def _why_not_connected(self, error: BaseException) -> tuple[str, bool]:
        """What prevented it, and whether that will last."""
        peer, name = self._peer(error)
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return tls_failure(error.certificate_error, peer, name), True
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return tls_failure(error.os_error, peer, name), True
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return f"{self._shown_proxy} refused to connect to {self._where} ({error.status})", False
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            lasting = getattr(error.os_error, "errno", None) == socket.EAI_NONAME
            return f"no address is known for {peer if peer != self._where else f'the host {error.host}'}", lasting
        if isinstance(error, aiohttp.ClientConnectorError):
            return _why_no_socket(error.os_error, peer, tls=self.url.scheme == "https" and peer == self._where), False
        if isinstance(error, aiohttp.InvalidURL):
            return "this is not a URL", True
        # Where it got stuck on the way is not known.
        way = f"{self._where} through {self._shown_proxy}" if self._proxy is not None else self._where
        if isinstance(error, TimeoutError):
            return f"no connection to {way} within {self._patience(error)}", False
        return f"the connection to {way} broke before anything was sent", False

    def _peer(self, error: BaseException) -> tuple[str, str]:
        """Who did not let us connect, the server or the proxy, and the name that its certificate must bear."""
        host = getattr(error, "host", None)
        if self._proxy is not None and (host, getattr(error, "port", None)) == (self._proxy.host, self._proxy.port):
            return self._shown_proxy, self._proxy.host or ""
        return self._where, self._name

    def _why_no_status(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return f"{self._where} did not answer within {self._patience(error)}"
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return f"{self._where} closed the connection without an answer"
        if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
            return f"what {self._where} answered is not HTTP"
        return f"the connection to {self._where} broke before an answer ({_errno_name(error)})"

    def why_cut(self, error: BaseException) -> str:
        if isinstance(error, aiohttp.SocketTimeoutError):
            return f"the answer stopped: nothing more within {self._patience(error)}"
        if isinstance(error, TimeoutError):
            return f"the answer was not complete within {self._patience(error)}"
        return "the answer broke off"

    def _patience(self, error: BaseException) -> str:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            seconds = self._timeouts.connect
        elif isinstance(error, aiohttp.SocketTimeoutError):
            seconds = self._timeouts.read
        else:
            seconds = self._timeouts.total
        return f"{seconds:g} s" if seconds is not None else "the time the system allows"

    @property
    def _shown_proxy(self) -> str:
        proxy = self._proxy or URL()
        return f"the proxy {proxy.host_subcomponent}:{proxy.port}"


async def _note_sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    call = context.trace_request_ctx
    assert isinstance(call, _Call)
    call.sent = True


async def _note_reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    call = context.trace_request_ctx
    assert isinstance(call, _Call)
    call.reused = True


def _release(response: aiohttp.ClientResponse) -> Callable[[], Awaitable[None]]:
    async def release() -> None:
        # Keeps the connection if the whole body has arrived, read or not; closes it otherwise.
        response.release()

    return release


@contextmanager
def _told_of_the_end(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Whoever reads this body learns that its connection is gone.

    aiohttp tells only the connection when the framing of a body breaks or when the session is closed; a reader of the
    body would wait for its timeout, and a watch may have none.
    """
    # Without one the answer is complete.
    connection = response.connection
    closed = connection.protocol.closed if connection is not None and connection.protocol is not None else None
    if closed is None:
        yield
        return

    def tell(_closed: object) -> None:
        if not response.content.is_eof() and response.content.exception() is None:
            response.content.set_exception(aiohttp.ClientPayloadError("connection lost"))

    closed.add_done_callback(tell)
    try:
        yield
    finally:
        closed.remove_done_callback(tell)


def _ask_for_more_when_empty(content: aiohttp.StreamReader) -> None:
    """A watch has an HTTP chunk for each event. As each is taken out of the buffer, aiohttp asks its parser to go on if
    there is less in the buffer than this mark: by its own choice all the time, which costs a third of the reading.
    """
    # Private, so it may not be there in a later version: nothing but time depends on it.
    if hasattr(content, "_low_water"):
        content._low_water = 1  # noqa: SLF001


def _errno_name(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, type(error).__name__) if isinstance(number, int) else type(error).__name__


def _why_no_socket(error: OSError, peer: str, *, tls: bool) -> str:
    if error.errno == errno.ECONNREFUSED:
        return f"nothing listens at {peer} (connection refused): is the address right, and is it running?"
    if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
        return f"there is no route to {peer}: is this machine in the right network?"
    if isinstance(error, ConnectionError) and tls:
        return f"{peer} broke off the TLS handshake: does it want a client certificate?"
    if isinstance(error, asyncio.TimeoutError) or error.errno == errno.ETIMEDOUT:
        return f"{peer} did not answer to the attempt to connect"
    return f"no connection to {peer}: {error.strerror or _errno_name(error)}"
