"""Which budgets hold a pod, how much of them is used, and when they have room for it again."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.names import BUDGET_GATE
from forebay.budgets.accounts import selector_of
from forebay.budgets.admission import Admission, Held, release
from forebay.budgets.assessment import Assessor
from forebay.budgets.budget_accounts import BudgetAccount, BudgetAccounts
from forebay.model.workloads import Pod
from forebay.reporting.budget_views import BudgetView, budget_view


class BudgetWait(msgspec.Struct, frozen=True, kw_only=True):
    """The budgets that match one waiting pod, and the one that holds it."""

    #: One sentence about the usage of each budget that matches the pod and does more than alert.
    standing: tuple[str, ...]
    #: The budget that holds the pod, the earliest time it has room again, and a sentence. None where no budget holds
    #: the pod, or where that is unknown.
    budget: str | None = None
    until: datetime | None = None
    sentence: str | None = None
    #: Why it is unknown whether the budgets have room.
    unknown_because: str | None = None


def budget_waits(
    waiting: Iterable[Pod],
    all_pods: Iterable[Pod],
    budgets: Sequence[GPUWorkloadBudget],
    accounts: BudgetAccounts[BudgetAccount],
    now: datetime,
) -> dict[str, BudgetWait]:
    """What the operator would decide now about each waiting pod, by UID.

    Pods behind the budget gate are decided in the order of the operator; any other pod as if it were the first.
    """
    standings = Assessor().assess(budgets, accounts, now)

    def new_admission() -> Admission:
        admission = Admission(accounts, {each.key: each for each in budgets}, standings, now)
        for pod in _bound_not_started(accounts):
            admission.reserve(pod)
        return admission

    gated = {each.pod.uid: each for each in release(all_pods, new_admission())}
    found: dict[str, BudgetWait] = {}
    for pod in waiting:
        matching = [
            standings[each.key]
            for each in accounts.matching(pod)
            if each.resource in pod.shape.requests and each.key in standings
        ]
        if not matching:
            continue
        held = gated[pod.uid] if pod.uid in gated else new_admission().admit(pod)
        wait = BudgetWait(standing=tuple(f"GPUWorkloadBudget {each.key[1]}: {each.sentence}" for each in matching))
        if isinstance(held, Held):
            wait = msgspec.structs.replace(wait, budget="/".join(held.budget), until=held.until, sentence=held.sentence)
        found[pod.uid] = wait
    return found


def _bound_not_started(accounts: Iterable[BudgetAccount]) -> list[Pod]:
    found = {
        uid: pod
        for account in accounts
        for uid, pod in account.pods.items()
        if pod.node is not None and uid not in account.ledger.running
    }
    return list(found.values())


def waits_from_status(
    waiting: Iterable[Pod], budgets: Iterable[GPUWorkloadBudget], now: datetime, why: str
) -> dict[str, BudgetWait]:
    """Usage as the budgets' status reports it, for users who may not read the ledgers; `why`: the reason for that."""
    shown = [(each, budget_view(each, None, Assessor(), now)) for each in budgets]
    found = {}
    for pod in waiting:
        matching = tuple(
            f"GPUWorkloadBudget {seen.name}: {_figures(seen)} used when the operator last reported."
            for budget, seen in shown
            if budget.spec.gpu_resource_name in pod.shape.requests and selector_of(budget).matches(pod.labels)
        )
        if matching:
            found[pod.uid] = BudgetWait(standing=matching, unknown_because=why)
    return found


def _figures(seen: BudgetView) -> str:
    figures = []
    if seen.quota is not None:
        figures.append(f"{float(seen.consumed):g} of {float(seen.quota):g} {seen.unit}")
    if seen.quota_usd is not None:
        figures.append(f"${float(seen.consumed_usd):.2f} of ${float(seen.quota_usd):.2f}")
    return " and ".join(figures)


def is_gated(pod: Pod) -> bool:
    return BUDGET_GATE in pod.shape.scheduling_gates and pod.node is None
