"""The production transport: HTTP/1.1 with aiohttp.

Each request is sent once. By default aiohttp sends GET, HEAD, OPTIONS, TRACE, PUT and DELETE again when the connection
breaks before a status, because it takes the connection for a stale one. A successful DELETE would then be reported as
404. Whether to retry is the caller's decision.
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

_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, HttpProcessingError)

#: Headers that aiohttp must not add by itself. Without Accept-Encoding no server compresses its responses.
_NO_DEFAULT_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

_READ_BUFFER = 256 * 1024

#: Larger request bodies are sent in parts.
_MAX_PART = 512 * 1024

#: Seconds that `close` waits for aborted connections, which end at once unless the loop is busy.
_CLOSE_TIMEOUT = 1.0

#: A connection over which nothing comes is asked for a sign of life after so many seconds, and a few times more;
#: without an answer it is lost. Streams may be silent for hours, and routers forget silent connections.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class AiohttpTransport:
    """Reuses connections. Does not follow redirects, keep cookies or decompress.

    Bound to the loop of the first request. `proxy` is the URL of an HTTP proxy; https is tunnelled (CONNECT).
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
        #: All open connections, by the future that ends with the connection.
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
        except _ERRORS as error:
            failure = call.when_closed() if until_closed.expired() else call.failure(error)
        else:
            body = self._body(call, response, complete=response.connection is None)
            return Response(response.status, Headers(response.headers.items()), body, on_close=_release(response))
        finally:
            self._calls.discard(until_closed)
        # Raised outside of `except`: aiohttp's own error, whose message holds the URL with its query, is not chained.
        raise failure

    async def close(self) -> None:
        self._closed = True
        if self._session is None:
            return
        now = asyncio.get_running_loop().time()
        for until_closed in self._calls:
            if not until_closed.expired():
                until_closed.reschedule(now)
        # aiohttp either waits until connections are closed cleanly, which may take for ever with a peer that does not
        # read, or does not wait at all, and then the loop may end with an open socket or an unretrieved exception. So
        # connections are aborted and waited for here.
        ending = dict(self._connections)
        for connection in ending.values():
            connection.abort()
        await self._session.close()
        if ending:
            await asyncio.wait(ending, timeout=_CLOSE_TIMEOUT)

    def _open_session(self) -> aiohttp.ClientSession:
        track = self._track

        class TrackedRequest(aiohttp.ClientRequest):
            async def send(self, conn: Connection) -> aiohttp.ClientResponse:
                track(conn)
                return await super().send(conn)

        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_on_headers_sent)
        trace.on_connection_reuseconn.append(_on_connection_reused)
        return aiohttp.ClientSession(
            # No limit on connections: every watch keeps one busy.
            connector=aiohttp.TCPConnector(limit=0, socket_factory=_kept_alive),
            request_class=TrackedRequest,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NO_DEFAULT_HEADERS,
            read_bufsize=_READ_BUFFER,
            max_field_size=64 * 1024,
            trace_configs=[trace],
        )

    def _track(self, connection: Connection) -> None:
        closed = connection.protocol.closed if connection.protocol is not None else None
        if closed is not None and connection.transport is not None and closed not in self._connections:
            self._connections[closed] = connection.transport
            closed.add_done_callback(self._forget)

    def _forget(self, closed: "asyncio.Future[None]") -> None:
        del self._connections[closed]
        if not closed.cancelled():
            closed.exception()  # retrieved, or asyncio would log it

    async def _body(self, call: "_Call", response: aiohttp.ClientResponse, *, complete: bool) -> AsyncIterator[bytes]:
        cut: str | None = None
        _set_low_water_mark(response.content)
        with _failing_on_disconnect(response):
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            # RuntimeError("Connection closed."): reading began after the session was closed.
            except (*_ERRORS, RuntimeError) as error:
                cut = "the transport was closed" if self._closed else call.why_cut(error)
        counted = "Content-Length" in response.headers or "Transfer-Encoding" in response.headers
        if self._closed and not (complete or counted):
            # Such a body ends with its connection, which we have closed.
            cut = "the transport was closed"
        if cut is not None:
            raise AnswerCut(f"{call.request}: {cut}", call.request)


def _kept_alive(address: "aiohttp.AddrInfoType") -> socket.socket:
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        # Not every system has all of them.
        if (option := getattr(socket, name, None)) is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


