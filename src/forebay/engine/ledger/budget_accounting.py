"""Accounting of budgets: updates accounts and bill from the views between two ticks, and has the ledgers stored."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NamedTuple, NoReturn

import structlog

from forebay.api.gpu_workload_budget import Accounting, GPUWorkloadBudget
from forebay.api.names import BUDGET_GATE, PAUSE_REQUESTED_BY_ANNOTATION, RESET_USAGE_ANNOTATION, USAGE_FINALIZER
from forebay.budgets.accounts import Account, Accounts
from forebay.budgets.assessment import QuotaLimits
from forebay.budgets.budget_accounts import BudgetKey
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import seconds
from forebay.engine.apply.pending_enforcement import PendingEnforcement, paused, resumed_by_hand
from forebay.engine.boundary import LoggedBugs
from forebay.engine.counts import Counts
from forebay.engine.ledger.bill_accounting import BillAccounting
from forebay.engine.ledger.machines_off import machines_off
from forebay.engine.ledger.store import LedgerKey, LedgerStore, Unit
from forebay.engine.ledger.sync import LedgerSync, TrackedLedger
from forebay.engine.views import Views
from forebay.kube.pod_indexes import BY_NODE, MARKED
from forebay.model.quantities import GPU_SUFFIX
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import BudgetState, Uncounted

log = structlog.get_logger(__name__)

#: Time for which storing fails before budgets report it.
_REPORT_AFTER: Final = timedelta(seconds=30)
#: Time from a pod's deletionTimestamp, by which it must have ended, until its finalizer is removed anyway.
_FINALIZER_TIMEOUT: Final = timedelta(seconds=60)
_AFTER_FAILURE: Final = 2.0
_COMPACTION_INTERVAL: Final = timedelta(minutes=10)
#: Time for which the ledger of a deleted budget is kept: a budget of the same name continues it.
_KEEP_DELETED: Final = timedelta(days=31)


class _Closed(NamedTuple):
    """Account of a deleted budget, and when it was closed."""

    account: Account
    at: datetime


class BudgetAccounting:
    """Keeps the accounts of all budgets while this process leads."""

    def __init__(
        self,
        views: Views,
        store: LedgerStore,
        *,
        clock: Callable[[], datetime],
        still_leader: Callable[[], bool],
        counts: Counts,
        gpu_resources: Collection[str] | None = None,
        budgets: bool = True,
    ) -> None:
        """Without `budgets` only the bill of the machines is kept, and what budgets held before is let go."""
        self._counts_budgets = budgets
        self._views = views
        self._clock = clock
        self._counts = counts
        self.accounts = Accounts()
        self.bill_accounting = BillAccounting(views, self.accounts, gpu_resources=gpu_resources)
        self.actions = PendingEnforcement()
        self.sync = LedgerSync(
            store, self._ledgers, clock=clock, still_leader=still_leader, live=self._live, wake=views.wake.set
        )
        #: The first update is over, so every existing pod has been seen.
        self._started = False
        self._known: dict[BudgetKey, GPUWorkloadBudget] = {}
        self._invalid: dict[BudgetKey, Uncounted] = {}
        #: Accounts of budgets that were deleted since this process leads.
        self._closed: dict[BudgetKey, _Closed] = {}
        #: Usage in the ledger of each budget, divided by the usage that the statuses of its pods show (`Audits`).
        self.accuracy: dict[BudgetKey, float] = {}
        self._counted: frozenset[str] = frozenset()
        self._next_compaction: datetime | None = None

    @property
    def budgets(self) -> Mapping[BudgetKey, GPUWorkloadBudget]:
        return self._known

    async def run(self) -> NoReturn:
        """Read the stored ledgers, then keep storing changes. Runs beside the reconcile loop."""
        try:
            await self.sync.load()
            while True:
                await self._run_once()
        finally:
            self._views.pod_changes.followed = False

    async def _run_once(self) -> None:
        # A bug must not end this task: what is not stored would be lost with this process.
        with LoggedBugs("ledger sync failed", self._counts):
            await self.count_resources()
            await self.sync.store_next()
            return
        await asyncio.sleep(_AFTER_FAILURE)

    async def finish(self, time_limit: float) -> None:
        """Store the remaining changes within a time limit in seconds.

        What is not stored by then is counted again by the next leader, or lost if the budget is `Observed`.
        """
        try:
            async with asyncio.timeout(time_limit):
                await self.sync.store_rest()
        except TimeoutError:
            log.warning("ledgers not stored before shutdown", time_limit=time_limit)

    async def count_resources(self) -> None:
        """List pods again if a budget counts another resource than GPUs: otherwise such pods lack run times."""
        others = self._other_resources()
        if not others <= self._counted:
            decoder = self._views.pod_decoder
            await self._views.pods.relist(lambda: decoder.read_times_of(self._counted | others))
            self._counted |= others
            self._views.wake.set()

    def _other_resources(self) -> frozenset[str]:
        resources = {budget.spec.gpu_resource_name for budget in self._current()}
        return frozenset(name for name in resources if not name.endswith(GPU_SUFFIX))

    def _current(self) -> Collection[GPUWorkloadBudget]:
        return self._views.budgets.values() if self._counts_budgets else ()

    def update(self, now: datetime) -> BudgetState | None:
        """State of all budgets now; None while the stored ledgers, or the run times of some pods, are not read yet."""
        sync = self.sync
        if not sync.ready:
            return None
        if not self._other_resources() <= self._counted:
            # A pod whose run times are not read must neither lose its finalizer nor count as unused.
            sync.request_round()
            return None
        self._follow_claims(now)
        self.bill_accounting.open(sync)
        self._follow_budgets(now)
        self.bill_accounting.see_instances(now)
        self._follow_pods(now)
        self.accounts.machines_off(self._machines_off(), lambda node: self._views.pods.by(BY_NODE, node), now)
        self.bill_accounting.bill.update(now)
        self._compact(now)
        pods = self._views.pods
        recorded = tuple(pod for pod in pods.by(MARKED, USAGE_FINALIZER) if self._may_delete(pod, now))
        sync.schedule(now)
        since = sync.waiting_since
        return BudgetState(
            accounts=self.accounts.frozen(),
            damages=sync.damages,
            rewritten=sync.rewritten,
            invalid=dict(self._invalid),
            unstored=sync.error if since is not None and now - since > _REPORT_AFTER else None,
            blocked=self.actions.blocked(now),
            backoffs=self.actions.backoffs(now),
            awaiting=self.actions.awaiting(now, pods),
            paused=tuple(paused(self._views.paused_jobs.values())),
            resumed_by_hand=tuple(resumed_by_hand(self._views.paused_jobs.values())),
            enforced=dict(self.actions.enforced),
            gated=pods.by(MARKED, BUDGET_GATE),
            pause_requested=pods.by(MARKED, PAUSE_REQUESTED_BY_ANNOTATION),
            recorded=recorded,
        )

    def unrecorded_cost(self) -> frozenset[str]:
        """UIDs of GPUInstances that must not be deleted yet; all of them, until the stored ledgers are read."""
        if not self.sync.ready:
            return frozenset(record.uid for record in self._views.instances.values())
        return self.bill_accounting.unrecorded_cost()

    def _ledgers(self) -> Iterator[TrackedLedger]:
        for account in (*self.accounts, *(closed.account for closed in self._closed.values())):
            for unit, ledger in ((Unit.GPU_HOURS, account.ledger), (Unit.DOLLARS, account.money)):
                key = LedgerKey(ledger.chunk_log.owner, unit)
                yield TrackedLedger(key, account.key, ledger, partial(_replace, account, unit), account.resource)
        yield from self.bill_accounting.ledgers()

    def _may_delete(self, pod: Pod, now: datetime) -> bool:
        """Whether a pod's usage finalizer may be removed: its usage is stored, or no exact budget counts it."""
        pod = self._views.claimed_gpus.counted(pod)
        exact = any(
            self._known[account.key].spec.accounting is Accounting.EXACT
            for account in self.accounts.matching(pod)
            if account.resource in pod.shape.requests
        )
        if not exact:
            return True
        never_ran = pod.node is None and pod.deleted is not None
        counted = never_ran or self.accounts.may_delete(pod) or self._is_overdue(pod, now)
        return counted and self.bill_accounting.bill.may_delete(pod, now)

    def _is_overdue(self, pod: Pod, now: datetime) -> bool:
        """Whether the kubelet is overdue to report the end of a deleted pod; its usage then ends now."""
        if pod.deleted is None or pod.phase.ended or now < pod.deleted + _FINALIZER_TIMEOUT:
            return False
        self.accounts.gone(pod, now)
        return all(account.ledger.is_durable(pod.uid) for account in self.accounts.in_namespace(pod.namespace))

    def _live(self) -> Collection[str] | None:
        """UIDs whose ledgers must stay, also of invalid budgets; None if some budgets are not known."""
        budgets, namespaces = self._views.budgets, self._views.namespaces
        if not self._started or budgets.stale or budgets.undecodable or namespaces.stale:
            return None
        return (
            {budget.uid for budget in budgets.values()}
            | {account.ledger.chunk_log.owner for account in self.accounts}
            | self.bill_accounting.uids()
            | set(self._kept_of_deleted())
        )

    def _kept_of_deleted(self) -> Iterator[str]:
        """UIDs of the ledgers of deleted budgets that a new budget of the same name would continue."""
        since = self._clock() - _KEEP_DELETED
        deleted = [
            *((key, each.account.ledger.chunk_log.owner, seconds(each.at)) for key, each in self._closed.items()),
            *self.sync.not_opened(),
        ]
        for key, uid, written in deleted:
            namespace = self._views.namespaces.get(("", key[0]))
            opened = self.accounts.get(key) is not None
            if not opened and namespace is not None and written >= seconds(since):
                yield uid

    def _follow_budgets(self, now: datetime) -> None:
        current = {budget.key: budget for budget in self._current()}
        changed = [budget for key, budget in current.items() if self._known.get(key) is not budget]
        for key in self._known.keys() - current.keys():
            self._close(key, now)
        kept = now - _KEEP_DELETED
        self._closed = {
            key: each
            for key, each in self._closed.items()
            if each.at >= kept and self._views.namespaces.get(("", key[0])) is not None
        }
        self._known = current
        selectors = {key: account.selector for key in current if (account := self.accounts.get(key)) is not None}
        self._count_existing([budget for budget in changed if self._try_open(budget, now)], now)
        others = {
            budget.key[0]
            for budget in changed
            if (account := self.accounts.get(budget.key)) is not None
            and selectors.get(budget.key) is not account.selector
        }
        if others:
            self.bill_accounting.bill.budgets_changed(others)

    def _try_open(self, budget: GPUWorkloadBudget, now: datetime) -> bool:
        with LoggedBugs("budget not counted", self._counts, namespace=budget.key[0], budget=budget.key[1]):
            return self._open(budget, now)
        sentence = "Forebay failed to open the account of the budget: see its log."
        self._invalid[budget.key] = Uncounted(Reason.RECONCILE_FAILED, sentence)
        return False

    def _open(self, budget: GPUWorkloadBudget, now: datetime) -> bool:
        """Open the account of a budget; returns whether it is new."""
        key, uid = budget.key, budget.uid
        try:
            QuotaLimits.of(budget.spec.quota)
        except ValueError as error:
            sentence = f"spec.quota is invalid: {error}. Until it is corrected, the budget does nothing."
            self._invalid[key] = Uncounted(Reason.INVALID_QUOTA, sentence)
            return False
        self._invalid.pop(key, None)
        account = self.accounts.get(key)
        reset = budget.metadata.annotations.get(RESET_USAGE_ANNOTATION) == "true"
        continued = account is not None and account.ledger.chunk_log.owner != uid
        if account is not None and account.uid == uid and not (reset and continued):
            self.accounts.open(budget, now)
            return False
        self._close(key, now)
        closed = self._closed.pop(key, None)
        resource = budget.spec.gpu_resource_name
        # The recorded hours are of that resource: with another one it is another budget.
        if closed is not None and not reset and closed.account.resource == resource:
            hours, dollars = closed.account.ledger, closed.account.money
        else:
            stored = self.sync.uid_for(key, uid, resource, reset=reset)
            hours, dollars = (self.sync.open(key, stored, unit) for unit in (Unit.GPU_HOURS, Unit.DOLLARS))
        self.accounts.open(budget, now, ledger=hours, money=dollars)
        return True

    def _count_existing(self, opened: Iterable[GPUWorkloadBudget], now: datetime) -> None:
        """Count existing pods for new budgets, in one pass over all pods."""
        namespaces = {budget.key[0] for budget in opened}
        if namespaces:
            for pod in self._views.pods.values():
                if pod.namespace in namespaces:
                    self.accounts.see(self._views.claimed_gpus.counted(pod), now)

    def _close(self, key: BudgetKey, now: datetime) -> None:
        if self.accounts.get(key) is not None:
            self._closed[key] = _Closed(self.accounts.close(key, now), now)
            self.sync.close(key)
        self._invalid.pop(key, None)

    def _follow_claims(self, now: datetime) -> None:
        views = self._views
        for key in views.claimed_gpus.update(lambda name: views.device_classes.get(("", name))):
            if self._started and (holder := views.pods.get(key)) is not None:
                pod = views.claimed_gpus.counted(holder)
                self.accounts.see(pod, now)
                self.bill_accounting.bill.see_pod(pod, now)

    def _follow_pods(self, now: datetime) -> None:
        for each, at, gone in self._views.pod_changes.take():
            pod = self._views.claimed_gpus.counted(each)
            if not gone:
                self.accounts.see(pod, at)
                self.bill_accounting.bill.see_pod(pod, at)
                continue
            self._views.claimed_gpus.gone(pod)
            if self._started or not self._end_recorded(pod):
                self.accounts.gone(pod, min(at, now))
            self.bill_accounting.bill.pod_gone(pod, min(at, now))
        if not self._started:
            self._started = self._views.pod_changes.followed = True
            self.accounts.close_missing()
            self.sync.request_round()

    def _machines_off(self) -> dict[str, datetime]:
        nodes = self._views.nodes
        return machines_off(
            self._views.instances.all(), nodes.all(), lambda name: nodes.get(("", name)), self.accounts.off
        )

    def _end_recorded(self, pod: Pod) -> bool:
        """Whether an earlier leader has recorded the end of a deleted pod."""
        return any(
            intervals[-1].end is not None
            for account in self.accounts.in_namespace(pod.namespace)
            if (intervals := account.ledger.intervals(pod.uid))
        )

    def _compact(self, now: datetime) -> None:
        # Compaction drops what has left the window, for good. So a clock of ours that is ahead must not decide that.
        server_time = self.sync.server_time
        now = now if server_time is None else min(now, server_time)
        if self._next_compaction is None or now >= self._next_compaction:
            windows = {key: budget.spec.quota.window_hours * 3600 for key, budget in self._known.items()}
            self.accounts.compact(now, windows, self.bill_accounting.bill.unfinished_keys())
            self.bill_accounting.bill.compact(now)
            self._next_compaction = now + _COMPACTION_INTERVAL


def _replace(account: Account, unit: Unit, ledger: Ledger) -> None:
    if unit is Unit.GPU_HOURS:
        account.ledger = ledger
    else:
        account.money = ledger
