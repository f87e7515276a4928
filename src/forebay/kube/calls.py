"""One call to the API server: sent, and its error answers raised.

Nothing is repeated here but what the server itself asked to repeat: a 429 of its priority and fairness queues was not
acted upon, so it is sent again after `Retry-After`, whatever the verb. Every other retry is the caller's decision.
"""

import asyncio
import random
from collections.abc import Mapping
from urllib.parse import urlencode

from forebay.kube import errors
from forebay.kube.writes import JSON
from forebay.net.transport import Headers, Request, Transport

#: Seconds that a call may spend waiting because the server is busy.
MAX_THROTTLE_WAIT = 60.0
_BUSY_WAIT = 1.0


class ApiCalls:
    def __init__(
        self, transport: Transport, base_url: str, *, max_throttle_wait: float, rng: random.Random | None
    ) -> None:
        self._transport = transport
        self._base_url = base_url.rstrip("/")
        self._max_throttle_wait = max_throttle_wait
        self._rng = rng or random.Random()  # noqa: S311 (jitter)

    async def body(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
    ) -> tuple[bytes, str]:
        """The body of a success, and the call's name for messages. Parameters with empty values are left out."""
        query = urlencode({name: value for name, value in (params or {}).items() if value})
        request = Request(
            method=method,
            url=f"{self._base_url}{path}{'?' if query else ''}{query}",
            headers=Headers({"Accept": JSON} if body is None else {"Accept": JSON, "Content-Type": content_type}),
            body=body,
        )
        waited = 0.0
        while True:
            response = await self._transport.request(request)
            answer = await response.read()
            if response.ok:
                return answer, str(request)
            error = errors.from_response(response.status, response.headers, answer, call=str(request))
            # With causes it is no sign of load: a disruption budget refused an eviction, and the caller must know.
            if not isinstance(error, errors.TooManyRequests) or error.causes:
                raise error
            # Up to a quarter more than asked for: all who were refused together should not come back together.
            wait = (error.retry_after or _BUSY_WAIT) * (1 + self._rng.random() / 4)
            if waited + wait > self._max_throttle_wait:
                raise error
            waited += wait
            await asyncio.sleep(wait)
