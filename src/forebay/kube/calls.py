"""Requests to the API server, with error responses raised as `ApiError`.

The only retry is of a 429 from API Priority and Fairness: the server did not act on that request, so it is sent again
after `Retry-After`, whatever the verb. Every other retry is the caller's decision.
"""

import asyncio
import random
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode

from forebay.kube import errors
from forebay.kube.writes import JSON
from forebay.net.transport import Headers, Request, Transport

#: Seconds that one request may wait in total because the server answers 429.
MAX_THROTTLE_WAIT = 60.0
#: The wait after a 429 without `Retry-After`.
_DEFAULT_RETRY_AFTER = 1.0


class ApiCalls:
    def __init__(
        self, transport: Transport, base_url: str, *, max_throttle_wait: float, rng: random.Random | None
    ) -> None:
        self._transport = transport
        self._base_url = base_url.rstrip("/")
        self._max_throttle_wait = max_throttle_wait
        self._rng = rng or random.Random()  # noqa: S311 (jitter)
        self._date: str | None = None

    @property
    def server_time(self) -> datetime | None:
        """Time on the server's clock when it last responded; None if it has not said."""
        if self._date is None:
            return None
        try:
            return parsedate_to_datetime(self._date)
        except ValueError:
            return None

    async def body(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
    ) -> tuple[bytes, str]:
        """The body of a successful response, and the request as text for messages. Empty parameters are left out."""
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
            self._date = response.headers.get("Date") or self._date
            if response.ok:
                return answer, str(request)
            error = errors.from_response(response.status, response.headers, answer, call=str(request))
            # A 429 with causes is no sign of load: a PodDisruptionBudget refused an eviction. The caller decides.
            if not isinstance(error, errors.TooManyRequests) or error.causes:
                raise error
            # Jitter: requests that were throttled together should not come back together.
            wait = (error.retry_after or _DEFAULT_RETRY_AFTER) * (1 + self._rng.random() / 4)
            if waited + wait > self._max_throttle_wait:
                raise error
            waited += wait
            await asyncio.sleep(wait)
