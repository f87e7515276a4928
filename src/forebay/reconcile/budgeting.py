"""How budgets stand, who must wait for them, and who must stop: the questions that a tick asks of them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_workload_budget import Accounting, EnforcementAction, GPUWorkloadBudget
from forebay.api.names import USAGE_FINALIZER
from forebay.budgets.accounts import Account, BudgetKey, selector_of
from forebay.budgets.admission import Admission, Held, Release, release
from forebay.budgets.assessment import Standing
from forebay.budgets.enforcement import CannotPause, Evict, Pause, Resume, enforce, exceeded_since
from forebay.demand.reservation import Reservations
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.planning.gangs import GangKey, gang_key
from forebay.reconcile.decisions import AddUsageFinalizer, PodEvent, RemoveUsageFinalizer
from forebay.reconcile.snapshot import BudgetState, Snapshot

_ALERT_ONLY: Final = EnforcementAction.ALERT_ONLY


class Budgeting(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of all budgets in this tick."""

    standings: Mapping[BudgetKey, Standing] = {}
    #: None: nothing is known of them yet, or there are none.
    admission: Admission | None = None


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Of the pods that capacity is to be bought for."""

    pods: tuple[Pod, ...] = ()
    held: tuple[Held | PodEvent, ...] = ()


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    released: tuple[Release, ...] = ()
    held: tuple[Held, ...] = ()


class Enforced(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[Evict | Pause | CannotPause | Resume, ...] = ()
    look_again: datetime | None = None


def account(snapshot: Snapshot) -> Budgeting:
    books = snapshot.budget_state
    if books is None or not snapshot.budgets:
        return Budgeting()
    standings = books.assessor.assess(snapshot.budgets, books.accounts, snapshot.now)
    budgets = {budget.key: budget for budget in snapshot.budgets}
    return Budgeting(standings=standings, admission=Admission(books.accounts, budgets, standings, snapshot.now))


def admit(snapshot: Snapshot, budgeting: Budgeting, reservations: Reservations) -> Admitted:
    """Whom money may move for. What runs, what is bound, and what capacity is on its way for comes first."""
    if not snapshot.budgets:
        return Admitted(pods=reservations.left)
    if snapshot.budget_state is None:
        return _not_yet(snapshot, reservations.left)
    admission, books = budgeting.admission, snapshot.budget_state
    if admission is None or not (reservations.left or books.gated):
        return Admitted(pods=reservations.left)
    for pod in _committed(snapshot, reservations, books):
        admission.commit(pod)
    _commit_dollars(snapshot, admission)
    held = {pod.uid: found for pod in reservations.left if (found := admission.ask(pod)) is not None}
    held |= _with_company(reservations.left, held)
    return Admitted(
        pods=tuple(pod for pod in reservations.left if pod.uid not in held) if held else reservations.left,
        held=tuple(held.values()),
    )


def _not_yet(snapshot: Snapshot, pods: tuple[Pod, ...]) -> Admitted:
    holding = [budget for budget in snapshot.budgets if budget.spec.enforcement.action is not _ALERT_ONLY]
    held = [pod for pod in pods if any(_takes(budget, pod) for budget in holding)]
    sentence = (
        "What the budgets of the pod have used is still being read from the cluster. Nothing is bought for it before; "
        "if this lasts, look at the log of the operator."
    )
    waiting = {pod.uid for pod in held}
    return Admitted(
        pods=tuple(pod for pod in pods if pod.uid not in waiting),
        held=tuple(PodEvent(pod=pod, reason=Reason.LEDGER_UNREAD, sentence=sentence) for pod in held),
    )


def _takes(budget: GPUWorkloadBudget, pod: Pod) -> bool:
    return (
        budget.key[0] == pod.namespace
        and budget.spec.gpu_resource_name in pod.shape.requests
        and selector_of(budget).matches(pod.labels)
    )


def _committed(snapshot: Snapshot, reservations: Reservations, books: BudgetState) -> Iterator[Pod]:
    """Pods that will run whatever is decided now, and do not yet."""
    yield from (pod for pod in snapshot.pending if pod.uid in reservations.placed)
    known: set[str] = set()
    for each in books.accounts:
        for uid, pod in each.pods.items():
            if pod.node is not None and uid not in each.ledger.running and uid not in known:
                known.add(uid)
                yield pod


def _commit_dollars(snapshot: Snapshot, admission: Admission) -> None:
    """Of machines that were asked for and are not billed yet; the books hold all others."""
    waiting = {pod.uid: pod for pod in snapshot.pending}
    for record in snapshot.records:
        billed = record.status.billed_from if record.status is not None else None
        if billed is not None or record.state is InstanceState.GONE or not record.spec.hourly_price:
            continue
        pods = [waiting[pod.uid] for pod in record.spec.pods if pod.uid in waiting]
        admission.commit_to_spend(pods, UsdPerHour(str(record.spec.hourly_price)))


def _with_company(pods: Iterable[Pod], held: Mapping[str, Held]) -> dict[str, Held]:
    """The others of their gangs, which are of no use without them."""
    gangs: dict[GangKey, Held] = {}
    for each in held.values():
        if (gang := gang_key(each.pod)) is not None:
            gangs.setdefault(gang, each)
    found = {}
    for pod in pods if gangs else ():
        gang = gang_key(pod)
        if gang in gangs and pod.uid not in held:
            found[pod.uid] = msgspec.structs.replace(gangs[gang], pod=pod)
    return found


def gates(snapshot: Snapshot, budgeting: Budgeting) -> Gates:
    """Asked after those for whom capacity is bought: they were let through before."""
    books = snapshot.budget_state
    if books is None or not books.gated:
        return Gates()
    if budgeting.admission is None:
        return Gates(released=tuple(_free(pod) for pod in books.gated if pod.deleted is None))
    found = release(books.gated, budgeting.admission)
    return Gates(
        released=tuple(each for each in found if isinstance(each, Release)),
        held=tuple(each for each in found if isinstance(each, Held)),
    )


def _free(pod: Pod) -> Release:
    sentence = "No GPUWorkloadBudget holds the pod any more: its gate is taken away."
    return Release(pod=pod, reason=Reason.RELEASED_BY_BUDGET, sentence=sentence)


def held_by(held: Iterable[Held | PodEvent]) -> Counter[BudgetKey]:
    """How many pods wait for each budget."""
    return Counter(each.budget for each in held if isinstance(each, Held))


def held_pod_events(held: Iterable[Held | PodEvent]) -> Iterator[PodEvent]:
    for each in held:
        if isinstance(each, PodEvent):
            yield each
        else:
            yield PodEvent(pod=each.pod, reason=each.reason, sentence=each.sentence, warning=True)


def enforcement(snapshot: Snapshot, standings: Mapping[BudgetKey, Standing]) -> Enforced:
    books = snapshot.budget_state
    if books is None:
        return Enforced()
    decisions: list[Evict | Pause | CannotPause | Resume] = []
    due: list[datetime] = []
    named: set[str] = set()
    for budget in snapshot.budgets:
        standing, opened = standings.get(budget.key), books.accounts.get(budget.key)
        if standing is None or opened is None or budget.key in books.awaiting:
            continue
        found = enforce(
            budget,
            opened,
            standing,
            snapshot.now,
            since=exceeded_since(budget),
            blocked=books.blocked | named if named else books.blocked,
            paused=books.paused,
        )
        # Whom another budget has named a moment ago is on its way already.
        named.update(each.pod.uid for each in found.decisions if isinstance(each, Evict | Pause))
        decisions += found.decisions
        if found.look_again is not None:
            due.append(found.look_again)
    decisions += _abandoned(snapshot, books)
    return Enforced(decisions=tuple(decisions), look_again=min(due, default=None))


def _abandoned(snapshot: Snapshot, books: BudgetState) -> Iterator[Resume]:
    """Jobs that wait for a budget that is gone."""
    there = {budget.key for budget in snapshot.budgets}
    for each in books.paused:
        if each.budget not in there:
            sentence = f"GPUWorkloadBudget {each.budget[1]} is gone: Job {each.job.name} goes on."
            yield Resume(
                namespace=each.namespace,
                job=each.job,
                budget=each.budget,
                reason=Reason.RESUMED,
                sentence=sentence,
            )


def usage_finalizers(snapshot: Snapshot) -> Iterator[AddUsageFinalizer | RemoveUsageFinalizer]:
    """The finalizer of `accounting: Exact`: on pods that the admission policy has missed, and off those recorded."""
    books = snapshot.budget_state
    if books is None:
        return
    for pod in books.recorded:
        yield RemoveUsageFinalizer(pod=pod)
    known: set[str] = set()
    for budget in snapshot.budgets:
        opened = books.accounts.get(budget.key)
        if budget.spec.accounting is not Accounting.EXACT or opened is None:
            continue
        for pod in _unmarked(opened):
            if pod.uid not in known:
                known.add(pod.uid)
                yield AddUsageFinalizer(pod=pod)


def _unmarked(opened: Account) -> Iterator[Pod]:
    for pod in opened.pods.values():
        # A pod that was asked to go takes no more finalizers; the API refuses them.
        if USAGE_FINALIZER not in pod.finalizers and pod.deleted is None and not pod.mirror:
            yield pod
