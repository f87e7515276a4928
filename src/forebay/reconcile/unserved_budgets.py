"""What GPUWorkloadBudgets are told by an operator that runs without budgets."""

from collections.abc import Iterator
from typing import Final

from forebay.api.gpu_workload_budget import GPUWorkloadBudget, GPUWorkloadBudgetStatus
from forebay.api.parts import Truth
from forebay.budgets.enforcement import CONDITION
from forebay.model.reasons import Reason
from forebay.reconcile.decisions import ReportBudget
from forebay.reconcile.reports import Fact, merge_conditions
from forebay.reconcile.snapshot import Snapshot

_SENTENCE: Final = (
    "The operator runs with --budgets off: nothing is counted, held or stopped for this budget. Set --budgets on (in "
    "the chart, budgets.enabled), or delete the budget."
)
_FACTS: Final = (
    Fact("Ready", Truth.FALSE, Reason.BUDGETS_OFF, _SENTENCE),
    Fact(CONDITION, Truth.UNKNOWN, Reason.BUDGETS_OFF, _SENTENCE),
    Fact("Degraded", Truth.TRUE, Reason.BUDGETS_OFF, _SENTENCE),
)
#: Fields of the status that tell how much is used and left. Nobody counts that any more.
_FIGURES: Final = (
    "consumedGpuHours",
    "remainingGpuHours",
    "consumed",
    "remaining",
    "consumedUsd",
    "remainingUsd",
    "trackedPods",
    "heldPods",
    "forecastExhaustedAt",
)


def report_unserved(snapshot: Snapshot) -> Iterator[ReportBudget]:
    """Statuses of budgets that do not say yet that nothing is done for them."""
    for budget in snapshot.unserved_budgets:
        status = budget.status or GPUWorkloadBudgetStatus()
        generation = budget.metadata.generation or 0
        told = not is_served(budget) and status.observed_generation == generation
        if budget.metadata.deletion_timestamp is not None or told:
            continue
        namespace, name = budget.key
        yield ReportBudget(
            namespace=namespace,
            name=name,
            uid=budget.uid,
            resource_version=budget.resource_version,
            generation=generation,
            conditions=merge_conditions(status.conditions, _FACTS, budget.metadata.generation, snapshot.now),
            figures=dict.fromkeys(_FIGURES),
            # Only a budget that is served is labelled: the account has no right to patch budgets.
            labels={},
            reason=Reason.BUDGETS_OFF,
            sentence=_SENTENCE,
        )


def is_served(budget: GPUWorkloadBudget) -> bool:
    """False where the operator says on the budget that it runs without budgets."""
    conditions = budget.status.conditions if budget.status is not None else ()
    return not any(each.type == "Ready" and each.reason == Reason.BUDGETS_OFF for each in conditions)
