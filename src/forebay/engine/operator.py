"""The operator as a whole, on any transport: production, demo and tests run this same code."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, NoReturn, Self

import structlog

from forebay.engine.apply import Applier
from forebay.engine.loop import Loop
from forebay.engine.permissions import LEASE
from forebay.engine.views import Views, watching
from forebay.kube.client import Client
from forebay.kube.events import EventRecorder
from forebay.kube.informer import Informer
from forebay.kube.lease import Elector, LeadershipLost, Terms

log = structlog.get_logger(__name__)


class Operator:
    """Use it in `async with`: inside the block its views are kept current; `run` waits to lead, and then acts.

    It stands by with warm views until it leads, and again when it no longer does. `election` is a client with a
    connection of its own, so that no burst of other requests delays a renewal.
    """

    def __init__(
        self,
        client: Client,
        election: Client,
        server: str,
        *,
        namespace: str,
        identity: str,
        clock: Callable[[], datetime],
        terms: Terms = Terms(),  # noqa: B008 (immutable)
    ) -> None:
        self.recorder = EventRecorder(client, instance=identity)
        self.elector = Elector(election, namespace, LEASE, identity, terms=terms, recorder=self.recorder)
        self._client = client
        self._server = server
        self._clock = clock
        self._stack = AsyncExitStack()
        self.views: Views | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.recorder)
        self.views = await self._stack.enter_async_context(watching(self._client.transport, self._server))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def run(self) -> NoReturn:
        """Until it is cancelled: then work stops, and the lease is given back."""
        assert self.views is not None, "run() needs the block around it"
        applier = Applier(self._client, self.views, self.recorder, self.elector)
        loop = Loop(self.views, applier.apply, self._clock)
        while True:
            try:
                await self.elector.run(loop.run)
            except LeadershipLost as lost:
                log.warning("standing by again", why=str(lost))

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return () if self.views is None else self.views.informers

    def trouble(self) -> str | None:
        """Why it could not act if it led; None when it could."""
        if self.views is None:
            return "starting"
        # Views that are young enough to think with do not show that the server is gone; the lease, asked for every few
        # seconds, does.
        silence = self.elector.out_of_reach
        return self.views.trouble() or (f"the lease cannot be asked for: {silence}" if silence is not None else None)
