"""Who may read a page: everybody on this machine, or whoever shows a token of a user whom the cluster lets read it."""

import asyncio
import base64
import binascii
from hashlib import blake2b
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

import structlog

from forebay.kube.access_reviews import may_get, user_of_token
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.net.transport import Handler, Request, Response, TransportError

log = structlog.get_logger(__name__)

_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}
#: Seconds for which an answer of the API server holds: a token that is revoked works for so long.
_ALLOWED_FOR: Final = 30.0
_REFUSED_FOR: Final = 10.0
_MOST_REMEMBERED: Final = 1000
#: Longer ones are refused unseen. Tokens of service accounts have about 1,000 characters.
_LONGEST_TOKEN: Final = 16_384


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`, an address or a name."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def for_this_machine(handler: Handler) -> Handler:
    """The handler for requests to a loopback name only.

    A website could have its own name resolve to 127.0.0.1 and read the page through the browser of whoever visits it.
    The browser still sends the name of that website.
    """

    async def handle(request: Request) -> Response:
        host = request.headers.get("Host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if not is_loopback(name.strip("[]")):
            return Response(HTTPStatus.FORBIDDEN, _TEXT, b"open this page as http://localhost or http://127.0.0.1\n")
        return await handler(request)

    return handle


class TokenAccess:
    """Asks the API server about tokens (TokenReview) and their users (SubjectAccessReview), and remembers the answers
    for some seconds.

    `path` is the non-resource URL that users must be allowed to `get`. `client` must not be the operator's: whoever can
    reach the port can make it ask, and must not use up what the operator needs.
    """

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path
        #: Until when an answer holds, by the clock of the event loop, and the answer: None, or why it is refused.
        self._answers: dict[bytes, tuple[float, HTTPStatus | None]] = {}

    async def refusal(self, token: str) -> HTTPStatus | None:
        """None: the holder of the token may read the path. Nobody may while the API server cannot be asked."""
        digest = blake2b(token.encode(errors="surrogateescape"), digest_size=32).digest()
        now = asyncio.get_running_loop().time()
        until, answer = self._answers.get(digest, (0.0, None))
        if now < until:
            return answer
        try:
            answer = await self._ask(token)
        except (KubeError, TransportError) as error:
            log.warning("access not reviewed", path=self._path, error=str(error))
            return HTTPStatus.SERVICE_UNAVAILABLE
        if len(self._answers) >= _MOST_REMEMBERED:
            self._answers.clear()
        self._answers[digest] = (now + (_ALLOWED_FOR if answer is None else _REFUSED_FOR), answer)
        return answer

    async def _ask(self, token: str) -> HTTPStatus | None:
        user = await user_of_token(self._client, token)
        if user is None:
            return HTTPStatus.UNAUTHORIZED
        if await may_get(self._client, user, self._path):
            return None
        log.info("access refused", path=self._path, user=user.username)
        return HTTPStatus.FORBIDDEN

    def challenge(self, *, basic: bool) -> dict[str, str]:
        offered = ['Bearer realm="forebay"']
        if basic:
            offered.append('Basic realm="Forebay: any user name; the password is a token of Kubernetes"')
        return {"WWW-Authenticate": ", ".join(offered)}


def for_token_holders(handler: Handler, access: TokenAccess, *, basic: bool = False) -> Handler:
    """The handler for requests with a token that `access` admits.

    `basic`: the token may also come as the password of HTTP Basic authentication, which browsers ask people for.
    """

    async def handle(request: Request) -> Response:
        token = _token(request, basic=basic)
        refusal = HTTPStatus.UNAUTHORIZED if token is None else await access.refusal(token)
        match refusal:
            case None:
                return await handler(request)
            case HTTPStatus.UNAUTHORIZED:
                return Response(refusal, _TEXT | access.challenge(basic=basic), b"show a token of Kubernetes\n")
            case HTTPStatus.FORBIDDEN:
                return Response(refusal, _TEXT, b"the cluster does not let this user read this page\n")
            case _:
                return Response(refusal, _TEXT | {"Retry-After": "5"}, b"the API server cannot be asked right now\n")

    return handle


def _token(request: Request, *, basic: bool) -> str | None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    token = given.strip()
    if scheme.casefold() == "basic" and basic:
        try:
            token = base64.b64decode(token, validate=True).decode().partition(":")[2].strip()
        except (binascii.Error, UnicodeDecodeError):
            return None
    elif scheme.casefold() != "bearer":
        return None
    return token if 0 < len(token) <= _LONGEST_TOKEN else None
