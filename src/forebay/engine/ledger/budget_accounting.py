"""Keeps the books of budgets: feeds them with what the views show, between two ticks, and has them stored."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final, NoReturn

import structlog

from forebay.api.gpu_workload_budget import Accounting, GPUWorkloadBudget
from forebay.api.names import BUDGET_GATE, USAGE_FINALIZER
from forebay.budgets.accounts import Account, Accounts, BudgetKey
from forebay.budgets.assessment import Assessor, QuotaLimits
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import Piece, microseconds, run_of, seconds, thousandths, usage
from forebay.engine.apply.pending_enforcement import PendingEnforcement, paused
from forebay.engine.counts import Counts
from forebay.engine.ledger.bill_accounting import BillAccounting
from forebay.engine.ledger.store import LedgerKey, LedgerStore, Unit
from forebay.engine.ledger.sync import LedgerSync, TrackedLedger
from forebay.engine.views import Views
from forebay.kube.pods import MARKED, count_resources
from forebay.model.quantities import GPU_SUFFIX
from forebay.model.sources import Source, SourceKey
from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import BudgetState

log = structlog.get_logger(__name__)

#: How long nothing can be stored before budgets say so.
_WORTH_SAYING: Final = timedelta(seconds=30)
#: From the moment at which the pod must have ended.
_GIVEN_UP_AFTER: Final = timedelta(seconds=60)
_AFTER_A_FAULT: Final = 2.0
_MICROSECOND: Final = timedelta(microseconds=1)
_COMPACTED_EVERY: Final = timedelta(minutes=10)


class BudgetAccounting:
    """For as long as one process leads."""

    def __init__(
        self,
        views: Views,
        store: LedgerStore,
        *,
        clock: Callable[[], datetime],
        still_leader: Callable[[], bool],
        counts: Counts,
        states: Callable[[], Mapping[SourceKey, Source]],
        gpu_resources: Collection[str] | None = None,
    ) -> None:
        self._views = views
        self._counts = counts
        self.accounts = Accounts()
        self.spending = BillAccounting(views, self.accounts, states=states, gpu_resources=gpu_resources)
        self.assessor = Assessor()
        self.actions = PendingEnforcement()
        self.keeper = LedgerSync(
            store, self._ledgers, clock=clock, still_leader=still_leader, live=self._live, wake=views.wake.set
        )
        #: The first look is over.
        self._begun = False
        self._known: dict[BudgetKey, GPUWorkloadBudget] = {}
        self._invalid: dict[BudgetKey, str] = {}
        #: What the ledger of each budget holds of pods that can be seen, over what these say themselves.
        self.accuracy: dict[BudgetKey, float] = {}
        self._counted: frozenset[str] = frozenset()
        self._next_compaction: datetime | None = None

    @property
    def budgets(self) -> Mapping[BudgetKey, GPUWorkloadBudget]:
        return self._known

    async def keep(self) -> NoReturn:
        """Beside the loop."""
        try:
            await self.keeper.load()
            while True:
                await self._keep_once()
        finally:
            self._views.pod_changes.followed = False

    async def _keep_once(self) -> None:
        try:
            await self.count_resources()
            await self.keeper.store_next()
        except Exception:
            # A fault of ours must not end it: what is not stored would be lost with this process.
            log.exception("keeping the books of budgets broke")
            self._counts.internal_errors += 1
            await asyncio.sleep(_AFTER_A_FAULT)

    async def finish(self, patience: float) -> None:
        """Stores what is not stored yet. What takes longer is seen again by whoever leads next, or was `Observed`."""
        try:
            async with asyncio.timeout(patience):
                await self.keeper.store_rest()
        except TimeoutError:
            log.warning("not all ledgers of budgets could be stored in time", patience=patience)

    async def count_resources(self) -> None:
        """When pods without GPUs ran is read only where somebody counts what they ask for."""
        others = self._asked_for()
        if not others <= self._counted:
            await self._views.pods.list_again(lambda: count_resources(self._counted | others))
            self._counted |= others
            self._views.wake.set()

    def _asked_for(self) -> frozenset[str]:
        resources = {budget.spec.gpu_resource_name for budget in self._views.budgets.values()}
        return frozenset(name for name in resources if not name.endswith(GPU_SUFFIX))

    def look(self, now: datetime) -> BudgetState | None:
        """The books as they are now; None while what is stored is not read yet, or what pods have used."""
        keeper = self.keeper
        if not keeper.ready:
            return None
        if not self._asked_for() <= self._counted:
            # A pod of which it is not known when it ran must neither be let go nor count for nothing.
            keeper.look_for_strays()
            return None
        self.spending.open(keeper)
        self._follow_budgets(now)
        self.spending.follow(now)
        self._follow_pods(now)
        self.spending.spend.look(now)
        self._compact(now)
        pods = self._views.pods
        recorded = tuple(pod for pod in pods.by(MARKED, USAGE_FINALIZER) if self._may_go(pod, now))
        keeper.look(now)
        since = keeper.waiting_since
        return BudgetState(
            accounts=self.accounts,
            assessor=self.assessor,
            damages=keeper.damages,
            invalid=dict(self._invalid),
            unstored=keeper.error if since is not None and now - since > _WORTH_SAYING else None,
            blocked=self.actions.blocked(now),
            awaiting=self.actions.awaiting(now, pods),
            paused=tuple(paused(self._views.paused_jobs.values())),
            enforced=dict(self.actions.enforced),
            gated=pods.by(MARKED, BUDGET_GATE),
            recorded=recorded,
        )

    def withheld(self) -> frozenset[str]:
        """Records of machines that must not be forgotten yet; all, while what is stored is not read."""
        if not self.keeper.ready:
            return frozenset(record.uid for record in self._views.instances.values())
        return self.spending.withheld()

    def _ledgers(self) -> Iterator[TrackedLedger]:
        for account in self.accounts:
            for unit, ledger in ((Unit.GPU_HOURS, account.ledger), (Unit.DOLLARS, account.money)):
                yield TrackedLedger(LedgerKey(account.uid, unit), account.key, ledger, partial(_replace, account, unit))
        yield from self.spending.ledgers()

    def _may_go(self, pod: Pod, now: datetime) -> bool:
        """Nothing is lost when the pod goes: its time is stored, or it never had any, or nobody wants it exactly."""
        exact = any(
            self._known[account.key].spec.accounting is Accounting.EXACT
            for account in self.accounts.of(pod)
            if account.resource in pod.shape.requests
        )
        if not exact:
            return True
        never_ran = pod.node is None and pod.deleted is not None
        counted = never_ran or self.accounts.may_go(pod) or self._is_given_up(pod, now)
        return counted and self.spending.spend.may_go(pod, now)

    def _is_given_up(self, pod: Pod, now: datetime) -> bool:
        """Its kubelet should have said long ago that it has ended, and nobody will: it must not stay for ever."""
        if pod.deleted is None or pod.phase.ended or now < pod.deleted + _GIVEN_UP_AFTER:
            return False
        self.accounts.gone(pod, now)
        return all(account.ledger.is_durable(pod.uid) for account in self.accounts.within(pod.namespace))

    def _live(self) -> Collection[str] | None:
        """Also of budgets that cannot be counted. Of those that cannot be read, the UID is not known."""
        budgets = self._views.budgets
        if not self._begun or budgets.stale or budgets.undecodable:
            return None
        return {budget.uid for budget in budgets.values()} | self.spending.uids()

    def _follow_budgets(self, now: datetime) -> None:
        current = {budget.key: budget for budget in self._views.budgets.values()}
        changed = [budget for key, budget in current.items() if self._known.get(key) is not budget]
        for key in self._known.keys() - current.keys():
            self._forget(key)
        self._known = current
        selectors = {key: account.selector for key in current if (account := self.accounts.get(key)) is not None}
        self._show([budget for budget in changed if self._open(budget, now)], now)
        others = {
            budget.key[0]
            for budget in changed
            if (account := self.accounts.get(budget.key)) is not None
            and selectors.get(budget.key) is not account.selector
        }
        if others:
            self.spending.spend.budgets_changed(others)

    def _open(self, budget: GPUWorkloadBudget, now: datetime) -> bool:
        """Whether it is new."""
        key, uid = budget.key, budget.uid
        account = self.accounts.get(key)
        if account is not None and account.uid == uid:
            self.accounts.open(budget, now)
            return False
        try:
            QuotaLimits.of(budget.spec.quota)
        except ValueError as error:
            self._invalid[key] = f"What the budget allows cannot be read: {error}. Correct spec.quota."
            return False
        self._forget(key)
        hours, dollars = (self.keeper.open(key, uid, unit) for unit in (Unit.GPU_HOURS, Unit.DOLLARS))
        self.accounts.open(budget, now, ledger=hours, money=dollars)
        return True

    def _show(self, opened: Iterable[GPUWorkloadBudget], now: datetime) -> None:
        """The pods that are there to budgets that are new: one pass over all pods for all of them."""
        namespaces = {budget.key[0] for budget in opened}
        if namespaces:
            for pod in self._views.pods.values():
                if pod.namespace in namespaces:
                    self.accounts.see(pod, now)

    def _forget(self, key: BudgetKey) -> None:
        if self.accounts.get(key) is not None:
            self.accounts.close(key)
            self.keeper.close(key)
        self._invalid.pop(key, None)

    def _follow_pods(self, now: datetime) -> None:
        for pod, at, gone in self._views.pod_changes.take():
            if not gone:
                self.accounts.see(pod, at)
                self.spending.spend.see_pod(pod, at)
                continue
            if self._begun or not self._ended_before(pod):
                self.accounts.gone(pod, min(at, now))
            self.spending.spend.pod_gone(pod, min(at, now))
        if not self._begun:
            self._begun = self._views.pod_changes.followed = True
            self.accounts.resume()
            self.keeper.look_for_strays()

    def _ended_before(self, pod: Pod) -> bool:
        """Whoever led before has recorded its end."""
        return any(
            pieces[-1].end is not None
            for account in self.accounts.within(pod.namespace)
            if (pieces := account.ledger.pieces(pod.uid))
        )

    def _compact(self, now: datetime) -> None:
        if self._next_compaction is None or now >= self._next_compaction:
            windows = {key: budget.spec.quota.window_hours * 3600 for key, budget in self._known.items()}
            self.accounts.compact(now, windows, self.spending.spend.recorded())
            self.spending.spend.compact(now)
            self._next_compaction = now + _COMPACTED_EVERY
            self.accuracy = self._audit(now)

    def _audit(self, now: datetime) -> dict[BudgetKey, float]:
        """From the statuses alone, by the plain rule, whatever the ledger has made of them."""
        at = microseconds(now)
        found: dict[BudgetKey, tuple[int, int]] = dict.fromkeys(self._known, (0, 0))
        for pod in self._views.pods.values():
            if pod.started is None or pod.restarted:
                continue
            for account in self.accounts.of(pod):
                rate, run = thousandths(pod.shape, account.resource), run_of(pod, None, seconds(now))
                if not rate or run is None or (run.end is not None and not run.told):
                    continue
                window = timedelta(hours=self._known[account.key].spec.quota.window_hours)
                expected, held = found[account.key]
                expected += usage((Piece(run.start, run.end, rate),), now, window).units
                held += account.ledger.consumed_by(pod.uid, at, window // _MICROSECOND)
                found[account.key] = (expected, held)
        return {key: held / expected if expected else 1.0 for key, (expected, held) in found.items()}


def _replace(account: Account, unit: Unit, ledger: Ledger) -> None:
    if unit is Unit.GPU_HOURS:
        account.ledger = ledger
    else:
        account.money = ledger
