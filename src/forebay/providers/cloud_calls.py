"""HTTP calls to a cloud's API, each sent once, and the `ProviderError` that a failed one stands for.

| response               | a call that acts            | other calls      |
|------------------------|-----------------------------|------------------|
| 401, 403               | `BadCredentials`            | the same         |
| 429                    | `RateLimited`               | the same         |
| other 4xx, 3xx         | `Rejected`                  | the same         |
| anything else          | `OutcomeUnknown`            | `Unavailable`    |
| none, never sent       | `Unavailable`               | the same         |
| none, sent; cut off    | `OutcomeUnknown`            | `Unavailable`    |

What a provider's own codes mean comes before this table: `CloudDialect.meaning`.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from forebay.api.parts import SecretKeyRef
from forebay.model.secret_text import SecretText
from forebay.net.json_body import decode_body
from forebay.net.redaction import Redactor
from forebay.net.server_hints import retry_after
from forebay.net.transport import Headers, NeverSent, Request, Response, Timeouts, Transport, TransportError
from forebay.providers.base import (
    BadCredentials,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
)
from forebay.providers.secrets import Secrets, SecretsUnavailable, UnusableSecret
from forebay.providers.silent_streams import SilentStreams

T = TypeVar("T")

_MAX_BODY: Final = 32 * 1024 * 1024
_LONGEST_QUOTE: Final = 200
#: Digits of a digest of credentials: enough to tell them apart, and too few to find them out.
_FINGERPRINT: Final = 16
_LONGEST_WAIT: Final = timedelta(days=1)
_UNAUTHORIZED: Final = frozenset({401, 403})
_TOO_MANY_REQUESTS: Final = 429


class CloudRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """A response other than 2xx, as the provider reads it."""

    status: int
    #: The provider's own code; "" where it has none.
    code: str = ""
    message: str = ""
    #: Of the URL, below the API's own.
    path: str = ""
    #: The call may have had an effect.
    acts: bool = False
    #: The beginning of a sentence: who answered what.
    fact: str = ""


class CloudDialect(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between APIs."""

    #: Name of the cloud, in sentences.
    label: str
    #: Without a Secret no call is sent.
    needs_key: bool = True
    #: Code and message in the body of an error.
    read_error: Callable[[bytes], tuple[str, str]]
    #: The error that a refusal stands for by the provider's own codes; None: the table above holds.
    meaning: Callable[[CloudRefusal], ProviderError | None]
    #: Headers that authorize a request with the value of the Secret.
    authorize: Callable[[str, Request], Mapping[str, str]] = lambda key, _request: {"Authorization": f"Bearer {key}"}
    #: The wait after a 429 that names none.
    usual_wait: timedelta | None = None
    #: Seconds for a request.
    timeout: float = 30.0

    @property
    def subject(self) -> str:
        """The label at the beginning of a sentence."""
        return self.label[:1].upper() + self.label[1:]


