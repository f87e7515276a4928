"""Budgets as users see them: usage, what is left, usage over the window, and the forecast."""

from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_workload_budget import GPUWorkloadBudget, GPUWorkloadBudgetStatus
from forebay.budgets.assessment import Assessor, QuotaLimits, Standing, earliest_headroom, smoothing
from forebay.budgets.budget_accounts import BudgetAccount, BudgetKey
from forebay.budgets.ledger.profile import UsageProfile
from forebay.budgets.usage import microseconds, unit_of
from forebay.model.quantities import GpuHours, Usd
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.machines import decimal

#: Into how many slices the window is divided, and how many slices of that length are forecast.
HISTORY_SLICES: Final = 48
FORECAST_SLICES: Final = 16
_MICROSECOND: Final = timedelta(microseconds=1)
_DOLLARS: Final = "dollars"


class UsageSlice(msgspec.Struct, frozen=True, kw_only=True):
    """Usage in one slice of the window."""

    start: datetime
    gpu_hours: str
    usd: str


class PlottedUsage(NamedTuple):
    """What one plot of a budget shows: the dollars or the GPU-hours of its window."""

    #: Used in each slice of the window, and in the window at the end of each coming slice.
    amounts: list[float]
    ahead: list[float]
    quota: float | None
    #: `dollars`, `GPU-h`, or another unit of usage.
    unit: str

    @property
    def is_money(self) -> bool:
        return self.unit == _DOLLARS

    def text(self, amount: float) -> str:
        return f"${amount:,.2f}" if self.is_money else f"{amount:g} {self.unit}"


class BudgetView(msgspec.Struct, frozen=True, kw_only=True):
    """One GPUWorkloadBudget. GPU-hours and dollars are decimals; a quota is None where the budget does not limit it."""

    namespace: str
    name: str
    action: str
    accounting: str
    window_hours: int
    resource: str
    consumed: str
    quota: str | None
    remaining: str | None
    consumed_usd: str
    quota_usd: str | None
    exceeded: bool
    pods: int
    held: int
    #: GPUs in use now: the rate at which GPU-hours are used up. "" where the ledger cannot be read.
    burn: str
    #: When the quota will be used up if usage continues as now.
    exhausted: datetime | None
    #: Of a quota that is used up: when there is room again at the earliest. None: it is not used up, or unknown.
    room_at: datetime | None
    #: Usage in each slice of the window; empty where the ledger cannot be read.
    history: list[UsageSlice]
    #: GPU-hours in the window at the end of each coming slice, if usage continues as now.
    forecast: list[str]
    #: The same in dollars.
    forecast_usd: list[str]
    #: Message of the Degraded condition.
    error: str

    @property
    def unit(self) -> str:
        """What usage is counted in: `GPU-h`, or `core-h` of a budget of cpu."""
        return unit_of(self.resource)

    @property
    def plots(self) -> tuple[PlottedUsage, ...]:
        """One for each quota; GPU-hours where there is none."""
        found = []
        if self.quota is not None or self.quota_usd is None:
            hours = [float(each.gpu_hours) for each in self.history]
            quota = None if self.quota is None else float(self.quota)
            found.append(PlottedUsage(hours, [float(each) for each in self.forecast], quota, self.unit))
        if self.quota_usd is not None:
            usd = [float(each.usd) for each in self.history]
            ahead = [float(each) for each in self.forecast_usd]
            found.append(PlottedUsage(usd, ahead, float(self.quota_usd), _DOLLARS))
        return tuple(found)


