"""Which pods may begin: asked before money moves for them, and before they are let out of the gate.

A pod is admitted when every budget that takes it (and does more than alert) has room for a while of it: what is left
of the quota after what runs, what is on its way and who was admitted before it are reckoned with.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.names import BUDGET_GATE
from forebay.budgets.accounts import Account, Accounts, BudgetKey
from forebay.budgets.assessment import NO_DOLLARS, RECKONED, WORTHWHILE, QuotaLimits, Standing, has_room_again, headroom
from forebay.budgets.usage import thousandths
from forebay.model.quantities import GpuHours, Usd, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod

_MICROSECOND: Final = timedelta(microseconds=1)


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Let the pod wait, and say until when. Nothing is bought for it."""

    pod: Pod
    budget: BudgetKey
    #: When its budget has room again, at the earliest.
    until: datetime
    reason: Reason
    sentence: str


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Take the budget's gate off the pod."""

    pod: Pod
    reason: Reason
    sentence: str


class _Left:
    """What one budget still has for those who come now."""

    __slots__ = ("account", "gpu_hours", "limits", "usd")

    def __init__(self, account: Account, limits: QuotaLimits, now: datetime) -> None:
        self.account = account
        self.limits = limits
        free = headroom(account, limits, now)
        self.gpu_hours = free.gpu_hours
        self.usd = free.usd


