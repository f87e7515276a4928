"""Enforcement of a used-up budget after its grace period: which pod or Job to stop, and which Job to resume."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_workload_budget import EnforcementAction, GPUWorkloadBudget
from forebay.api.parts import Truth
from forebay.budgets.assessment import (
    ASSUMED_RUNTIME,
    MINIMUM_RUNTIME,
    QuotaLimits,
    Standing,
    earliest_headroom,
    headroom,
)
from forebay.budgets.budget_accounts import BudgetAccount, BudgetKey
from forebay.budgets.usage import described, microseconds, thousandths
from forebay.model.quantities import GpuHours, Usd
from forebay.model.reasons import Reason
from forebay.model.workloads import Owner, Pod

#: Request of a paused Job that does not say it, in thousandths: one GPU.
UNKNOWN_RATE: Final = 1000
CONDITION: Final = "QuotaExceeded"
#: A terminating pod should be gone this long after its deletionTimestamp.
_TERMINATION_SLACK: Final = timedelta(seconds=30)
#: Longest time that enforcement waits for terminating pods after its last action. Pods whose end takes longer count as
#: stopped, so that their grace periods do not let other pods overdraw the budget.
_MAX_WAIT: Final = timedelta(seconds=60)
#: Shortest time between two checks whether a Job can be resumed.
_RESUME_RETRY: Final = timedelta(seconds=30)
#: Time to the next attempt after the eviction of every running pod was refused.
_RETRY: Final = timedelta(seconds=10)
_MICROSECOND: Final = timedelta(microseconds=1)
#: One part in this many of the dollar quota must be free before a Job is resumed: what its machines will cost is not
#: known.
_RESUME_FRACTION: Final = 50


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to evict a pod with its own grace period.

    If the API server refuses, call `enforce` again with the pod in `blocked`: the decision then names the next pod.
    """

    pod: Pod
    budget: BudgetKey
    reason: Reason
    sentence: str


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to suspend a Job, and to annotate the Job and the pod with the budget and the time."""

    pod: Pod
    job: Owner
    budget: BudgetKey
    reason: Reason
    sentence: str


class CannotPause(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to report, on a pod and its budget, why the pod cannot be paused."""

    pod: Pod
    budget: BudgetKey
    reason: Reason
    sentence: str


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to resume a Job and to remove the annotations of its pause."""

    namespace: str
    job: Owner
    budget: BudgetKey
    reason: Reason
    sentence: str


class RemovePauseMarks(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to remove label and annotations of its pause from a Job that somebody else has resumed.

    With them, a Job that is suspended by hand later would look like a paused one, and be resumed.
    """

    namespace: str
    job: Owner
    #: As the Job was seen: it may be paused again by now.
    resource_version: str


class PausedJob(msgspec.Struct, frozen=True, kw_only=True):
    """Job that was suspended for a budget, as its annotations say."""

    namespace: str
    job: Owner
    budget: BudgetKey
    since: datetime
    #: Request of all its pods together, in thousandths.
    rate: int = UNKNOWN_RATE


class EvictionBackoff(NamedTuple):
    """Time in which pods of an owner that were created since its first eviction are not evicted."""

    since: datetime
    until: datetime


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Decision to count an alert of a budget that only alerts: one each time that its quota is used up."""

    budget: BudgetKey
    reason: Reason
    sentence: str


class EnforcementResult(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions of one budget, and when to call `enforce` again."""

    decisions: tuple[Evict | Pause | CannotPause | Resume | Alert, ...] = ()
    #: When time alone may lead to the next decision; None: only a change in the cluster can.
    requeue_at: datetime | None = None


#: No owner is spared.
NO_BACKOFFS: Final[Mapping[str, EvictionBackoff]] = MappingProxyType({})


def exceeded_since(budget: GPUWorkloadBudget) -> datetime | None:
    """Since when the quota is used up, read from the condition, so that a restart does not restart the grace period."""
    for condition in budget.status.conditions if budget.status is not None else ():
        if condition.type == CONDITION and condition.status is Truth.TRUE:
            return condition.last_transition_time
    return None


