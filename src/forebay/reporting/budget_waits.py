"""Which budgets keep a pod waiting, how they stand, and when the pod may go on."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.names import BUDGET_GATE
from forebay.budgets.accounts import Account, Accounts, selector_of
from forebay.budgets.admission import Admission, Held, release
from forebay.budgets.assessment import Assessor
from forebay.model.workloads import Pod
from forebay.reporting.budget_views import BudgetView, view


class BudgetWait(msgspec.Struct, frozen=True, kw_only=True):
    """What the budgets of one pod say of it."""

    #: One sentence each, of those that may keep it waiting.
    standing: tuple[str, ...]
    #: The one that does, until when at the earliest, and its sentence; None where none does, or it is not known.
    budget: str | None = None
    until: datetime | None = None
    sentence: str | None = None
    #: Whether there is room cannot be told from here.
    unread: str | None = None


def waits(
    waiting: Iterable[Pod],
    all_pods: Iterable[Pod],
    budgets: Sequence[GPUWorkloadBudget],
    accounts: Accounts,
    now: datetime,
) -> dict[str, BudgetWait]:
    """As the operator would decide now: those at the gate in their order, others each as if it came first."""
    standings = Assessor().assess(budgets, accounts, now)

    def asking() -> Admission:
        admission = Admission(accounts, {each.key: each for each in budgets}, standings, now)
        for pod in _about_to_run(accounts):
            admission.reserve(pod)
        return admission

    gated = {each.pod.uid: each for each in release(all_pods, asking())}
    found: dict[str, BudgetWait] = {}
    for pod in waiting:
        mine = [standings[each.key] for each in accounts.matching(pod) if each.resource in pod.shape.requests]
        if not mine:
            continue
        held = gated[pod.uid] if pod.uid in gated else asking().admit(pod)
        wait = BudgetWait(standing=tuple(f"GPUWorkloadBudget {each.key[1]}: {each.sentence}" for each in mine))
        if isinstance(held, Held):
            wait = msgspec.structs.replace(wait, budget="/".join(held.budget), until=held.until, sentence=held.sentence)
        found[pod.uid] = wait
    return found


def _about_to_run(accounts: Iterable[Account]) -> list[Pod]:
    found = {
        uid: pod
        for account in accounts
        for uid, pod in account.pods.items()
        if pod.node is not None and uid not in account.ledger.running
    }
    return list(found.values())


def waits_as_reported(
    waiting: Iterable[Pod], budgets: Iterable[GPUWorkloadBudget], now: datetime, why: str
) -> dict[str, BudgetWait]:
    shown = [(each, view(each, None, Assessor(), now)) for each in budgets]
    found = {}
    for pod in waiting:
        mine = tuple(
            f"GPUWorkloadBudget {seen.name}: {_figures(seen)} used when it was last written."
            for budget, seen in shown
            if budget.spec.gpu_resource_name in pod.shape.requests and selector_of(budget).matches(pod.labels)
        )
        if mine:
            found[pod.uid] = BudgetWait(standing=mine, unread=why)
    return found


def _figures(seen: BudgetView) -> str:
    figures = []
    if seen.quota is not None:
        figures.append(f"{float(seen.consumed):g} of {float(seen.quota):g} GPU-h")
    if seen.quota_usd is not None:
        figures.append(f"${float(seen.consumed_usd):.2f} of ${float(seen.quota_usd):.2f}")
    return " and ".join(figures)


def is_gated(pod: Pod) -> bool:
    return BUDGET_GATE in pod.shape.scheduling_gates and pod.node is None
