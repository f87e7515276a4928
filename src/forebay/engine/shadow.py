"""`forebay run --dry-run`: the operator in shadow mode. It reads and decides as usual, and says what it decides. It
changes nothing: not in the cluster, and not at a provider.

Two things make sure of that. Nothing here applies a decision; and all requests go through `net.read_only.ReadOnly`.
There is no Lease: a dry run may run beside an operator.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from datetime import date, datetime, timedelta
from typing import Any, Final, NoReturn

import msgspec
import structlog

from forebay.budgets.ledger.chunk_log import ChunkWrite
from forebay.engine.apply.applier import ApplyResult
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.gate import GateWatch
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.ledger.store import LedgerKey, LedgerStore
from forebay.engine.loop import Loop
from forebay.engine.observe import Observer
from forebay.engine.operator import Operator
from forebay.engine.sources.configuration import ConfiguredSources
from forebay.engine.sources.environment import Environment
from forebay.engine.sources.sources import Sources
from forebay.kube.client import Client
from forebay.lifecycle.steps import Adopt, WriteStatus
from forebay.net.read_only import ReadOnly
from forebay.net.tls import TlsOptions
from forebay.net.transport import Transport
from forebay.reconcile.decisions import CreateInstance, Decision
from forebay.reconcile.shadow_fleet import ShadowFleet
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.observation import Observation, Standby
from forebay.reporting.receipts import Receipt, receipt, receipt_days

log = structlog.get_logger(__name__)

#: Least seconds between two ticks.
_LEAST_WAIT: Final = 1.0


class ShadowOperator(Operator):
    """An operator that decides and changes nothing. Takes what an `Operator` takes; whatever it is given, it reads."""

    def __init__(
        self,
        client: Client,
        election_client: Client,  # noqa: ARG002 (a dry run has no Lease)
        server: str,
        *,
        clock: Callable[[], datetime],
        make_transport: Callable[[TlsOptions | None], Transport],
        run_time: timedelta,
        **options: Any,
    ) -> None:
        """`run_time`: how long a pod is assumed to run that in reality gets no node."""
        reader = Client(ReadOnly(client.transport), server)
        super().__init__(
            reader,
            reader,
            server,
            clock=clock,
            make_transport=lambda tls: ReadOnly(make_transport(tls)),
            **options,
        )
        self.fleet = ShadowFleet(run_time)
        self._began = clock()
        #: Of days that are over: a page that is open asks every second, and a month may have thousands of machines.
        self._over: dict[date, Receipt] = {}

    def receipts(self) -> tuple[Receipt, ...]:
        """The receipts of all days so far, today's first."""
        now, purchases, savings = self._clock(), self.fleet.purchases, self.fleet.savings
        days = receipt_days(self._began, now)
        self._over = {
            day: self._over[day] if day in self._over else receipt(purchases, savings, day, now) for day in days[1:]
        }
        return (receipt(purchases, savings, days[0], now), *self._over.values())

    def observation(self) -> Observation | Standby:
        seen = super().observation()
        return seen if isinstance(seen, Standby) else msgspec.structs.replace(seen, receipts=self.receipts())

    async def run(self) -> NoReturn:
        """Runs until cancelled; the last receipt is logged then."""
        log.info("dry run", note="Forebay decides and changes nothing. The log has what it would do, and a receipt.")
        while True:
            await self._lead()

    async def _lead(self) -> NoReturn:
        assert self.views is not None, "run() must be called inside `async with`"
        views = self.views
        cluster = await self._cluster(views)
        context = self._provider_context(cluster)
        sources = Sources(views.wake.set, self._clock)
        accounting = BudgetAccounting(
            views,
            _UnwrittenLedgers(self._client, self._namespace),
            clock=self._clock,
            still_leader=lambda: True,
            counts=self.counts,
            gpu_resources=self._rules.gpu_resources,
            budgets=self._rules.budgets,
        )
        gate = GateWatch(self._client, views) if self._rules.budgets else None
        environment = Environment(self._environment, views, self._namespace, self._rules.idle_delay)

        observer = _ShadowObserver(
            views,
            sources,
            ProviderCalls(views.wake.set),
            cluster=cluster,
            environment=environment,
            rules=self._rules,
            clock=self._clock,
            budget_accounting=accounting,
            gate=gate,
        )
        observer.fleet = self.fleet
        loop = _ShadowLoop(
            views=views,
            sources=sources,
            observer=observer,
            applier=_NothingApplied(),
            configure=ConfiguredSources(sources, environment, views, context),
            counts=self.counts,
            timing=self._timing,
            traced=self._traced,
        )
        loop.fleet = self.fleet
        self.loop, self.sources, self.budget_accounting = loop, sources, accounting
        beside = {asyncio.create_task(accounting.run(), name="budget accounting")}
        if gate is not None:
            beside.add(asyncio.create_task(gate.run(), name="gate of budgets"))
        try:
            await loop.run()
        finally:
            _log_receipt(receipt(self.fleet.purchases, self.fleet.savings, self._clock().date(), self._clock()))
            self.loop = self.sources = self.budget_accounting = None
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await sources.close()


