"""Reads budgets and their ledgers, and says which of them keep pods of one namespace waiting."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.api.names import OPERATOR_NAMESPACE
from forebay.cli.cluster_reader import ClusterReader
from forebay.engine.ledger.ledger_reader import LedgersNotReadable, read_ledgers
from forebay.kube.errors import Forbidden, NotFound
from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
from forebay.model.workloads import Pod
from forebay.reporting.budget_waits import BudgetWait, waits, waits_as_reported
from forebay.reporting.cluster_view import Leader
from forebay.settings import Settings


def home(settings: Settings, leaders: Sequence[Leader] | None) -> str:
    """Where the operator keeps its ledgers."""
    return settings.namespace or next((each.namespace for each in leaders or ()), OPERATOR_NAMESPACE)


async def waits_in(
    reader: ClusterReader, namespace: str, pods: Iterable[Pod], where: str, now: datetime
) -> dict[str, BudgetWait]:
    """Of pods of one namespace that wait, by UID; `where` is the operator's."""
    waiting = [pod for pod in pods if pod.node is None and pod.deleted is None and not pod.phase.ended]
    if not waiting:
        return {}
    try:
        budgets = (await reader.client.list_all(GPU_WORKLOAD_BUDGETS, namespace)).items
    except (NotFound, Forbidden):
        return {}
    holding = [each for each in budgets if each.spec.enforcement.action is not EnforcementAction.ALERT_ONLY]
    if not holding:
        return {}
    try:
        ledgers = await read_ledgers(reader.client, where, holding, now)
    except (LedgersNotReadable, Forbidden) as error:
        return waits_as_reported(waiting, holding, now, str(error))
    return waits(waiting, ledgers.pods.values(), holding, ledgers.accounts, now)
