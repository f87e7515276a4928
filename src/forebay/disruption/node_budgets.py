"""How many nodes of a pool may be on their way out at one time."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from forebay.api.gpu_node_pool import DisruptionBudget, DisruptionReason
from forebay.api.values import duration
from forebay.disruption.cron import NotASchedule, parse_schedule

_ALL: Final = 100


def allowance(
    budgets: Iterable[DisruptionBudget], reason: DisruptionReason, nodes: int, leaving: int, now: datetime
) -> int | None:
    """How many more of the pool's `nodes` may go for this reason, `leaving` being on their way already; None: all.

    The strictest budget that holds now decides.
    """
    allowed = [
        max(0, most(budget, nodes) - leaving)
        for budget in budgets
        if (not budget.reasons or reason in budget.reasons) and holds(budget, now)
    ]
    return min(allowed, default=None)


def most(budget: DisruptionBudget, nodes: int) -> int:
    """A share is rounded up, so that a small pool is not kept for ever."""
    written = budget.nodes
    if isinstance(written, str) and written.endswith("%"):
        return -(-nodes * int(written[:-1]) // _ALL)
    return int(written)


def holds(budget: DisruptionBudget, now: datetime) -> bool:
    """It does between each time the schedule strikes and the end of the duration after it, that end excluded.

    A schedule that cannot be read holds always: rather too few nodes go than too many. `budget_error` says so.
    """
    if budget.schedule is None or budget.duration is None:
        return True
    try:
        schedule = parse_schedule(budget.schedule)
    except NotASchedule:
        return True
    span = duration(budget.duration)
    struck = schedule.latest(now, span)
    return struck is not None and now < struck + span


def budget_error(budgets: Iterable[DisruptionBudget]) -> str | None:
    """What a pool's owner must correct; None where all can be read."""
    for budget in budgets:
        if budget.schedule is not None:
            try:
                parse_schedule(budget.schedule)
            except NotASchedule as wrong:
                return f"{wrong} Until then this budget holds all the time."
    return None
