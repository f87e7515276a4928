"""What all machines have cost, on lines that add up: by who pays, pool and class; and what of it budgets have paid.

    spend.follow(records, ...)      spend.see_pod(pod, at)      spend.pod_gone(pod, at)
    spend.look(now)

What was paid is *settled* forwards, to the second: once an hour, when a pod that paid is gone, and at the end of the
machine. Then it is recorded and stays. Since then it is only drafted: it counts, and is corrected by what is learned.
The journal holds until when each machine is settled, and is to be stored after all that was settled. What a crash in
between has left on some lines is not shared out again; and only what no line has, is.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.budgets.accounts import Account, Accounts, BudgetKey
from forebay.budgets.bill_lines import HOUR, BillLine, Spent, hour_key, merge_adjacent, record_by_hour
from forebay.budgets.bill_shares import Payer, PodStay, RecordedSpend, Share, billed, shares
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import Piece, Run, microseconds, run_of, seconds, thousandths
from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.sources import Billing
from forebay.model.workloads import Pod

#: For so long it is known what was spent, in seconds.
KEPT: Final = 31 * 86_400
JOURNAL: Final = "machines"
#: More pods than this that have ended are settled before their hour has.
_ENDED: Final = 64
#: Machines that are settled in one look because their hour is over.
_AT_ONCE: Final = 100
#: Not asked for, or it is not known what came of it: what seems to be billed may turn out not to be.
_UNSURE: Final = frozenset({InstanceState.REQUESTED, InstanceState.LAUNCHING})


class _Stay(NamedTuple):
    pod: Pod
    run: Run


class _Machine:
    """One GPUInstance, and who was on it since it was last settled."""

    __slots__ = ("billing", "drafted", "fresh", "node", "pool", "record", "settled", "stays")

    def __init__(self, record: GPUInstance, billing: Billing) -> None:
        pool = record.spec.pool_ref
        self.record = record
        self.billing = billing
        self.node = record.node_name
        self.pool = "" if pool is None else f"{pool.namespace}/{pool.name}"
        self.stays: dict[str, _Stay] = {}
        #: None: not known yet.
        self.settled: int | None = None
        #: Before it is first settled here, lines may have what the journal has not.
        self.fresh = True
        self.drafted: set[BillLine | BudgetKey] = set()

    def line(self, namespace: str) -> BillLine:
        return BillLine(namespace, self.pool, self.record.spec.node_class_name or "")


class Bill:
    """`find` looks a pod up by namespace, name and UID, where it is still there."""

    def __init__(
        self,
        accounts: Accounts,
        find: Callable[[str, str, str], Pod | None],
        *,
        gpu_resources: Collection[str] | None = None,
    ) -> None:
        self._accounts = accounts
        self._find = find
        self._gpu_resources = gpu_resources
        self.lines: dict[BillLine, Ledger] = {}
        self.journal = Ledger(JOURNAL)
        #: The journal cannot be read: where it is silent, nothing is settled again from the beginning.
        self.journal_damaged = False
        self._machines: dict[str, _Machine] = {}
        self._by_node: dict[str, _Machine] = {}
        self._changed: set[str] = set()
        #: The hour it is, and machines of which the one before is not settled yet.
        self._hour = 0
        self._owing: deque[str] = deque()
        self._records: dict[str, GPUInstance] = {}

    def follow(
        self,
        records: Iterable[GPUInstance],
        billing: Callable[[GPUInstance], Billing],
        on: Callable[[str], Iterable[Pod]],
        now: datetime,
    ) -> None:
        """All that are there; `on` tells the pods of a node."""
        known, self._records = self._records, {record.uid: record for record in records}
        for uid in known.keys() - self._records.keys():
            self._gone(uid, now)
        for uid, record in self._records.items():
            if known.get(uid) is not record:
                self._see(record, billing(record), on, now)

    def _see(self, record: GPUInstance, billing: Billing, on: Callable[[str], Iterable[Pod]], now: datetime) -> None:
        machine = self._machines.get(record.uid)
        if machine is None and billed(record, billing) is None:
            return
        if machine is None:
            machine = self._machines[record.uid] = _Machine(record, billing)
            self._place(machine, on, now)
        machine.record, machine.billing = record, billing
        if machine.node != record.node_name:
            self._leave(machine)
            machine.node = record.node_name
            self._place(machine, on, now)
        self._changed.add(record.uid)

    def _place(self, machine: _Machine, on: Callable[[str], Iterable[Pod]], now: datetime) -> None:
        # Of two records for one node, the pods are on the one that is not gone.
        if machine.node is None or machine.record.state is InstanceState.GONE:
            return
        self._by_node[machine.node] = machine
        for pod in on(machine.node):
            self.see_pod(pod, now)

    def _gone(self, uid: str, now: datetime) -> None:
        """Its record is no longer there. One that was never shown to end is billed until now."""
        machine = self._machines.pop(uid, None)
        self._changed.discard(uid)
        if machine is None:
            return
        paid = billed(machine.record, machine.billing)
        if paid is not None:
            self._settle(machine, paid._replace(end=paid.end or max(seconds(now), paid.start)))
        self._draft(machine, ())
        self._leave(machine)

    def _leave(self, machine: _Machine) -> None:
        machine.stays.clear()
        if self._by_node.get(machine.node or "") is machine:
            del self._by_node[machine.node or ""]

    def see_pod(self, pod: Pod, at: datetime) -> None:
        machine = self._by_node.get(pod.node) if pod.node is not None else None
        if machine is None or not self._gpus(pod):
            return
        stay = machine.stays.get(pod.uid)
        if stay is not None and pod.resource_version < stay.pod.resource_version:
            return
        run = run_of(pod, None if stay is None else stay.run.start, seconds(at))
        if run is None:
            return
        if run.end is not None and run.end <= (machine.settled or 0):
            # It was taken to go on, and that is settled.
            if machine.stays.pop(pod.uid, None) is not None:
                self._changed.add(machine.record.uid)
            return
        if stay is not None and stay.run.end is not None and not run.told:
            run = stay.run  # an end that nobody has told stays where it was first seen
        machine.stays[pod.uid] = _Stay(pod, run)
        self._changed.add(machine.record.uid)

    def pod_gone(self, pod: Pod, at: datetime) -> None:
        machine = self._by_node.get(pod.node) if pod.node is not None else None
        if machine is None:
            return
        self.see_pod(pod, at)
        stay = machine.stays.get(pod.uid)
        if stay is None:
            return
        if stay.run.end is None:
            machine.stays[pod.uid] = stay._replace(run=stay.run._replace(end=max(seconds(at), stay.run.start)))
        # Nobody will be able to tell again that it was there.
        self._settle_until(machine, seconds(at))

    def budgets_changed(self, namespaces: Collection[str]) -> None:
        """Other budgets pay there than did, from the last reservations on."""
        for uid, machine in self._machines.items():
            paying = {stay.pod.namespace for stay in machine.stays.values()}
            paying.update(pod.namespace for pod in machine.record.spec.pods)
            if not paying.isdisjoint(namespaces):
                self._changed.add(uid)

    def look(self, now: datetime) -> None:
        at = seconds(now)
        if at // HOUR != self._hour:
            if self._hour:
                self._owing.extend(self._machines)
            self._hour = at // HOUR
        for _ in range(min(len(self._owing), _AT_ONCE)):
            machine = self._machines.get(self._owing.popleft())
            if machine is not None:
                self._settle_until(machine, at)
        for uid in tuple(self._changed):
            self._follow(self._machines[uid], at)
        self._changed.clear()

    def _follow(self, machine: _Machine, at: int) -> None:
        paid = billed(machine.record, machine.billing)
        if paid is None:
            self._draft(machine, ())
            return
        begun = self._settled(machine, paid, at)
        if paid.end is not None:
            self._settle(machine, paid)
            self._draft(machine, ())
            self._leave(machine)
            return
        if sum(stay.run.end is not None for stay in machine.stays.values()) > _ENDED:
            self._settle_until(machine, at)
            begun = self._settled(machine, paid, at)
        entered = self._entered(machine, begun, at) if machine.fresh else ()
        self._draft(machine, self._shares(machine, Piece(begun, None, paid.rate), entered))

    def _settled(self, machine: _Machine, paid: Piece, at: int) -> int:
        if machine.settled is None:
            entries = self.journal.pieces(machine.record.uid)
            if entries:
                machine.settled = entries[-1].end or entries[-1].start
            else:
                # Rather a little too little than anything twice.
                machine.settled = max(paid.start, at) if self.journal_damaged else paid.start
        # A launch that came to nothing may have been made again.
        return max(machine.settled, paid.start)

    def _settle_until(self, machine: _Machine, at: int) -> None:
        paid = billed(machine.record, machine.billing)
        if paid is None or machine.record.state in _UNSURE:
            return
        self._settle(machine, paid if paid.end is not None else paid._replace(end=max(at, paid.start)))
        self._changed.add(machine.record.uid)

    def _settle(self, machine: _Machine, paid: Piece) -> None:
        end = paid.end
        assert end is not None
        begun = self._settled(machine, paid, end)
        if end <= begun:
            return
        entered = self._entered(machine, begun, end) if machine.fresh else ()
        found = list(self._shares(machine, Piece(begun, end, paid.rate), entered))
        # What is drafted would count twice.
        self._draft(machine, ())
        for where, pieces in self._entries(machine, found).items():
            ledger = self._ledger(where)
            for piece in pieces:
                record_by_hour(ledger, machine.record.uid, piece)
        self.journal.record(machine.record.uid, begun, end, paid.rate)
        machine.settled, machine.fresh = end, False
        machine.stays = {uid: stay for uid, stay in machine.stays.items() if stay.run.end is None or stay.run.end > end}

    def _draft(self, machine: _Machine, found: Iterable[Share]) -> None:
        entries = self._entries(machine, found)
        for where in machine.drafted - entries.keys():
            if isinstance(where, BillLine) or self._accounts.get(where) is not None:
                self._ledger(where).draft(machine.record.uid, ())
        for where, pieces in entries.items():
            self._ledger(where).draft(machine.record.uid, pieces)
        machine.drafted = set(entries)

    def _shares(self, machine: _Machine, paid: Piece, entered: Sequence[RecordedSpend]) -> Iterator[Share]:
        stays = [
            PodStay(Payer(pod.namespace, pod.uid), Piece(run.start, run.end, self._gpus(pod)))
            for pod, run in machine.stays.values()
        ]
        bought_for = [Payer(pod.namespace, pod.uid) for pod in machine.record.spec.pods]
        return shares(paid, stays, bought_for, entered)

    def _entered(self, machine: _Machine, begun: int, end: int) -> tuple[RecordedSpend, ...]:
        keys = [hour_key(machine.record.uid, hour) for hour in range(begun // HOUR, end // HOUR + 1)]
        mine = machine.line("")[1:]
        return tuple(
            RecordedSpend(line.namespace, piece)
            for line, ledger in self.lines.items()
            if line[1:] == mine
            for key in keys
            for piece in ledger.pieces(key)
        )

    def _entries(self, machine: _Machine, found: Iterable[Share]) -> Mapping[BillLine | BudgetKey, list[Piece]]:
        """By line and by budget: the rates of all who pay there, added up; what follows at the same rate is one."""
        rates: defaultdict[BillLine | BudgetKey, defaultdict[tuple[int, int | None], int]] = defaultdict(
            lambda: defaultdict(int)
        )
        budgets: dict[Payer, list[Account]] = {}
        for payer, (start, end, rate) in found:
            rates[machine.line(payer.namespace)][start, end] += rate
            if payer not in budgets:
                budgets[payer] = self._budgets(machine, payer)
            for account in budgets[payer]:
                rates[account.key][start, end] += rate
        return {where: merge_adjacent(by_time) for where, by_time in rates.items()}

    def _budgets(self, machine: _Machine, payer: Payer) -> list[Account]:
        if not payer.uid:
            return []
        stay = machine.stays.get(payer.uid)
        pod = None if stay is None else stay.pod
        if pod is None:
            name = next((each.name for each in machine.record.spec.pods if each.uid == payer.uid), "")
            pod = self._find(payer.namespace, name, payer.uid)
        if pod is not None:
            return [each for each in self._accounts.of(pod) if thousandths(pod.shape, each.resource)]
        # It is gone: those who have counted its time.
        return [each for each in self._accounts.within(payer.namespace) if each.ledger.pieces(payer.uid)]

    def _ledger(self, where: BillLine | BudgetKey) -> Ledger:
        if not isinstance(where, BillLine):
            account = self._accounts.get(where)
            assert account is not None
            return account.money
        ledger = self.lines.get(where)
        if ledger is None:
            ledger = self.lines[where] = Ledger(where.owner)
        return ledger

    def _gpus(self, pod: Pod) -> int:
        return int(pod.shape.requests.gpus(self._gpu_resources))

    def is_settled(self, record: GPUInstance) -> bool:
        """All it has cost is stored, so that its record may go."""
        machine = self._machines.get(record.uid)
        paid = None if machine is None else billed(machine.record, machine.billing)
        if machine is None or paid is None:
            return True
        over = paid.end is not None and machine.settled is not None and machine.settled >= paid.end
        # The journal is stored last.
        return over and self.journal.is_durable(record.uid)

    def may_go(self, pod: Pod, now: datetime) -> bool:
        """What the pod pays is stored, so that nobody need see it again."""
        machine = self._by_node.get(pod.node) if pod.node is not None else None
        if machine is None:
            return True
        if pod.uid not in machine.stays:
            return self.journal.is_durable(machine.record.uid)
        self._settle_until(machine, seconds(now))
        # Where that settles nothing, nothing is known to be paid.
        return pod.uid in machine.stays

    def recorded(self) -> set[str]:
        """Keys of what must not be added up yet: the time in which machines that are there are not settled."""
        found: set[str] = set()
        for uid, machine in self._machines.items():
            first = self._hour if machine.settled is None else machine.settled // HOUR
            found.update(hour_key(uid, hour) for hour in range(min(first, self._hour), self._hour + 1))
        return found

    def compact(self, now: datetime) -> None:
        """Only when all machines that are there have been seen."""
        at, recorded = seconds(now), self.recorded()
        for ledger in self.lines.values():
            ledger.compact(at, KEPT, recorded)
        self.journal.compact(at, KEPT, self._machines.keys())
        self.lines = {line: ledger for line, ledger in self.lines.items() if not ledger.is_blank}

    def spent(self, now: datetime, window: int = KEPT) -> Mapping[BillLine, Spent]:
        """In so many seconds until now, and what it costs now."""
        at = microseconds(now)
        return {
            line: Spent(
                Usd.from_units(ledger.consumed(at, window * 10**6)), UsdPerHour.from_units(ledger.profile.rate(at))
            )
            for line, ledger in self.lines.items()
        }
