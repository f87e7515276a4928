"""Bill for all machines, kept current from the informers' views."""

from collections.abc import Collection, Iterator
from datetime import datetime
from functools import partial

import structlog

from forebay.budgets.accounts import Accounts
from forebay.budgets.bill import MACHINE_LEDGER, Bill
from forebay.budgets.bill_keys import BillKey
from forebay.budgets.ledger.chunks import UnreadableChunk, decode_chunk
from forebay.budgets.ledger.ledger import Ledger
from forebay.demand.maintenance import keeps_without_gpu
from forebay.demand.planned_pods import is_gone
from forebay.engine.ledger.store import Chunks, LedgerKey, Unit
from forebay.engine.ledger.sync import LedgerSync, TrackedLedger
from forebay.engine.views import Views
from forebay.kube.pod_indexes import BY_NODE
from forebay.model.kept import among
from forebay.model.workloads import Pod

log = structlog.get_logger(__name__)

_MACHINE_KEY = LedgerKey(MACHINE_LEDGER, Unit.MACHINES)


class BillAccounting:
    """Keeps the bill while this process leads."""

    def __init__(
        self,
        views: Views,
        accounts: Accounts,
        *,
        gpu_resources: Collection[str] | None,
    ) -> None:
        self._views = views
        self._opened = False
        #: UIDs of stored ledgers of the bill whose key cannot be read.
        self._unreadable: frozenset[str] = frozenset()
        self.bill = Bill(accounts, self._find, gpu_resources=gpu_resources, holds=keeps_without_gpu)

    def open(self, sync: LedgerSync) -> None:
        """Read the stored bill, on the first call."""
        if self._opened:
            return
        self._opened = True
        unreadable = set()
        for ledger_key, chunks in sync.stored(Unit.BILL).items():
            key = bill_key_of(chunks)
            if key is None or key.uid != ledger_key.uid:
                log.warning("bill ledger unreadable", uid=ledger_key.uid)
                unreadable.add(ledger_key.uid)
            else:
                self.bill.ledgers[key] = sync.open(_subject(key), ledger_key.uid, ledger_key.unit, key.owner)
        self._unreadable = frozenset(unreadable)
        self.bill.machine_ledger = sync.open(("machines", ""), *_MACHINE_KEY)
        self.bill.machine_ledger_damaged = sync.is_damaged(_MACHINE_KEY)

    def see_instances(self, now: datetime) -> None:
        """Update the bill with the GPUInstances. Call before the pod changes are applied."""
        self.bill.see_instances(self._views.instances.all(), self._pods_on, now)

    def unrecorded_cost(self) -> frozenset[str]:
        """UIDs of GPUInstances in state Gone that must not be deleted yet, because their cost is not stored."""
        return frozenset(
            record.uid for record in among(self._views.instances.all(), is_gone) if not self.bill.is_stored(record)
        )

    def ledgers(self) -> Iterator[TrackedLedger]:
        bill = self.bill
        for key, ledger in bill.ledgers.items():
            yield TrackedLedger(
                LedgerKey(key.uid, Unit.BILL), _subject(key), ledger, partial(bill.ledgers.__setitem__, key)
            )
        yield TrackedLedger(_MACHINE_KEY, ("machines", ""), bill.machine_ledger, self._set_machine_ledger)

    def uids(self) -> set[str]:
        """UIDs of the ledgers that must stay stored, including those that cannot be read."""
        return {MACHINE_LEDGER, *self._unreadable, *(key.uid for key in self.bill.ledgers)}

    def _set_machine_ledger(self, ledger: Ledger) -> None:
        self.bill.machine_ledger = ledger

    def _pods_on(self, node: str) -> tuple[Pod, ...]:
        return tuple(map(self._views.claimed_gpus.counted, self._views.pods.by(BY_NODE, node)))

    def _find(self, namespace: str, name: str, uid: str) -> Pod | None:
        pod = self._views.pods.get((namespace, name))
        return self._views.claimed_gpus.counted(pod) if pod is not None and pod.uid == uid else None


def bill_key_of(chunks: Chunks) -> BillKey | None:
    """Key of a stored ledger of the bill, from any of its chunks that can be read."""
    for data in chunks.values():
        try:
            return BillKey.parse(decode_chunk(data).owner)
        except UnreadableChunk:
            continue
    return None


def _subject(key: BillKey) -> tuple[str, str]:
    return (key.namespace or "unallocated", f"{key.pool or '-'} {key.node_class or '-'}")
