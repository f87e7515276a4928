"""Reader of the ledgers of budgets and of the bill, for commands that only show them."""

from collections.abc import Iterable
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.names import RESET_USAGE_ANNOTATION
from forebay.budgets.accounts import Accounts
from forebay.budgets.bill import MACHINE_LEDGER, Bill
from forebay.budgets.claims import ClaimedGPUs
from forebay.budgets.ledger.ledger import Ledger
from forebay.demand.maintenance import keeps_without_gpu
from forebay.engine.ledger.bill_accounting import bill_key_of
from forebay.engine.ledger.machines_off import machines_off
from forebay.engine.ledger.store import LedgerKey, LedgerStore, Unit
from forebay.kube.client import Client
from forebay.kube.devices import DEVICE_CLASSES, RESOURCE_CLAIMS
from forebay.kube.errors import Forbidden, NotFound
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_INSTANCES
from forebay.kube.pods import PODS
from forebay.model.workloads import Pod


class LedgersNotReadable(Exception):
    """The user may not read the ledgers, or what counts beside them. The message is a sentence without full stop."""


class LedgerReading(NamedTuple):
    """Accounts and bill at one moment."""

    accounts: Accounts
    bill: Bill
    #: Pods in the namespaces of the budgets, by UID.
    pods: dict[str, Pod]


async def read_ledgers(
    client: Client, namespace: str, budgets: Iterable[GPUWorkloadBudget], now: datetime
) -> LedgerReading:
    """Accounts and bill from the stored ledgers and the present pods and machines.

    `namespace` is the operator's. Raises `LedgersNotReadable`.
    """
    try:
        return await _read(client, namespace, list(budgets), now)
    except Forbidden as error:
        raise LedgersNotReadable(
            f"this user may not read the ledgers in namespace {namespace} and all that counts beside them "
            f"({error.message})"
        ) from error


async def _read(client: Client, namespace: str, found: list[GPUWorkloadBudget], now: datetime) -> LedgerReading:
    store = LedgerStore(client, namespace)
    stored = await store.load()
    accounts = Accounts()
    for budget in found:
        reset = budget.metadata.annotations.get(RESET_USAGE_ANNOTATION) == "true"
        uid = store.uid_for(budget.key, budget.uid, budget.spec.gpu_resource_name, reset=reset)
        hours, _ = Ledger.load(uid, stored.get(LedgerKey(uid, Unit.GPU_HOURS), {}))
        dollars, _ = Ledger.load(uid, stored.get(LedgerKey(uid, Unit.DOLLARS), {}))
        accounts.open(budget, now, ledger=hours, money=dollars)
    records = (await client.list_all(GPU_INSTANCES)).items
    pods: dict[str, Pod] = {}
    for where in sorted({budget.key[0] for budget in found}):
        pods.update((pod.uid, pod) for pod in (await client.list_all(PODS, where)).items)
    by_node: dict[str, list[Pod]] = {}
    for node in sorted({record.node_name for record in records if record.node_name and record.spec.hourly_price}):
        by_node[node] = (await client.list_all(PODS, fields=f"spec.nodeName={node}")).items
    if any(pod.shape.resource_claims for pod in (*pods.values(), *chain(*by_node.values()))):
        claimed = await _claimed_gpus(client)
        pods = {uid: claimed.counted(pod) for uid, pod in pods.items()}
        by_node = {node: list(map(claimed.counted, there)) for node, there in by_node.items()}
    await _follow_machines_off(client, accounts, records, now)
    for pod in pods.values():
        accounts.see(pod, now)
    accounts.close_missing()
    bill = Bill(accounts, lambda _namespace, _name, uid: pods.get(uid), holds=keeps_without_gpu)
    for ledger_key, chunks in stored.items():
        key = bill_key_of(chunks) if ledger_key.unit is Unit.BILL else None
        if key is not None:
            bill.ledgers[key], _ = Ledger.load(key.owner, chunks)
    bill.machine_ledger, damages = Ledger.load(MACHINE_LEDGER, stored.get(LedgerKey(MACHINE_LEDGER, Unit.MACHINES), {}))
    bill.machine_ledger_damaged = bool(damages)
    bill.see_instances(records, lambda node: by_node.get(node, ()), now)
    bill.update(now)
    return LedgerReading(accounts, bill, pods)


async def _follow_machines_off(
    client: Client, accounts: Accounts, records: Iterable[GPUInstance], now: datetime
) -> None:
    """Pods on machines that are proven off use nothing. Call before the pods are seen."""
    try:
        nodes = {node.name: node for node in (await client.list_all(NODES)).items}
    except Forbidden:
        nodes = {}  # the GPUInstances tell as much for an hour
    accounts.machines_off(machines_off(records, nodes.values(), nodes.get, {}), lambda _: (), now)


async def _claimed_gpus(client: Client) -> ClaimedGPUs:
    """GPUs that pods hold by resource claims."""
    claimed = ClaimedGPUs()
    try:
        classes = {each.name: each for each in (await client.list_all(DEVICE_CLASSES)).items}
        for claim in (await client.list_all(RESOURCE_CLAIMS)).items:
            claimed.add(claim)
    except NotFound:
        return claimed  # a cluster that does not serve them has none
    claimed.update(classes.get)
    return claimed
