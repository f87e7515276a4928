"""Enforcement actions of this process whose effect the informers may not show yet."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.api.names import PAUSED_AT_ANNOTATION, PAUSED_BY_ANNOTATION, PAUSED_LABEL, PAUSED_RATE_ANNOTATION
from forebay.budgets.budget_accounts import BudgetKey
from forebay.budgets.enforcement import UNKNOWN_RATE, EvictionBackoff, PausedJob, RemovePauseMarks
from forebay.kube.informer import Informer
from forebay.kube.jobs import Job
from forebay.model.workloads import Owner, Pod

#: Time after which a pod is tried again whose eviction, or whose Job's suspension, was refused.
REFUSED_FOR: Final = timedelta(seconds=10)
#: Time after which the replacement of an evicted pod is evicted; doubled with each replacement, up to the longest.
_FIRST_BACKOFF: Final = timedelta(seconds=10)
_LONGEST_BACKOFF: Final = timedelta(minutes=5)
#: So many doublings exceed the longest; an unlimited number would overflow.
_MOST_DOUBLINGS: Final = 10
#: Time without an eviction after which an owner begins anew.
_FORGET_OWNER: Final = timedelta(minutes=30)
#: Time within which the watch shows the effect of an action; later, the action counts as undone.
_VISIBLE_WITHIN: Final = timedelta(seconds=10)
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Stopped(NamedTuple):
    pod: Pod
    at: datetime


class _Evicted(NamedTuple):
    """When pods of an owner were first and last evicted, and how many of them had replaced an evicted one."""

    first: datetime
    at: datetime
    replacements: int


class PendingEnforcement:
    """Remembers refused, done and resumed actions, so that a tick neither repeats them nor goes too far."""

    def __init__(self) -> None:
        self._refused: dict[str, datetime] = {}
        self._stopped: dict[BudgetKey, _Stopped] = {}
        #: Evictions by UID of the pod's owner, which may create another pod at once.
        self._evicted: dict[str, _Evicted] = {}
        #: When a Job of each budget was last resumed.
        self._resumed: dict[BudgetKey, datetime] = {}
        #: When each budget last evicted a pod, paused a Job or alerted; or may have, because no answer came.
        self.enforced: dict[BudgetKey, datetime] = {}
        #: Number of actions since this process leads.
        self.counts: Counter[tuple[BudgetKey, EnforcementAction]] = Counter()

    def done(self, budget: BudgetKey, pod: Pod, action: EnforcementAction, at: datetime) -> None:
        self._stopped[budget] = _Stopped(pod, at)
        if action is EnforcementAction.EVICT and pod.owner is not None:
            before = self._evicted.get(pod.owner.uid)
            first = at.replace(microsecond=0) if before is None else before.first
            count = 0 if before is None else before.replacements + (pod.created >= first)
            self._evicted[pod.owner.uid] = _Evicted(first, at, count)
        self.enforced[budget] = at
        self.counts[budget, action] += 1

    def may_have_acted(self, budget: BudgetKey, at: datetime) -> None:
        self.enforced[budget] = at

    def alerted(self, budget: BudgetKey, at: datetime) -> None:
        self.enforced[budget] = at
        self.counts[budget, EnforcementAction.ALERT_ONLY] += 1

    def resumed(self, budget: BudgetKey, at: datetime) -> None:
        self._resumed[budget] = at

    def refused(self, pod: Pod, at: datetime) -> None:
        self._refused[pod.uid] = at

    def blocked(self, now: datetime) -> frozenset[str]:
        """UIDs of pods that must not be tried again yet."""
        self._refused = {uid: at for uid, at in self._refused.items() if now < at + REFUSED_FOR}
        return frozenset(self._refused)

    def backoffs(self, now: datetime) -> dict[str, EvictionBackoff]:
        """By UID of an owner: since when its pods are replacements of an evicted one, and until when they are spared.

        An owner that is not held by the gate creates a pod for each that is evicted, as fast as Forebay evicts.
        """
        self._evicted = {uid: each for uid, each in self._evicted.items() if now < each.at + _FORGET_OWNER}
        return {
            uid: EvictionBackoff(
                first, at + min(_FIRST_BACKOFF * 2 ** min(replacements, _MOST_DOUBLINGS), _LONGEST_BACKOFF)
            )
            for uid, (first, at, replacements) in self._evicted.items()
        }

    def awaiting(self, now: datetime, pods: Informer[Pod]) -> frozenset[BudgetKey]:
        """Budgets that must wait before they act again.

        Either the view still shows the pod that was stopped last as running, or a Job was resumed a moment ago and the
        usage of its pods does not show yet.
        """
        self._stopped = {
            budget: _Stopped(pod, at)
            for budget, (pod, at) in self._stopped.items()
            if now < at + _VISIBLE_WITHIN and _still_running(pods.get(pod.key), pod)
        }
        self._resumed = {budget: at for budget, at in self._resumed.items() if now < at + _VISIBLE_WITHIN}
        return frozenset((*self._stopped, *self._resumed))


def _still_running(seen: Pod | None, stopped: Pod) -> bool:
    return seen is not None and seen.uid == stopped.uid and seen.deleted is None and not seen.phase.ended


def paused(jobs: Iterable[Job]) -> Iterator[PausedJob]:
    """Paused Jobs, as their annotations say. A Job that was resumed by hand is not paused any more."""
    for job in jobs:
        annotations = job.metadata.annotations
        if not job.spec.suspend or job.metadata.deletion_timestamp is not None:
            continue
        namespace, name = job.key
        try:
            since = datetime.fromisoformat(annotations.get(PAUSED_AT_ANNOTATION, ""))
            rate = int(annotations.get(PAUSED_RATE_ANNOTATION, UNKNOWN_RATE))
        except ValueError:
            # The annotations were edited: treat the Job as paused since its creation, so that it is resumed first.
            since, rate = job.metadata.creation_timestamp or _LONG_AGO, UNKNOWN_RATE
        if since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        budget = (namespace, annotations.get(PAUSED_BY_ANNOTATION, ""))
        yield PausedJob(namespace=namespace, job=Owner("Job", name, job.uid), budget=budget, since=since, rate=rate)


def resumed_by_hand(jobs: Iterable[Job]) -> Iterator[RemovePauseMarks]:
    """Jobs that are marked as paused and run: somebody else has resumed them."""
    for job in jobs:
        metadata = job.metadata
        if not job.spec.suspend and metadata.deletion_timestamp is None and PAUSED_LABEL in metadata.labels:
            namespace, name = job.key
            owner = Owner("Job", name, job.uid)
            yield RemovePauseMarks(namespace=namespace, job=owner, resource_version=metadata.resource_version)
