"""HTTP calls to endpoints of machines, each sent once, with the credentials, timeout and TLS options of its machine."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from forebay.api.machines import Machine
from forebay.api.values import duration
from forebay.net import transport
from forebay.net.tls import BadTlsOptions, TlsOptions
from forebay.net.transport import Headers, NeverSent, Request, Response, Timeouts, Transport
from forebay.providers.base import BadCredentials, OutcomeUnknown, Rejected, Unavailable
from forebay.providers.secrets import Secrets
from forebay.providers.webhook.credentials import (
    WebhookCredentials,
    named_secrets,
    read_credentials,
    secret_parts_of,
)
from forebay.providers.webhook.responses import UNAUTHORIZED, Endpoint, EndpointResponse, error_of, origin
from forebay.providers.webhook.signing import signed

#: Makes a transport with these TLS options; None: the system's authorities and no client certificate.
MakeTransport = Callable[[TlsOptions | None], Transport]

_MAX_BODY: Final = 64 * 1024
#: For a machine with timeout 0: a call without a limit could block all further calls to its machine.
_DEFAULT_TIMEOUT: Final = timedelta(seconds=5)


class WebhookCalls:
    """Sends calls, and reads Secrets again where an endpoint refuses them."""

    def __init__(self, make_transport: MakeTransport, secrets: Secrets, clock: Callable[[], datetime]) -> None:
        self._make_transport = make_transport
        self._secrets = secrets
        self._clock = clock
        #: Transport of all machines without TLS options.
        self._shared: Transport | None = None
        #: Transport of each other machine, with the options it was made with.
        self._own: dict[str, tuple[TlsOptions, Transport]] = {}
        self._closed = False

    async def call(self, machine: Machine, endpoint: Endpoint, key: str) -> bytes:
        """Body of a 2xx response; any other raises a `ProviderError`. A retry has the same idempotency `key`."""
        response = await self._with_current_secrets(machine, endpoint, key)
        if not response.ok:
            raise error_of(machine, endpoint, response, self._secrets, self._clock())
        return response.body

    async def prepare(self, machine: Machine) -> None:
        """Reads credentials and TLS options without making a call. Raises a `ProviderError`."""
        await self._transport(machine, await read_credentials(machine, self._secrets))

    async def close(self) -> None:
        self._closed = True
        opened = [each for _, each in self._own.values()]
        if self._shared is not None:
            opened.append(self._shared)
        self._shared = None
        self._own.clear()
        for each in opened:
            await each.close()

    async def _with_current_secrets(self, machine: Machine, endpoint: Endpoint, key: str) -> EndpointResponse:
        used = await read_credentials(machine, self._secrets)
        refused = await self._send(machine, endpoint, key, used)
        if not _refuses_credentials(refused):
            return self._response(machine, refused)
        # The endpoint refused the cached credentials: perhaps the Secrets have changed.
        self._secrets.invalidate(*named_secrets(machine))
        current = await read_credentials(machine, self._secrets)
        if current == used:
            return self._response(machine, refused)
        return self._response(machine, await self._send(machine, endpoint, key, current))

    async def _send(
        self, machine: Machine, endpoint: Endpoint, key: str, credentials: WebhookCredentials
    ) -> EndpointResponse | NeverSent:
        for part in secret_parts_of(machine, _url(machine, endpoint)):
            self._secrets.redactor.register(part)
        sender = await self._transport(machine, credentials)
        request = self._request(machine, endpoint, key, credentials)
        try:
            response = await sender.request(request)
        except NeverSent as unsent:
            return unsent
        except transport.TransportError as error:
            # Under TLS 1.3 the refusal of our certificate may only show as a broken connection.
            self._secrets.invalidate(*named_secrets(machine))
            cause = self._cause(error)
            raise OutcomeUnknown(
                f"{machine.name}: {cause}. The endpoint may have acted all the same. If it is only slow, raise "
                f"the machine's timeout, now {machine.timeout}."
            ) from None
        async with response:
            # To power a machine on or off the status code is enough; the body may never end.
            body = b"" if response.ok and endpoint is not Endpoint.STATUS else await _read_body(response)
        return EndpointResponse(request, response.status, response.headers, body)

    def _response(self, machine: Machine, outcome: EndpointResponse | NeverSent) -> EndpointResponse:
        if isinstance(outcome, NeverSent):
            raise Unavailable(f"{machine.name}: {self._cause(outcome)}.")
        return outcome

    def _cause(self, error: transport.TransportError) -> str:
        """The error's text with scheme and host of the URL only."""
        request = error.request
        text = str(error).replace(str(request), f"{request.method} {origin(request.url)}")
        return self._secrets.redactor.text(text)

    def _request(self, machine: Machine, endpoint: Endpoint, key: str, credentials: WebhookCredentials) -> Request:
        seconds = (duration(machine.timeout) or _DEFAULT_TIMEOUT).total_seconds()
        body = None if endpoint is Endpoint.STATUS else b"{}"
        headers = dict(credentials.headers)
        if credentials.signing_keys:
            headers |= signed(credentials.signing_keys, key, int(self._clock().timestamp()), body or b"")
        if body is not None:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
        return Request(
            method="GET" if body is None else "POST",
            url=_url(machine, endpoint),
            headers=Headers(headers),
            body=body,
            timeouts=Timeouts(connect=seconds, read=seconds, total=seconds),
        )

    async def _transport(self, machine: Machine, credentials: WebhookCredentials) -> Transport:
        if self._closed:
            raise Unavailable(
                f"{machine.name}: no call was sent, because its configuration has changed or Forebay is shutting down."
            )
        try:
            if credentials.tls is None:
                self._shared = self._shared or self._make_transport(None)
                return self._shared
            before = self._own.get(machine.name)
            if before is not None and before[0] == credentials.tls:
                return before[1]
            made = self._make_transport(credentials.tls)
        except BadTlsOptions as error:
            raise BadCredentials(f"{machine.name}: {error}: correct the Secrets that its tls names.") from None
        self._own[machine.name] = (credentials.tls, made)
        if before is not None:
            await before[1].close()
        return made


def _refuses_credentials(outcome: EndpointResponse | NeverSent) -> bool:
    return outcome.lasting if isinstance(outcome, NeverSent) else outcome.status in UNAUTHORIZED


def _url(machine: Machine, endpoint: Endpoint) -> str:
    url = {
        Endpoint.POWER_ON: machine.scale_up_endpoint,
        Endpoint.POWER_OFF: machine.scale_down_endpoint,
        Endpoint.STATUS: machine.status_endpoint,
    }[endpoint]
    if url is None:
        raise Rejected(
            f"{machine.name}: its endpoints are not known here: environment variables of the operator hold them."
        )
    return url


async def _read_body(response: Response) -> bytes:
    """The body; empty where it is too large or incomplete, because then nothing can be concluded from it."""
    body = bytearray()
    try:
        async for chunk in response.chunks():
            body += chunk
            if len(body) > _MAX_BODY:
                return b""
    except transport.AnswerCut:
        return b""
    return bytes(body)
