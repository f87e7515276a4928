"""From a `Config` to a `Transport` that authenticates, and to the clients that speak through it."""

from collections.abc import Callable

import msgspec

from forebay.kube.certificates import ClientCertificate
from forebay.kube.client import Client
from forebay.kube.config import Config
from forebay.kube.credentials import Credential, Credentials
from forebay.kube.errors import ConfigError
from forebay.kube.lease import Terms
from forebay.net.transport import NeverSent, Request, Response, Timeouts, Transport

_UNAUTHORIZED = 401
_KEPT = 2


class NoCredentials(ConfigError, NeverSent):
    """No token or certificate could be had, so nothing was sent. A user's mistake at the start, a failure later."""


class Authenticating:
    """Adds a fresh Authorization to every request, and tries once more with renewed credentials after a 401.

    A request answered with 401 was not acted upon, so any may be repeated. `open_` makes the transport for a client
    certificate; when credentials bring another certificate, a new transport takes over.
    """

    def __init__(self, credentials: Credentials, open_: Callable[[ClientCertificate | None], Transport]) -> None:
        self._credentials = credentials
        self._open = open_
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
        try:
            renewed = await self._credentials.renewed(credential)
        except BaseException:
            await response.close()
            raise
        if renewed != credential:
            await response.close()
        return renewed

    async def _send(self, request: Request, credential: Credential) -> Response:
        if self._closed:
            raise NeverSent(f"{request}: the connection is closed", request, lasting=True)
        transport = await self._transport_for(credential.certificate)
        if credential.authorization is not None:
            headers = request.headers.with_({"Authorization": credential.authorization})
            request = msgspec.structs.replace(request, headers=headers)
        return await transport.request(request)

    async def _transport_for(self, certificate: ClientCertificate | None) -> Transport:
        if certificate not in self._transports:
            self._transports[certificate] = self._open(certificate)
        transport = self._transports[certificate]
        # Requests under way end on the old connections. A certificate outlasts any of them: by the time a third one
        # comes, those of the first have ended and can go.
        if len(self._transports) > _KEPT:
            await self._transports.pop(next(iter(self._transports))).close()
        return transport


def connect(
    config: Config,
    *,
    timeouts: Timeouts = Timeouts(),  # noqa: B008 (immutable)
    limit_per_host: int = 0,
) -> Transport:
    """A transport of its own connections to the configured server. Nothing is sent before the first request."""
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
            return AiohttpTransport(timeouts=timeouts, tls=tls, proxy=config.proxy, limit_per_host=limit_per_host)
        except BadTlsOptions as error:
            raise ConfigError(f"{config.source}: {error}") from None

    return Authenticating(config.credentials, open_)


def connected_client(config: Config) -> Client:
    return Client(connect(config), config.server)


def election_client(config: Config, terms: Terms = Terms()) -> Client:  # noqa: B008 (immutable)
    """For an `Elector`: one connection and a rate budget of its own, and no more patience than a renewal has."""
    attempt = terms.renew_deadline / 2
    timeouts = Timeouts(connect=attempt, read=attempt, total=attempt)
    return Client(connect(config, timeouts=timeouts), config.server, patience=attempt)
