"""The books of all budgets, kept up to date pod by pod: a tick reads them and adds nothing up.

Fed with what the informers show, in any order, repeated or with gaps: every pod as it is, and that it is gone. A pod
counts for every budget of its namespace whose selector takes it, while it does. Of pods in namespaces without a budget
nothing is kept.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from forebay.api.gpu_workload_budget import Accounting, GPUWorkloadBudget
from forebay.budgets.ledger.ledger import EXACT, Ledger
from forebay.budgets.usage import Run, run_of, seconds, thousandths
from forebay.model.requirements import LabelOperator, LabelSelector, Requirement
from forebay.model.workloads import Pod

BudgetKey = tuple[str, str]
_Label = tuple[str, str, str]
_NOBODY: Final = ()
_NOTHING: Final[frozenset[str]] = frozenset()


class Account:
    """The books of one budget."""

    def __init__(self, budget: GPUWorkloadBudget, ledger: Ledger | None = None, money: Ledger | None = None) -> None:
        self.key: BudgetKey = budget.key
        self.uid = budget.uid
        self.resource = budget.spec.gpu_resource_name
        self.selector = selector_of(budget)
        self.exact = budget.spec.accounting is Accounting.EXACT
        self.ledger = ledger or Ledger(budget.uid)
        #: Dollars, by hour of a GPUInstance instead of by pod (`spend.py`).
        self.money = money or Ledger(budget.uid)
        #: Pods that are taken by the selector, ask for the resource and have not ended.
        self.pods: dict[str, Pod] = {}

    def matches(self, pod: Pod) -> bool:
        return pod.namespace == self.key[0] and self.selector.matches(pod.labels)

    def count(self, pod: Pod, run: Run | None, at: int, *, joined: bool) -> None:
        rate = thousandths(pod.shape, self.resource)
        if not rate or pod.phase.ended:
            self.pods.pop(pod.uid, None)
        else:
            self.pods[pod.uid] = pod
        if run is None or not rate:
            return
        ledger, uid = self.ledger, pod.uid
        start = max(run.start, at) if joined else run.start
        if run.end is None:
            # Starts of an exact budget are stored: while nobody looks, restarts may push them out of the status.
            ledger.begin(uid, start, rate, at, durable=joined or pod.restarted or self.exact)
        elif uid in ledger.running:
            ledger.end(uid, run.end)
        else:
            recorded = ledger.pieces(uid)
            if not recorded:
                ledger.record(uid, start, run.end, rate)
            elif run.told and (last := recorded[-1].end) is not None:
                # Never what lies between two pieces: then the pod did not match.
                ledger.record(uid, last, run.end, rate)

    def leave(self, uid: str, at: int) -> None:
        self.pods.pop(uid, None)
        self.ledger.end(uid, at)


class _Seen(NamedTuple):
    pod: Pod
    run: Run | None
    accounts: tuple[Account, ...]


class Accounts:
    def __init__(self) -> None:
        self._accounts: dict[BudgetKey, Account] = {}
        self._within: dict[str, dict[BudgetKey, Account]] = {}
        self._by_label: dict[_Label, list[Account]] = {}
        self._by_namespace: dict[str, list[Account]] = {}
        self._seen: dict[str, dict[str, _Seen]] = {}
        #: What the budgets of each namespace count.
        self._counted: dict[str, frozenset[str]] = {}
        #: A UID never comes back: whatever is said about these later is old.
        self._departed: dict[str, int] = {}

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def get(self, key: BudgetKey) -> Account | None:
        return self._accounts.get(key)

    def open(
        self,
        budget: GPUWorkloadBudget,
        at: datetime,
        *,
        pods: Iterable[Pod] = (),
        ledger: Ledger | None = None,
        money: Ledger | None = None,
    ) -> Account:
        """A budget that is there: new, changed or as before. A new one counts the pods that run from when they did;
        a changed selector counts from the change. `pods` are those that are in its namespace now.
        """
        account = self._opened(budget, at, ledger, money)
        for pod in pods:
            self.see(pod, at)
        return account

    def _opened(self, budget: GPUWorkloadBudget, at: datetime, ledger: Ledger | None, money: Ledger | None) -> Account:
        account = self._accounts.get(budget.key)
        if account is not None and account.uid == budget.uid:
            account.exact = budget.spec.accounting is Accounting.EXACT
            changed = selector_of(budget)
            if changed == account.selector:
                return account
            self._unindex(account)
            account.selector = changed
            self._index(account)
        else:
            if account is not None:
                self._remove(account)
            account = self._accounts[budget.key] = Account(budget, ledger, money)
            self._within.setdefault(budget.key[0], {})[budget.key] = account
            self._index(account)
            # As if it had been there when each of its pods was first seen.
            for uid, (pod, run, accounts) in self._seen.get(budget.key[0], {}).items():
                if account.matches(pod):
                    account.count(pod, run, seconds(at), joined=False)
                    self._seen[budget.key[0]][uid] = _Seen(pod, run, (*accounts, account))
            return account
        for seen in list(self._seen.get(budget.key[0], {}).values()):
            self._look(seen.pod, seen, seconds(at))
        return account

    def close(self, key: BudgetKey) -> None:
        """The budget is gone."""
        self._remove(self._accounts[key])
        if key[0] not in self._counted:
            self._seen.pop(key[0], None)

    def _remove(self, account: Account) -> None:
        namespace = account.key[0]
        del self._accounts[account.key], self._within[namespace][account.key]
        self._unindex(account)
        seen = self._seen.get(namespace, {})
        for uid, each in seen.items():
            if account in each.accounts:
                seen[uid] = each._replace(accounts=tuple(other for other in each.accounts if other is not account))

    def see(self, pod: Pod, at: datetime) -> None:
        """The pod is like this. What is older than what was seen before is passed over."""
        counted = self._counted.get(pod.namespace)
        if not counted or pod.uid in self._departed:
            return
        seen = self._seen.setdefault(pod.namespace, {}).get(pod.uid)
        if seen is None and counted.isdisjoint(pod.shape.requests):
            return
        if seen is None or pod.resource_version >= seen.pod.resource_version:
            self._look(pod, seen, seconds(at))

    def _look(self, pod: Pod, seen: _Seen | None, at: int) -> None:
        run = seen.run if seen is not None else None
        if run is None or run.end is None or not run.told:
            now = run_of(pod, None if run is None else run.start, at)
            # An end that nobody has told stays where it was first seen.
            run = now if run is None or run.end is None or (now is not None and now.told) else run
        accounts = tuple(self.of(pod))
        before = seen.accounts if seen is not None else _NOBODY
        for account in before:
            if account not in accounts and seen is not None:
                # What began since the last look began under the labels of that time.
                account.count(seen.pod, run, at, joined=False)
                account.leave(pod.uid, at)
        for account in accounts:
            account.count(pod, run, at, joined=seen is not None and account not in before)
        self._seen.setdefault(pod.namespace, {})[pod.uid] = _Seen(pod, run, accounts)

    def gone(self, pod: Pod, at: datetime) -> None:
        """The pod is no longer there; `pod` is how it was last. One that nobody saw end counts until now."""
        if pod.namespace not in self._counted:
            return
        self.see(pod, at)
        seen = self._seen.get(pod.namespace, {}).pop(pod.uid, None)
        self._departed[pod.uid] = seconds(at)
        for account in seen.accounts if seen is not None else ():
            account.leave(pod.uid, seconds(at))

    def resume(self) -> None:
        """To be called once, when every pod that is there has been seen after a start."""
        visible = self.visible()
        for account in self:
            account.ledger.close_missing(visible)

    def compact(self, now: datetime, windows: Mapping[BudgetKey, int], charged: Collection[str]) -> None:
        """Only when the view of the pods is complete. Windows are in seconds; `charged` are the keys of dollars that
        must not be added up yet (`Spend.recorded`).
        """
        at = seconds(now)
        visible = self.visible()
        for account in self:
            account.ledger.compact(at, windows[account.key], visible)
            account.money.compact(at, windows[account.key], charged)
        self._departed = {uid: when for uid, when in self._departed.items() if when > at - EXACT}

    def visible(self) -> set[str]:
        return {uid for pods in self._seen.values() for uid in pods}

    def may_go(self, pod: Pod) -> bool:
        """Every budget has the pod's time stored: nothing is lost when it is deleted."""
        if self._counted.get(pod.namespace, _NOTHING).isdisjoint(pod.shape.requests):
            return True
        seen = self._seen.get(pod.namespace, {}).get(pod.uid)
        if seen is None or not seen.pod.phase.ended or seen.pod.resource_version < pod.resource_version:
            return False
        return all(account.ledger.is_durable(pod.uid) for account in self.within(pod.namespace))

    def within(self, namespace: str) -> Iterator[Account]:
        return iter(self._within.get(namespace, {}).values())

    def of(self, pod: Pod) -> Iterator[Account]:
        """Budgets that take the pod, whether or not it asks for what they count."""
        namespace = pod.namespace
        for account in self._by_namespace.get(namespace, _NOBODY):
            if account.selector.matches(pod.labels):
                yield account
        if self._by_label:
            for key, value in pod.labels.items():
                for account in self._by_label.get((namespace, key, value), _NOBODY):
                    if account.selector.matches(pod.labels):
                        yield account

    def _index(self, account: Account) -> None:
        self._place(account).append(account)
        self._count_in(account.key[0])

    def _unindex(self, account: Account) -> None:
        self._place(account).remove(account)
        self._count_in(account.key[0])

    def _count_in(self, namespace: str) -> None:
        resources = frozenset(account.resource for account in self.within(namespace))
        if resources:
            self._counted[namespace] = resources
        else:
            self._counted.pop(namespace, None)

    def _place(self, account: Account) -> list[Account]:
        """Under one label that its pods must have; without such a one, under its namespace."""
        namespace = account.key[0]
        for label in sorted(account.selector.match_labels.items()):
            return self._by_label.setdefault((namespace, *label), [])
        return self._by_namespace.setdefault(namespace, [])


def selector_of(budget: GPUWorkloadBudget) -> LabelSelector:
    written = budget.spec.selector
    return LabelSelector(
        written.match_labels,
        tuple(
            Requirement(each.key, LabelOperator(each.operator.value), each.values) for each in written.match_expressions
        ),
    )
