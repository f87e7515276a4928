"""Budgets of a saved snapshot: usage over time, and which of the running pods has used how much."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

import msgspec

from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.budgets.accounts import Accounts
from forebay.budgets.budget_accounts import BudgetKey
from forebay.budgets.enforcement import EvictionBackoff, PausedJob, RemovePauseMarks
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.ledger.recorded_usage import LedgerSummary, RecordedUsage
from forebay.budgets.usage import Interval
from forebay.model.workloads import PodShape
from forebay.reconcile.saved_pods import NotASnapshot, SavedPod, SavedShapes, loaded_pods
from forebay.reconcile.snapshot import BudgetState, Uncounted


class _Ledger(msgspec.Struct):
    #: Changes of the rate, by second. As text: they have more digits than JSON readers keep in a number.
    changes: tuple[tuple[int, str], ...]
    #: Number of pods that ended, by second.
    ends: tuple[tuple[int, int], ...]
    running: tuple[str, ...]


class _PodUsage(msgspec.Struct):
    """One interval in which a pod counted."""

    uid: str
    start: int
    #: None: it counts still.
    end: int | None
    rate: int


class _Account(msgspec.Struct):
    budget: BudgetKey
    gpu_hours: _Ledger
    dollars: _Ledger
    pods: tuple[SavedPod, ...]
    #: Of these pods.
    usage: tuple[_PodUsage, ...] = ()


class _Backoff(msgspec.Struct):
    owner: str
    since: datetime
    until: datetime


class SavedBudgets(msgspec.Struct, kw_only=True, omit_defaults=True):
    accounts: tuple[_Account, ...] = ()
    gated: tuple[SavedPod, ...] = ()
    damages: tuple[tuple[BudgetKey, str], ...] = ()
    invalid: tuple[tuple[BudgetKey, Uncounted], ...] = ()
    rewritten: tuple[tuple[BudgetKey, str], ...] = ()
    unstored: str | None = None
    blocked: frozenset[str] = frozenset()
    backoffs: tuple[_Backoff, ...] = ()
    awaiting: frozenset[BudgetKey] = frozenset()
    paused: tuple[PausedJob, ...] = ()
    resumed_by_hand: tuple[RemovePauseMarks, ...] = ()
    enforced: tuple[tuple[BudgetKey, datetime], ...] = ()
    pause_requested: tuple[SavedPod, ...] = ()
    recorded: tuple[SavedPod, ...] = ()


def saved_budgets(state: BudgetState, shapes: SavedShapes) -> SavedBudgets:
    accounts = sorted(state.accounts, key=lambda each: each.key)
    return SavedBudgets(
        accounts=tuple(
            _Account(
                each.key,
                _saved_ledger(each.ledger),
                _saved_ledger(each.money),
                shapes.pods(each.pods.values()),
                tuple(_PodUsage(uid, *interval) for uid in each.pods for interval in each.ledger.intervals(uid)),
            )
            for each in accounts
        ),
        gated=shapes.pods(state.gated),
        damages=tuple(sorted(state.damages.items())),
        invalid=tuple(sorted(state.invalid.items())),
        rewritten=tuple(sorted(state.rewritten.items())),
        unstored=state.unstored,
        blocked=state.blocked,
        backoffs=tuple(_Backoff(uid, *each) for uid, each in sorted(state.backoffs.items())),
        awaiting=state.awaiting,
        paused=state.paused,
        resumed_by_hand=state.resumed_by_hand,
        enforced=tuple(sorted(state.enforced.items())),
        pause_requested=shapes.pods(state.pause_requested),
        recorded=shapes.pods(state.recorded),
    )


def _saved_ledger(ledger: RecordedUsage) -> _Ledger:
    changes, ends, running = ledger.summary
    return _Ledger(tuple((at, str(part)) for at, part in changes.items()), tuple(ends.items()), running)


def _loaded_ledger(owner: str, saved: _Ledger, usage: Iterable[_PodUsage] = ()) -> Ledger:
    try:
        changes = {at: int(part) for at, part in saved.changes}
    except ValueError as error:
        raise NotASnapshot(f"the snapshot is incomplete or damaged: {error}") from error
    intervals: defaultdict[str, list[Interval]] = defaultdict(list)
    for each in usage:
        intervals[each.uid].append(Interval(each.start, each.end, each.rate))
    return Ledger.from_summary(owner, LedgerSummary(changes, dict(saved.ends), saved.running), intervals)


def loaded_budgets(
    saved: SavedBudgets, budgets: Iterable[GPUWorkloadBudget], now: datetime, shapes: tuple[PodShape, ...]
) -> BudgetState:
    by_key = {budget.key: budget for budget in budgets}
    accounts = Accounts()
    for each in saved.accounts:
        budget = by_key.get(each.budget)
        if budget is None:
            raise NotASnapshot(f"it has an account of budget {'/'.join(each.budget)} but not the budget itself")
        hours, dollars = (
            _loaded_ledger(budget.uid, each.gpu_hours, each.usage),
            _loaded_ledger(budget.uid, each.dollars),
        )
        account = accounts.open(budget, now, ledger=hours, money=dollars)
        account.pods.update((pod.uid, pod) for pod in loaded_pods(each.pods, shapes))
    return BudgetState(
        accounts=accounts.frozen(),
        gated=loaded_pods(saved.gated, shapes),
        damages=dict(saved.damages),
        invalid=dict(saved.invalid),
        rewritten=dict(saved.rewritten),
        unstored=saved.unstored,
        blocked=saved.blocked,
        backoffs={each.owner: EvictionBackoff(each.since, each.until) for each in saved.backoffs},
        awaiting=saved.awaiting,
        paused=saved.paused,
        resumed_by_hand=saved.resumed_by_hand,
        enforced=dict(saved.enforced),
        pause_requested=loaded_pods(saved.pause_requested, shapes),
        recorded=loaded_pods(saved.recorded, shapes),
    )