def enforce(
    budget: GPUWorkloadBudget,
    account: BudgetAccount,
    standing: Standing,
    now: datetime,
    *,
    since: datetime | None,
    last_action: datetime | None = None,
    blocked: Collection[str] = (),
    paused: Iterable[PausedJob] = (),
    backoffs: Mapping[str, EvictionBackoff] = NO_BACKOFFS,
    gated: bool = True,
) -> EnforcementResult:
    """Decisions about the pods and Jobs of one budget, at most one to evict, pause or resume.

    A budget that only alerts resumes all its paused Jobs.

    `since` is when the quota was used up (`exceeded_since`, or now if no condition says so yet). `last_action` is when
    the budget last stopped a pod or Job. `blocked` are UIDs of pods whose eviction, or whose Job's suspension, was
    refused a moment ago. `backoffs` are by UID of pods' owners. `gated` is whether the API server holds new pods of a
    used-up budget: where it does not, a Job would replace each evicted pod until its backoffLimit, so it is suspended.
    """
    own_paused = sorted(
        (each for each in paused if each.budget == budget.key), key=lambda each: (each.since, each.job.name)
    )
    action = budget.spec.enforcement.action
    if action is EnforcementAction.ALERT_ONLY:
        why = "no longer pauses Jobs, because spec.enforcement.action is AlertOnly"
        resumed = tuple(_resumed(each, why) for each in own_paused)
        alert = _alert(budget, standing, now, since, last_action)
        return msgspec.structs.replace(alert, decisions=(*resumed, *alert.decisions))
    if not standing.exceeded:
        return _resume(account, standing, own_paused, now)
    if since is None:
        return EnforcementResult()
    due = since + timedelta(seconds=budget.spec.enforcement.grace_period_seconds)
    if now < due:
        return EnforcementResult(requeue_at=due)
    again = _wait_for_terminating(account, standing, now, last_action)
    if again is not None:
        return EnforcementResult(requeue_at=again)
    offenders = _offenders(account, standing, now, blocked)
    if not offenders and any(uid in account.pods for uid in blocked):
        return EnforcementResult(requeue_at=now + _RETRY)
    suspended = {each.job.uid for each in own_paused}
    if action is EnforcementAction.EVICT:
        offenders = [each for each in offenders if _job_uid(each[0]) not in suspended]
        spared = [until for pod, _ in offenders if (until := _spared_until(pod, backoffs)) is not None and until > now]
        offenders = [each for each in offenders if (_spared_until(each[0], backoffs) or now) <= now]
        if spared and not offenders:
            return EnforcementResult(requeue_at=min(spared))
        if offenders and _replaces_itself(offenders[0][0], since, gated=gated):
            return _pause(budget, standing, offenders[:1])
        return EnforcementResult(decisions=tuple(_evict(budget, standing, pod, used) for pod, used in offenders[:1]))
    return _pause(budget, standing, [each for each in offenders if _job_uid(each[0]) not in suspended])


def _alert(
    budget: GPUWorkloadBudget, standing: Standing, now: datetime, since: datetime | None, last_action: datetime | None
) -> EnforcementResult:
    """The alert of a budget that only alerts, after its grace period, once each time that its quota is used up."""
    if not standing.exceeded or since is None:
        return EnforcementResult()
    due = since + timedelta(seconds=budget.spec.enforcement.grace_period_seconds)
    if now < due:
        return EnforcementResult(requeue_at=due)
    # Stored times are whole seconds.
    if last_action is not None and last_action >= due.replace(microsecond=0):
        return EnforcementResult()
    return EnforcementResult(
        decisions=(Alert(budget=budget.key, reason=Reason.QUOTA_EXCEEDED, sentence=standing.sentence),)
    )


def _wait_for_terminating(
    account: BudgetAccount, standing: Standing, now: datetime, last_action: datetime | None
) -> datetime | None:
    """When to look again, if what terminating pods will free may be enough; None: stop another pod now.

    Pods that end soon after the last action are waited for, at most a minute. Those that end later count as stopped:
    another pod is stopped unless the others alone would be back within the quota in a minute.
    """
    terminating = [(pod, pod.deleted) for pod in account.pods.values() if pod.deleted is not None]
    if not terminating:
        return None
    if last_action is not None and last_action <= now < last_action + _MAX_WAIT:
        latest = last_action + _MAX_WAIT
        ends = [min(end + _TERMINATION_SLACK, latest) for _, end in terminating if end <= latest]
        ends = [end for end in ends if end > now]
        if ends:
            return min(ends)
    freed = sum(thousandths(pod.shape, account.resource) for pod, _ in terminating if pod.uid in account.ledger.running)
    at, window, span = microseconds(now + _MAX_WAIT), standing.window // _MICROSECOND, _MAX_WAIT // _MICROSECOND
    used = GpuHours.from_units(max(account.ledger.consumed(at, window) - freed * span, 0))
    usd = Usd.from_units(account.money.consumed(at, window))
    enough = (standing.quota is None or used < standing.quota) and (
        standing.quota_usd is None or usd < standing.quota_usd
    )
    return now + _RETRY if enough else None


def _replaces_itself(pod: Pod, since: datetime, *, gated: bool) -> bool:
    """Whether the pod's Job would only create another pod that runs: nothing holds it, or nothing held this one.

    A pod that was created after the quota was used up and runs all the same was not held by the gate: its template
    names a node.
    """
    return _job_uid(pod) is not None and (not gated or pod.created > since)


def _spared_until(pod: Pod, backoffs: Mapping[str, EvictionBackoff]) -> datetime | None:
    """Until when a pod is not evicted that replaces an evicted one; None: it replaces none."""
    found = None if pod.owner is None else backoffs.get(pod.owner.uid)
    return None if found is None or pod.created < found.since else found.until


