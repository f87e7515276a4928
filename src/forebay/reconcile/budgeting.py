"""Budgets in a tick: their standing, which pods they admit or hold, and which pods and Jobs they stop."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Final

import msgspec

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_workload_budget import Accounting, EnforcementAction, GPUWorkloadBudget
from forebay.api.names import BUDGET_GATE, PAUSE_REQUESTED_BY_ANNOTATION, USAGE_FINALIZER
from forebay.budgets.accounts import selector_of
from forebay.budgets.admission import Admission, Held, Release, release
from forebay.budgets.assessment import Assessments, Assessor, Standing
from forebay.budgets.budget_accounts import BudgetAccount, BudgetKey
from forebay.budgets.enforcement import Alert, CannotPause, Evict, Pause, Resume, enforce, exceeded_since
from forebay.demand.reservation import Reservations
from forebay.model.fit import selects
from forebay.model.nodes import CONDITION_TAINTS
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import tolerates
from forebay.model.workloads import Pod
from forebay.planning.gangs import GangKey, gang_key
from forebay.reconcile.buying import plan_for
from forebay.reconcile.decisions import AddUsageFinalizer, PodEvent, RemovePauseAnnotations, RemoveUsageFinalizer
from forebay.reconcile.isolation import Faults
from forebay.reconcile.remote_choices import RemoteChoices
from forebay.reconcile.snapshot import BudgetState, Snapshot

_ALERT_ONLY: Final = EnforcementAction.ALERT_ONLY


class Budgeting(msgspec.Struct, frozen=True, kw_only=True):
    """Standing of all budgets in this tick, and the admission of new pods."""

    standings: Mapping[BudgetKey, Standing] = {}
    #: None if there are no budgets, or their ledgers are not read yet.
    admission: Admission | None = None
    #: Budgets that could not be assessed because of a bug.
    errors: Mapping[BudgetKey, Exception] = {}
    #: For the next tick.
    assessments: Assessments = Assessments()


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that capacity may be launched for, and pods that must wait for their budgets."""

    pods: tuple[Pod, ...] = ()
    held: tuple[Held | PodEvent, ...] = ()


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions about pods with the scheduling gate of budgets."""

    released: tuple[Release, ...] = ()
    held: tuple[Held, ...] = ()


class Enforced(msgspec.Struct, frozen=True, kw_only=True):
    """Decisions of all budgets that are used up or have paused Jobs."""

    decisions: tuple[Evict | Pause | CannotPause | Resume | Alert, ...] = ()
    requeue_at: datetime | None = None


def assess_budgets(snapshot: Snapshot) -> Budgeting:
    """Standing of all budgets; empty if there are none or their ledgers are not read yet."""
    budget_state = snapshot.budget_state
    if budget_state is None or not snapshot.budgets:
        return Budgeting()
    assessor = Assessor(snapshot.memory.assessments)
    standings = assessor.assess(snapshot.budgets, budget_state.accounts, snapshot.now)
    budgets = {budget.key: budget for budget in snapshot.budgets}
    return Budgeting(
        standings=standings,
        admission=Admission(budget_state.accounts, budgets, standings, snapshot.now),
        errors=assessor.errors,
        assessments=assessor.assessments,
    )


def admit(snapshot: Snapshot, budgeting: Budgeting, reservations: Reservations) -> Admitted:
    """Pods that capacity may be launched for, after what running, bound and already served pods will use."""
    if not snapshot.budgets:
        return Admitted(pods=reservations.left)
    if snapshot.budget_state is None:
        return _held_until_read(snapshot, reservations.left)
    admission, budget_state = budgeting.admission, snapshot.budget_state
    if admission is None or not (reservations.left or budget_state.gated):
        return Admitted(pods=reservations.left)
    for pod in _committed(snapshot, reservations, budget_state):
        admission.reserve(pod)
    _reserve_dollars(snapshot, admission, budget_state)
    held = {pod.uid: found for pod in reservations.left if (found := admission.admit(pod)) is not None}
    held |= _other_gang_members(reservations.left, held)
    return Admitted(
        pods=tuple(pod for pod in reservations.left if pod.uid not in held) if held else reservations.left,
        held=tuple(held.values()),
    )


def _held_until_read(snapshot: Snapshot, pods: tuple[Pod, ...]) -> Admitted:
    holding = [budget for budget in snapshot.budgets if budget.spec.enforcement.action is not _ALERT_ONLY]
    held = [pod for pod in pods if any(_selects(budget, pod) for budget in holding)]
    sentence = (
        "Forebay is still reading the ledgers of the pod's budgets from the cluster, and adds no capacity for the pod "
        "before that. If this lasts, see the log of the operator."
    )
    waiting = {pod.uid for pod in held}
    return Admitted(
        pods=tuple(pod for pod in pods if pod.uid not in waiting),
        held=tuple(PodEvent(pod=pod, reason=Reason.LEDGER_UNREAD, sentence=sentence) for pod in held),
    )


def _selects(budget: GPUWorkloadBudget, pod: Pod) -> bool:
    return (
        budget.key[0] == pod.namespace
        and budget.spec.gpu_resource_name in pod.shape.requests
        and selector_of(budget).matches(pod.labels)
    )


def _committed(snapshot: Snapshot, reservations: Reservations, budget_state: BudgetState) -> Iterator[Pod]:
    """Pods that do not run yet and will, whatever is decided now: bound pods, and pods with capacity reserved."""
    yield from (pod for pod in snapshot.pending if pod.uid in reservations.placed)
    known: set[str] = set()
    for each in budget_state.accounts:
        for uid, pod in each.pods.items():
            if pod.node is not None and uid not in each.ledger.running and uid not in known:
                known.add(uid)
                yield pod


def _reserve_dollars(snapshot: Snapshot, admission: Admission, budget_state: BudgetState) -> None:
    """Reserve dollars for machines that are launching and not billed yet; the ledgers hold all others."""
    waiting = {pod.uid: pod for pod in snapshot.pending}

    def live(uid: str) -> Pod | None:
        # The pod of a remote container is bound before its container is launched.
        return waiting.get(uid) or next((each.pods[uid] for each in budget_state.accounts if uid in each.pods), None)

    for record in snapshot.records:
        billed = record.status.billed_from if record.status is not None else None
        if billed is not None or record.state is InstanceState.GONE or not record.spec.hourly_price:
            continue
        pods = [pod for ref in record.spec.pods if (pod := live(ref.uid)) is not None]
        admission.reserve_launch(pods, UsdPerHour(str(record.spec.hourly_price)), record.billing.minimum)


def _other_gang_members(pods: Iterable[Pod], held: Mapping[str, Held]) -> dict[str, Held]:
    """Holds for the other pods of held pods' gangs, which cannot run without them."""
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
    """Decisions about gated pods. Call after `admit`: pods without the gate were let through earlier and come first."""
    budget_state = snapshot.budget_state
    if budget_state is None or not budget_state.gated:
        return Gates()
    if budgeting.admission is None:
        return Gates(released=tuple(_ungate(pod) for pod in budget_state.gated if pod.deleted is None))
    remote = cache(lambda: RemoteChoices(snapshot))

    def unplaceable(pod: Pod) -> bool:
        may_leave = pod.uid in snapshot.portable or pod.uid in snapshot.unread
        return not (may_leave and remote().any_for(pod)) and _no_node_for(snapshot, pod)

    found = release(budget_state.gated, budgeting.admission, unplaceable=unplaceable)
    return Gates(
        released=tuple(each for each in found if isinstance(each, Release)),
        held=tuple(each for each in found if isinstance(each, Held)),
    )


