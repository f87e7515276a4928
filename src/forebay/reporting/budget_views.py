"""Budgets as people look at them: what is used, what is left, how the window has filled and when it will be full."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

import msgspec

from forebay.api.gpu_workload_budget import GPUWorkloadBudget, GPUWorkloadBudgetStatus
from forebay.budgets.accounts import Account
from forebay.budgets.assessment import Assessor, Standing
from forebay.budgets.usage import microseconds
from forebay.model.quantities import GpuHours, Usd
from forebay.reporting.machines import decimal

#: Columns of the past and of the forecast.
PAST: Final = 48
AHEAD: Final = 16
_MICROSECOND: Final = timedelta(microseconds=1)


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the window."""

    start: datetime
    gpu_hours: str


class BudgetView(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-hours and dollars are in decimals; a quota is absent where the budget does not limit them."""

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
    #: GPUs that are held now.
    burn: str
    exhausted: datetime | None
    #: What was used in each part of the window; empty where the ledger cannot be read.
    history: list[Slice]
    #: What the window will hold, if everything goes on as it does now, in parts as long as those of the history.
    forecast: list[str]
    #: What is wrong with it, as its conditions say.
    error: str


def view(budget: GPUWorkloadBudget, account: Account | None, assessor: Assessor, now: datetime) -> BudgetView:
    """From the ledger; without an account, as its status says."""
    status = budget.status or GPUWorkloadBudgetStatus()
    conditions = {each.type: each for each in status.conditions}
    degraded = conditions.get("Degraded")
    exceeded = conditions.get("QuotaExceeded")
    limits = assessor.limits(budget)
    standing = None if account is None else assessor.standing(budget, account, now)
    consumed = GpuHours.parse(status.consumed_gpu_hours or 0) if standing is None else standing.consumed
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
        history=[] if account is None else _history(account, limits.window, now),
        forecast=[] if account is None or standing is None else _forecast(account, standing, now),
        error=degraded.message if degraded is not None and degraded.status == "True" else "",
    )


def _dollars(status: GPUWorkloadBudgetStatus, standing: Standing | None) -> str:
    spent = Usd(str(status.consumed_usd or 0)) if standing is None else standing.consumed_usd
    return decimal(spent.dollars)


def _history(account: Account, window: timedelta, now: datetime) -> list[Slice]:
    profile, step = account.ledger.profile, window / PAST
    marks = [now - window + step * number for number in range(PAST)] + [now]
    return [
        Slice(start=start, gpu_hours=decimal(GpuHours.from_units(profile.between(*_micro(start, end))).hours))
        for start, end in pairwise(marks)
    ]


def _forecast(account: Account, standing: Standing, now: datetime) -> list[str]:
    profile, step = account.ledger.profile, standing.window / PAST
    begin = now - standing.window
    found = []
    for number in range(1, AHEAD + 1):
        ahead = step * number
        left = profile.between(*_micro(begin, begin + ahead))
        more = int(standing.burn * 1000) * (ahead // _MICROSECOND)
        found.append(decimal(GpuHours.from_units(max(standing.consumed.units - left + more, 0)).hours))
    return found


def _micro(start: datetime, end: datetime) -> tuple[int, int]:
    return microseconds(start), microseconds(end)
