"""Audit of a ledger: what pods have used by their own statuses, computed apart from the ledger and its rules.

The ledger follows pods by events. The audit takes a list of pods as the API server has them now, selected by the API
server, and adds up container times. Pods whose statuses do not tell everything are left out on both sides: an audit
that guesses raises false alarms.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from forebay.budgets.accounts import Account
from forebay.budgets.usage import microseconds

#: Usage of the last minute is not compared: the ledger hears of changes later than a list shows them.
SETTLED: Final = timedelta(minutes=1)
_MICROSECOND: Final = timedelta(microseconds=1)


class ContainerTimes(NamedTuple):
    """One run of a container; `end` is None while it goes on."""

    start: datetime
    end: datetime | None


class AuditedPod(msgspec.Struct, frozen=True, kw_only=True):
    """Pod as the audit reads it."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    #: Requests as the scheduler counts them, in thousandths.
    requests: Mapping[str, int]
    #: All runs of the pod's containers that its status shows.
    runs: tuple[ContainerTimes, ...]
    ended: bool
    #: Whether labels, requests and status tell when the pod matched and ran, and how much it held.
    conclusive: bool

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name


class AuditedBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Budget as the audit reads it."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    created: datetime
    #: When somebody may last have changed the selector; None: never.
    selector_changed: datetime | None

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    def selected_since(self, ledger: str) -> datetime | None:
        """Since when the budget surely selects the pods it selects now; None: since they exist.

        A new budget counts running pods from their start, a changed selector from the change, and a budget that
        continues the `ledger` of a deleted one from its creation.
        """
        return self.selector_changed if ledger == self.uid else max(self.selector_changed or self.created, self.created)


class Audit(NamedTuple):
    """Usage of the compared pods: by their statuses, and by the ledger. In the ledger's units."""

    expected: int = 0
    recorded: int = 0

    @property
    def ratio(self) -> float | None:
        """Recorded usage divided by expected usage; None if there was nothing to compare."""
        if not self.expected:
            return float("inf") if self.recorded else None
        return float(Fraction(self.recorded, self.expected))


def audit(
    pods: Iterable[AuditedPod], account: Account, now: datetime, window: timedelta, selected_since: datetime | None
) -> Audit:
    """Audit of one account against the listed pods.

    Runs that began before `selected_since` are left out: the budget may have selected other pods then. None: the budget
    has selected these pods since they exist.
    """
    until, since = now - SETTLED, now - SETTLED - window
    found = Audit()
    for pod in pods:
        start = min((run.start for run in pod.runs), default=None)
        rate = pod.requests.get(account.resource, 0)
        if not pod.conclusive or not rate or start is None:
            continue
        if selected_since is not None and start < selected_since:
            continue
        end = max(run.end or until for run in pod.runs) if pod.ended else until
        expected = max(min(end, until) - max(start, since), timedelta(0)) // _MICROSECOND * rate
        recorded = account.ledger.consumed_by(pod.uid, microseconds(until), window // _MICROSECOND)
        found = Audit(found.expected + expected, found.recorded + recorded)
    return found


def ghosts(pods: Iterable[AuditedPod], account: Account) -> frozenset[str]:
    """UIDs of pods that run in the ledger and are not listed. Pods that change at this moment are among them."""
    return frozenset(account.ledger.running) - {pod.uid for pod in pods}