class _Call:
    """A request in flight: how far it got, and the error for a failure."""

    def __init__(self, request: Request, timeouts: Timeouts, server_name: str | None, proxy: str | None) -> None:
        self.request = request
        #: Whether the headers were written to the socket: from then on the server may have seen the request.
        self.sent = False
        #: Whether an earlier request used the same connection.
        self.reused = False
        self._timeouts = timeouts
        self._proxy = URL(proxy) if proxy is not None else None
        # `encoded`: the caller has encoded the URL; encoding it again would change selectors.
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
        """Raises `NeverSent` for what aiohttp would refuse with an unclear error, or one that shows a secret."""
        if self.url.scheme not in {"http", "https"} or not self.url.host:
            raise NeverSent(f"{self.request}: this is not an http or https URL", self.request, lasting=True)
        for name, value in self.request.headers.items():
            if any(character in value for character in "\r\n\0"):
                message = (
                    f"{self.request}: the value of header {name} contains a line break: perhaps its file ends with one"
                )
                raise NeverSent(message, self.request, lasting=True)

    def headers(self, user_agent: str) -> dict[str, str]:
        return {"User-Agent": user_agent, **self.request.headers}

    def data(self) -> bytes | io.BytesIO | None:
        body = self.request.body
        # In one piece a large body would block the loop, and aiohttp warns of that.
        return io.BytesIO(body) if body is not None and len(body) > _MAX_PART else body

    async def only_once(
        self, sending: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Client middleware: raises our own errors, which aiohttp does not retry."""
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
        # On a new connection the alert ends the handshake.
        if not self.reused and alert_against_our_certificate(error.__cause__) is not None:
            message = f"{self.request}: {tls_failure(error.__cause__ or error, self._where, self._name)}"
            return NeverSent(message, self.request, lasting=True)
        if not self.sent or isinstance(error, aiohttp.ClientConnectorError):
            sentence, lasting = self._why_not_connected(error)
            return NeverSent(f"{self.request}: {sentence}", self.request, lasting=lasting)
        return AnswerLost(f"{self.request}: sent, but {self._why_no_status(error)}", self.request)

    def _why_not_connected(self, error: BaseException) -> tuple[str, bool]:
        """A sentence on why there is no connection, and whether a retry at once would fail again."""
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
        # Whether the proxy or the server is at fault is not known.
        way = f"{self._where} through {self._shown_proxy}" if self._proxy is not None else self._where
        if isinstance(error, TimeoutError):
            return f"no connection to {way} within {self._timeout(error)}", False
        return f"the connection to {way} broke before anything was sent", False

    def _peer(self, error: BaseException) -> tuple[str, str]:
        """The peer that failed, server or proxy, and the name that its certificate must have."""
        host = getattr(error, "host", None)
        if self._proxy is not None and (host, getattr(error, "port", None)) == (self._proxy.host, self._proxy.port):
            return self._shown_proxy, self._proxy.host or ""
        return self._where, self._name

    def _why_no_status(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return f"{self._where} did not answer within {self._timeout(error)}"
        if isinstance(error, aiohttp.ServerDisconnectedError):
            return f"{self._where} closed the connection without an answer"
        if isinstance(error, aiohttp.ClientResponseError | HttpProcessingError):
            return f"the answer of {self._where} is not HTTP"
        return f"the connection to {self._where} broke before an answer ({_errno_name(error)})"

    def why_cut(self, error: BaseException) -> str:
        if isinstance(error, aiohttp.SocketTimeoutError):
            return f"the answer stopped: no more data within {self._timeout(error)}"
        if isinstance(error, TimeoutError):
            return f"the answer was not complete within {self._timeout(error)}"
        return "the answer was cut off"

    def _timeout(self, error: BaseException) -> str:
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


async def _on_headers_sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    call = context.trace_request_ctx
    assert isinstance(call, _Call)
    call.sent = True


async def _on_connection_reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    call = context.trace_request_ctx
    assert isinstance(call, _Call)
    call.reused = True


def _release(response: aiohttp.ClientResponse) -> Callable[[], Awaitable[None]]:
    async def release() -> None:
        # Keeps the connection if the whole body has arrived, read or not; closes it otherwise.
        response.release()

    return release


@contextmanager
def _failing_on_disconnect(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Makes reads of this body fail when its connection is lost.

    When the framing of a body breaks, or when the session is closed, aiohttp notifies only the connection. A reader of
    the body would wait for its timeout, and a watch may have none.
    """
    # A response without a connection is complete.
    connection = response.connection
    closed = connection.protocol.closed if connection is not None and connection.protocol is not None else None
    if closed is None:
        yield
        return

    def fail(_closed: object) -> None:
        if not response.content.is_eof() and response.content.exception() is None:
            response.content.set_exception(aiohttp.ClientPayloadError("connection lost"))

    closed.add_done_callback(fail)
    try:
        yield
    finally:
        closed.remove_done_callback(fail)


def _set_low_water_mark(content: aiohttp.StreamReader) -> None:
    """Lowers the low-water mark of the buffer to 1 byte, which makes reading a watch a third faster.

    A watch has one HTTP chunk per event. With every chunk that is read, aiohttp resumes its parser if the buffer is
    below the mark, which with the default mark is always the case.
    """
    # A private attribute: if a later version lacks it, only speed is lost.
    if hasattr(content, "_low_water"):
        content._low_water = 1  # noqa: SLF001


def _errno_name(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, type(error).__name__) if isinstance(number, int) else type(error).__name__


def _why_no_socket(error: OSError, peer: str, *, tls: bool) -> str:
    if error.errno == errno.ECONNREFUSED:
        return f"connection refused by {peer}: check the address, and that the server is running"
    if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
        return f"there is no route to {peer}: check that this machine is in the right network"
    if isinstance(error, ConnectionError) and tls:
        return f"{peer} closed the connection during the TLS handshake: perhaps it requires a client certificate"
    if error.errno == errno.ETIMEDOUT:
        return f"{peer} did not answer the attempt to connect"
    return f"no connection to {peer}: {error.strerror or _errno_name(error)}"
