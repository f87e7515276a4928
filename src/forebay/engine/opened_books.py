"""The books of budgets, read once and from outside: for those who ask, not for those who act."""

from collections.abc import Iterable
from datetime import datetime

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.budgets.accounts import Accounts
from forebay.budgets.ledger import Ledger
from forebay.engine.ledger_store import Book, LedgerStore, Unit
from forebay.kube.client import Client
from forebay.kube.errors import Forbidden
from forebay.kube.pods import PODS, count_resources
from forebay.model.quantities import GPU_SUFFIX


class NotReadable(Exception):
    """One sentence without its full stop: what this user may not see."""


async def read_accounts(
    client: Client, namespace: str, budgets: Iterable[GPUWorkloadBudget], now: datetime
) -> Accounts:
    """What is stored, and the pods that can be seen. `namespace` is the operator's. Raises `NotReadable`."""
    found = list(budgets)
    try:
        stored = await LedgerStore(client, namespace).load()
    except Forbidden as error:
        raise NotReadable(f"the ledgers in namespace {namespace} cannot be read ({error.message})") from error
    resources = {budget.spec.gpu_resource_name for budget in found}
    count_resources([name for name in resources if not name.endswith(GPU_SUFFIX)])
    accounts = Accounts()
    for budget in found:
        hours, _ = Ledger.load(budget.uid, stored.get(Book(budget.uid, Unit.GPU_HOURS), {}))
        dollars, _ = Ledger.load(budget.uid, stored.get(Book(budget.uid, Unit.DOLLARS), {}))
        accounts.open(budget, now, ledger=hours, money=dollars)
    for where in sorted({budget.key[0] for budget in found}):
        for pod in (await client.list_all(PODS, where)).items:
            accounts.see(pod, now)
    accounts.resume()
    return accounts
