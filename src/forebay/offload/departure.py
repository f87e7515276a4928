"""Which pods of marked Jobs leave the cluster now, and why the others stay."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.demand.assessment import not_demand
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.offload.marks import InvalidMark, Marks, is_managed, read_marks

#: A shorter wait is not told.
_WORTH_TELLING: Final = timedelta(seconds=1)


class OffloadRules(msgspec.Struct, frozen=True, kw_only=True):
    """When marked Jobs leave, and for how much (--max-pending-time, --pending-job-threshold, --max-gpu-price)."""

    #: A Job that has waited for longer leaves.
    max_pending: timedelta = timedelta(0)
    #: So many of the Jobs that wait may go on waiting for the cluster, the oldest ones; all others leave.
    pending_threshold: int = 1
    #: Most that one GPU of a remote container may cost, where the Job does not say.
    max_gpu_price: UsdPerHour = UsdPerHour("0.5")


class MarkedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A Job as far as offload looks at it."""

    namespace: str
    name: str
    uid: str
    created: datetime
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    suspended: bool = False
    deleted: bool = False


class PortablePod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a marked Job, as far as its remote container needs it."""

    job: MarkedJob
    image: str
    #: Why it cannot run remotely, a sentence each.
    obstacles: tuple[str, ...] = ()
    #: Secrets with which the image is pulled.
    pull_secrets: tuple[str, ...] = ()


class Leaves(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that may run as a remote container now, if the plan finds one that is cheap enough."""

    pod: Pod
    job: MarkedJob
    marks: Marks
    why: str


class Stays(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a marked Job that does not leave, and why."""

    pod: Pod
    reason: Reason
    sentence: str
    #: When time alone changes that; None: something else must.
    until: datetime | None = None


def departures(
    pods: Iterable[Pod],
    jobs: Mapping[str, MarkedJob],
    rules: OffloadRules,
    gpu_resources: Collection[str] | None,
    now: datetime,
) -> tuple[tuple[Leaves, ...], tuple[Stays, ...]]:
    """Pods of marked Jobs, split. `jobs` are by UID; pods of other owners, or without a mark, are in neither."""
    waiting = [
        (pod, job)
        for pod in pods
        if (job := _job_of(pod, jobs)) is not None
        and is_managed(job.labels, job.annotations)
        and not_demand(pod, gpu_resources, now) is None
    ]
    oldest_first = sorted({(job.created, job.uid) for _, job in waiting})
    rank = {uid: place for place, (_, uid) in enumerate(oldest_first)}
    leaves: list[Leaves] = []
    stays: list[Stays] = []
    for pod, job in waiting:
        found = _decide(pod, job, rules, rank=rank[job.uid], pending=len(rank), now=now)
        if isinstance(found, Leaves):
            leaves.append(found)
        else:
            stays.append(found)
    return tuple(leaves), tuple(stays)


def _job_of(pod: Pod, jobs: Mapping[str, MarkedJob]) -> MarkedJob | None:
    return jobs.get(pod.owner.uid) if pod.owner is not None and pod.owner.kind == "Job" else None


def _decide(pod: Pod, job: MarkedJob, rules: OffloadRules, *, rank: int, pending: int, now: datetime) -> Leaves | Stays:
    if job.suspended or job.deleted:
        what = "suspended" if job.suspended else "being deleted"
        return Stays(pod=pod, reason=Reason.OFFLOAD_NOT_DUE, sentence=f"Job {job.name} is {what}.")
    try:
        marks = read_marks(job.annotations)
    except InvalidMark as error:
        return Stays(pod=pod, reason=Reason.OFFLOAD_NOT_POSSIBLE, sentence=str(error))
    if marks.forced:
        return Leaves(pod=pod, job=job, marks=marks, why=f"Job {job.name} is marked to run remotely at once.")
    since = pod.unschedulable_since or pod.created
    due = since + rules.max_pending
    if now >= due:
        waited = now - since
        why = (
            f"No node has taken the pod for {human(waited)}." if waited >= _WORTH_TELLING else "No node takes the pod."
        )
        return Leaves(pod=pod, job=job, marks=marks, why=why)
    if rank >= rules.pending_threshold:
        why = f"{pending} marked Jobs wait, and only {rules.pending_threshold} may."
        return Leaves(pod=pod, job=job, marks=marks, why=why)
    sentence = (
        f"Job {job.name} may run remotely, but waits for a node of the cluster until {due:%H:%M:%S} UTC "
        f"(--max-pending-time is {human(rules.max_pending)})."
    )
    return Stays(pod=pod, reason=Reason.OFFLOAD_NOT_DUE, sentence=sentence, until=due)
