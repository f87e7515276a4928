"""What budgets have asked of others, and what came of it, until the views show it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from forebay.api.gpu_workload_budget import EnforcementAction
from forebay.api.names import PAUSED_AT_ANNOTATION, PAUSED_BY_ANNOTATION, PAUSED_RATE_ANNOTATION
from forebay.budgets.accounts import BudgetKey
from forebay.budgets.enforcement import PausedJob
from forebay.kube.informer import Informer
from forebay.kube.jobs import Job
from forebay.model.workloads import Owner, Pod

#: A refusal counts for so long; then the pod may be asked again.
_REFUSED_FOR: Final = timedelta(seconds=10)
#: By then the watch has shown what was done, or it was undone.
_SHOWN_WITHIN: Final = timedelta(seconds=10)
_UNKNOWN_RATE: Final = 1000
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Asked(NamedTuple):
    pod: Pod
    at: datetime


class PendingEnforcement:
    def __init__(self) -> None:
        self._refused: dict[str, datetime] = {}
        self._asked: dict[BudgetKey, _Asked] = {}
        #: When a Job of each budget last went on.
        self._resumed: dict[BudgetKey, datetime] = {}
        #: When each budget last had somebody stopped.
        self.enforced: dict[BudgetKey, datetime] = {}
        #: How often, since this process leads.
        self.counts: Counter[tuple[BudgetKey, EnforcementAction]] = Counter()

    def done(self, budget: BudgetKey, pod: Pod, action: EnforcementAction, at: datetime) -> None:
        self._asked[budget] = _Asked(pod, at)
        self.enforced[budget] = at
        self.counts[budget, action] += 1

    def resumed(self, budget: BudgetKey, at: datetime) -> None:
        self._resumed[budget] = at

    def refused(self, pod: Pod, at: datetime) -> None:
        self._refused[pod.uid] = at

    def blocked(self, now: datetime) -> frozenset[str]:
        self._refused = {uid: at for uid, at in self._refused.items() if now < at + _REFUSED_FOR}
        return frozenset(self._refused)

    def awaiting(self, now: datetime, pods: Informer[Pod]) -> frozenset[BudgetKey]:
        """Budgets whose last offender the view still shows as if nobody had asked it to go, and those with a Job that
        went on a moment ago: what its pods will use is not to be seen yet.
        """
        self._asked = {
            budget: _Asked(pod, at)
            for budget, (pod, at) in self._asked.items()
            if now < at + _SHOWN_WITHIN and _is_untouched(pods.get(pod.key), pod)
        }
        self._resumed = {budget: at for budget, at in self._resumed.items() if now < at + _SHOWN_WITHIN}
        return frozenset((*self._asked, *self._resumed))


def _is_untouched(seen: Pod | None, asked: Pod) -> bool:
    return seen is not None and seen.uid == asked.uid and seen.deleted is None and not seen.phase.ended


def paused(jobs: Iterable[Job]) -> Iterator[PausedJob]:
    """As the notes on them say. One that somebody has resumed since is not paused any more."""
    for job in jobs:
        notes = job.metadata.annotations
        if not job.spec.suspend or job.metadata.deletion_timestamp is not None:
            continue
        namespace, name = job.key
        try:
            since = datetime.fromisoformat(notes.get(PAUSED_AT_ANNOTATION, ""))
            rate = int(notes.get(PAUSED_RATE_ANNOTATION, _UNKNOWN_RATE))
        except ValueError:
            # Whoever has changed the notes meant no harm to the Job.
            since, rate = job.metadata.creation_timestamp or _LONG_AGO, _UNKNOWN_RATE
        if since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        budget = (namespace, notes.get(PAUSED_BY_ANNOTATION, ""))
        yield PausedJob(namespace=namespace, job=Owner("Job", name, job.uid), budget=budget, since=since, rate=rate)
