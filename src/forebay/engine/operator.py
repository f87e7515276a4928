"""The whole operator, on any transport: production, demo and tests run this code."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from datetime import datetime
from types import TracebackType
from typing import Any, Final, NoReturn, Self

import msgspec
import structlog

from forebay.api.names import OPERATOR_LEASE, REGISTRY_CREDENTIAL
from forebay.engine.apply.applier import Applier
from forebay.engine.apply.budgets import BudgetActions
from forebay.engine.apply.capacity_conditions import CapacityConditions
from forebay.engine.apply.container_specs import ContainerSpecs
from forebay.engine.apply.events import Events
from forebay.engine.apply.join_credentials import JoinCredentials
from forebay.engine.apply.join_payloads import JoinPayloads
from forebay.engine.apply.launches import Launches
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.apply.records import Records
from forebay.engine.apply.registry_credentials import RegistryCredentials
from forebay.engine.apply.startup_taints import RefusedTolerations, StartupTaints
from forebay.engine.counts import Counts
from forebay.engine.gate import GateWatch
from forebay.engine.ledger.audits import Audits
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.ledger.store import LedgerStore
from forebay.engine.loop import Loop, LoopTiming
from forebay.engine.observe import Observer
from forebay.engine.sources.configuration import ConfiguredSources
from forebay.engine.sources.environment import Environment
from forebay.engine.sources.secrets import ClusterSecrets, JoinSecrets
from forebay.engine.sources.sources import Sources
from forebay.engine.views import Views, watching
from forebay.engine.virtual_node.log_port import PortServer
from forebay.engine.virtual_node.pod_containers import PodContainers
from forebay.engine.virtual_node.remote_work import RemoteWork
from forebay.join.methods import JoinMethods
from forebay.kube.client import Client
from forebay.kube.events import EventRecorder
from forebay.kube.informer import Informer
from forebay.kube.lease import Elector, LeadershipLost, Terms
from forebay.kube.right_of_way import RightOfWay
from forebay.lifecycle.facts import source_of
from forebay.net.redaction import Redactor
from forebay.net.tls import TlsOptions
from forebay.net.transport import Transport
from forebay.providers.plugin import ProviderContext
from forebay.providers.registry import EnvironmentConfig
from forebay.providers.secrets import WithVariables
from forebay.reconcile.snapshot import OperatorRules
from forebay.reporting.observation import Observation, Standby

log = structlog.get_logger(__name__)

#: Seconds that a shutdown may take, whatever hangs. Less than the grace period of the pod.
_SHUTDOWN_TIMEOUT: Final = 15.0
#: Seconds of these that are kept: for the release of the Lease and the events, after provider calls and ledger writes;
#: and for the events alone.
_KEPT_FOR_RELEASE: Final = 5.0
_KEPT_FOR_EVENTS: Final = 2.0
_EVENTS_TIMEOUT: Final = 5.0
#: Ticks in a row that may fail before the replica is not ready, and before it is restarted: some seconds, and about a
#: minute.
_MOST_FAILURES_READY: Final = 2
_MOST_FAILURES_ALIVE: Final = 30


class Operator:
    """One replica of the operator. Its informers run inside `async with`; `run` waits for leadership, then reconciles.

    A replica that does not lead keeps its informers current, so that it can take over at once.

    - `election_client` has a connection of its own, so that no burst of other requests delays the renewal of the Lease.
    - `startup_client` has one too, for startup taints and tolerations: a node that joins without its taint is open.
    - `make_transport` makes connections to providers.
    - `container_specs` makes the seam from which launches get the containers of pods that run remotely; whoever gives
      one orders these containers and keeps their virtual node too. Default: marked Jobs run remotely (`offload`).
    - `port_server` opens the port of the virtual node, by which `kubectl logs` works. Default: there is none.
    - `environment` is what environment variables configure besides the GPUNodeClasses in the cluster.
    - `rng` adds jitter to what many replicas would do at the same moment; a seeded one makes a run repeatable.
    - `traced` is entered for each tick.
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
        environment: EnvironmentConfig = EnvironmentConfig(),  # noqa: B008 (immutable)
        rules: OperatorRules = OperatorRules(),  # noqa: B008 (immutable)
        terms: Terms = Terms(),  # noqa: B008 (immutable)
        timing: LoopTiming = LoopTiming(),  # noqa: B008 (immutable)
        startup_client: Client | None = None,
        container_specs: Callable[[Client, Views], ContainerSpecs] | None = None,
        port_server: PortServer | None = None,
        rng: random.Random | None = None,
        traced: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._way = RightOfWay()
        self.recorder = EventRecorder(client, instance=identity, way=self._way)
        self.elector = Elector(
            election_client,
            namespace,
            OPERATOR_LEASE,
            identity,
            terms=terms,
            recorder=self.recorder,
            on_new_leader=lambda leader: _log_standby(leader, identity),
            release_timeout=lambda: self._time_left(_KEPT_FOR_EVENTS),
            rng=rng,
        )
        #: Time of the event loop at which the shutdown that is under way must be over; None before.
        self._stop_by: float | None = None
        self._client = client
        self._startup_client = startup_client or client
        self._container_specs = container_specs
        self._port_server = port_server
        self._server = server
        self._namespace = namespace
        self._clock = clock
        self._make_transport = make_transport
        self._redactor = redactor or Redactor()
        self._environment = environment
        self._rules = msgspec.structs.replace(
            rules, namespace=namespace, gpu_count_variables=environment.gpu_count_variables
        )
        self._timing = timing
        self._rng = rng
        self._traced = traced
        self._stack = AsyncExitStack()
        self.views: Views | None = None
        self.counts = Counts()
        #: These three are None unless this process leads.
        self.loop: Loop | None = None
        self.sources: Sources | None = None
        self.budget_accounting: BudgetAccounting | None = None

    async def __aenter__(self) -> Self:
        self._stack.push_async_callback(self._close_recorder)
        views = watching(
            self._client.transport,
            self._server,
            clock=self._clock,
            gpu_resources=self._rules.gpu_resources,
            budgets=self._rules.budgets,
            rng=self._rng,
        )
        self.views = await self._stack.enter_async_context(views)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def _close_recorder(self) -> None:
        await self.recorder.close(min(_EVENTS_TIMEOUT, self._time_left()))

    def _time_left(self, kept: float = 0.0) -> float:
        """Seconds until the end of the shutdown, which begins with the first call, without those `kept` for later."""
        now = asyncio.get_running_loop().time()
        if self._stop_by is None:
            self._stop_by = now + _SHUTDOWN_TIMEOUT
        return max(0.0, self._stop_by - kept - now)

    async def run(self) -> NoReturn:
        """Runs until cancelled; then work stops and the Lease is released."""
        while True:
            try:
                await self.elector.run(self._lead)
            except LeadershipLost as lost:
                log.warning("leadership lost", error=str(lost))
                self._stop_by = None

    async def _lead(self) -> NoReturn:
        assert self.views is not None, "run() must be called inside `async with`"
        views = self.views
        cluster = await self._cluster(views)
        context = self._provider_context(cluster)
        join_secrets = JoinSecrets(context.secrets, views.wake.set, self._clock)
        sources = Sources(views.wake.set, self._clock, lambda: join_secrets.versions)
        provider_calls = ProviderCalls(views.wake.set)
        records = Records(self._client, views)
        events = Events(self.recorder, views)
        payloads = JoinPayloads(self._client, join_secrets, self._redactor, self._namespace)
        methods = JoinMethods(
            self._client,
            self._redactor,
            self._clock,
            read_secret=payloads.read_secret,
            make_transport=self._make_transport,
        )
        registry_credentials = RegistryCredentials(
            self._client, views, lambda record: sources.provider(source_of(record)), self._redactor, cluster
        )
        join_credentials = JoinCredentials(
            methods,
            payloads,
            records=records,
            views=views,
            provider_calls=provider_calls,
            clock=self._clock,
            others={REGISTRY_CREDENTIAL: registry_credentials.revoke},
            on_failure=join_secrets.failed,
        )
        launches = Launches(
            records=records,
            sources=sources,
            provider_calls=provider_calls,
            events=events,
            elector=self.elector,
            cluster=cluster,
            join_credentials=join_credentials,
            container_specs=(
                PodContainers(self._client)
                if self._container_specs is None
                else self._container_specs(self._client, views)
            ),
            registry_credentials=registry_credentials,
            clock=self._clock,
            counts=self.counts,
        )
        budget_accounting = BudgetAccounting(
            views,
            LedgerStore(self._client, self._namespace),
            clock=self._clock,
            still_leader=self.elector.still_leader,
            counts=self.counts,
            gpu_resources=self._rules.gpu_resources,
            budgets=self._rules.budgets,
        )
        conditions = CapacityConditions(self._client, views, self.elector.still_leader, self.counts, self._way)
        refused_tolerations = RefusedTolerations()
        gate = GateWatch(self._client, views) if self._rules.budgets else None
        remote = None
        if self._container_specs is None:
            remote = RemoteWork(
                self._client,
                self._server,
                views,
                sources,
                identity=self.elector.identity,
                still_leader=self.elector.still_leader,
                clock=self._clock,
                counts=self.counts,
                port_server=self._port_server,
                tell=events.pod_event,
            )
        environment = Environment(self._environment, views, self._namespace, self._rules.idle_delay)
        loop = Loop(
            views=views,
            sources=sources,
            observer=Observer(
                views,
                sources,
                provider_calls,
                cluster=cluster,
                environment=environment,
                rules=self._rules,
                clock=self._clock,
                budget_accounting=budget_accounting,
                gate=gate,
                refused_tolerations=refused_tolerations,
                remote=remote,
            ),
            applier=Applier(
                self._client,
                views,
                events,
                launches,
                self.elector,
                join_credentials=join_credentials,
                conditions=conditions,
                budgets=BudgetActions(self._client, views, events, budget_accounting.actions, self._clock),
                startup_taints=StartupTaints(self._startup_client, views, refused_tolerations, self._clock),
                way=self._way,
                clock=self._clock,
                counts=self.counts,
            ),
            configure=ConfiguredSources(sources, environment, views, context),
            counts=self.counts,
            timing=self._timing,
            traced=self._traced,
        )
        self.loop, self.sources, self.budget_accounting = loop, sources, budget_accounting
        audits = Audits(self._client, budget_accounting, clock=self._clock, counts=self.counts)
        beside = {
            asyncio.create_task(budget_accounting.run(), name="budget accounting"),
            asyncio.create_task(audits.run(), name="budget audits"),
            asyncio.create_task(join_secrets.run(), name="secrets of joins"),
            asyncio.create_task(conditions.run(), name="capacity conditions"),
        }
        if gate is not None:
            beside.add(asyncio.create_task(gate.run(), name="gate of budgets"))
        if remote is not None:
            beside.add(asyncio.create_task(remote.run(), name="remote pods"))
        self.counts.queues = {
            "provider_calls": lambda: len(provider_calls.busy),
            "pod_conditions": lambda: len(conditions),
            "events": lambda: self.recorder.queued,
        }
        try:
            await loop.run()
        finally:
            self.counts.queues = {}
            self.loop = self.sources = self.budget_accounting = None
            timeout = self._time_left(_KEPT_FOR_RELEASE)
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            if not self.elector.still_leader():
                timeout = 0.0
            await asyncio.gather(provider_calls.finish(timeout), budget_accounting.finish(timeout))
            await sources.close()
            await methods.close()

    def _provider_context(self, cluster: str) -> ProviderContext:
        return ProviderContext(
            make_transport=self._make_transport,
            secrets=WithVariables(ClusterSecrets(self._client), self._environment.secrets),
            namespace=self._namespace,
            cluster=cluster,
            redactor=self._redactor,
            clock=self._clock,
        )

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

    def observation(self) -> Observation | Standby:
        """What the last tick saw and decided; of a replica that does not lead, or has not yet, who does."""
        loop, accounting = self.loop, self.budget_accounting
        if loop is None:
            return Standby(self.elector.leader)
        if loop.last is None:
            return Standby(self.elector.leader, self.error() or "the first tick")
        snapshot, result = loop.last
        bill = accounting.bill_accounting.bill.ledgers if accounting is not None else {}
        return Observation(snapshot=snapshot, decisions=result.decisions, log=loop.decision_log, bill=bill)

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
        if self.loop is not None and (failing := self.loop.error(_MOST_FAILURES_READY)) is not None:
            return failing
        # A standby asks no provider.
        return None if self.sources is None else self.sources.unanswered(self._environment.accounts)


def _log_standby(leader: str, identity: str) -> None:
    if leader not in {"", identity}:
        log.info("standby", leader=leader, identity=identity)
