"""Bill for all machines by namespace, pool and class, and the part of it that each budget pays.

    bill.see_instances(records, ...)      bill.see_pod(pod, at)      bill.pod_gone(pod, at)
    bill.update(now)

Costs are *recorded* to the second: once an hour, when a pod that pays is deleted, and when the machine ends. Who paid
recorded costs never changes; where the provider tells in the end that it billed for less time, the rest is taken back.
Costs since then are *provisional*: they count, are never stored, and are corrected by what is learned later.

The machine ledger holds until when the cost of each machine is recorded. It is stored after all other ledgers: after a
crash in between, costs that some ledgers already hold are not shared out again, and only the missing rest is.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.budgets.accounts import Account, Accounts
from forebay.budgets.bill_keys import HOUR, BillKey, Cost, hour_key, merge_adjacent, record_by_hour
from forebay.budgets.bill_shares import Payer, PodUse, RecordedCost, Share, billed, shares
from forebay.budgets.billed_machine import BilledMachine, PodRun
from forebay.budgets.budget_accounts import BudgetKey
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import Interval, microseconds, run_of, seconds, thousandths
from forebay.model.kept import KeptTuple
from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.workloads import Pod

#: Seconds for which costs are kept.
RETENTION: Final = 31 * 86_400
#: Owner of the machine ledger.
MACHINE_LEDGER: Final = "machines"
#: With more ended pods than this, the cost of a machine is recorded before the hour is over.
_MAX_ENDED_PODS: Final = 64
#: Machines whose last hour is recorded in one update.
_HOURLY_BATCH: Final = 100
#: States in which the launch is not known to have succeeded: costs may turn out not to be billed.
_LAUNCH_UNCONFIRMED: Final = frozenset({InstanceState.REQUESTED, InstanceState.LAUNCHING})


class Bill:
    """Costs of all machines. `find` returns an existing pod by namespace, name and UID; `holds` says whether a pod
    without GPUs keeps an idle machine from being terminated.
    """

    def __init__(
        self,
        accounts: Accounts,
        find: Callable[[str, str, str], Pod | None],
        *,
        gpu_resources: Collection[str] | None = None,
        holds: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        self._accounts = accounts
        self._holds = holds
        self._find = find
        self._gpu_resources = gpu_resources
        self.ledgers: dict[BillKey, Ledger] = {}
        self.machine_ledger = Ledger(MACHINE_LEDGER)
        #: Part of the machine ledger cannot be read: machines that are missing from it are billed from now on only.
        self.machine_ledger_damaged = False
        self._machines: dict[str, BilledMachine] = {}
        self._by_node: dict[str, BilledMachine] = {}
        self._changed: set[str] = set()
        #: The current hour, and UIDs of machines whose previous hour is not recorded yet.
        self._hour = 0
        self._hour_due: deque[str] = deque()
        self._records: dict[str, GPUInstance] = {}
        self._seen: Iterable[GPUInstance] = ()

    def see_instances(
        self,
        records: Iterable[GPUInstance],
        pods_on: Callable[[str], Iterable[Pod]],
        now: datetime,
    ) -> None:
        """Update the bill with all existing GPUInstances; `pods_on` returns the pods of a node."""
        if isinstance(records, KeptTuple) and records is self._seen:
            return
        self._seen = records
        known, self._records = self._records, {record.uid: record for record in records}
        for uid in known.keys() - self._records.keys():
            self._instance_gone(uid, now)
        for uid, record in self._records.items():
            if known.get(uid) is not record:
                self._see_instance(record, pods_on, now)

    def _see_instance(self, record: GPUInstance, pods_on: Callable[[str], Iterable[Pod]], now: datetime) -> None:
        machine = self._machines.get(record.uid)
        if machine is None and billed(record) is None:
            return
        if machine is None:
            machine = self._machines[record.uid] = BilledMachine(record)
            self._index_node(machine, pods_on, now)
        machine.record = record
        if machine.node != record.node_name:
            self._unindex_node(machine)
            machine.node = record.node_name
            self._index_node(machine, pods_on, now)
        self._changed.add(record.uid)

    def _index_node(self, machine: BilledMachine, pods_on: Callable[[str], Iterable[Pod]], now: datetime) -> None:
        # Of two records for one node, the pods run on the one that is not Gone.
        if machine.node is None or machine.record.state is InstanceState.GONE:
            return
        self._by_node[machine.node] = machine
        for pod in pods_on(machine.node):
            self.see_pod(pod, now)

    def _instance_gone(self, uid: str, now: datetime) -> None:
        """Record the rest of the cost of a deleted GPUInstance. One that was never seen to end is billed until now."""
        machine = self._machines.pop(uid, None)
        self._changed.discard(uid)
        if machine is None:
            return
        paid = billed(machine.record)
        if paid is not None:
            self._unrecorded_from(machine, paid, seconds(now))
            if paid.end is not None:
                self._take_back(machine, paid.end, seconds(now))
            self._record(machine, paid._replace(end=paid.end or max(seconds(now), paid.start)))
        self._set_provisional(machine, ())
        self._unindex_node(machine)

    def _unindex_node(self, machine: BilledMachine) -> None:
        machine.pods.clear()
        if self._by_node.get(machine.node or "") is machine:
            del self._by_node[machine.node or ""]

    def see_pod(self, pod: Pod, at: datetime) -> None:
        """Update the machine of a pod with the pod's present state. A state older than the last one is ignored."""
        machine = self._by_node.get(pod.node) if pod.node is not None else None
        if machine is None:
            return
        known = machine.pods.get(pod.uid)
        holds = known is not None or (pod.occupies_node and self._holds(pod))
        if not holds and not self._gpus(pod):
            return
        if known is not None and pod.resource_version < known.pod.resource_version:
            return
        # Of pods without GPUs it is not read when their containers started.
        seen = None if self._gpus(pod) else seconds(at)
        run = run_of(pod, seen if known is None else known.run.start, seconds(at))
        if run is None:
            return
        if run.end is None and not self._gpus(pod) and not self._holds(pod):
            run = run._replace(end=max(seconds(at), run.start))  # the pod no longer keeps the machine
        if run.end is not None and run.end <= (machine.recorded_until or 0):
            # Costs beyond the end are already recorded as if the pod had gone on: recorded costs do not change.
            if machine.pods.pop(pod.uid, None) is not None:
                self._changed.add(machine.record.uid)
            return
        if known is not None and known.run.end is not None and not run.end_reported:
            run = known.run  # an end that no status reports stays where it was first seen
        machine.pods[pod.uid] = PodRun(pod, run)
        self._changed.add(machine.record.uid)

    def pod_gone(self, pod: Pod, at: datetime) -> None:
        """Record what a deleted pod has paid, given its last state."""
        machine = self._by_node.get(pod.node) if pod.node is not None else None
        if machine is None:
            return
        self.see_pod(pod, at)
        known = machine.pods.get(pod.uid)
        if known is None:
            return
        if known.run.end is None:
            machine.pods[pod.uid] = known._replace(run=known.run._replace(end=max(seconds(at), known.run.start)))
        # After a restart of Forebay, nothing would show that the pod was there.
        self._record_until(machine, seconds(at))

    def budgets_changed(self, namespaces: Collection[str]) -> None:
        """Share provisional costs anew where budgets or their selectors have changed."""
        for uid, machine in self._machines.items():
            paying = {each.pod.namespace for each in machine.pods.values()}
            paying.update(pod.namespace for pod in machine.record.spec.pods)
            if not paying.isdisjoint(namespaces):
                self._changed.add(uid)

    def update(self, now: datetime) -> None:
        """Record the costs that are due, and share out the provisional costs of machines that have changed."""
        at = seconds(now)
        if at // HOUR != self._hour:
            if self._hour:
                self._hour_due.extend(self._machines)
            self._hour = at // HOUR
        for _ in range(min(len(self._hour_due), _HOURLY_BATCH)):
            machine = self._machines.get(self._hour_due.popleft())
            if machine is not None:
                self._record_until(machine, at)
        for uid in tuple(self._changed):
            self._update_machine(self._machines[uid], at)
        self._changed.clear()

    def _update_machine(self, machine: BilledMachine, at: int) -> None:
        paid = billed(machine.record)
        if paid is None:
            self._set_provisional(machine, ())
            return
        start = self._unrecorded_from(machine, paid, at)
        if paid.end is not None:
            self._take_back(machine, paid.end, at)
            self._record(machine, paid)
            self._set_provisional(machine, ())
            self._unindex_node(machine)
            return
        if sum(each.run.end is not None for each in machine.pods.values()) > _MAX_ENDED_PODS:
            self._record_until(machine, at)
            start = self._unrecorded_from(machine, paid, at)
        recorded = self._recorded_costs(machine, start, at) if machine.unverified else ()
        self._set_provisional(machine, self._shares(machine, Interval(start, None, paid.rate), recorded))

    def _unrecorded_from(self, machine: BilledMachine, paid: Interval, at: int) -> int:
        """Second from which the cost of a machine is not recorded yet."""
        if machine.recorded_until is None:
            intervals = self.machine_ledger.intervals(machine.record.uid)
            if intervals:
                machine.recorded_until = intervals[-1].end or intervals[-1].start
            else:
                # Where the machine ledger is damaged, too small a bill is better than one that counts twice.
                machine.recorded_until = max(paid.start, at) if self.machine_ledger_damaged else paid.start
        # After a failed launch, a second one is billed from a later start.
        return max(machine.recorded_until, paid.start)

    def _record_until(self, machine: BilledMachine, at: int) -> None:
        paid = billed(machine.record)
        if paid is None or machine.record.state in _LAUNCH_UNCONFIRMED:
            return
        self._record(machine, paid if paid.end is not None else paid._replace(end=max(at, paid.start)))
        self._changed.add(machine.record.uid)

    def _record(self, machine: BilledMachine, paid: Interval) -> None:
        end = paid.end
        assert end is not None
        start = self._unrecorded_from(machine, paid, end)
        if end <= start:
            return
        recorded = self._recorded_costs(machine, start, end) if machine.unverified else ()
        found = list(self._shares(machine, Interval(start, end, paid.rate), recorded))
        # Provisional costs would count a second time.
        self._set_provisional(machine, ())
        for where, intervals in self._by_ledger(machine, found).items():
            ledger = self._ledger(where)
            for interval in intervals:
                record_by_hour(ledger, machine.record.uid, interval)
        self.machine_ledger.record(machine.record.uid, start, end, paid.rate)
        machine.recorded_until, machine.unverified = end, False
        machine.pods = {uid: each for uid, each in machine.pods.items() if each.run.end is None or each.run.end > end}

    def _take_back(self, machine: BilledMachine, end: int, at: int) -> None:
        """Take back costs that are recorded beyond the end of a machine, which became known only later.

        Ledgers may hold costs that the machine ledger does not, until this process has recorded one. The machine ledger
        is stored last, so that after a crash in between it is all done again.
        """
        last = max(machine.recorded_until or 0, at if machine.unverified else 0)
        if last <= end:
            return
        pool_and_class = machine.key("")[1:]
        ledgers = [ledger for key, ledger in self.ledgers.items() if key[1:] == pool_and_class]
        ledgers.extend(each.money for each in self._accounts if not each.money.is_empty)
        for hour in range(end // HOUR, last // HOUR + 1):
            key = hour_key(machine.record.uid, hour)
            for ledger in ledgers:
                ledger.take_back(key, end)
        self.machine_ledger.take_back(machine.record.uid, end)
        machine.recorded_until = min(machine.recorded_until or 0, end)

    def _set_provisional(self, machine: BilledMachine, found: Iterable[Share]) -> None:
        by_ledger = self._by_ledger(machine, found)
        for where in machine.provisional - by_ledger.keys():
            if isinstance(where, BillKey) or self._accounts.get(where) is not None:
                self._ledger(where).set_provisional(machine.record.uid, ())
        for where, intervals in by_ledger.items():
            self._ledger(where).set_provisional(machine.record.uid, intervals)
        machine.provisional = set(by_ledger)

    def _shares(self, machine: BilledMachine, paid: Interval, recorded: Sequence[RecordedCost]) -> Iterator[Share]:
        uses = [
            PodUse(Payer(pod.namespace, pod.uid), Interval(run.start, run.end, self._gpus(pod)))
            for pod, run in machine.pods.values()
        ]
        launched_for = [Payer(pod.namespace, pod.uid) for pod in machine.record.spec.pods]
        return shares(paid, uses, launched_for, recorded)

    def _recorded_costs(self, machine: BilledMachine, start: int, end: int) -> tuple[RecordedCost, ...]:
        """Costs of a machine that ledgers of the bill hold already, from one second to another."""
        hours = [hour_key(machine.record.uid, hour) for hour in range(start // HOUR, end // HOUR + 1)]
        pool_and_class = machine.key("")[1:]
        return tuple(
            RecordedCost(key.namespace, interval)
            for key, ledger in self.ledgers.items()
            if key[1:] == pool_and_class
            for hour in hours
            for interval in ledger.intervals(hour)
        )

    def _by_ledger(
        self, machine: BilledMachine, found: Iterable[Share]
    ) -> Mapping[BillKey | BudgetKey, list[Interval]]:
        """Intervals for each ledger of the bill and of budgets, with the rates of all who pay there added up."""
        rates: defaultdict[BillKey | BudgetKey, defaultdict[tuple[int, int | None], int]] = defaultdict(
            lambda: defaultdict(int)
        )
        budgets: dict[Payer, list[Account]] = {}
        for payer, (start, end, rate) in found:
            rates[machine.key(payer.namespace)][start, end] += rate
            if payer not in budgets:
                budgets[payer] = self._budgets(machine, payer)
            for account in budgets[payer]:
                rates[account.key][start, end] += rate
        return {where: merge_adjacent(by_time) for where, by_time in rates.items()}

    def _budgets(self, machine: BilledMachine, payer: Payer) -> list[Account]:
        if not payer.uid:
            return []
        known = machine.pods.get(payer.uid)
        pod = None if known is None else known.pod
        if pod is None:
            name = next((each.name for each in machine.record.spec.pods if each.uid == payer.uid), "")
            pod = self._find(payer.namespace, name, payer.uid)
        if pod is not None:
            return [each for each in self._accounts.matching(pod) if thousandths(pod.shape, each.resource)]
        # The pod is deleted: the budgets that have counted its usage pay.
        return [each for each in self._accounts.in_namespace(payer.namespace) if each.ledger.intervals(payer.uid)]

    def _ledger(self, where: BillKey | BudgetKey) -> Ledger:
        if not isinstance(where, BillKey):
            account = self._accounts.get(where)
            assert account is not None
            return account.money
        ledger = self.ledgers.get(where)
        if ledger is None:
            ledger = self.ledgers[where] = Ledger(where.owner)
        return ledger

    def _gpus(self, pod: Pod) -> int:
        return int(pod.shape.requests.gpus(self._gpu_resources))

    def is_stored(self, record: GPUInstance) -> bool:
        """Whether the whole cost of a machine is stored, so that its record may be deleted."""
        machine = self._machines.get(record.uid)
        paid = None if machine is None else billed(machine.record)
        if machine is None or paid is None:
            return True
        over = paid.end is not None and machine.recorded_until is not None and machine.recorded_until >= paid.end
        # The machine ledger is stored last.
        return over and self.machine_ledger.is_durable(record.uid)

    def may_delete(self, pod: Pod, now: datetime) -> bool:
        """Whether what a pod pays is stored, so that deleting the pod loses nothing."""
        machine = self._by_node.get(pod.node) if pod.node is not None else None
        if machine is None:
            return True
        if pod.uid not in machine.pods:
            return self.machine_ledger.is_durable(machine.record.uid)
        self._record_until(machine, seconds(now))
        # If that recorded nothing, the pod is not known to pay anything.
        return pod.uid in machine.pods

    def unfinished_keys(self) -> set[str]:
        """Ledger keys that must not be compacted: hours in which the cost of an existing machine is not recorded."""
        found: set[str] = set()
        for uid, machine in self._machines.items():
            first = self._hour if machine.recorded_until is None else machine.recorded_until // HOUR
            found.update(hour_key(uid, hour) for hour in range(min(first, self._hour), self._hour + 1))
        return found

    def compact(self, now: datetime) -> None:
        """Compact all ledgers of the bill. Call only when all existing machines have been seen."""
        at, unfinished = seconds(now), self.unfinished_keys()
        for ledger in self.ledgers.values():
            ledger.compact(at, RETENTION, unfinished)
        self.machine_ledger.compact(at, RETENTION, self._machines.keys())
        self.ledgers = {key: ledger for key, ledger in self.ledgers.items() if not ledger.is_empty}

    def costs(self, now: datetime, window: int = RETENTION) -> Mapping[BillKey, Cost]:
        """Cost by key in a window of so many seconds that ends now."""
        at = microseconds(now)
        return {
            key: Cost(
                Usd.from_units(ledger.consumed(at, window * 10**6)), UsdPerHour.from_units(ledger.profile.rate(at))
            )
            for key, ledger in self.ledgers.items()
        }
