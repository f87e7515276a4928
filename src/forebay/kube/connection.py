"""Transports and clients for a `Config`: authentication, rate limit, redaction."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import msgspec

from forebay.kube.certificates import ClientCertificate
from forebay.kube.client import Client
from forebay.kube.config import Config
from forebay.kube.credentials import Credential, CredentialSource
from forebay.kube.errors import ConfigError, from_response
from forebay.kube.lease import Terms
from forebay.net.rate_budget import RateBudget
from forebay.net.redaction import Redacting, Redactor
from forebay.net.transport import Headers, NeverSent, Request, Response, Timeouts, Transport

_UNAUTHORIZED = 401
_TOO_MANY_REQUESTS = 429
#: Transports that stay open: the present client certificate's and the one before.
_MAX_OPEN_TRANSPORTS = 2


class NoCredentials(ConfigError, NeverSent):
    """No token or certificate is available, so nothing was sent."""


class Authenticating:
    """A transport that adds the Authorization header, and retries once with refreshed credentials after a 401.

    The server did not act on a request that it answered with 401, so any request may be sent again. `open_` makes the
    transport for a client certificate; when the certificate changes, a new transport takes over.
    """

    def __init__(
        self,
        credentials: CredentialSource,
        open_: Callable[[ClientCertificate | None], Transport],
        redactor: Redactor | None = None,
    ) -> None:
        self._credentials = credentials
        self._open = open_
        self._redactor = redactor or Redactor()
        self._redacted: Credential | None = None
        self._transports: dict[ClientCertificate | None, Transport] = {}
        self._closed = False

    async def request(self, request: Request) -> Response:
        try:
            credential = await self._credentials.current()
            response = await self._send(request, credential)
            if response.status != _UNAUTHORIZED:
                return response
            renewed = await self._renewed(credential, response)
            return response if renewed == credential else await self._send(request, renewed)
        except ConfigError as error:
            raise NoCredentials(str(error), request, lasting=True) from error

    async def close(self) -> None:
        self._closed = True
        for transport in self._transports.values():
            await transport.close()

    async def _renewed(self, credential: Credential, response: Response) -> Credential:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(response.close)
            renewed = await self._credentials.renewed(credential)
            if renewed == credential:
                stack.pop_all()  # the response is the caller's
        return renewed

    async def _send(self, request: Request, credential: Credential) -> Response:
        if self._closed:
            raise NeverSent(f"{request}: the connection is closed", request, lasting=True)
        self._redact(credential)
        transport = await self._transport_for(credential.certificate)
        if credential.authorization is not None:
            headers = request.headers.with_({"Authorization": credential.authorization})
            request = msgspec.structs.replace(request, headers=headers)
        return await transport.request(request)

    def _redact(self, credential: Credential) -> None:
        """Registers a token or key for redaction before its first use."""
        if credential == self._redacted:
            return
        self._redacted = credential
        if credential.authorization is not None:
            self._redactor.register(credential.authorization.partition(" ")[2])
        if credential.certificate is not None:
            self._redactor.register(credential.certificate.key)

    async def _transport_for(self, certificate: ClientCertificate | None) -> Transport:
        if certificate not in self._transports:
            self._transports[certificate] = self._open(certificate)
        transport = self._transports[certificate]
        # Requests in flight finish on the connections of the old certificate. By the time a third certificate comes,
        # all requests of the first have ended and its transport can be closed.
        if len(self._transports) > _MAX_OPEN_TRANSPORTS:
            await self._transports.pop(next(iter(self._transports))).close()
        return transport


class EvictionResponses:
    """A transport that removes `Retry-After` from evictions refused by a PodDisruptionBudget.

    Such a refusal has status 429 like an overloaded server, but concerns one pod. `RateBudget` looks at headers only
    and would pause every other request too. The body still holds the time to wait.
    """

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(self, request: Request) -> Response:
        response = await self._inner.request(request)
        if response.status != _TOO_MANY_REQUESTS or not urlsplit(request.url).path.endswith("/eviction"):
            return response
        body = await response.read()
        kept = [(name, value) for name, value in response.headers.items() if name.lower() != "retry-after"]
        refused = from_response(response.status, response.headers, body).causes
        return Response(response.status, Headers(kept) if refused else response.headers, body)

    async def close(self) -> None:
        await self._inner.close()


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Requests per second, and how many of them at once."""

    qps: float = 100.0
    burst: int = 200


def connect(
    config: Config,
    *,
    timeouts: Timeouts = Timeouts(),  # noqa: B008 (immutable)
    rate: Rate = Rate(),  # noqa: B008 (immutable)
    longest_wait: float = 30.0,
    redactor: Redactor | None = None,
) -> Transport:
    """A transport with its own connections and rate limit. Does not connect before the first request.

    The only retry is after a 401: informers, leader election and the engine retry by their own rules.
    """
    from forebay.net.aiohttp_transport import AiohttpTransport  # noqa: PLC0415 (half of a CLI's start-up time)
    from forebay.net.tls import BadTlsOptions, TlsOptions  # noqa: PLC0415

    def open_(certificate: ClientCertificate | None) -> Transport:
        tls = TlsOptions(
            authority_data=config.authority,
            certificate_data=certificate.chain if certificate is not None else None,
            key_data=certificate.key if certificate is not None else None,
            server_name=config.server_name,
            insecure=config.insecure,
        )
        try:
            return AiohttpTransport(timeouts=timeouts, tls=tls, proxy=config.proxy)
        except BadTlsOptions as error:
            raise ConfigError(f"{config.source}: {error}") from None

    redactor = redactor or Redactor()
    authenticating = Redacting(Authenticating(config.credentials, open_, redactor), redactor)
    return RateBudget(EvictionResponses(authenticating), qps=rate.qps, burst=rate.burst, longest_wait=longest_wait)


def connected_client(
    config: Config,
    redactor: Redactor | None = None,
    rate: Rate = Rate(),  # noqa: B008 (immutable)
) -> Client:
    return Client(connect(config, rate=rate, redactor=redactor), config.server)


def election_client(
    config: Config,
    redactor: Redactor | None = None,
    terms: Terms = Terms(),  # noqa: B008 (immutable)
) -> Client:
    """A client for an `Elector`: own connections, own rate limit, and timeouts within the renew deadline."""
    attempt = terms.renew_deadline / 2
    timeouts = Timeouts(connect=attempt, read=attempt, total=attempt)
    rate = Rate(qps=5, burst=10)
    transport = connect(config, timeouts=timeouts, rate=rate, longest_wait=attempt, redactor=redactor)
    return Client(transport, config.server, max_throttle_wait=attempt)