class CloudCalls:
    """Sends calls to one API. `key` names the Secret with its credentials."""

    def __init__(  # noqa: PLR0917 (its dependencies)
        self,
        dialect: CloudDialect,
        base: str,
        transport: Transport,
        secrets: Secrets,
        key: SecretKeyRef | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._dialect = dialect
        self._base = base.rstrip("/")
        self._transport = transport
        self._secrets = secrets
        self._key = key
        self._clock = clock
        self._closed = False
        self._silent = SilentStreams()

    async def get(self, path: str, answer: type[T]) -> T:
        return self._decoded(await self._call("GET", path, None, acts=False), answer, Unavailable)

    async def act(
        self, method: str, path: str, answer: type[T], body: object = None, hidden: Collection[SecretText] = ()
    ) -> T:
        """A call that has an effect. A response that cannot be read leaves its outcome unknown.

        `hidden` are secrets of others in the body. The cloud may quote them in its refusal, and no error shows them.
        """
        encoded = None if body is None else msgspec.json.encode(body)
        sent = await self._call(method, path, encoded, acts=True, hidden=hidden)
        return self._decoded(sent, answer, OutcomeUnknown)

    async def delete(self, path: str) -> None:
        """A deletion, whose response has nothing to read."""
        await self._call("DELETE", path, None, acts=True)

    async def stream(
        self,
        path: str,
        headers: Mapping[str, str],
        *,
        quiet: float | Callable[[float], bool] | None = None,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The body of a response that is written while it is read, until it ends or, with `quiet`, until nothing has
        come for so many seconds, or for as many as `quiet` says yes to. A body that breaks off raises `Unavailable`.
        `opened` is called before it is read.
        """
        if self._closed:
            raise Unavailable("No call was sent, because the source was reconfigured or Forebay is shutting down.")
        url = self._base + path
        timeouts = Timeouts(connect=self._dialect.timeout, read=None, total=None)
        request = Request(method="GET", url=url, headers=Headers(headers), timeouts=timeouts)
        granted = self._authorized(request, await self._credentials())
        try:
            response = await self._transport.request(granted)
            async with response:
                if not response.ok:
                    raise self._error(path, response.status, response.headers, await _read(response), acts=False)
                if opened is not None:
                    opened()
                chunks = response.chunks()
                while (chunk := await self._next(chunks, quiet)) is not None:
                    yield chunk
        except TransportError as error:
            raise Unavailable(f"{self._redacted(str(error))}.") from None

    async def account(self) -> str:
        """A fingerprint of address and credentials, for APIs that do not tell whose account they are of."""
        key = await self._credentials()
        return hashlib.sha256(f"{self._base}\n{key or ''}".encode()).hexdigest()[:_FINGERPRINT]

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._transport.close()

    async def _call(
        self, method: str, path: str, body: bytes | None, *, acts: bool, hidden: Collection[SecretText] = ()
    ) -> bytes:
        if self._closed:
            raise Unavailable("No call was sent, because the source was reconfigured or Forebay is shutting down.")
        used = await self._credentials()
        status, headers, text = await self._send(method, path, body, used, acts=acts)
        if status in _UNAUTHORIZED and self._key is not None:
            # The cloud refused the cached credentials: perhaps the Secret has changed.
            self._secrets.invalidate(self._key)
            current = await self._credentials()
            if current != used:
                status, headers, text = await self._send(method, path, body, current, acts=acts)
        if 200 <= status < 300:  # noqa: PLR2004 (HTTP's own numbers)
            return text
        raise self._error(path, status, headers, text, acts=acts, hidden=hidden)

    async def _credentials(self) -> str | None:
        """None: the API needs none."""
        label = self._dialect.label
        if self._key is None and not self._dialect.needs_key:
            return None
        if self._key is None:
            raise BadCredentials(
                f"{self._dialect.subject} needs an API key: set credentialsRef to the Secret and the key that hold it."
            )
        try:
            return (await self._secrets.value(self._key)).decode().strip()
        except UnusableSecret as error:
            raise BadCredentials(f"The API key of {label} cannot be read: {error}.") from None
        except UnicodeDecodeError:
            shown = self._secrets.describe(self._key)
            raise BadCredentials(f"Key {self._key.key} of {shown} is not text. Write the API key into it.") from None
        except SecretsUnavailable as error:
            raise Unavailable(f"The API key of {label} cannot be read: {error}.") from None

    async def _send(
        self, method: str, path: str, body: bytes | None, key: str | None, *, acts: bool
    ) -> tuple[int, Headers, bytes]:
        seconds = self._dialect.timeout
        request = Request(
            method=method,
            url=self._base + path,
            headers=Headers({"Content-Type": "application/json"} if body is not None else {}),
            body=body,
            timeouts=Timeouts(connect=seconds, read=seconds, total=seconds),
        )
        try:
            response = await self._transport.request(self._authorized(request, key))
            async with response:
                return response.status, response.headers, await _read(response)
        except NeverSent as error:
            raise Unavailable(f"{self._redacted(str(error))}.") from None
        except TransportError as error:
            if acts:
                raise OutcomeUnknown(
                    f"{self._redacted(str(error))}. {self._dialect.subject} may have acted all the same."
                ) from None
            raise Unavailable(f"{self._redacted(str(error))}.") from None

    async def _next(self, chunks: AsyncIterator[bytes], quiet: float | Callable[[float], bool] | None) -> bytes | None:
        """The next chunk; None at the end, or where none came in time."""
        if callable(quiet):
            return await self._silent.next(chunks, quiet)
        try:
            async with asyncio.timeout(quiet):
                return await anext(chunks, None)
        except TimeoutError:
            return None

    def _authorized(self, request: Request, key: str | None) -> Request:
        if key is None:
            return request
        headers = request.headers.with_(self._dialect.authorize(key, request))
        return msgspec.structs.replace(request, headers=headers)

    def _error(
        self,
        path: str,
        status: int,
        headers: Headers,
        text: bytes,
        *,
        acts: bool,
        hidden: Collection[SecretText] = (),
    ) -> ProviderError:
        label = self._dialect.subject
        code, message = self._dialect.read_error(text)
        # Hidden in this text alone: what pods keep in Secrets may be ordinary words, which the log needs elsewhere.
        shown = Redactor(each.reveal() for each in hidden).text(message or code) if hidden else message or code
        said = self._redacted(shown)[:_LONGEST_QUOTE]
        fact = f'{label} answered {status} ("{said}")' if said else f"{label} answered {status}"
        if status == _TOO_MANY_REQUESTS:
            wait = retry_after(headers, self._clock())
            later = min(timedelta(seconds=wait), _LONGEST_WAIT) if wait is not None else self._dialect.usual_wait
            return RateLimited(f"{fact}: too many requests. Forebay retries later.", retry_after=later)
        refusal = CloudRefusal(status=status, code=code, message=message, path=path, acts=acts, fact=fact)
        if (meant := self._dialect.meaning(refusal)) is not None:
            return meant
        if status in _UNAUTHORIZED:
            if self._key is None:
                return BadCredentials(f"{fact}: it does not accept calls without an API key. Set credentialsRef.")
            where = self._secrets.describe(self._key)
            return BadCredentials(f"{fact}: it does not accept the API key in {where}. Correct it.")
        if 300 <= status < 500:  # noqa: PLR2004
            return Rejected(f"{fact}. Correct endpoint of the provider, or what the class asks for.")
        if acts:
            return OutcomeUnknown(f"{fact}. {label} may have acted before it failed.")
        return Unavailable(f"{fact}.")

    def _decoded(self, body: bytes, answer: type[T], otherwise: type[ProviderError]) -> T:
        try:
            return decode_body(body, answer)
        except msgspec.DecodeError as error:
            raise otherwise(f"The answer of {self._dialect.label} cannot be read: {error}.") from None

    def _redacted(self, text: str) -> str:
        return self._secrets.redactor.text(text)


async def _read(response: Response) -> bytes:
    """The body; empty where it is too large, because then nothing can be concluded from it."""
    body = bytearray()
    async for chunk in response.chunks():
        body += chunk
        if len(body) > _MAX_BODY:
            return b""
    return bytes(body)
