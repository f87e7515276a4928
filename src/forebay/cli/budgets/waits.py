"""Reads budgets and their ledgers, to find which budgets hold the waiting pods of one namespace."""

from collections.abc import Iterable
from datetime import datetime

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.cli.cluster_reader import ClusterReader
from forebay.engine.ledger.ledger_reader import LedgersNotReadable, read_ledgers
from forebay.kube.errors import Forbidden, NotFound
from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
from forebay.model.workloads import Pod
from forebay.reporting.budget_waits import BudgetWait, budget_waits, waits_from_status


async def read_budget_waits(
    reader: ClusterReader, namespace: str, pods: Iterable[Pod], now: datetime
) -> dict[str, BudgetWait]:
    """What the budgets of `namespace` say about those of its `pods` that wait, by UID."""
    waiting = [pod for pod in pods if pod.node is None and pod.deleted is None and not pod.phase.ended]
    if not waiting:
        return {}
    try:
        budgets = (await reader.client.list_all(GPU_WORKLOAD_BUDGETS, namespace)).items
    except (NotFound, Forbidden):
        return {}
    enforcing = [each for each in budgets if each.spec.enforcement.action is not EnforcementAction.ALERT_ONLY]
    if not enforcing:
        return {}
    try:
        ledgers = await read_ledgers(reader.client, reader.operator_namespace, enforcing, now)
    except LedgersNotReadable as error:
        return waits_from_status(waiting, enforcing, now, str(error))
    return budget_waits(waiting, ledgers.pods.values(), enforcing, ledgers.accounts, now)