def _offenders(
    account: BudgetAccount, standing: Standing, now: datetime, blocked: Collection[str]
) -> list[tuple[Pod, GpuHours]]:
    """Running pods that may be stopped: the largest usage in the window first, then by name."""
    at, window = microseconds(now), standing.window // _MICROSECOND
    found = [
        (pod, GpuHours.from_units(account.ledger.consumed_by(uid, at, window)))
        for uid, pod in account.pods.items()
        if pod.deleted is None and uid not in blocked and not pod.mirror and uid in account.ledger.running
    ]
    return sorted(found, key=lambda each: (-each[1].units, each[0].name))


def _evict(budget: GPUWorkloadBudget, standing: Standing, pod: Pod, used: GpuHours) -> Evict:
    return Evict(
        pod=pod,
        budget=budget.key,
        reason=Reason.EVICTED,
        sentence=(
            f"Pod {pod.name} evicted: GPUWorkloadBudget {budget.key[1]} is used up "
            f"({standing.sentence.removesuffix('.')}), and of its running pods this one has used the most "
            f"({described(used, standing.resource)})."
        ),
    )


def _pause(budget: GPUWorkloadBudget, standing: Standing, offenders: list[tuple[Pod, GpuHours]]) -> EnforcementResult:
    """Pause of the first offender that belongs to a Job, and a report for each offender before it that does not."""
    found: list[Pause | CannotPause] = []
    name = budget.key[1]
    for pod, used in offenders:
        owner = pod.owner
        if owner is not None and owner.kind == "Job":
            sentence = (
                f"Job {owner.name} suspended: GPUWorkloadBudget {name} is used up "
                f"({standing.sentence.removesuffix('.')}), and of its running pods {pod.name} has used "
                f"the most ({described(used, standing.resource)}). The Job resumes when the budget has headroom."
            )
            found.append(Pause(pod=pod, job=owner, budget=budget.key, reason=Reason.PAUSED, sentence=sentence))
            break
        why = "has no controller" if owner is None else f"belongs to {owner.kind} {owner.name}"
        sentence = (
            f"GPUWorkloadBudget {name} is used up, but pod {pod.name} cannot be paused: the pod {why}, and only Jobs "
            "can be suspended. Delete the pod or scale it down, or set spec.enforcement.action to Evict."
        )
        found.append(CannotPause(pod=pod, budget=budget.key, reason=Reason.CANNOT_PAUSE, sentence=sentence))
    return EnforcementResult(decisions=tuple(found))


def _resume(account: BudgetAccount, standing: Standing, paused: list[PausedJob], now: datetime) -> EnforcementResult:
    """Resume of the Job that has been paused longest, if the budget has headroom for it beside the running pods.

    One Job at a time: two Jobs resumed together could use up the quota every time, where one alone would finish.
    """
    if not paused:
        return EnforcementResult()
    first = paused[0]
    limits = QuotaLimits(standing.quota, standing.quota_usd, standing.window)
    left, need, need_usd = headroom(account, limits, now), GpuHours.zero(), Usd.zero()
    if standing.quota is not None:
        need = min(GpuHours.from_units(first.rate * (MINIMUM_RUNTIME // _MICROSECOND)), standing.quota)
    if standing.quota_usd is not None:
        need_usd = Usd.from_units(standing.quota_usd.units // _RESUME_FRACTION)
    short = left.gpu_hours is not None and left.gpu_hours < need + _starting(account, limits)
    if short or (left.usd is not None and left.usd < need_usd):
        again = earliest_headroom(account, limits, need, now, need_usd)
        return EnforcementResult(requeue_at=max(again, now + _RESUME_RETRY))
    why = f"has headroom again ({standing.sentence.removesuffix('.')})"
    return EnforcementResult(decisions=(_resumed(first, why),))


def _resumed(paused: PausedJob, why: str) -> Resume:
    return Resume(
        namespace=paused.namespace,
        job=paused.job,
        budget=paused.budget,
        reason=Reason.RESUMED,
        sentence=f"Job {paused.job.name} resumed: GPUWorkloadBudget {paused.budget[1]} {why}.",
    )


def _starting(account: BudgetAccount, limits: QuotaLimits) -> GpuHours:
    """Usage that pods will add that are bound to a node and do not run yet."""
    rates = (
        thousandths(pod.shape, account.resource)
        for uid, pod in account.pods.items()
        if pod.node is not None and pod.deleted is None and uid not in account.ledger.running
    )
    return GpuHours.from_units(sum(rates) * (min(ASSUMED_RUNTIME, limits.window) // _MICROSECOND))


def _job_uid(pod: Pod) -> str | None:
    return pod.owner.uid if pod.owner is not None and pod.owner.kind == "Job" else None
