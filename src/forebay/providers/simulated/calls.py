"""HTTP calls to a market, each sent once, and the `ProviderError` that a failed one stands for.

| response               | launch, terminate           | other calls      |
|------------------------|-----------------------------|------------------|
| 401, 403               | `BadCredentials`            | the same         |
| 404 of an instance     | `InstanceGone`              | the same         |
| 409 with a code        | `NoCapacity` or its kin     | `Rejected`       |
| 429                    | `RateLimited`               | the same         |
| other 4xx, 3xx         | `Rejected`                  | the same         |
| anything else          | `OutcomeUnknown`            | `Unavailable`    |
| none, never sent       | `Unavailable`               | the same         |
| none, sent; cut off    | `OutcomeUnknown`            | `Unavailable`    |
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from forebay.api.parts import SecretKeyRef
from forebay.model.sources import FailureScope
from forebay.net.server_hints import retry_after
from forebay.net.transport import Headers, NeverSent, Request, Response, Timeouts, Transport, TransportError
from forebay.providers.base import (
    BadCredentials,
    InstanceGone,
    NoCapacity,
    OutcomeUnknown,
    ProviderError,
    QuotaReached,
    RateLimited,
    Rejected,
    Unavailable,
)
from forebay.providers.secrets import Secrets, SecretsUnavailable, UnusableSecret
from forebay.providers.simulated.wire import GROUPS, INSTANCES, MarketRefusal, RefusalCode

T = TypeVar("T")

#: Seconds for a call.
CALL_SECONDS: Final = 5.0
_MAX_BODY: Final = 16 * 1024 * 1024
_LONGEST_QUOTE: Final = 200
_LONGEST_WAIT: Final = timedelta(days=1)
_TIMEOUTS: Final = Timeouts(connect=5.0, read=CALL_SECONDS, total=CALL_SECONDS)
_UNAUTHORIZED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404


class MarketCalls:
    """Sends calls to one market. `key` names the Secret with its API key; None: it needs none."""

    def __init__(
        self,
        base: str,
        transport: Transport,
        secrets: Secrets,
        key: SecretKeyRef | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._base = base.rstrip("/")
        self._transport = transport
        self._secrets = secrets
        self._key = key
        self._clock = clock
        self._closed = False

    async def get(self, path: str, answer: type[T]) -> T:
        """Raises `InstanceGone` where there is nothing of that path."""
        return self._decoded(await self._call("GET", path), answer, Unavailable)

    async def post(self, path: str, body: msgspec.Struct, answer: type[T]) -> T:
        sent = await self._call("POST", path, msgspec.json.encode(body), acts=True)
        return self._decoded(sent, answer, OutcomeUnknown)

    async def delete(self, path: str) -> None:
        """Raises `InstanceGone` where there is nothing of that path."""
        await self._call("DELETE", path, acts=True)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._transport.close()

    async def _call(self, method: str, path: str, body: bytes | None = None, *, acts: bool = False) -> bytes:
        """Body of a 2xx response. `acts`: an unanswered call may have had an effect."""
        if self._closed:
            raise Unavailable("No call was sent, because the source was reconfigured or Forebay is shutting down.")
        used = await self._api_key()
        status, headers, text = await self._send(method, path, body, used, acts=acts)
        if status in _UNAUTHORIZED and self._key is not None:
            # The market refused the cached key: perhaps the Secret has changed.
            self._secrets.invalidate(self._key)
            current = await self._api_key()
            if current != used:
                status, headers, text = await self._send(method, path, body, current, acts=acts)
        if 200 <= status < 300:  # noqa: PLR2004 (HTTP's own numbers)
            return text
        if status == _NOT_FOUND and path.startswith(f"{INSTANCES}/"):
            raise InstanceGone("The market has nothing of that id any more.")
        if status == _NOT_FOUND and path.startswith(f"{GROUPS}/"):
            raise Rejected("The market has no such instance group. Correct existingInstanceGroupNames.")
        raise self._error(status, headers, text, acts=acts)

    async def _api_key(self) -> str | None:
        if self._key is None:
            return None
        try:
            return (await self._secrets.value(self._key)).decode().strip()
        except UnusableSecret as error:
            raise BadCredentials(f"The API key cannot be read: {error}.") from None
        except UnicodeDecodeError:
            shown = self._secrets.describe(self._key)
            raise BadCredentials(f"Key {self._key.key} of {shown} is not text. Write the API key into it.") from None
        except SecretsUnavailable as error:
            raise Unavailable(f"The API key cannot be read: {error}.") from None

    async def _send(
        self, method: str, path: str, body: bytes | None, key: str | None, *, acts: bool
    ) -> tuple[int, Headers, bytes]:
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = Request(method=method, url=self._base + path, headers=Headers(headers), body=body, timeouts=_TIMEOUTS)
        try:
            response = await self._transport.request(request)
            async with response:
                return response.status, response.headers, await _read(response)
        except NeverSent as error:
            raise Unavailable(f"{self._redacted(error)}.") from None
        except TransportError as error:
            if acts:
                raise OutcomeUnknown(f"{self._redacted(error)}. The market may have acted all the same.") from None
            raise Unavailable(f"{self._redacted(error)}.") from None

    def _error(self, status: int, headers: Headers, text: bytes, *, acts: bool) -> ProviderError:
        refusal = _refusal(text)
        said = f' ("{self._secrets.redactor.text(refusal.message)[:_LONGEST_QUOTE]}")' if refusal.message else ""
        fact = f"The market answered {status}{said}"
        wait = retry_after(headers, self._clock())
        later = min(timedelta(seconds=wait), _LONGEST_WAIT) if wait is not None else None
        if status in _UNAUTHORIZED:
            where = f" in {self._secrets.describe(self._key)}" if self._key is not None else ""
            remedy = "Correct it" if self._key is not None else "Set credentialsRef"
            return BadCredentials(f"{fact}: it does not accept the API key{where}. {remedy}.")
        if status == 429:  # noqa: PLR2004 (HTTP's own numbers)
            return RateLimited(f"{fact}: too many requests. Forebay retries later.", retry_after=later)
        if acts and status == 409:  # noqa: PLR2004
            match refusal.code:
                case RefusalCode.NO_CAPACITY:
                    return NoCapacity(f"{fact}: it has no such machine left.")
                case RefusalCode.ZONE_FULL:
                    return NoCapacity(f"{fact}: its zone has none left.", scope=FailureScope.ZONE)
                case RefusalCode.QUOTA:
                    return QuotaReached(f"{fact}: the account may not have more. Raise its quota.")
        if 300 <= status < 500:  # noqa: PLR2004
            return Rejected(f"{fact}. Correct endpoint of the provider, or what the class asks for.")
        if acts:
            return OutcomeUnknown(f"{fact}. The market may have acted before it failed.")
        return Unavailable(f"{fact}.")

    def _decoded(self, body: bytes, answer: type[T], otherwise: type[ProviderError]) -> T:
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.DecodeError as error:
            raise otherwise(f"The answer of the market cannot be read: {error}.") from None

    def _redacted(self, error: TransportError) -> str:
        return self._secrets.redactor.text(str(error))


async def _read(response: Response) -> bytes:
    body = bytearray()
    async for chunk in response.chunks():
        body += chunk
        if len(body) > _MAX_BODY:
            return b""
    return bytes(body)


def _refusal(body: bytes) -> MarketRefusal:
    try:
        return msgspec.json.decode(body, type=MarketRefusal)
    except msgspec.DecodeError:
        return MarketRefusal()
