"""One machine of the bill, and the pods that pay for it."""

from typing import NamedTuple

from forebay.api.gpu_instance import GPUInstance
from forebay.budgets.bill_keys import BillKey
from forebay.budgets.budget_accounts import BudgetKey
from forebay.budgets.usage import Run
from forebay.model.workloads import Pod


class PodRun(NamedTuple):
    pod: Pod
    run: Run


class BilledMachine:
    """One GPUInstance, and the pods that have run on it since its cost was last recorded."""

    __slots__ = ("node", "pods", "pool", "provisional", "record", "recorded_until", "unverified")

    def __init__(self, record: GPUInstance) -> None:
        pool = record.spec.pool_ref
        self.record = record
        self.node = record.node_name
        self.pool = "" if pool is None else f"{pool.namespace}/{pool.name}"
        self.pods: dict[str, PodRun] = {}
        #: None until it is read from the machine ledger.
        self.recorded_until: int | None = None
        #: True until this process records a cost: before, ledgers may hold costs that the machine ledger does not.
        self.unverified = True
        #: Ledgers with a provisional cost of this machine.
        self.provisional: set[BillKey | BudgetKey] = set()

    def key(self, namespace: str) -> BillKey:
        return BillKey(namespace, self.pool, self.record.spec.node_class_name or "")
