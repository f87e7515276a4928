"""Admission of pods by their budgets, before a machine is launched for them or their scheduling gate is removed.

A pod is admitted when every budget that selects it (and does more than alert) has headroom for a few minutes of it:
what remains of the quota after running pods, launching capacity and the pods admitted before it.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.names import BUDGET_GATE
from forebay.budgets.assessment import (
    ASSUMED_RUNTIME,
    MINIMUM_RUNTIME,
    NO_DOLLARS,
    QuotaLimits,
    Standing,
    earliest_headroom,
    headroom,
)
from forebay.budgets.budget_accounts import BudgetAccount, BudgetAccounts, BudgetKey
from forebay.budgets.usage import described, thousandths
from forebay.model.quantities import GpuHours, Usd, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import hours, human
from forebay.model.workloads import Pod

_MICROSECOND: Final = timedelta(microseconds=1)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to let a pod wait for its budget. Nothing is launched for it."""

    pod: Pod
    budget: BudgetKey
    #: Earliest time at which the budget has headroom for the pod.
    until: datetime
    reason: Reason
    sentence: str


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to remove the budget's scheduling gate from a pod."""

    pod: Pod
    reason: Reason
    sentence: str


class _BudgetHeadroom:
    """Headroom of one budget, which shrinks with every admitted pod and launch."""

    __slots__ = ("account", "gpu_hours", "limits", "usd")

    def __init__(self, account: BudgetAccount, limits: QuotaLimits, now: datetime) -> None:
        self.account = account
        self.limits = limits
        free = headroom(account, limits, now)
        self.gpu_hours = free.gpu_hours
        self.usd = free.usd


