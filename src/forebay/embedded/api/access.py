"""`Guarded`: lets only the holder of the token in, and only under a name of this machine.

A page in a browser can reach every loopback port: it may send requests it cannot read (then it lacks the token), or
point a name of its own at 127.0.0.1 to read the answers too (then the Host header has that name).
"""

import hmac
from typing import Final
from urllib.parse import urlsplit

import msgspec

from forebay.embedded.api.failures import ApiFailure
from forebay.net.transport import Handler, Request, Response

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class Guarded:
    """A handler for a loopback socket in front of `handler`, which itself asks for no credentials."""

    def __init__(self, handler: Handler, token: str) -> None:
        self._handler = handler
        self._authorization = f"Bearer {token}".encode()

    async def __call__(self, request: Request) -> Response:
        failure = self._refusal(request)
        if failure is None:
            return await self._handler(request)
        return Response(failure.code, {"Content-Type": "application/json"}, msgspec.json.encode(failure.status()))

    def _refusal(self, request: Request) -> ApiFailure | None:
        if _host(request.headers.get("Host", "")) not in _LOOPBACK:
            return ApiFailure(403, "Forbidden", "this server answers only to 127.0.0.1 and localhost")
        # Bytes, because compare_digest takes no text beyond ASCII.
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._authorization):
            return ApiFailure(401, "Unauthorized", "Unauthorized")
        return None


def _host(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
