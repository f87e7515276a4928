"""The transport of production: HTTP/1.1 over sockets, by aiohttp.

Each request is sent once. aiohttp by itself would send GET, HEAD, OPTIONS, TRACE, PUT and DELETE a second time when the
connection breaks before a status (it takes the connection for a stale one); a DELETE that worked would then be reported
as 404. Whether to repeat is `Retrying`'s decision, which knows the method and what the caller allows.
"""

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from forebay import __version__
from forebay.net.tls import TlsOptions, alert_against_our_certificate, tls_failure
from forebay.net.transport import (
    AnswerCut,
    Headers,
    NeverSent,
    OutcomeUnknown,
    Request,
    Response,
    Timeouts,
    TransportError,
)

_FAILURES = (aiohttp.ClientError, OSError, TimeoutError, HttpProcessingError)

#: Chosen by the caller or not at all. Without Accept-Encoding no server compresses, so bodies arrive as they are.
_NOT_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

_READ_BUFFER = 256 * 1024


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
        limit_per_host: int = 0,
        keepalive: float = 15.0,
        user_agent: str = f"forebay/{__version__}",
    ) -> None:
        """`limit_per_host`: connections at once, 0 for any number. A watch keeps one busy for as long as it lasts.

        Raises `BadTlsOptions`.
        """
        self._timeouts = timeouts
        self._context = tls.client_context() if tls is not None else None
        self._server_name = tls.server_name if tls is not None else None
        self._proxy = proxy
        self._limit_per_host = limit_per_host
        self._keepalive = keepalive
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None
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
        try:
            response = await self._session.request(
                request.method,
                call.url,
                headers=call.headers(self._user_agent),
                data=request.body,
                allow_redirects=False,
                timeout=call.limits,
                proxy=self._proxy,
                server_hostname=self._server_name,
                ssl=self._context if self._context is not None else True,
                trace_request_ctx=call,
                middlewares=(call.only_once,),
            )
        except _FAILURES as error:
            # Not chained: aiohttp's own messages hold URLs with their queries.
            raise call.failure(error) from None
        except RuntimeError:
            if not self._session.closed:
                raise
            raise call.failure(aiohttp.ClientConnectionError("the transport was closed")) from None
        return Response(
            response.status, Headers(response.headers.items()), self._body(call, response), on_close=_release(response)
        )

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_note_sent)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, limit_per_host=self._limit_per_host, keepalive_timeout=self._keepalive
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=_NOT_ADDED,
            read_bufsize=_READ_BUFFER,
            max_field_size=64 * 1024,
            trace_configs=[trace],
        )

    async def _body(self, call: "_Call", response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        with _told_of_the_end(response):
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            # RuntimeError: "Connection closed.", where reading began after the session was closed.
            except (*_FAILURES, RuntimeError) as error:
                raise AnswerCut(f"{call.request}: {call.why_cut(error)}", call.request) from None
        ends_with_connection = "Content-Length" not in response.headers and "Transfer-Encoding" not in response.headers
        if self._closed and ends_with_connection and response.status >= 200:  # noqa: PLR2004 (HTTP's own numbers)
            raise AnswerCut(f"{call.request}: the transport was closed", call.request)


class _Call:
    """One request under way: how far it got, and what its failure means."""

    def __init__(self, request: Request, timeouts: Timeouts, server_name: str | None, proxy: str | None) -> None:
        self.request = request
        #: The head was handed to the socket: from here on the server may have seen it.
        self.sent = False
        self._timeouts = timeouts
        self._proxy = proxy
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

    async def only_once(
        self, sending: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Around each attempt of aiohttp: a failure in our own terms is one that it does not repeat."""
        try:
            return await send(sending)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            raise self.failure(error) from None

    def failure(self, error: BaseException) -> TransportError:
        if isinstance(error, TransportError):
            return error
        alert = alert_against_our_certificate(error.__cause__)
        if alert is not None:
            message = f"{self.request}: {tls_failure(error.__cause__ or error, self._where, self._name)}"
            return NeverSent(message, self.request, lasting=True)
        if not self.sent or isinstance(error, aiohttp.ClientConnectorError):
            sentence, lasting = self._why_not_connected(error)
            return NeverSent(f"{self.request}: {sentence}", self.request, lasting=lasting)
        return OutcomeUnknown(f"{self.request}: sent, but {self._why_no_status(error)}", self.request)

    def _why_not_connected(self, error: BaseException) -> tuple[str, bool]:
        """What prevented it, and whether that will last."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return tls_failure(error.certificate_error, self._where, self._name), True
        if isinstance(error, aiohttp.ClientConnectorSSLError):
            return tls_failure(error.os_error, self._where, self._name), True
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return f"the proxy {self._shown_proxy} refused to connect to {self._where} ({error.status})", False
        peer = self._shown_proxy if isinstance(error, aiohttp.ClientProxyConnectionError) else self._where
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            host = error.host
            lasting = getattr(error.os_error, "errno", None) == socket.EAI_NONAME
            return f"no address is known for the host {host}", lasting
        if isinstance(error, aiohttp.ClientConnectorError):
            return _why_no_socket(error.os_error, peer, tls=self.url.scheme == "https"), False
        if isinstance(error, TimeoutError):
            return f"no connection to {peer} within {self._patience(error)}", False
        if isinstance(error, aiohttp.InvalidURL):
            return "this is not a URL", True
        return f"the connection to {peer} broke before anything was sent", False

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
        proxy = URL(self._proxy or "")
        return f"{proxy.host_subcomponent}:{proxy.port}"


async def _note_sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    call = context.trace_request_ctx
    assert isinstance(call, _Call)
    call.sent = True


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
    connection = response.connection
    if connection is None or connection.protocol is None:
        yield
        return

    def tell(_closed: object = None) -> None:
        if not response.content.is_eof() and response.content.exception() is None:
            response.content.set_exception(aiohttp.ClientPayloadError("connection lost"))

    closed = connection.protocol.closed
    if closed is None:
        tell()
        yield
        return
    closed.add_done_callback(tell)
    try:
        yield
    finally:
        closed.remove_done_callback(tell)
        # Now this future is ours, and an exception that nobody takes from it would be logged. Once is enough.
        closed.remove_done_callback(_take_exception)
        closed.add_done_callback(_take_exception)


def _take_exception(closed: "asyncio.Future[None]") -> None:
    if not closed.cancelled():
        closed.exception()


def _errno_name(error: BaseException) -> str:
    number = getattr(error, "errno", None)
    return errno.errorcode.get(number, type(error).__name__) if isinstance(number, int) else type(error).__name__


def _why_no_socket(error: OSError, peer: str, *, tls: bool) -> str:
    if error.errno == errno.ECONNREFUSED:
        return f"nothing listens at {peer} (connection refused): is the address right, and is the server running?"
    if error.errno in {errno.ENETUNREACH, errno.EHOSTUNREACH}:
        return f"there is no route to {peer}: is this machine in the right network?"
    if isinstance(error, ConnectionError) and tls:
        return f"{peer} broke off the TLS handshake: does it want a client certificate?"
    if isinstance(error, asyncio.TimeoutError) or error.errno == errno.ETIMEDOUT:
        return f"{peer} did not answer to the attempt to connect"
    return f"no connection to {peer}: {error.strerror or _errno_name(error)}"
