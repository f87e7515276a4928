"""The operator as a whole, on any transport: production, demo and tests run this same code."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import structlog

from forebay.api.machines import Machine
from forebay.api.names import OPERATOR_LEASE
from forebay.engine.apply.applier import Applier
from forebay.engine.apply.events import Events
from forebay.engine.apply.launches import Launches
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.apply.records import Records
from forebay.engine.counts import Counts
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.ledger.store import LedgerStore
from forebay.engine.loop import Loop, Pace
from forebay.engine.observe import Observer
from forebay.engine.sources.configuration import source_configs
from forebay.engine.sources.secrets import ClusterSecrets
from forebay.engine.sources.sources import Sources
from forebay.engine.views import Views, watching
from forebay.kube.client import Client
from forebay.kube.events import EventRecorder
from forebay.kube.informer import Informer
from forebay.kube.lease import Elector, LeadershipLost, Terms
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import Transport
from forebay.providers.registry import ProviderContext
from forebay.reconcile.snapshot import OperatorRules

log = structlog.get_logger(__name__)

#: How long calls to providers may still take when the operator is asked to stop. Less than the grace of its pod.
_FAREWELL: Final = 10.0


class Operator:
    """Use it in `async with`: inside the block its views are kept current; `run` waits to lead, and then acts.

    It stands by with warm views until it leads, and again when it no longer does. `election` is a client with a
    connection of its own, so that no burst of other requests delays a renewal. `opening` is another, for what tells the
    scheduler whom a new node is for: told late, it has found another use. `make_transport` leads to providers.
    `rng` spreads what many replicas would do at once; a seeded one makes a run repeatable.
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
        make_transport: Callable[[TlsOptions | None], Transport],
        redactor: Redactor | None = None,
        machines: tuple[Machine, ...] = (),
        rules: OperatorRules = OperatorRules(),  # noqa: B008 (immutable)
        terms: Terms = Terms(),  # noqa: B008 (immutable)
        pace: Pace = Pace(),  # noqa: B008 (immutable)
        opening: Client | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.recorder = EventRecorder(client, instance=identity)
        self.elector = Elector(
            election, namespace, OPERATOR_LEASE, identity, terms=terms, recorder=self.recorder, rng=rng
        )
        self._client = client
        self._opening = opening or client
        self._server = server
        self._namespace = namespace
        self._clock = clock
        self._make_transport = make_transport
        self._redactor = redactor or Redactor()
        self._machines = machines
        self._rules = rules
        self._pace = pace
        self._rng = rng
        self._stack = AsyncExitStack()
        self.views: Views | None = None
        self.counts = Counts()
        #: At work while this process leads.
        self.loop: Loop | None = None
        self.sources: Sources | None = None
        self.budget_accounting: BudgetAccounting | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.recorder)
        views = watching(
            self._client.transport,
            self._server,
            clock=self._clock,
            gpu_resources=self._rules.gpu_resources,
            rng=self._rng,
        )
        self.views = await self._stack.enter_async_context(views)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def run(self) -> NoReturn:
        """Until it is cancelled: then work stops, and the lease is given back."""
        while True:
            try:
                await self.elector.run(self._lead)
            except LeadershipLost as lost:
                log.warning("standing by again", why=str(lost))

    async def _lead(self) -> NoReturn:
        assert self.views is not None, "run() needs the block around it"
        views = self.views
        cluster = await self._cluster(views)
        context = ProviderContext(
            make_transport=self._make_transport,
            secrets=ClusterSecrets(self._client),
            namespace=self._namespace,
            cluster=cluster,
            redactor=self._redactor,
            clock=self._clock,
        )
        sources = Sources(views.wake.set, self._clock)
        errands = ProviderCalls(views.wake.set)
        records = Records(self._client, views)
        announcements = Events(self.recorder, views)
        launches = Launches(
            records=records,
            sources=sources,
            errands=errands,
            announcements=announcements,
            elector=self.elector,
            cluster=cluster,
            clock=self._clock,
            counts=self.counts,
        )
        budget_accounting = BudgetAccounting(
            views,
            LedgerStore(self._client, self._namespace),
            clock=self._clock,
            still_leader=self.elector.still_leader,
            counts=self.counts,
            states=sources.states,
            gpu_resources=self._rules.gpu_resources,
        )
        loop = Loop(
            views=views,
            sources=sources,
            observer=Observer(
                views,
                sources,
                errands,
                cluster=cluster,
                machines=self._machines,
                rules=self._rules,
                clock=self._clock,
                budget_accounting=budget_accounting,
            ),
            applier=Applier(
                self._client,
                views,
                announcements,
                launches,
                self.elector,
                opening=self._opening,
                actions=budget_accounting.actions,
                clock=self._clock,
            ),
            configure=lambda: sources.configure(source_configs(views.classes.values(), self._machines, context)),
            counts=self.counts,
            pace=self._pace,
        )
        self.loop, self.sources, self.budget_accounting = loop, sources, budget_accounting
        keeping = asyncio.create_task(budget_accounting.run(), name="budget accounting")
        try:
            await loop.run()
        finally:
            self.loop = self.sources = self.budget_accounting = None
            keeping.cancel()
            await asyncio.wait({keeping})
            patience = _FAREWELL if self.elector.still_leader() else 0.0
            await asyncio.gather(errands.finish(patience), budget_accounting.finish(patience))
            await sources.close()

    async def _cluster(self, views: Views) -> str:
        """UID of kube-system: two clusters in one account never touch each other's machines."""
        while True:
            await views.namespaces.wait_synced()
            found = views.namespaces.get(("", "kube-system"))
            if found is not None:
                return found.uid
            log.warning("there is no namespace kube-system, so this cluster cannot be told from others")
            await asyncio.sleep(self._pace.again)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return () if self.views is None else self.views.informers

    def broken(self) -> str | None:
        """What only another process can mend; None where nothing is broken."""
        ended = next((each.resource.plural for each in self.informers if each.ended), None)
        return None if ended is None else f"the watch of {ended} has ended by a fault of Forebay: see its log"

    def error(self) -> str | None:
        """Why it could not act if it led; None when it could."""
        if self.views is None:
            return "starting"
        # Views that are young enough to think with do not show that the server is gone; the lease, asked for every few
        # seconds, does.
        silence = self.elector.unreachable
        return self.views.error() or (f"the lease cannot be asked for: {silence}" if silence is not None else None)