def _no_node_for(snapshot: Snapshot, pod: Pod) -> bool:
    """Whether no node, even an empty one, and no offer of one could run the pod. False where some are not known."""
    if any(source.offers is None for source in snapshot.sources.values()):
        return False
    for node in (*snapshot.nodes.values(), *snapshot.last_seen_nodes.values()):
        lasting = (each for each in node.taints if each.repels and not each.key.startswith(CONDITION_TAINTS))
        if (
            pod.shape.requests.fits_within(node.allocatable)
            and selects(pod.shape, node)
            and all(tolerates(pod.shape.tolerations, taint) for taint in lasting)
        ):
            return False
    return bool(plan_for(snapshot, (pod,), alone=True).left_out)


def _ungate(pod: Pod) -> Release:
    sentence = f"No GPUWorkloadBudget applies to the pod any more: scheduling gate {BUDGET_GATE} removed."
    return Release(pod=pod, reason=Reason.RELEASED_BY_BUDGET, sentence=sentence)


def held_by(held: Iterable[Held | PodEvent]) -> Counter[BudgetKey]:
    """Number of pods that wait for each budget."""
    return Counter(each.budget for each in held if isinstance(each, Held))


def held_pod_events(held: Iterable[Held | PodEvent]) -> Iterator[PodEvent]:
    for each in held:
        if isinstance(each, PodEvent):
            yield each
        else:
            yield PodEvent(pod=each.pod, reason=each.reason, sentence=each.sentence, warning=True)


