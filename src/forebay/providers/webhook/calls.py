"""Calls to machines' endpoints: each with the machine's own credentials, timeout and TLS, and sent once."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from forebay.api.machines import Machine
from forebay.api.values import duration
from forebay.net import transport
from forebay.net.tls import BadTlsOptions, TlsOptions
from forebay.net.transport import Headers, NeverSent, Request, Response, Timeouts, Transport
from forebay.providers.base import BadCredentials, OutcomeUnknown, Unavailable
from forebay.providers.secrets import Secrets
from forebay.providers.webhook.answers import NOT_AUTHORISED, CallAnswer, StatusAnswer, refusal
from forebay.providers.webhook.credentials import WebhookCredentials, named_secrets, read_credentials
from forebay.providers.webhook.signing import signed

#: Makes a transport with these TLS options; None: the system's authorities, and no certificate of ours.
MakeTransport = Callable[[TlsOptions | None], Transport]

_LARGEST_ANSWER: Final = 64 * 1024
#: For a machine whose timeout is written as 0: a call without a limit could hold up everything about its machine.
_DEFAULT_TIMEOUT: Final = timedelta(seconds=5)


class WebhookCalls:
    def __init__(self, make_transport: MakeTransport, secrets: Secrets, clock: Callable[[], datetime]) -> None:
        self._make_transport = make_transport
        self._secrets = secrets
        self._clock = clock
        #: For all machines without TLS options.
        self._shared: Transport | None = None
        #: For each of the others, and the options it was made with.
        self._own: dict[str, tuple[TlsOptions, Transport]] = {}
        self._closed = False

    async def ask(self, machine: Machine, asked: StatusAnswer, key: str) -> bytes:
        """What a 2xx answer says; any other raises a `ProviderError`. `key` tells repetitions from new requests."""
        answer = await self._with_current_secrets(machine, asked, key)
        if not answer.ok:
            raise refusal(machine, asked, answer, self._secrets, self._clock())
        return answer.body

    async def prepare(self, machine: Machine) -> None:
        """Reads what a call would be made with, and makes none. Raises a `ProviderError`."""
        await self._wire(machine, await read_credentials(machine, self._secrets))

    async def close(self) -> None:
        self._closed = True
        opened = [wire for _, wire in self._own.values()]
        if self._shared is not None:
            opened.append(self._shared)
        self._shared = None
        self._own.clear()
        for wire in opened:
            await wire.close()

    async def _with_current_secrets(self, machine: Machine, asked: StatusAnswer, key: str) -> CallAnswer:
        used = await read_credentials(machine, self._secrets)
        refused = await self._send(machine, asked, key, used)
        if not _doubts_secrets(refused):
            return self._answered(machine, refused)
        # What the Secrets held was not accepted: perhaps it is no longer what they hold.
        self._secrets.doubt(*named_secrets(machine))
        current = await read_credentials(machine, self._secrets)
        if current == used:
            return self._answered(machine, refused)
        return self._answered(machine, await self._send(machine, asked, key, current))

    async def _send(
        self, machine: Machine, asked: StatusAnswer, key: str, credentials: WebhookCredentials
    ) -> CallAnswer | NeverSent:
        wire = await self._wire(machine, credentials)
        request = self._request(machine, asked, key, credentials)
        try:
            response = await wire.request(request)
        except NeverSent as unsent:
            return unsent
        except transport.TransportError as error:
            # Under TLS 1.3 a server that refuses our certificate may be heard only as a connection that broke.
            self._secrets.doubt(*named_secrets(machine))
            said = self._secrets.redactor.text(str(error))
            raise OutcomeUnknown(
                f"{machine.name}: {said}. It may have been acted on all the same. If that endpoint is only slow, raise "
                f"the machine's timeout, now {machine.timeout}."
            ) from None
        async with response:
            # Who switches a machine is done when the status is there; what else the server says may never come.
            body = b"" if response.ok and asked is not StatusAnswer.STATUS else await _beginning(response)
        return CallAnswer(request, response.status, response.headers, body)

    def _answered(self, machine: Machine, outcome: CallAnswer | NeverSent) -> CallAnswer:
        if isinstance(outcome, NeverSent):
            raise Unavailable(f"{machine.name}: {self._secrets.redactor.text(str(outcome))}.")
        return outcome

    def _request(self, machine: Machine, asked: StatusAnswer, key: str, credentials: WebhookCredentials) -> Request:
        seconds = (duration(machine.timeout) or _DEFAULT_TIMEOUT).total_seconds()
        body = None if asked is StatusAnswer.STATUS else b"{}"
        headers = dict(credentials.headers)
        if credentials.signing_keys:
            headers |= signed(credentials.signing_keys, key, int(self._clock().timestamp()), body or b"")
        if body is not None:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
        return Request(
            method="GET" if body is None else "POST",
            url=_url(machine, asked),
            headers=Headers(headers),
            body=body,
            timeouts=Timeouts(connect=seconds, read=seconds, total=seconds),
        )

    async def _wire(self, machine: Machine, credentials: WebhookCredentials) -> Transport:
        if self._closed:
            raise Unavailable(
                f"{machine.name}: nothing was sent, as its configuration has changed or Forebay is ending."
            )
        try:
            if credentials.tls is None:
                self._shared = self._shared or self._make_transport(None)
                return self._shared
            before = self._own.get(machine.name)
            if before is not None and before[0] == credentials.tls:
                return before[1]
            wire = self._make_transport(credentials.tls)
        except BadTlsOptions as error:
            raise BadCredentials(f"{machine.name}: {error}: correct the Secrets that its tls names.") from None
        self._own[machine.name] = (credentials.tls, wire)
        if before is not None:
            await before[1].close()
        return wire


def _doubts_secrets(outcome: CallAnswer | NeverSent) -> bool:
    return outcome.lasting if isinstance(outcome, NeverSent) else outcome.status in NOT_AUTHORISED


def _url(machine: Machine, asked: StatusAnswer) -> str:
    match asked:
        case StatusAnswer.ON:
            return machine.scale_up_endpoint
        case StatusAnswer.OFF:
            return machine.scale_down_endpoint
        case StatusAnswer.STATUS:
            assert machine.status_endpoint is not None
            return machine.status_endpoint


async def _beginning(response: Response) -> bytes:
    """As much of the body as anybody will look at. One that breaks off says nothing that could be relied on."""
    body = bytearray()
    try:
        async for chunk in response.chunks():
            body += chunk
            if len(body) > _LARGEST_ANSWER:
                return b""
    except transport.AnswerCut:
        return b""
    return bytes(body)