class Admission:
    """One round of asking, in the order of who comes first. Who is admitted takes room from those after him."""

    def __init__(
        self,
        accounts: Accounts,
        budgets: Mapping[BudgetKey, GPUWorkloadBudget],
        standings: Mapping[BudgetKey, Standing],
        now: datetime,
    ) -> None:
        self._accounts = accounts
        self._budgets = budgets
        self._standings = standings
        self._now = now
        self._left: dict[BudgetKey, _Left] = {}

    def commit(self, pod: Pod) -> None:
        """Capacity is bought for the pod, or it has its node: it will run, and is not asked about any more."""
        for left in self._holding(pod):
            if pod.uid not in left.account.ledger.running:
                self._claim(left, pod)

    def ask(self, pod: Pod) -> Held | None:
        """None: it may begin, and what it will use is taken from what is left. Else the strictest budget's answer."""
        lefts = self._holding(pod)
        refusals = [found for left in lefts if (found := self._refusal(left, pod)) is not None]
        if refusals:
            return max(refusals, key=lambda each: (each.until, each.budget))
        for left in lefts:
            self._claim(left, pod)
        return None

    def ask_to_spend(self, pods: Iterable[Pod], price: UsdPerHour, minimum: timedelta = timedelta(0)) -> Held | None:
        """Whether dollar budgets let this be bought for these pods; if so, it is taken from what is left.

        The whole price counts for each of the budgets: who will share the machine is not known.
        """
        lefts = self._paying(pods)
        for left, pod in lefts:
            if left.usd is None or left.limits.usd is None:
                continue
            need = max(price * minimum, min(price * WORTHWHILE, left.limits.usd))
            if left.usd < need:
                span = human(max(minimum, WORTHWHILE))
                much = f"the {left.usd} of {left.limits.usd} that are not spoken for"
                if need > left.limits.usd:
                    much = f"its whole quota of {left.limits.usd}"
                return self._held(
                    left, pod, GpuHours.zero(), f"{price} for at least {span} is more than {much}", need_usd=need
                )
        self._spend(lefts, price, minimum)
        return None

    def commit_to_spend(self, pods: Iterable[Pod], price: UsdPerHour, minimum: timedelta = timedelta(0)) -> None:
        """This was bought for these pods and does not cost anything yet. It will."""
        self._spend(self._paying(pods), price, minimum)

    def _paying(self, pods: Iterable[Pod]) -> list[tuple[_Left, Pod]]:
        """Each budget once, with one of its pods."""
        lefts: dict[BudgetKey, tuple[_Left, Pod]] = {}
        for pod in pods:
            for left in self._holding(pod):
                lefts.setdefault(left.account.key, (left, pod))
        return list(lefts.values())

    def _spend(self, lefts: Iterable[tuple[_Left, Pod]], price: UsdPerHour, minimum: timedelta) -> None:
        for left, _ in lefts:
            if left.usd is not None:
                left.usd = max(left.usd - price * max(minimum, min(RECKONED, left.limits.window)), Usd.zero())

    def keys(self, pod: Pod) -> list[BudgetKey]:
        """Of the budgets that may keep the pod waiting."""
        return [left.account.key for left in self._holding(pod)]

    def _holding(self, pod: Pod) -> list[_Left]:
        found = []
        for account in self._accounts.of(pod):
            standing = self._standings.get(account.key)
            if standing is None or not standing.holds or not thousandths(pod.shape, account.resource):
                continue
            left = self._left.get(account.key)
            if left is None:
                limits = QuotaLimits.of(self._budgets[account.key].spec.quota)
                left = self._left[account.key] = _Left(account, limits, self._now)
            found.append(left)
        return found

    def _refusal(self, left: _Left, pod: Pod) -> Held | None:
        need = _use(left, pod, WORTHWHILE)
        if left.limits.gpu_hours is not None:
            # A quota too small for five minutes of this pod still lets it begin when nothing else has used it.
            need = min(need, left.limits.gpu_hours)
        if left.gpu_hours is not None and left.gpu_hours < need:
            return self._held(left, pod, need, f"{left.gpu_hours} of {left.limits.gpu_hours} are not spoken for")
        if left.usd is not None and not left.usd:
            return self._held(left, pod, need, f"nothing of {left.limits.usd} is left")
        return None

    def _claim(self, left: _Left, pod: Pod) -> None:
        if left.gpu_hours is not None:
            span = min(RECKONED, left.limits.window)
            left.gpu_hours = max(left.gpu_hours - _use(left, pod, span), GpuHours.zero())

    def _held(self, left: _Left, pod: Pod, need: GpuHours, why: str, need_usd: Usd = NO_DOLLARS) -> Held:
        key = left.account.key
        until = has_room_again(left.account, left.limits, need, self._now, need_usd)
        when = "It goes on when pods before it have ended; raise spec.quota to let it go on now."
        if left.limits.usd is not None and need_usd > left.limits.usd:
            until, when = self._now + left.limits.window, "It cannot go on with this quota; raise spec.quota."
        elif until > self._now:
            when = f"It goes on not before {until:%Y-%m-%d %H:%M:%S} UTC; raise spec.quota to let it go on now."
        return Held(
            pod=pod,
            budget=key,
            until=until,
            reason=Reason.HELD_BY_BUDGET,
            sentence=(
                f"GPUWorkloadBudget {key[1]} has no room for the pod: {why} in {human(left.limits.window)}. {when}"
            ),
        )


def release(gated: Iterable[Pod], admission: Admission) -> tuple[Release | Held, ...]:
    """For pods at the budget's gate, oldest first, as far as there is room. A pod behind another of the same budgets
    that must wait does not overtake it, lest the large ones wait for ever.
    """
    found: list[Release | Held] = []
    waiting: dict[BudgetKey, Held] = {}
    for pod in sorted(gated, key=lambda each: (each.created, each.namespace, each.name)):
        if BUDGET_GATE not in pod.shape.scheduling_gates or pod.deleted is not None:
            continue
        before = [waiting[key] for key in admission.keys(pod) if key in waiting]
        held = msgspec.structs.replace(before[0], pod=pod) if before else admission.ask(pod)
        if held is None:
            sentence = "Every GPUWorkloadBudget of the pod has room again: its gate is taken away."
            found.append(Release(pod=pod, reason=Reason.RELEASED_BY_BUDGET, sentence=sentence))
        else:
            waiting.setdefault(held.budget, held)
            found.append(held)
    return tuple(found)


def _use(left: _Left, pod: Pod, span: timedelta) -> GpuHours:
    return GpuHours.from_units(thousandths(pod.shape, left.account.resource) * (span // _MICROSECOND))