def enforcement(snapshot: Snapshot, standings: Mapping[BudgetKey, Standing], faults: Faults) -> Enforced:
    budget_state = snapshot.budget_state
    if budget_state is None:
        return Enforced()
    decisions: list[Evict | Pause | CannotPause | Resume | Alert] = []
    due: list[datetime] = []
    named: set[str] = set()
    for budget in snapshot.budgets:
        standing, account = standings.get(budget.key), budget_state.accounts.get(budget.key)
        if standing is None or account is None or budget.key in budget_state.awaiting:
            continue
        with faults.of("GPUWorkloadBudget", *budget.key):
            found = enforce(
                budget,
                account,
                standing,
                snapshot.now,
                since=exceeded_since(budget),
                last_action=_last_action(budget, budget_state),
                blocked=budget_state.blocked | named if named else budget_state.blocked,
                paused=budget_state.paused,
                backoffs=budget_state.backoffs,
                gated=snapshot.gate_missing is None,
            )
            # A pod that another budget stops in this tick is not named again.
            named.update(each.pod.uid for each in found.decisions if isinstance(each, Evict | Pause))
            decisions += found.decisions
            if found.requeue_at is not None:
                due.append(found.requeue_at)
    decisions += _resume_orphaned(snapshot, budget_state)
    return Enforced(decisions=tuple(decisions), requeue_at=min(due, default=None))


def unneeded_pause_requests(
    snapshot: Snapshot, standings: Mapping[BudgetKey, Standing]
) -> Iterator[RemovePauseAnnotations]:
    """Pods that need not pause any more: their budget has headroom, no longer pauses, or does not select them."""
    budget_state = snapshot.budget_state
    if budget_state is None or not budget_state.pause_requested:
        return
    budgets = {budget.key: budget for budget in snapshot.budgets}
    for pod in budget_state.pause_requested:
        key = (pod.namespace, pod.annotations[PAUSE_REQUESTED_BY_ANNOTATION])
        budget, account, standing = budgets.get(key), budget_state.accounts.get(key), standings.get(key)
        if budget is not None and (account is None or standing is None):
            continue  # not counted at the moment
        if (
            budget is None
            or account is None
            or standing is None
            or not standing.exceeded
            or budget.spec.enforcement.action is not EnforcementAction.PAUSE
            or pod.uid not in account.pods
        ):
            yield RemovePauseAnnotations(pod=pod)


def _last_action(budget: GPUWorkloadBudget, budget_state: BudgetState) -> datetime | None:
    """When the budget last stopped a pod or Job: by this process, or by an earlier one as the status says."""
    stored = budget.status.last_enforcement_at if budget.status is not None else None
    own = budget_state.enforced.get(budget.key)
    return max((each for each in (stored, own) if each is not None), default=None)


def _resume_orphaned(snapshot: Snapshot, budget_state: BudgetState) -> Iterator[Resume]:
    """Resume of Jobs whose budget was deleted."""
    there = {budget.key for budget in snapshot.budgets}
    for each in budget_state.paused:
        if each.budget not in there:
            sentence = f"Job {each.job.name} resumed: GPUWorkloadBudget {each.budget[1]} was deleted."
            yield Resume(
                namespace=each.namespace,
                job=each.job,
                budget=each.budget,
                reason=Reason.RESUMED,
                sentence=sentence,
            )


def usage_finalizers(snapshot: Snapshot) -> Iterator[AddUsageFinalizer | RemoveUsageFinalizer]:
    """Usage finalizers to add to pods of exact budgets, and to remove from pods whose usage is stored."""
    budget_state = snapshot.budget_state
    if budget_state is None:
        return
    for pod in budget_state.recorded:
        yield RemoveUsageFinalizer(pod=pod)
    known: set[str] = set()
    for budget in snapshot.budgets:
        account = budget_state.accounts.get(budget.key)
        if budget.spec.accounting is not Accounting.EXACT or account is None:
            continue
        for pod in _without_finalizer(account):
            if pod.uid not in known:
                known.add(pod.uid)
                yield AddUsageFinalizer(pod=pod)


def _without_finalizer(account: BudgetAccount) -> Iterator[Pod]:
    for pod in account.pods.values():
        # The API server refuses new finalizers on a terminating pod.
        if USAGE_FINALIZER not in pod.finalizers and pod.deleted is None and not pod.mirror:
            yield pod
