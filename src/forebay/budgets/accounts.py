"""Accounts of all budgets, updated pod by pod, so that a tick reads totals and adds nothing up.

Pods come from the informers in any order, repeated or with gaps: each pod in its present state, and its deletion. A pod
counts for every budget of its namespace whose selector matches it, for as long as it matches. Pods in namespaces
without a budget are not remembered.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from forebay.api.gpu_workload_budget import Accounting, GPUWorkloadBudget
from forebay.budgets.budget_accounts import AccountLabel, BudgetAccount, BudgetAccounts, BudgetKey
from forebay.budgets.ledger.ledger import EXACT_PERIOD, Ledger
from forebay.budgets.usage import MICROSECONDS, Run, from_microseconds, run_of, seconds, thousandths
from forebay.model.requirements import LabelOperator, LabelSelector, Requirement
from forebay.model.workloads import Pod

_NO_ACCOUNTS: Final = ()
_NO_RESOURCES: Final[frozenset[str]] = frozenset()


class Account(BudgetAccount):
    """The account of one budget, as it is kept."""

    ledger: Ledger
    money: Ledger
    pods: dict[str, Pod]

    def __init__(self, budget: GPUWorkloadBudget, ledger: Ledger | None = None, money: Ledger | None = None) -> None:
        super().__init__(
            key=budget.key,
            uid=budget.uid,
            resource=budget.spec.gpu_resource_name,
            selector=selector_of(budget),
            exact=budget.spec.accounting is Accounting.EXACT,
            ledger=ledger or Ledger(budget.uid),
            money=money or Ledger(budget.uid),
            pods={},
        )
        self._pod_changes = 0
        self._last_frozen: tuple[tuple[object, ...], BudgetAccount] | None = None

    def frozen(self) -> BudgetAccount:
        """The account as it is now, which later changes leave alone: the same as before, where nothing has changed."""
        ledger, money = self.ledger, self.money
        versions = (ledger.profile.version, money.profile.version, self._pod_changes)
        state = (ledger, money, *versions, self.selector, self.exact)
        if self._last_frozen is None or self._last_frozen[0] != state:
            made = BudgetAccount(
                key=self.key,
                uid=self.uid,
                resource=self.resource,
                selector=self.selector,
                exact=self.exact,
                ledger=ledger.frozen(self.pods),
                money=money.frozen(),
                pods=MappingProxyType(dict(self.pods)),
            )
            self._last_frozen = state, made
        return self._last_frozen[1]

    def matches(self, pod: Pod) -> bool:
        return pod.namespace == self.key[0] and self.selector.matches(pod.labels)

    def count(self, pod: Pod, run: Run | None, at: int, *, newly_matched: bool) -> None:
        """Record the run of a matching pod.

        A `newly_matched` pod was seen before without matching: it counts from now on, not from its start.
        """
        rate = thousandths(pod.shape, self.resource)
        if not rate or pod.phase.ended or (run is not None and run.end is not None):
            self._forget_pod(pod.uid)
        elif self.pods.get(pod.uid) is not pod:
            self.pods[pod.uid] = pod
            self._pod_changes += 1
        if run is None or not rate:
            return
        ledger, uid = self.ledger, pod.uid
        start = max(run.start, at) if newly_matched else run.start
        if run.end is None:
            # Starts of an exact budget are stored: while Forebay is down, restarts may push them out of the status.
            ledger.begin(uid, start, rate, at, durable=newly_matched or pod.restarted or self.exact)
        elif uid in ledger.running:
            ledger.end(uid, run.end)
        else:
            recorded = ledger.intervals(uid)
            if newly_matched:
                # The pod ended while it did not match. Noted, lest a restart take the time since it left for a gap.
                ledger.note_end(uid, run.end)
            elif not recorded:
                ledger.record(uid, start, run.end, rate)
            elif run.end_reported and (last := recorded[-1].end) is not None:
                # Only what follows the last interval: between two intervals the pod did not match.
                ledger.record(uid, last, run.end, rate)

    def stop_counting(self, uid: str, at: int) -> None:
        """End the run of a pod that was deleted or no longer matches."""
        self._forget_pod(uid)
        self.ledger.end(uid, at)

    def _forget_pod(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self._pod_changes += 1


class _SeenPod(NamedTuple):
    """Last state of a pod, its run, and the accounts it counts for."""

    pod: Pod
    run: Run | None
    accounts: tuple[Account, ...]


class Accounts(BudgetAccounts[Account]):
    """Accounts of all budgets, as they are kept, and the pods that were seen in their namespaces."""

    def __init__(self) -> None:
        self._kept: dict[BudgetKey, Account] = {}
        self._by_label: dict[AccountLabel, list[BudgetKey]] = {}
        self._without_label: dict[str, list[BudgetKey]] = {}
        super().__init__(self._kept, self._by_label, self._without_label)
        self._last_frozen: BudgetAccounts[BudgetAccount] | None = None
        self._in_namespace: dict[str, dict[BudgetKey, Account]] = {}
        self._seen: dict[str, dict[str, _SeenPod]] = {}
        #: Resources that the budgets of each namespace count.
        self._counted: dict[str, frozenset[str]] = {}
        #: UIDs of deleted pods, with the time. A UID never returns, so later events about them are stale.
        self._deleted: dict[str, int] = {}
        #: Nodes whose machine is proven off, and since when: pods that seem to run there use nothing.
        self._off: dict[str, int] = {}

    def frozen(self) -> BudgetAccounts[BudgetAccount]:
        """All accounts as they are now: the same object as before, where nothing has changed."""
        last, accounts = self._last_frozen, {key: each.frozen() for key, each in self._kept.items()}
        if last is None or not last.has(accounts):
            by_label = {label: tuple(keys) for label, keys in self._by_label.items()}
            without_label = {namespace: tuple(keys) for namespace, keys in self._without_label.items()}
            last = self._last_frozen = BudgetAccounts(accounts, by_label, without_label)
        return last

    def open(
        self,
        budget: GPUWorkloadBudget,
        at: datetime,
        *,
        pods: Iterable[Pod] = (),
        ledger: Ledger | None = None,
        money: Ledger | None = None,
    ) -> Account:
        """Account of a budget that is new, changed or as before.

        A new budget counts running pods from their start; a changed selector counts from the change. `pods` are those
        in the budget's namespace now.
        """
        account = self._open(budget, at, ledger, money)
        since = seconds(at) - budget.spec.quota.window_hours * 3600
        account.ledger.recount(since)
        account.money.recount(since)
        for pod in pods:
            self.see(pod, at)
        return account

    def _open(self, budget: GPUWorkloadBudget, at: datetime, ledger: Ledger | None, money: Ledger | None) -> Account:
        account = self._kept.get(budget.key)
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
            account = self._kept[budget.key] = Account(budget, ledger, money)
            self._in_namespace.setdefault(budget.key[0], {})[budget.key] = account
            self._index(account)
            # Pods that were seen before count as if the budget had existed then.
            for uid, (pod, run, accounts) in self._seen.get(budget.key[0], {}).items():
                if account.matches(pod):
                    account.count(pod, run, seconds(at), newly_matched=False)
                    self._seen[budget.key[0]][uid] = _SeenPod(pod, run, (*accounts, account))
            return account
        for seen in list(self._seen.get(budget.key[0], {}).values()):
            self._update(seen.pod, seen, seconds(at))
        return account

    def close(self, key: BudgetKey, at: datetime) -> Account:
        """Remove the account of a deleted budget, and return it with the usage until now."""
        account = self._kept[key]
        self._remove(account)
        if key[0] not in self._counted:
            self._seen.pop(key[0], None)
        for uid in list(account.ledger.running):
            account.stop_counting(uid, seconds(at))
        account.money.drop_provisional()
        return account

    def _remove(self, account: Account) -> None:
        namespace = account.key[0]
        del self._kept[account.key], self._in_namespace[namespace][account.key]
        self._unindex(account)
        seen = self._seen.get(namespace, {})
        for uid, each in seen.items():
            if account in each.accounts:
                seen[uid] = each._replace(accounts=tuple(other for other in each.accounts if other is not account))

    def see(self, pod: Pod, at: datetime) -> None:
        """Update the accounts with a pod's present state. A state older than the last one seen is ignored."""
        counted = self._counted.get(pod.namespace)
        if not counted or pod.uid in self._deleted:
            return
        seen = self._seen.setdefault(pod.namespace, {}).get(pod.uid)
        if seen is None and counted.isdisjoint(pod.shape.requests):
            return
        if seen is None or pod.resource_version >= seen.pod.resource_version:
            self._update(pod, seen, seconds(at))

    def _update(self, pod: Pod, seen: _SeenPod | None, at: int) -> None:
        run = seen.run if seen is not None else None
        if run is None or run.end is None or not run.end_reported:
            now = run_of(pod, None if run is None else run.start, at)
            # An end that no status reports stays where it was first seen.
            run = now if run is None or run.end is None or (now is not None and now.end_reported) else run
        # The run is remembered without the end of its machine: the machine may come back.
        remembered, run = run, self._cut_off(pod, run)
        accounts = tuple(self.matching(pod))
        before = seen.accounts if seen is not None else _NO_ACCOUNTS
        for account in before:
            if account not in accounts and seen is not None:
                # A run that began since the last state began under the labels of that state.
                account.count(seen.pod, run, at, newly_matched=False)
                account.stop_counting(pod.uid, at)
        for account in accounts:
            account.count(pod, run, at, newly_matched=seen is not None and account not in before)
        self._seen.setdefault(pod.namespace, {})[pod.uid] = _SeenPod(pod, remembered, accounts)

    def _cut_off(self, pod: Pod, run: Run | None) -> Run | None:
        """The run of a pod, ended by the end of its machine if that is proven off."""
        off = self._off.get(pod.node) if pod.node is not None else None
        if off is None or run is None or run.end is not None:
            return run
        return Run(run.start, max(run.start, off))

    @property
    def off(self) -> Mapping[str, datetime]:
        """Nodes whose machine is proven off, and since when, as they were last told."""
        return {node: from_microseconds(since * MICROSECONDS) for node, since in self._off.items()}

    def machines_off(self, off: Mapping[str, datetime], pods_on: Callable[[str], Iterable[Pod]], at: datetime) -> None:
        """Update which nodes' machines are proven off, and since when: nobody reports the end of pods there.

        Pods on a node whose machine is on again count from now on.
        """
        for node in [each for each in off if each not in self._off]:
            self._off[node] = seconds(off[node])
            for pod in pods_on(node):
                self.see(pod, at)
        for node in [each for each in self._off if each not in off]:
            since = self._off.pop(node)
            for pod in pods_on(node):
                seen = self._seen.get(pod.namespace, {}).get(pod.uid)
                if seen is None or seen.run is None:
                    continue
                for account in seen.accounts:
                    account.count(seen.pod, seen.run, seconds(at), newly_matched=seen.run.start < since)

    def gone(self, pod: Pod, at: datetime) -> None:
        """Stop counting a deleted pod, given its last state. A pod that was not seen to end counts until now."""
        if pod.namespace not in self._counted:
            return
        self.see(pod, at)
        seen = self._seen.get(pod.namespace, {}).pop(pod.uid, None)
        self._deleted[pod.uid] = seconds(at)
        for account in seen.accounts if seen is not None else ():
            account.stop_counting(pod.uid, seconds(at))

    def close_missing(self) -> None:
        """End the runs of pods that were deleted while Forebay was down.

        Call once after a start, when every existing pod has been seen.
        """
        visible = self.visible()
        for account in self:
            account.ledger.close_missing(visible)

    def compact(self, now: datetime, windows: Mapping[BudgetKey, int], keep_dollars: Collection[str]) -> None:
        """Compact the ledgers of all accounts. Call only with a complete view of the pods.

        Windows are in seconds. `keep_dollars` are ledger keys of dollars that must not be compacted yet
        (`Bill.unfinished_keys`).
        """
        at = seconds(now)
        visible = self.visible()
        for account in self:
            account.ledger.compact(at, windows[account.key], visible)
            account.money.compact(at, windows[account.key], keep_dollars)
        self._deleted = {uid: when for uid, when in self._deleted.items() if when > at - EXACT_PERIOD}

    def visible(self) -> set[str]:
        """UIDs of the pods that were seen and are not deleted."""
        return {uid for pods in self._seen.values() for uid in pods}

    def may_delete(self, pod: Pod) -> bool:
        """Whether every budget has stored the pod's usage, so that deleting the pod loses nothing."""
        if self._counted.get(pod.namespace, _NO_RESOURCES).isdisjoint(pod.shape.requests):
            return True
        seen = self._seen.get(pod.namespace, {}).get(pod.uid)
        if seen is None or not seen.pod.phase.ended or seen.pod.resource_version < pod.resource_version:
            return False
        return all(account.ledger.is_durable(pod.uid) for account in self.in_namespace(pod.namespace))

    def in_namespace(self, namespace: str) -> Iterator[Account]:
        return iter(self._in_namespace.get(namespace, {}).values())

    def _index(self, account: Account) -> None:
        self._index_of(account).append(account.key)
        self._count_resources(account.key[0])

    def _unindex(self, account: Account) -> None:
        self._index_of(account).remove(account.key)
        self._count_resources(account.key[0])

    def _count_resources(self, namespace: str) -> None:
        resources = frozenset(account.resource for account in self.in_namespace(namespace))
        if resources:
            self._counted[namespace] = resources
        else:
            self._counted.pop(namespace, None)

    def _index_of(self, account: Account) -> list[BudgetKey]:
        """List that holds the account: by one label that its pods must have, else by its namespace."""
        namespace = account.key[0]
        for label in sorted(account.selector.match_labels.items()):
            return self._by_label.setdefault((namespace, *label), [])
        return self._without_label.setdefault(namespace, [])


def selector_of(budget: GPUWorkloadBudget) -> LabelSelector:
    written = budget.spec.selector
    return LabelSelector(
        written.match_labels,
        tuple(
            Requirement(each.key, LabelOperator(each.operator.value), each.values) for each in written.match_expressions
        ),
    )
