"""Who is to stop once a budget has been used up for longer than its grace period, and who may go on again."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_workload_budget import EnforcementAction, GPUWorkloadBudget
from forebay.api.parts import Truth
from forebay.budgets.accounts import Account, BudgetKey
from forebay.budgets.assessment import RECKONED, WORTHWHILE, QuotaLimits, Standing, has_room_again, headroom
from forebay.budgets.usage import microseconds, thousandths
from forebay.model.quantities import GpuHours, Usd
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Owner, Pod

CONDITION: Final = "QuotaExceeded"
#: Beyond the time at which a pod must have ended (its deletionTimestamp), it is no longer waited for.
_PATIENCE: Final = timedelta(seconds=30)
#: When everybody who runs was refused to be evicted.
_ASK_AGAIN: Final = timedelta(seconds=10)
_MICROSECOND: Final = timedelta(microseconds=1)
#: Which part of its dollars must be free before a budget lets a Job go on: what its machines will cost is not known.
_PART: Final = 50


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for the pod's eviction, with its own grace period. Where that is refused, ask again with the pod in
    `blocked`: then the next one is named.
    """

    pod: Pod
    budget: BudgetKey
    reason: Reason
    sentence: str


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Suspend the Job, and note on it and on the pod by which budget and when."""

    pod: Pod
    job: Owner
    budget: BudgetKey
    reason: Reason
    sentence: str


class CannotPause(msgspec.Struct, frozen=True, kw_only=True):
    """Tell the pod and its budget why it goes on."""

    pod: Pod
    budget: BudgetKey
    reason: Reason
    sentence: str


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Let the Job go on, and take the notes off it."""

    namespace: str
    job: Owner
    budget: BudgetKey
    reason: Reason
    sentence: str


class PausedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A Job that was suspended for a budget, as the notes on it say."""

    namespace: str
    job: Owner
    budget: BudgetKey
    since: datetime
    #: What its pods ask for together, in thousandths.
    rate: int = 1000


class EnforcementResult(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[Evict | Pause | CannotPause | Resume, ...] = ()
    #: When time alone may bring the next one; None: only news can.
    look_again: datetime | None = None


def exceeded_since(budget: GPUWorkloadBudget) -> datetime | None:
    """As its condition says, so that a restart does not begin the grace period anew."""
    for condition in budget.status.conditions if budget.status is not None else ():
        if condition.type == CONDITION and condition.status is Truth.TRUE:
            return condition.last_transition_time
    return None


def enforce(
    budget: GPUWorkloadBudget,
    account: Account,
    standing: Standing,
    now: datetime,
    *,
    since: datetime | None,
    blocked: Collection[str] = (),
    paused: Iterable[PausedJob] = (),
) -> EnforcementResult:
    """`since` is when the quota was used up (`exceeded_since`, or now where that is not written yet). `blocked` are
    UIDs of pods whose eviction, or whose Job's suspension, was refused a moment ago.
    """
    mine = sorted((each for each in paused if each.budget == budget.key), key=lambda each: (each.since, each.job.name))
    if not standing.exceeded:
        return _resume(budget, account, standing, mine, now)
    action = budget.spec.enforcement.action
    if action is EnforcementAction.ALERT_ONLY or since is None:
        return EnforcementResult()
    due = since + timedelta(seconds=budget.spec.enforcement.grace_period_seconds)
    if now < due:
        return EnforcementResult(look_again=due)
    leaving = [pod.deleted for pod in account.pods.values() if pod.deleted is not None]
    waited_for = [deadline + _PATIENCE for deadline in leaving if deadline + _PATIENCE > now]
    if waited_for:
        return EnforcementResult(look_again=min(waited_for))
    offenders = _offenders(account, standing, now, blocked)
    if not offenders and any(uid in account.pods for uid in blocked):
        return EnforcementResult(look_again=now + _ASK_AGAIN)
    if action is EnforcementAction.EVICT:
        return EnforcementResult(decisions=tuple(_evict(budget, standing, pod, used) for pod, used in offenders[:1]))
    suspended = {each.job.uid for each in mine}
    return _pause(budget, standing, [each for each in offenders if _job_uid(each[0]) not in suspended])


def _offenders(
    account: Account, standing: Standing, now: datetime, blocked: Collection[str]
) -> list[tuple[Pod, GpuHours]]:
    """Pods that run and may be asked to stop: the largest use in the window first, then by name."""
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
            f"GPUWorkloadBudget {budget.key[1]} is used up ({standing.sentence.removesuffix('.')}). Pod {pod.name} is "
            f"evicted: with {used} in {human(standing.window)} it has used most of those that run."
        ),
    )


def _pause(budget: GPUWorkloadBudget, standing: Standing, offenders: list[tuple[Pod, GpuHours]]) -> EnforcementResult:
    """The first Job, and a word to each pod before it that has none."""
    found: list[Pause | CannotPause] = []
    name = budget.key[1]
    for pod, used in offenders:
        owner = pod.owner
        if owner is not None and owner.kind == "Job":
            sentence = (
                f"GPUWorkloadBudget {name} is used up ({standing.sentence.removesuffix('.')}). Job {owner.name} is "
                f"suspended, because its pod {pod.name} has used most of those that run ({used}). It goes on when the "
                "window frees room."
            )
            found.append(Pause(pod=pod, job=owner, budget=budget.key, reason=Reason.PAUSED, sentence=sentence))
            break
        made_by = "has no controller" if owner is None else f"belongs to {owner.kind} {owner.name}"
        sentence = (
            f"GPUWorkloadBudget {name} is used up, but pod {pod.name} cannot be paused: it {made_by}, and only Jobs "
            "can be suspended. Delete it or scale it down, or set spec.enforcement.action to Evict."
        )
        found.append(CannotPause(pod=pod, budget=budget.key, reason=Reason.CANNOT_PAUSE, sentence=sentence))
    return EnforcementResult(decisions=tuple(found))


def _resume(
    budget: GPUWorkloadBudget, account: Account, standing: Standing, paused: list[PausedJob], now: datetime
) -> EnforcementResult:
    """One at a time, and beside what runs: two that go on together could each time use up what one would have ended
    with. Not before it is worthwhile, lest it be suspended again at once.
    """
    if not paused:
        return EnforcementResult()
    first = paused[0]
    limits = QuotaLimits(standing.quota, standing.quota_usd, standing.window)
    left, need, need_usd = headroom(account, limits, now), GpuHours.zero(), Usd.zero()
    if standing.quota is not None:
        need = min(GpuHours.from_units(first.rate * (WORTHWHILE // _MICROSECOND)), standing.quota)
    if standing.quota_usd is not None:
        need_usd = Usd.from_units(standing.quota_usd.units // _PART)
    short = left.gpu_hours is not None and left.gpu_hours < need + _about_to_begin(account, limits)
    if short or (left.usd is not None and left.usd < need_usd):
        again = has_room_again(account, limits, need, now, need_usd)
        return EnforcementResult(look_again=max(again, now + _PATIENCE))
    sentence = (
        f"GPUWorkloadBudget {budget.key[1]} has room again ({standing.sentence.removesuffix('.')}): Job "
        f"{first.job.name} goes on."
    )
    resumed = Resume(
        namespace=first.namespace, job=first.job, budget=first.budget, reason=Reason.RESUMED, sentence=sentence
    )
    return EnforcementResult(decisions=(resumed,))


def _about_to_begin(account: Account, limits: QuotaLimits) -> GpuHours:
    """What pods will use that have a node and do not run yet."""
    rates = (
        thousandths(pod.shape, account.resource)
        for uid, pod in account.pods.items()
        if pod.node is not None and pod.deleted is None and uid not in account.ledger.running
    )
    return GpuHours.from_units(sum(rates) * (min(RECKONED, limits.window) // _MICROSECOND))


def _job_uid(pod: Pod) -> str | None:
    return pod.owner.uid if pod.owner is not None and pod.owner.kind == "Job" else None
