"""The books of budgets and the bill for machines, read once and from outside: for those who ask, not for who acts."""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.budgets.accounts import Accounts
from forebay.budgets.bill import JOURNAL, Bill
from forebay.budgets.ledger.ledger import Ledger
from forebay.engine.ledger.bill_accounting import line_of
from forebay.engine.ledger.store import LedgerKey, LedgerStore, Unit
from forebay.kube.client import Client
from forebay.kube.errors import Forbidden
from forebay.kube.own_kinds import GPU_INSTANCES
from forebay.kube.pods import PODS
from forebay.model.sources import Billing
from forebay.model.workloads import Pod


class LedgersNotReadable(Exception):
    """One sentence without its full stop: what this user may not see."""


class LedgerReading(NamedTuple):
    accounts: Accounts
    spend: Bill
    #: Those that were looked at, by UID.
    pods: dict[str, Pod]


async def read_ledgers(
    client: Client, namespace: str, budgets: Iterable[GPUWorkloadBudget], now: datetime
) -> LedgerReading:
    """What is stored, and the pods and machines that can be seen. `namespace` is the operator's. Raises
    `NotReadable`.
    """
    found = list(budgets)
    try:
        stored = await LedgerStore(client, namespace).load()
    except Forbidden as error:
        raise LedgersNotReadable(f"the ledgers in namespace {namespace} cannot be read ({error.message})") from error
    accounts = Accounts()
    for budget in found:
        hours, _ = Ledger.load(budget.uid, stored.get(LedgerKey(budget.uid, Unit.GPU_HOURS), {}))
        dollars, _ = Ledger.load(budget.uid, stored.get(LedgerKey(budget.uid, Unit.DOLLARS), {}))
        accounts.open(budget, now, ledger=hours, money=dollars)
    records = (await client.list_all(GPU_INSTANCES)).items
    pods: dict[str, Pod] = {}
    for where in sorted({budget.key[0] for budget in found}):
        pods.update((pod.uid, pod) for pod in (await client.list_all(PODS, where)).items)
    by_node: dict[str, list[Pod]] = {}
    for node in sorted({record.node_name for record in records if record.node_name and record.spec.hourly_price}):
        by_node[node] = (await client.list_all(PODS, fields=f"spec.nodeName={node}")).items
    for pod in pods.values():
        accounts.see(pod, now)
    accounts.resume()
    spend = Bill(accounts, lambda _namespace, _name, uid: pods.get(uid))
    for book, chunks in stored.items():
        line = line_of(chunks) if book.unit is Unit.SPEND else None
        if line is not None:
            spend.lines[line], _ = Ledger.load(line.owner, chunks)
    spend.journal, damages = Ledger.load(JOURNAL, stored.get(LedgerKey(JOURNAL, Unit.MACHINES), {}))
    spend.journal_damaged = bool(damages)
    spend.follow(records, lambda _: Billing(), lambda node: by_node.get(node, ()), now)
    spend.look(now)
    return LedgerReading(accounts, spend, pods)