class _ShadowObserver(Observer):
    """Snapshots with the machines of the dry run."""

    fleet: ShadowFleet

    def observe(self) -> Snapshot:
        return self.fleet.overlay(super().observe(), self._views.pods.get, self._pods_on)


class _ShadowLoop(Loop):
    """Ticks whose decisions only the fleet of the dry run takes note of. Logs them, and a receipt after each day."""

    fleet: ShadowFleet
    _day: datetime | None = None

    async def reconcile(self) -> float:
        before = self.last
        wait = await super().reconcile()
        if self.last is None or self.last is before:
            return wait
        snapshot, result = self.last
        self.fleet.apply(result.decisions, result.memory.reservations, snapshot)
        for decision in result.decisions:
            _log_decision(decision)
        if self._day is not None and self._day.date() != snapshot.now.date():
            _log_receipt(receipt(self.fleet.purchases, self.fleet.savings, self._day.date(), snapshot.now))
        self._day = snapshot.now
        # What was decided may lead to more; but without writes nothing is urgent, and some decisions stay due.
        return max(wait, _LEAST_WAIT)


class _NothingApplied:
    async def apply(self, decisions: Iterable[Decision]) -> ApplyResult:  # noqa: ARG002 (a dry run)
        return ApplyResult(failed=0, conflicts=0)


class _UnwrittenLedgers(LedgerStore):
    """The ledgers of the cluster, read and never written: what this process counts is forgotten with it."""

    async def find_missing(self) -> dict[LedgerKey, set[int]]:
        return {}

    async def write(
        self, key: LedgerKey, chunk: ChunkWrite, subject: tuple[str, str], resource: str | None = None
    ) -> None:
        pass

    async def delete(self, key: LedgerKey, serials: Collection[int]) -> None:
        pass

    async def delete_all(self, key: LedgerKey) -> None:
        self._versions.pop(key, None)


def _log_decision(decision: Decision) -> None:
    """Says what would be bought, adopted, terminated or powered off. The rest is in the decision log."""
    match decision:
        case CreateInstance() | Adopt():
            log.info("would launch" if isinstance(decision, CreateInstance) else "would adopt", **_keys(decision))
        case WriteStatus() if decision.status.state is not decision.record.state:
            name, state = decision.record.metadata.name, decision.status.state
            log.info("would change", instance=name, state=state, reason=decision.reason, why=decision.sentence)
        case _:
            pass


def _keys(decision: CreateInstance | Adopt) -> dict[str, object]:
    spec = decision.spec
    return {
        "instance": decision.name,
        "provider": spec.provider,
        "price": spec.hourly_price,
        "pods": [f"{pod.namespace}/{pod.name}" for pod in spec.pods],
        "reason": decision.reason,
        "why": decision.sentence,
    }


def _log_receipt(of: Receipt) -> None:
    log.info(
        "receipt of the dry run",
        day=of.day.isoformat(),
        bought=of.bought,
        pods=of.pods,
        cost_usd=of.cost,
        saved_usd=of.saved,
        summary=of.sentence,
        lines=[msgspec.to_builtins(each) for each in of.lines],
    )
