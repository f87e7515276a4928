"""A conformance server of RunPod in front of which requests and answers are lost."""

import random
from typing import Any

from forebay.net.transport import Headers, Response
from tests.contract.providers.runpod.server import RunpodCloud


class FaultyRunpod:
    """The server, of whose requests a part is refused and a part loses its answer.

    Without `harsh`, an order that is refused is told so (429), and no deletion loses its answer: whether an order with
    another answer has acted, and whether a fresh pod that DELETE does not find is gone, is certain after two minutes.
    """

    def __init__(self, cloud: RunpodCloud, *, harsh: bool) -> None:
        self._cloud = cloud
        #: Part of the requests that fails; none before the Jobs come.
        self.faults = 0.0
        self._harsh = harsh
        self._chance = random.Random(7)
        self.failed = 0

    async def answer(self, request: Any) -> Response:
        drawn = self._chance.random()
        if drawn >= self.faults:
            return await self._cloud.answer(request)
        self.failed += 1
        if drawn < self.faults / 2 or (request.method == "DELETE" and not self._harsh):
            known = request.method == "POST" and not self._harsh
            return Response(429, Headers({"Retry-After": "1"}), b"") if known else Response(503, Headers({}), b"")
        if not request.url.partition("?")[0].endswith("/logs"):
            await self._cloud.answer(request)
        return Response(502, Headers({}), b"")
