"""Status of every GPUWorkloadBudget.

Figures change all the time: they are written every few seconds, of so many budgets at a time that the API server has
little to do, those first that have waited longest.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from forebay.api.gpu_workload_budget import Accounting, GPUWorkloadBudget, GPUWorkloadBudgetStatus
from forebay.api.names import ACCOUNTING_LABEL, EXCEEDED_LABEL
from forebay.api.parts import Condition, Truth
from forebay.budgets.assessment import Standing
from forebay.budgets.budget_accounts import BudgetKey
from forebay.budgets.enforcement import CONDITION
from forebay.budgets.usage import described
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.reconcile.decisions import ReportBudget
from forebay.reconcile.isolation import Faults
from forebay.reconcile.reports import Fact, merge_conditions
from forebay.reconcile.snapshot import BudgetState, Snapshot, Uncounted

#: Time between two writes of changed figures of one budget.
_INTERVAL: Final = timedelta(seconds=5)
#: Budgets whose changed figures are written in that time: 20 writes a second, whatever the number of budgets.
_PER_INTERVAL: Final = 100
#: A tick may come this much early and still write, rather than need another tick.
_TOLERANCE: Final = timedelta(seconds=0.5)
_NEW_PODS_HELD: Final = "NewPodsHeld"
_NOT_COUNTED_YET: Final = Uncounted(Reason.LEDGER_UNREAD, "Usage is not counted yet.")
#: Time of the warning before the quota is used up: this, or a tenth of the window if that is less.
_WARNING_TIME: Final = timedelta(hours=1)


class BudgetReports(msgspec.Struct, frozen=True, kw_only=True):
    """Status writes of this tick, the time of the last write for each budget, and when the next one is due."""

    decisions: tuple[ReportBudget, ...] = ()
    reported: Mapping[BudgetKey, datetime] = {}
    requeue_at: datetime | None = None


def report_budgets(
    snapshot: Snapshot, standings: Mapping[BudgetKey, Standing], held: Mapping[BudgetKey, int], faults: Faults
) -> BudgetReports:
    budget_state, now = snapshot.budget_state, snapshot.now
    if budget_state is None:
        return BudgetReports(reported=snapshot.memory.reported)
    urgent: list[ReportBudget] = []
    figures_only: list[ReportBudget] = []
    due: list[datetime] = []
    for budget in snapshot.budgets:
        if budget.metadata.deletion_timestamp is not None:
            continue
        key = budget.key
        standing = standings.get(key)
        last = snapshot.memory.reported.get(key)
        fault = faults.told("GPUWorkloadBudget", key)
        with faults.of("GPUWorkloadBudget", *key):
            report, is_urgent = _report(
                budget,
                budget_state,
                standing,
                held.get(key, 0),
                now=now,
                last=last,
                fault=fault,
                gate_missing=snapshot.gate_missing,
            )
            if report is not None:
                (urgent if is_urgent else figures_only).append(report)
            if standing is not None and (standing.burn or standing.burn_usd or standing.leaving or standing.exceeded):
                due.append(_next_mark(now))
                due += _turning_points(standing, now)
    there = {budget.key for budget in snapshot.budgets}
    before = {key: at for key, at in snapshot.memory.reported.items() if key in there}
    chosen = _longest_unwritten(figures_only, before, now, at_once=len(urgent))
    if len(chosen) < len(figures_only):
        due.append(_next_mark(now))
    reported = before | {(each.namespace, each.name): now for each in (*urgent, *chosen)}
    return BudgetReports(decisions=(*urgent, *chosen), reported=reported, requeue_at=min(due, default=None))


def _longest_unwritten(
    reports: list[ReportBudget], reported: Mapping[BudgetKey, datetime], now: datetime, at_once: int
) -> list[ReportBudget]:
    """Reports of changed figures to write now: those that have waited longest, as many as the API server can take."""
    # A last write in the future was made while the clock was ahead.
    recent = {key: at for key, at in reported.items() if timedelta(0) <= now - at < _INTERVAL - _TOLERANCE}
    waiting = [each for each in reports if (each.namespace, each.name) not in recent]
    waiting.sort(key=lambda each: reported.get((each.namespace, each.name), datetime.min.replace(tzinfo=UTC)))
    return waiting[: max(_PER_INTERVAL - len(recent) - at_once, 0)]


def _turning_points(standing: Standing, now: datetime) -> list[datetime]:
    """Times at which the warning is due and at which the quota is used up."""
    warning = None if standing.exhausted is None else standing.exhausted - _warning_time(standing)
    return [at for at in (warning, standing.exhausted, standing.earliest) if at is not None and at > now]


def _next_mark(now: datetime) -> datetime:
    """Next write of figures, at the same time for all budgets, so that they share one tick."""
    step = int(_INTERVAL.total_seconds())
    return now.replace(microsecond=0) + timedelta(seconds=step - now.second % step)


def _report(
    budget: GPUWorkloadBudget,
    budget_state: BudgetState,
    standing: Standing | None,
    held: int,
    *,
    now: datetime,
    last: datetime | None,
    fault: str | None,
    gate_missing: str | None,
) -> tuple[ReportBudget | None, bool]:
    """Report of a budget whose status is out of date, and whether more than its figures is."""
    status = budget.status or GPUWorkloadBudgetStatus()
    facts = _facts(budget, budget_state, standing, gate_missing) if fault is None else _faulty(fault)
    conditions = merge_conditions(status.conditions, facts, budget.metadata.generation, now)
    figures = _figures(budget, budget_state, standing, held, status)
    labels = _labels(budget, standing, held)
    warning = _forecast_warning(status, figures, standing, now, last)
    urgent = (
        budget.status is None
        or warning is not None
        or _comparable(conditions) != _comparable(status.conditions)
        or any(budget.metadata.labels.get(name) != value for name, value in labels.items())
        or status.last_enforcement_at != figures["lastEnforcementAt"]
    )
    if not urgent and not _changed(status, figures):
        return None, False
    namespace, name = budget.key
    worst = next((fact for fact in facts if fact.type != "Ready" and fact.status is Truth.TRUE), facts[0])
    report = ReportBudget(
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
    return report, urgent


def _facts(
    budget: GPUWorkloadBudget, budget_state: BudgetState, standing: Standing | None, gate_missing: str | None
) -> tuple[Fact, ...]:
    degraded = _degraded(budget.key, budget_state)
    if standing is None:
        reason, why = budget_state.invalid.get(budget.key, _NOT_COUNTED_YET)
        return (Fact("Ready", Truth.FALSE, reason, why), Fact("Degraded", Truth.TRUE, reason, why))
    exceeded = Truth.TRUE if standing.exceeded else Truth.FALSE
    sentence = standing.sentence
    if standing.exceeded:
        sentence = f"{sentence.removesuffix('.')}. {_next_action(budget, gate_missing)}"
    return (
        Fact("Ready", Truth.TRUE, Reason.RECONCILED, "Usage of the budget's pods is counted."),
        Fact(CONDITION, exceeded, standing.reason, sentence),
        degraded,
        *_new_pods_held(budget, standing, gate_missing),
    )


def _new_pods_held(budget: GPUWorkloadBudget, standing: Standing, gate_missing: str | None) -> tuple[Fact, ...]:
    """The condition NewPodsHeld of a budget that acts, from the first time on that new pods were not held."""
    if gate_missing is not None and standing.holds:
        return (Fact(_NEW_PODS_HELD, Truth.FALSE, Reason.GATE_MISSING, gate_missing),)
    if any(each.type == _NEW_PODS_HELD for each in (budget.status.conditions if budget.status is not None else ())):
        sentence = "The API server holds new pods while the budget is used up."
        return (Fact(_NEW_PODS_HELD, Truth.TRUE, Reason.GATE_INSTALLED, sentence),)
    return ()


def _faulty(sentence: str) -> tuple[Fact, ...]:
    return tuple(
        Fact(condition, truth, Reason.RECONCILE_FAILED, sentence)
        for condition, truth in (("Ready", Truth.FALSE), ("Degraded", Truth.TRUE))
    )


def _next_action(budget: GPUWorkloadBudget, gate_missing: str | None) -> str:
    rule = budget.spec.enforcement
    grace = human(timedelta(seconds=rule.grace_period_seconds))
    new_pods = "new pods wait" if gate_missing is None else "new pods are not held (see the condition NewPodsHeld)"
    match rule.action.value:
        case "Evict":
            jobs = "" if gate_missing is None else ", and suspends their Jobs"
            what = f"After {grace} Forebay evicts its pods one at a time, the largest user first{jobs}; {new_pods}."
        case "Pause":
            what = f"After {grace} Forebay suspends the Jobs of its pods one at a time; {new_pods}."
        case _:
            what = "Forebay takes no action, because spec.enforcement.action is AlertOnly."
    return f"{what} Raise spec.quota to let more run."


def _degraded(key: BudgetKey, budget_state: BudgetState) -> Fact:
    if (damage := budget_state.damages.get(key)) is not None:
        return Fact("Degraded", Truth.TRUE, Reason.LEDGER_DAMAGED, damage)
    if budget_state.unstored is not None:
        sentence = f"Storing usage failed: {budget_state.unstored}. Usage still counts, and Forebay tries again."
        return Fact("Degraded", Truth.TRUE, Reason.LEDGER_NOT_STORED, sentence)
    if (rewritten := budget_state.rewritten.get(key)) is not None:
        return Fact("Degraded", Truth.TRUE, Reason.LEDGER_REWRITTEN, rewritten)
    return Fact("Degraded", Truth.FALSE, Reason.RECONCILE_SUCCEEDED, "Usage is counted without errors.")


def _figures(
    budget: GPUWorkloadBudget,
    budget_state: BudgetState,
    standing: Standing | None,
    held: int,
    status: GPUWorkloadBudgetStatus,
) -> dict[str, Any]:
    """Fields of the status; None removes a field."""
    stopped = [each for each in (status.last_enforcement_at, budget_state.enforced.get(budget.key)) if each is not None]
    last = max(stopped).replace(microsecond=0) if stopped else None
    if standing is None:
        return {"lastEnforcementAt": last}
    remaining, remaining_usd, exhausted = standing.remaining, standing.remaining_usd, standing.exhausted
    in_dollars = standing.quota_usd is not None or bool(standing.consumed_usd)
    return {
        "consumedGpuHours": standing.consumed.quantity(),
        "remainingGpuHours": None if remaining is None else remaining.quantity(),
        "consumed": described(standing.consumed, standing.resource),
        "remaining": None if remaining is None else described(remaining, standing.resource),
        "window": f"{budget.spec.quota.window_hours}h",
        "consumedUsd": standing.consumed_usd.decimals() if in_dollars else None,
        "remainingUsd": None if remaining_usd is None else remaining_usd.decimals(),
        "trackedPods": standing.tracked,
        "heldPods": held,
        "lastEnforcementAt": last,
        "forecastExhaustedAt": None if exhausted is None else exhausted.replace(microsecond=0),
    }


def _labels(budget: GPUWorkloadBudget, standing: Standing | None, held: int) -> dict[str, str | None]:
    """Labels by which admission policies find the few budgets that they must read; None removes a label.

    New pods are gated while the quota is used up, and while any pod waits: they must not overtake it.
    """
    exact = budget.spec.accounting is Accounting.EXACT
    holds = standing is not None and standing.holds and (standing.exceeded or held > 0)
    return {EXCEEDED_LABEL: "true" if holds else None, ACCOUNTING_LABEL: budget.spec.accounting if exact else None}


def _changed(status: GPUWorkloadBudgetStatus, figures: Mapping[str, Any]) -> bool:
    shown = msgspec.to_builtins(status)
    return any(shown.get(name) != msgspec.to_builtins(value) for name, value in figures.items())


def _forecast_warning(
    status: GPUWorkloadBudgetStatus,
    figures: Mapping[str, Any],
    standing: Standing | None,
    now: datetime,
    last: datetime | None,
) -> str | None:
    """Sentence of the forecast warning, if it was not due at the last report and is now."""
    if standing is None or standing.exceeded or standing.exhausted is None:
        return None
    warning_time, before = _warning_time(standing), status.forecast_exhausted_at
    warned = last is not None and before is not None and before - last <= warning_time
    if warned or standing.exhausted - now > warning_time:
        return None
    return (
        f"{standing.sentence} At the rate of the last hour the budget is used up at "
        f"{figures['forecastExhaustedAt']:%Y-%m-%d %H:%M:%S} UTC. Stop pods that are not needed, or raise spec.quota."
    )


def _warning_time(standing: Standing) -> timedelta:
    return min(_WARNING_TIME, standing.window / 10)


def _comparable(conditions: tuple[Condition, ...]) -> list[tuple[str, Truth, str, int | None]]:
    """Parts of conditions whose change is written at once. Messages contain figures, and are written along."""
    return [(each.type, each.status, each.reason, each.observed_generation) for each in conditions]