def budget_view(
    budget: GPUWorkloadBudget, account: BudgetAccount | None, assessor: Assessor, now: datetime
) -> BudgetView:
    """The budget by its account in the ledger; without an account, as the operator last wrote it in its status."""
    status = budget.status or GPUWorkloadBudgetStatus()
    conditions = {each.type: each for each in status.conditions}
    degraded = conditions.get("Degraded")
    exceeded = conditions.get("QuotaExceeded")
    error = degraded.message if degraded is not None and degraded.status == "True" else ""
    try:
        limits = assessor.limits(budget)
        consumed = GpuHours.parse(status.consumed_gpu_hours or 0)
    except ValueError as unreadable:
        # One budget that cannot be read must not hide the others.
        limits = QuotaLimits(None, None, timedelta(hours=budget.spec.quota.window_hours))
        consumed, account = GpuHours.zero(), None
        error = error or f"{unreadable}."
    standing = None if account is None else assessor.standing(budget, account, now)
    if standing is not None:
        consumed = standing.consumed
    remaining = None if limits.gpu_hours is None else max(limits.gpu_hours - consumed, GpuHours.zero())
    return BudgetView(
        namespace=budget.key[0],
        name=budget.key[1],
        action=budget.spec.enforcement.action,
        accounting=budget.spec.accounting,
        window_hours=budget.spec.quota.window_hours,
        resource=budget.spec.gpu_resource_name,
        consumed=decimal(consumed.hours),
        quota=None if limits.gpu_hours is None else decimal(limits.gpu_hours.hours),
        remaining=None if remaining is None else decimal(remaining.hours),
        consumed_usd=_dollars(status, standing),
        quota_usd=None if limits.usd is None else decimal(limits.usd.dollars),
        exceeded=standing.exceeded if standing is not None else exceeded is not None and exceeded.status == "True",
        pods=(status.tracked_pods or 0) if standing is None else standing.tracked,
        held=status.held_pods or 0,
        burn="" if standing is None else decimal(standing.burn),
        exhausted=status.forecast_exhausted_at if standing is None else standing.exhausted,
        room_at=None
        if account is None or standing is None or not standing.exceeded
        else earliest_headroom(account, limits, GpuHours.from_units(1), now),
        history=[] if account is None else _history(account, limits.window, now),
        forecast=[]
        if account is None or standing is None
        else [
            decimal(GpuHours.from_units(units).hours)
            for units in _forecast(account.ledger.profile, standing.consumed.units, standing.window, now)
        ],
        forecast_usd=[]
        if account is None or standing is None
        else [
            decimal(Usd.from_units(units).dollars)
            for units in _forecast(account.money.profile, standing.consumed_usd.units, standing.window, now)
        ],
        error=error,
    )


def closest_to_quota(snapshot: Snapshot, assessor: Assessor, most: int) -> list[BudgetView]:
    """The budgets that have used the largest part of a quota, those that are used up first."""
    state = snapshot.budget_state
    if state is None:
        chosen = list(snapshot.budgets[:most])
    else:
        standings = assessor.assess(snapshot.budgets, state.accounts, snapshot.now)
        ranked = sorted(standings.values(), key=_headroom)[:most]
        by_key = {budget.key: budget for budget in snapshot.budgets}
        chosen = [by_key[each.key] for each in ranked]
    return [view_in_snapshot(each, snapshot, assessor) for each in chosen]


def view_in_snapshot(budget: GPUWorkloadBudget, snapshot: Snapshot, assessor: Assessor) -> BudgetView:
    state = snapshot.budget_state
    account = None if state is None else state.accounts.get(budget.key)
    return budget_view(budget, account, assessor, snapshot.now)


def _headroom(standing: Standing) -> tuple[bool, Fraction, BudgetKey]:
    parts = [
        *([standing.consumed.hours / standing.quota.hours] if standing.quota else ()),
        *([standing.consumed_usd.dollars / standing.quota_usd.dollars] if standing.quota_usd else ()),
    ]
    return (not standing.exceeded, -max(parts, default=Fraction(0)), standing.key)


def _dollars(status: GPUWorkloadBudgetStatus, standing: Standing | None) -> str:
    if standing is not None:
        return decimal(standing.consumed_usd.dollars)
    try:
        return decimal(Usd(str(status.consumed_usd or 0)).dollars)
    except ValueError:
        return decimal(Usd.zero().dollars)


def _history(account: BudgetAccount, window: timedelta, now: datetime) -> list[UsageSlice]:
    profile, dollars, step = account.ledger.profile, account.money.profile, window / HISTORY_SLICES
    bounds = [now - window + step * number for number in range(HISTORY_SLICES)] + [now]
    return [
        UsageSlice(
            start=start,
            gpu_hours=decimal(GpuHours.from_units(profile.between(*_micro(start, end))).hours),
            usd=decimal(Usd.from_units(dollars.between(*_micro(start, end))).dollars),
        )
        for start, end in pairwise(bounds)
    ]


def _forecast(profile: UsageProfile, consumed: int, window: timedelta, now: datetime) -> list[int]:
    """At the rate by which it is told when the budget is exhausted: the plot and the moment must not differ."""
    step = window / HISTORY_SLICES
    rate = profile.expected_rate(microseconds(now), smoothing(window // _MICROSECOND))
    begin = now - window
    found = []
    for number in range(1, FORECAST_SLICES + 1):
        ahead = step * number
        expiring = profile.between(*_micro(begin, begin + ahead))
        added = rate * (ahead // _MICROSECOND)
        found.append(max(consumed - expiring + added, 0))
    return found


def _micro(start: datetime, end: datetime) -> tuple[int, int]:
    return microseconds(start), microseconds(end)
