"""The bill for all machines, fed with what the views show."""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from functools import partial

import structlog

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.budgets.accounts import Accounts
from forebay.budgets.bill import JOURNAL, Bill
from forebay.budgets.bill_lines import BillLine
from forebay.budgets.ledger.chunks import UnreadableChunk, decode
from forebay.budgets.ledger.ledger import Ledger
from forebay.engine.ledger.store import Chunks, LedgerKey, Unit
from forebay.engine.ledger.sync import LedgerSync, TrackedLedger
from forebay.engine.views import Views
from forebay.kube.pods import BY_NODE
from forebay.model.sources import Billing, Source, SourceKey
from forebay.model.workloads import Pod
from forebay.reconcile.orders import source_of

log = structlog.get_logger(__name__)

_MACHINES = LedgerKey(JOURNAL, Unit.MACHINES)


class BillAccounting:
    """For as long as one process leads. `states` tells what is known of the sources of machines."""

    def __init__(
        self,
        views: Views,
        accounts: Accounts,
        *,
        states: Callable[[], Mapping[SourceKey, Source]],
        gpu_resources: Collection[str] | None,
    ) -> None:
        self._views = views
        self._states = states
        self._opened = False
        #: UIDs of lines of which nothing can be read.
        self._lost: frozenset[str] = frozenset()
        self.spend = Bill(accounts, self._find, gpu_resources=gpu_resources)

    def open(self, keeper: LedgerSync) -> None:
        """As it was stored. Once."""
        if self._opened:
            return
        self._opened = True
        lost = set()
        for book, chunks in keeper.stored(Unit.SPEND).items():
            line = line_of(chunks)
            if line is None or line.uid != book.uid:
                log.warning("a line of the bill cannot be read and does not count", uid=book.uid)
                lost.add(book.uid)
            else:
                self.spend.lines[line] = keeper.open(_about(line), book.uid, book.unit, line.owner)
        self._lost = frozenset(lost)
        self.spend.journal = keeper.open(("machines", ""), *_MACHINES)
        self.spend.journal_damaged = keeper.is_damaged(_MACHINES)

    def follow(self, now: datetime) -> None:
        """Before the news of pods is told."""
        self.spend.follow(self._views.instances.values(), self._billing, self._on, now)

    def withheld(self) -> frozenset[str]:
        """Records that must not be forgotten before what their machines cost is stored."""
        return frozenset(
            record.uid
            for record in self._views.instances.values()
            if record.state is InstanceState.GONE and not self.spend.is_settled(record)
        )

    def ledgers(self) -> Iterator[TrackedLedger]:
        spend = self.spend
        for line, ledger in spend.lines.items():
            yield TrackedLedger(
                LedgerKey(line.uid, Unit.SPEND), _about(line), ledger, partial(spend.lines.__setitem__, line)
            )
        yield TrackedLedger(_MACHINES, ("machines", ""), spend.journal, self._replace_journal)

    def uids(self) -> set[str]:
        """Of all that is to stay stored, also of what cannot be read."""
        return {JOURNAL, *self._lost, *(line.uid for line in self.spend.lines)}

    def _replace_journal(self, ledger: Ledger) -> None:
        self.spend.journal = ledger

    def _billing(self, record: GPUInstance) -> Billing:
        chosen, source = record.spec.offer, self._states().get(source_of(record))
        if chosen is None or source is None:
            return Billing()
        wanted = (chosen.instance_type, chosen.region, chosen.zone, chosen.spot)
        for offer in source.offers or ():
            if (offer.instance_type, offer.region, offer.zone, offer.spot) == wanted:
                return offer.billing
        return Billing()

    def _on(self, node: str) -> tuple[Pod, ...]:
        return self._views.pods.by(BY_NODE, node)

    def _find(self, namespace: str, name: str, uid: str) -> Pod | None:
        pod = self._views.pods.get((namespace, name))
        return pod if pod is not None and pod.uid == uid else None


def line_of(chunks: Chunks) -> BillLine | None:
    """As any part of it says that can be read."""
    for data in chunks.values():
        try:
            return BillLine.parse(decode(data).owner)
        except UnreadableChunk:
            continue
    return None


def _about(line: BillLine) -> tuple[str, str]:
    return (line.namespace or "nobody", f"{line.pool or '-'} {line.node_class or '-'}")
