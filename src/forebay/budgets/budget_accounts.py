"""Accounts of budgets, to be read: what a tick, a page or a command sees of them.

Those of a snapshot never change (`Accounts.frozen`); what has not changed since is shared with those before.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from forebay.budgets.ledger.recorded_usage import RecordedUsage
from forebay.model.requirements import LabelSelector
from forebay.model.workloads import Pod

BudgetKey = tuple[str, str]
#: Namespace, key and value of a label that the pods of an account must have.
AccountLabel = tuple[str, str, str]
_NO_KEYS: Final = ()


class BudgetAccount:
    """One budget's view: its selector, its pods, and its two ledgers (usage and dollars)."""

    def __init__(
        self,
        *,
        key: BudgetKey,
        uid: str,
        resource: str,
        selector: LabelSelector,
        exact: bool,
        ledger: RecordedUsage,
        money: RecordedUsage,
        pods: Mapping[str, Pod],
    ) -> None:
        self.key = key
        self.uid = uid
        self.resource = resource
        self.selector = selector
        self.exact = exact
        self.ledger = ledger
        #: Dollars. Entries are by GPUInstance and hour, not by pod; `Bill` records them.
        self.money = money
        #: Pods by UID that match the selector, request the resource and have not ended.
        self.pods = pods


A_co = TypeVar("A_co", bound=BudgetAccount, covariant=True)


class BudgetAccounts(Generic[A_co]):
    """The accounts of all budgets, by key and by the labels of pods."""

    def __init__(
        self,
        accounts: Mapping[BudgetKey, A_co],
        by_label: Mapping[AccountLabel, Sequence[BudgetKey]],
        without_label: Mapping[str, Sequence[BudgetKey]],
    ) -> None:
        self._accounts = accounts
        self._keys_by_label = by_label
        self._keys_without_label = without_label

    def __iter__(self) -> Iterator[A_co]:
        return iter(self._accounts.values())

    def get(self, key: BudgetKey) -> A_co | None:
        return self._accounts.get(key)

    def has(self, accounts: Mapping[BudgetKey, BudgetAccount]) -> bool:
        """Whether these are the very same accounts."""
        same = self._accounts.keys() == accounts.keys()
        return same and all(each is accounts[key] for key, each in self._accounts.items())

    def matching(self, pod: Pod) -> Iterator[A_co]:
        """Accounts whose selector matches the pod, whether or not it requests what they count."""
        namespace, accounts = pod.namespace, self._accounts
        for key in self._keys_without_label.get(namespace, _NO_KEYS):
            if accounts[key].selector.matches(pod.labels):
                yield accounts[key]
        if self._keys_by_label:
            for name, value in pod.labels.items():
                for key in self._keys_by_label.get((namespace, name, value), _NO_KEYS):
                    if accounts[key].selector.matches(pod.labels):
                        yield accounts[key]