class Admission:
    """One round of admissions, first come first served: what an admitted pod will use is reserved for it."""

    def __init__(
        self,
        accounts: BudgetAccounts[BudgetAccount],
        budgets: Mapping[BudgetKey, GPUWorkloadBudget],
        standings: Mapping[BudgetKey, Standing],
        now: datetime,
    ) -> None:
        self._accounts = accounts
        self._budgets = budgets
        self._standings = standings
        self._now = now
        self._headrooms: dict[BudgetKey, _BudgetHeadroom] = {}

    def reserve(self, pod: Pod) -> None:
        """Reserve GPU-hours for a pod that will run anyway, because capacity is launching for it or it is bound."""
        for budget in self._holding(pod):
            if pod.uid not in budget.account.ledger.running:
                self._reserve_gpu_hours(budget, pod)

    def admit(self, pod: Pod) -> Held | None:
        """None if the pod is admitted, with GPU-hours reserved for it; else the answer of the strictest budget."""
        budgets = self._holding(pod)
        refusals = [found for budget in budgets if (found := self._refusal(budget, pod)) is not None]
        if refusals:
            return max(refusals, key=lambda each: (each.until, each.budget))
        for budget in budgets:
            self._reserve_gpu_hours(budget, pod)
        return None

    def admit_again(self, pod: Pod) -> Held | None:
        """None if a pod may go on that was admitted before and has usage reserved for it; else what holds it.

        Only a budget that is used up does: nothing of what is launched for the pod now would last.
        """
        refusals = [
            found
            for budget in self._holding(pod)
            if self._standings[budget.account.key].exceeded and (found := self._refusal(budget, pod)) is not None
        ]
        return max(refusals, key=lambda each: (each.until, each.budget), default=None)

    def admit_launch(self, pods: Iterable[Pod], price: UsdPerHour, minimum: timedelta = timedelta(0)) -> Held | None:
        """None if a machine of this price may be launched for these pods, with dollars reserved for it.

        The whole price counts for each budget, because it is not known which pods will share the machine.
        """
        budgets = self._budgets_of(pods)
        for budget, pod in budgets:
            if budget.usd is None or budget.limits.usd is None:
                continue
            need = max(price * minimum, min(price * MINIMUM_RUNTIME, budget.limits.usd))
            if budget.usd < need:
                quota = f"{budget.limits.usd} in {hours(budget.limits.window)}"
                cost = f"a machine at {price} is paid for at least {human(max(minimum, MINIMUM_RUNTIME))}"
                why = f"{budget.usd} left of {quota}, and {cost}"
                if need > budget.limits.usd:
                    why = f"{cost}, which is more than the whole quota of {quota}"
                return self._held(budget, pod, GpuHours.zero(), why, need_usd=need)
        self._reserve_usd(budgets, price, minimum)
        return None

    def reserve_launch(self, pods: Iterable[Pod], price: UsdPerHour, minimum: timedelta = timedelta(0)) -> None:
        """Reserve dollars for a machine that is launching for these pods and is not billed yet."""
        self._reserve_usd(self._budgets_of(pods), price, minimum)

    def _budgets_of(self, pods: Iterable[Pod]) -> list[tuple[_BudgetHeadroom, Pod]]:
        """Headroom of every budget that may hold one of the pods, each with one such pod."""
        budgets: dict[BudgetKey, tuple[_BudgetHeadroom, Pod]] = {}
        for pod in pods:
            for budget in self._holding(pod):
                budgets.setdefault(budget.account.key, (budget, pod))
        return list(budgets.values())

    def _reserve_usd(
        self, budgets: Iterable[tuple[_BudgetHeadroom, Pod]], price: UsdPerHour, minimum: timedelta
    ) -> None:
        for budget, _ in budgets:
            if budget.usd is not None:
                span = max(minimum, min(ASSUMED_RUNTIME, budget.limits.window))
                budget.usd = max(budget.usd - price * span, Usd.zero())

    def keys(self, pod: Pod) -> list[BudgetKey]:
        """Keys of the budgets that may hold the pod."""
        return [budget.account.key for budget in self._holding(pod)]

    def _holding(self, pod: Pod) -> list[_BudgetHeadroom]:
        """Headroom of every budget that may hold the pod."""
        found = []
        for account in self._accounts.matching(pod):
            standing = self._standings.get(account.key)
            if standing is None or not standing.holds or not thousandths(pod.shape, account.resource):
                continue
            budget = self._headrooms.get(account.key)
            if budget is None:
                limits = QuotaLimits.of(self._budgets[account.key].spec.quota)
                budget = self._headrooms[account.key] = _BudgetHeadroom(account, limits, self._now)
            found.append(budget)
        return found

    def _refusal(self, budget: _BudgetHeadroom, pod: Pod) -> Held | None:
        need = _usage(budget, pod, MINIMUM_RUNTIME)
        if budget.limits.gpu_hours is not None:
            # A quota too small for five minutes of this pod still admits it while nothing of the quota is used.
            need = min(need, budget.limits.gpu_hours)
        if budget.gpu_hours is not None and budget.gpu_hours < need:
            quota = described(budget.limits.gpu_hours or GpuHours.zero(), budget.account.resource)
            left = described(budget.gpu_hours, budget.account.resource)
            why = f"{left} left of {quota} in {hours(budget.limits.window)}"
            if budget.gpu_hours:
                # Else a reader wonders what is too little about what is left.
                least = _usage(budget, pod, MINIMUM_RUNTIME)
                span = human(MINIMUM_RUNTIME)
                why += (
                    f", and {span} of the pod take {described(least, budget.account.resource)}"
                    if need == least
                    else f", and a pod that takes more than that in {span} starts only while nothing is used"
                )
            return self._held(budget, pod, need, why)
        if budget.usd is not None and not budget.usd:
            why = f"{budget.usd} left of {budget.limits.usd} in {hours(budget.limits.window)}"
            return self._held(budget, pod, need, why)
        return None

    def _reserve_gpu_hours(self, budget: _BudgetHeadroom, pod: Pod) -> None:
        if budget.gpu_hours is not None:
            span = min(ASSUMED_RUNTIME, budget.limits.window)
            budget.gpu_hours = max(budget.gpu_hours - _usage(budget, pod, span), GpuHours.zero())

    def _held(self, budget: _BudgetHeadroom, pod: Pod, need: GpuHours, why: str, need_usd: Usd = NO_DOLLARS) -> Held:
        key = budget.account.key
        until = earliest_headroom(budget.account, budget.limits, need, self._now, need_usd)
        when = "The pod waits until pods before it have ended; raise spec.quota to start it now."
        if budget.limits.usd is not None and need_usd > budget.limits.usd:
            until, when = self._now + budget.limits.window, "The pod cannot start with this quota; raise spec.quota."
        elif until > self._now:
            when = f"The pod starts not before {until:%Y-%m-%d %H:%M:%S} UTC; raise spec.quota to start it now."
        return Held(
            pod=pod,
            budget=key,
            until=until,
            reason=Reason.HELD_BY_BUDGET,
            sentence=f"GPUWorkloadBudget {key[1]} has too little headroom for the pod: {why}. {when}",
        )


def release(
    gated: Iterable[Pod], admission: Admission, *, unplaceable: Callable[[Pod], bool] = lambda _: False
) -> tuple[Release | Held, ...]:
    """Decisions about pods at the budget's gate: released oldest first, as far as there is headroom.

    A pod does not overtake an older one that waits for the same budget, lest large pods wait forever. A pod that is
    `unplaceable` (no node and no offer could run it) holds nobody back.
    """
    found: list[Release | Held] = []
    waiting: dict[BudgetKey, Held] = {}
    for pod in sorted(gated, key=lambda each: (each.created, each.namespace, each.name)):
        if BUDGET_GATE not in pod.shape.scheduling_gates or pod.deleted is not None:
            continue
        before = [waiting[key] for key in admission.keys(pod) if key in waiting]
        held = msgspec.structs.replace(before[0], pod=pod) if before else admission.admit(pod)
        if held is None:
            sentence = f"Every GPUWorkloadBudget of the pod has headroom: scheduling gate {BUDGET_GATE} removed."
            found.append(Release(pod=pod, reason=Reason.RELEASED_BY_BUDGET, sentence=sentence))
        else:
            if before or not unplaceable(pod):
                waiting.setdefault(held.budget, held)
            found.append(held)
    return tuple(found)


def _usage(budget: _BudgetHeadroom, pod: Pod, span: timedelta) -> GpuHours:
    """Usage of the pod if it runs for `span`."""
    return GpuHours.from_units(thousandths(pod.shape, budget.account.resource) * (span // _MICROSECOND))
