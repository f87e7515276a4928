"""The contract of a tailnet's control server, and how each of its answers is understood."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol, TypeVar

import msgspec

from forebay.join.base import JoinError, JoinRejected
from forebay.model.secret_text import SecretText
from forebay.net.json_body import decode_body
from forebay.net.transport import Headers, Request, Response, Timeouts, Transport, TransportError

_Answer = TypeVar("_Answer")
_TIMEOUTS = Timeouts(connect=5.0, read=15.0, total=20.0)
_UNAUTHORIZED = (401, 403)
_NOT_FOUND = 404
#: Client errors that say nothing against the request itself.
_PASSING = (408, 425, 429)
_SERVER_ERRORS = 500


class TailnetClient(msgspec.Struct, frozen=True, kw_only=True):
    """The identity with which Forebay speaks to the control server."""

    id: str
    secret: SecretText


class TailnetKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that exists. The secret is known only from the answer that created it."""

    id: str
    secret: SecretText


class TailnetDevice(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    hostname: str
    tags: tuple[str, ...] = ()


class NotInTailnet(Exception):
    """The server has no such key or device (any more)."""


class Tailnet(Protocol):
    """A control server. Calls raise `JoinError`, and `JoinRejected` where a person must correct something."""

    async def create_key(
        self, client: TailnetClient, name: str, tags: Sequence[str], *, ephemeral: bool, ttl: timedelta
    ) -> TailnetKey:
        """Creates a key that works once, needs no approval and can be found by its name."""
        ...

    async def keys_named(self, client: TailnetClient, name: str) -> Sequence[str]:
        """Ids of all keys of this name: a complete answer or an error."""
        ...

    async def delete_key(self, client: TailnetClient, key_id: str) -> None:
        """Returns when the key is gone, also where it was before."""
        ...

    async def devices(self, client: TailnetClient) -> Sequence[TailnetDevice]:
        """All devices: a complete answer or an error."""
        ...

    async def delete_device(self, client: TailnetClient, device_id: str) -> None:
        """Returns when the device is gone, also where it was before."""
        ...


class TailnetAnswer(msgspec.Struct, frozen=True):
    status: int
    headers: Headers
    body: bytes

    def decoded(self, type_: type[_Answer], what: str) -> _Answer:
        try:
            return decode_body(self.body, type_)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise JoinError(f"The control server answered {what} with something else than its API says.") from error


async def send(transport: Transport, request: Request) -> TailnetAnswer:
    """The whole answer, whatever its status. Raises `JoinError` without one."""
    try:
        response: Response = await transport.request(msgspec.structs.replace(request, timeouts=_TIMEOUTS))
        body = await response.read()
    except TransportError as error:
        raise JoinError(f"{error}") from error
    return TailnetAnswer(response.status, response.headers, body)


class _ErrorBody(msgspec.Struct, frozen=True):
    message: str = ""
    error: str = ""
    error_description: str = ""


def checked_answer(answer: TailnetAnswer, what: str, remedy: str) -> TailnetAnswer:
    """The answer where it is a success. Else raises `NotInTailnet`, `JoinRejected` or `JoinError`."""
    status = answer.status
    if 200 <= status < 300:  # noqa: PLR2004 (HTTP's own numbers)
        return answer
    said = f"{what} failed with status {status}{_said(answer.body)}"
    if status == _NOT_FOUND:
        raise NotInTailnet(said)
    if status in _UNAUTHORIZED:
        raise JoinRejected(f"{said}: {remedy}.")
    if status in _PASSING or status >= _SERVER_ERRORS:
        raise JoinError(f"{said}.")
    raise JoinRejected(f"{said}.")


def _said(body: bytes) -> str:
    try:
        found = decode_body(body, _ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    text = found.message or found.error_description or found.error
    return f" ({text[:200]})" if text else ""
