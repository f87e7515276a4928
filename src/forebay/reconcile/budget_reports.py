"""What is said on every GPUWorkloadBudget. Figures change all the time: they are written when that is worth reading."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from forebay.api.gpu_workload_budget import Accounting, GPUWorkloadBudget, GPUWorkloadBudgetStatus
from forebay.api.names import ACCOUNTING_LABEL, EXCEEDED_LABEL
from forebay.api.parts import Condition, Truth
from forebay.budgets.accounts import BudgetKey
from forebay.budgets.assessment import Standing
from forebay.budgets.enforcement import CONDITION
from forebay.model.quantities import GpuHours, Usd
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.reconcile.decisions import ReportBudget
from forebay.reconcile.reports import Fact, merge_conditions
from forebay.reconcile.snapshot import BudgetState, Snapshot

#: How often the figures of a budget are written: at most, and where they have changed at all.
_OFTEN: Final = timedelta(seconds=10)
_SELDOM: Final = timedelta(seconds=60)
#: Counts of pods, which change in jumps, and what was used when the last of them has ended.
_COUNTS: Final = timedelta(seconds=5)
#: Parts of the quota: less is not worth a write before its time.
_VISIBLE: Final = 1000
#: A tick that comes a little early is not worth another one.
_EARLY: Final = timedelta(seconds=0.5)
#: Before it is used up, its owner is warned: an hour, or a tenth of the window.
_WARNED: Final = timedelta(hours=1)


class BudgetReports(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[ReportBudget, ...] = ()
    reported: Mapping[BudgetKey, datetime] = {}
    look_again: datetime | None = None


def report_budgets(
    snapshot: Snapshot, standings: Mapping[BudgetKey, Standing], held: Mapping[BudgetKey, int]
) -> BudgetReports:
    books = snapshot.budget_state
    if books is None:
        return BudgetReports(reported=snapshot.memory.reported)
    found: list[ReportBudget] = []
    reported: dict[BudgetKey, datetime] = {}
    moving: list[datetime] = []
    for budget in snapshot.budgets:
        if budget.metadata.deletion_timestamp is not None:
            continue
        key = budget.key
        standing = standings.get(key)
        last = snapshot.memory.reported.get(key)
        report = _report(budget, books, standing, held.get(key, 0), now=snapshot.now, last=last)
        if report is not None:
            found.append(report)
            reported[key] = snapshot.now
        elif last is not None:
            reported[key] = last
        if standing is not None and (standing.burn or standing.burn_usd or standing.exceeded):
            moving.append(_next_mark(snapshot.now))
            moving += _turning_points(standing, snapshot.now)
        elif standing is not None and report is None and _says_too_little(budget.status, standing):
            moving.append(snapshot.now + _COUNTS)
    return BudgetReports(decisions=tuple(found), reported=reported, look_again=min(moving, default=None))


def _turning_points(standing: Standing, now: datetime) -> list[datetime]:
    """When its owner is to be warned, and when it is used up."""
    end = standing.exhausted
    return [] if end is None else [at for at in (end - _ahead(standing), end) if at > now]


def _next_mark(now: datetime) -> datetime:
    """The same moment for all budgets, so that they do not each have a tick of their own."""
    step = int(_OFTEN.total_seconds())
    return now.replace(microsecond=0) + timedelta(seconds=step - now.second % step)


def _report(
    budget: GPUWorkloadBudget,
    books: BudgetState,
    standing: Standing | None,
    held: int,
    *,
    now: datetime,
    last: datetime | None,
) -> ReportBudget | None:
    status = budget.status or GPUWorkloadBudgetStatus()
    facts = _facts(budget, books, standing)
    conditions = merge_conditions(status.conditions, facts, budget.metadata.generation, now)
    figures = _figures(budget, books, standing, held, status)
    labels = _labels(budget, standing)
    warning = _forewarned(status, figures, standing, now, last)
    if (
        _told(conditions) == _told(status.conditions)
        and all(budget.metadata.labels.get(name) == value for name, value in labels.items())
        and budget.status is not None
        and warning is None
        and not _worth_writing(status, figures, standing, now, last)
    ):
        return None
    namespace, name = budget.key
    worst = next((fact for fact in facts if fact.type != "Ready" and fact.status is Truth.TRUE), facts[0])
    return ReportBudget(
        namespace=namespace,
        name=name,
        uid=budget.uid,
        resource_version=budget.resource_version,
        generation=budget.metadata.generation or 0,
        conditions=conditions,
        figures=figures,
        labels=labels,
        forecast_warning=warning,
        reason=worst.reason,
        sentence=worst.sentence,
    )


def _facts(budget: GPUWorkloadBudget, books: BudgetState, standing: Standing | None) -> tuple[Fact, ...]:
    degraded = _degraded(budget.key, books)
    if standing is None:
        why = books.invalid.get(budget.key, "The budget is not counted yet.")
        return (
            Fact("Ready", Truth.FALSE, Reason.INVALID_SELECTOR, why),
            Fact("Degraded", Truth.TRUE, Reason.INVALID_SELECTOR, why),
        )
    exceeded = Truth.TRUE if standing.exceeded else Truth.FALSE
    sentence = standing.sentence
    if standing.exceeded:
        sentence = f"{sentence.removesuffix('.')}. {_what_follows(budget)}"
    return (
        Fact("Ready", Truth.TRUE, Reason.RECONCILED, "The pods of the budget are counted."),
        Fact(CONDITION, exceeded, standing.reason, sentence),
        degraded,
    )


def _what_follows(budget: GPUWorkloadBudget) -> str:
    rule = budget.spec.enforcement
    grace = human(timedelta(seconds=rule.grace_period_seconds))
    match rule.action.value:
        case "Evict":
            what = f"After {grace} its pods are evicted one by one, those that have used most first; new ones wait."
        case "Pause":
            what = f"After {grace} the Jobs of its pods are suspended one by one; new pods wait."
        case _:
            what = "Nothing is done about it, as spec.enforcement.action says."
    return f"{what} Raise spec.quota to let more run."


def _degraded(key: BudgetKey, books: BudgetState) -> Fact:
    if (damage := books.damages.get(key)) is not None:
        return Fact("Degraded", Truth.TRUE, Reason.LEDGER_DAMAGED, damage)
    if books.unstored is not None:
        sentence = f"What was used cannot be stored in the cluster ({books.unstored}). It counts meanwhile."
        return Fact("Degraded", Truth.TRUE, Reason.LEDGER_NOT_STORED, sentence)
    return Fact("Degraded", Truth.FALSE, Reason.RECONCILE_SUCCEEDED, "Nothing keeps the budget from being counted.")


def _figures(
    budget: GPUWorkloadBudget, books: BudgetState, standing: Standing | None, held: int, status: GPUWorkloadBudgetStatus
) -> dict[str, Any]:
    """As they stand in the status; None takes one away."""
    stopped = [each for each in (status.last_enforcement_at, books.enforced.get(budget.key)) if each is not None]
    last = max(stopped).replace(microsecond=0) if stopped else None
    if standing is None:
        return {"lastEnforcementAt": last}
    remaining, remaining_usd, exhausted = standing.remaining, standing.remaining_usd, standing.exhausted
    in_dollars = standing.quota_usd is not None or bool(standing.consumed_usd)
    return {
        "consumedGpuHours": standing.consumed.quantity(),
        "remainingGpuHours": None if remaining is None else remaining.quantity(),
        "consumedUsd": standing.consumed_usd.decimals() if in_dollars else None,
        "remainingUsd": None if remaining_usd is None else remaining_usd.decimals(),
        "trackedPods": standing.tracked,
        "heldPods": held,
        "lastEnforcementAt": last,
        "forecastExhaustedAt": None if exhausted is None else exhausted.replace(microsecond=0),
    }


def _labels(budget: GPUWorkloadBudget, standing: Standing | None) -> dict[str, str | None]:
    """Admission policies find by these the few budgets that they must look at."""
    exact = budget.spec.accounting is Accounting.EXACT
    holds = standing is not None and standing.exceeded and standing.holds
    return {EXCEEDED_LABEL: "true" if holds else None, ACCOUNTING_LABEL: budget.spec.accounting if exact else None}


def _worth_writing(
    status: GPUWorkloadBudgetStatus,
    figures: Mapping[str, Any],
    standing: Standing | None,
    now: datetime,
    last: datetime | None,
) -> bool:
    if status.last_enforcement_at != figures["lastEnforcementAt"]:
        return True
    if standing is None:
        return False
    shown = msgspec.to_builtins(status)
    changed = {name for name, value in figures.items() if shown.get(name) != msgspec.to_builtins(value)}
    if not changed:
        return False
    waited = _SELDOM if last is None else now - last + _EARLY
    if (changed & {"trackedPods", "heldPods"} or _says_too_little(status, standing)) and waited >= _COUNTS:
        return True
    return waited >= _SELDOM or (waited >= _OFTEN and _moved(status, standing))


def _says_too_little(status: GPUWorkloadBudgetStatus | None, standing: Standing) -> bool:
    """Of what was used by pods that have all ended: the last word for now, until it leaves the window."""
    if status is None or status.consumed_gpu_hours is None or standing.burn:
        return False
    return GpuHours.parse(status.consumed_gpu_hours) < GpuHours.parse(standing.consumed.quantity())


def _moved(status: GPUWorkloadBudgetStatus, standing: Standing) -> bool:
    """By a visible part of a quota."""
    if standing.quota is not None:
        before = GpuHours.parse(status.consumed_gpu_hours or 0)
        if abs(standing.consumed.units - before.units) * _VISIBLE >= standing.quota.units:
            return True
    if standing.quota_usd is not None:
        spent = Usd(str(status.consumed_usd or 0))
        return abs(standing.consumed_usd.units - spent.units) * _VISIBLE >= standing.quota_usd.units
    return False


def _forewarned(
    status: GPUWorkloadBudgetStatus,
    figures: Mapping[str, Any],
    standing: Standing | None,
    now: datetime,
    last: datetime | None,
) -> str | None:
    """The sentence of a warning, where it was not due at the last report and is now."""
    if standing is None or standing.exceeded or standing.exhausted is None:
        return None
    ahead, before = _ahead(standing), status.forecast_exhausted_at
    said = last is not None and before is not None and before - last <= ahead
    if said or standing.exhausted - now > ahead:
        return None
    return (
        f"{standing.sentence} If everything goes on as it does now, the budget is used up at "
        f"{figures['forecastExhaustedAt']:%Y-%m-%d %H:%M:%S} UTC. Stop what is not needed, or raise spec.quota."
    )


def _ahead(standing: Standing) -> timedelta:
    return min(_WARNED, standing.window / 10)


def _told(conditions: tuple[Condition, ...]) -> list[tuple[str, Truth, str, int | None]]:
    """What is worth saying at once. Sentences hold figures, and are said anew along with these."""
    return [(each.type, each.status, each.reason, each.observed_generation) for each in conditions]
