"""The whole operator, on any transport: production, demo and tests run this code."""

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
from forebay.engine.loop import Loop, LoopTiming
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

#: Seconds that provider calls and ledger writes may still take at shutdown. Less than the grace period of the pod.
_SHUTDOWN_TIMEOUT: Final = 8.0
#: Ticks in a row that may fail before the replica is not ready, and before it is restarted: some seconds, and about a
#: minute.
_MOST_FAILURES_READY: Final = 2
_MOST_FAILURES_ALIVE: Final = 30


class Operator:
    """One replica of the operator. Its informers run inside `async with`; `run` waits for leadership, then reconciles.

    A replica that does not lead keeps its informers current, so that it can take over at once.

    - `election_client` has a connection of its own, so that no burst of other requests delays the renewal of the Lease.
    - `nomination_client` has one too: the scheduler gives a new node to other pods if nominations arrive late.
    - `make_transport` makes connections to providers.
    - `rng` adds jitter to what many replicas would do at the same moment; a seeded one makes a run repeatable.
    """

    def __init__(
        self,
        client: Client,
        election_client: Client,
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
        timing: LoopTiming = LoopTiming(),  # noqa: B008 (immutable)
        nomination_client: Client | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.recorder = EventRecorder(client, instance=identity)
        self.elector = Elector(
            election_client,
            namespace,
            OPERATOR_LEASE,
            identity,
            terms=terms,
            recorder=self.recorder,
            on_new_leader=lambda leader: _log_standby(leader, identity),
            rng=rng,
        )
        self._client = client
        self._nomination_client = nomination_client or client
        self._server = server
        self._namespace = namespace
        self._clock = clock
        self._make_transport = make_transport
        self._redactor = redactor or Redactor()
        self._machines = machines
        self._rules = rules
        self._timing = timing
        self._rng = rng
        self._stack = AsyncExitStack()
        self.views: Views | None = None
        self.counts = Counts()
        #: These three are None unless this process leads.
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
        """Runs until cancelled; then work stops and the Lease is released."""
        while True:
            try:
                await self.elector.run(self._lead)
            except LeadershipLost as lost:
                log.warning("leadership lost", error=str(lost))

    async def _lead(self) -> NoReturn:
        assert self.views is not None, "run() must be called inside `async with`"
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
        provider_calls = ProviderCalls(views.wake.set)
        records = Records(self._client, views)
        events = Events(self.recorder, views)
        launches = Launches(
            records=records,
            sources=sources,
            provider_calls=provider_calls,
            events=events,
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
                provider_calls,
                cluster=cluster,
                machines=self._machines,
                rules=self._rules,
                clock=self._clock,
                budget_accounting=budget_accounting,
            ),
            applier=Applier(
                self._client,
                views,
                events,
                launches,
                self.elector,
                nomination_client=self._nomination_client,
                actions=budget_accounting.actions,
                clock=self._clock,
            ),
            configure=lambda: sources.configure(source_configs(views.classes.values(), self._machines, context)),
            counts=self.counts,
            timing=self._timing,
        )
        self.loop, self.sources, self.budget_accounting = loop, sources, budget_accounting
        accounting_task = asyncio.create_task(budget_accounting.run(), name="budget accounting")
        try:
            await loop.run()
        finally:
            self.loop = self.sources = self.budget_accounting = None
            accounting_task.cancel()
            await asyncio.wait({accounting_task})
            timeout = _SHUTDOWN_TIMEOUT if self.elector.still_leader() else 0.0
            await asyncio.gather(provider_calls.finish(timeout), budget_accounting.finish(timeout))
            await sources.close()

    async def _cluster(self, views: Views) -> str:
        """UID of the namespace kube-system, which identifies the cluster: clusters with a common provider account must
        not touch each other's machines.
        """
        while True:
            await views.namespaces.wait_synced()
            found = views.namespaces.get(("", "kube-system"))
            if found is not None:
                return found.uid
            log.warning("namespace kube-system not found")
            await asyncio.sleep(self._timing.retry)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return () if self.views is None else self.views.informers

    def fatal_error(self) -> str | None:
        """An error that only a restart can repair (for the liveness probe); None where there is none."""
        ended = next((each.resource.plural for each in self.informers if each.ended), None)
        if ended is not None:
            return f"the watch of {ended} was ended by a bug of Forebay: see its log"
        # Another replica, or a new process, may fare better; and a restarting pod is noticed where a log is not.
        return None if self.loop is None else self.loop.error(_MOST_FAILURES_ALIVE)

    def error(self) -> str | None:
        """Why this replica could not reconcile if it led (for the readiness probe); None where it could."""
        if self.views is None:
            return "starting"
        # Informers notice a lost API server only after a while; the Lease, renewed every few seconds, at once.
        lease_error = self.elector.unreachable
        if (stale := self.views.error()) is not None:
            return stale
        if lease_error is not None:
            return f"the Lease cannot be read or renewed: {lease_error}"
        return None if self.loop is None else self.loop.error(_MOST_FAILURES_READY)


def _log_standby(leader: str, identity: str) -> None:
    if leader not in {"", identity}:
        log.info("standby", leader=leader, identity=identity)
