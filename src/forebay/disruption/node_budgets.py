"""Disruption budgets of a GPUNodePool: how many of its nodes may be drained of running pods at a time."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from forebay.api.gpu_node_pool import DisruptionBudget, DisruptionReason
from forebay.api.values import duration
from forebay.disruption.cron import InvalidSchedule, parse_schedule

_ALL: Final = 100


def allowed_disruptions(
    budgets: Iterable[DisruptionBudget], reason: DisruptionReason, nodes: int, disrupted: int, now: datetime
) -> int | None:
    """How many more of the pool's `nodes` may be disrupted for this reason, by the strictest budget that is active now.

    `disrupted` of them are draining or terminating already. None: no budget limits this reason.
    """
    allowed = [
        max(0, most_disrupted(budget, nodes) - disrupted)
        for budget in budgets
        if (not budget.reasons or reason in budget.reasons) and is_active(budget, now)
    ]
    return min(allowed, default=None)


def most_disrupted(budget: DisruptionBudget, nodes: int) -> int:
    """Nodes that the budget lets be disrupted at a time. A percentage is rounded up, so that small pools can shrink."""
    written = budget.nodes
    if isinstance(written, str) and written.endswith("%"):
        return -(-nodes * int(written[:-1]) // _ALL)
    return int(written)


def is_active(budget: DisruptionBudget, now: datetime) -> bool:
    """True from each time of the schedule until its duration has passed, the end excluded.

    A budget with an invalid schedule is always active, so that too few nodes go rather than too many. `budget_error`
    reports it.
    """
    if budget.schedule is None or budget.duration is None:
        return True
    try:
        schedule = parse_schedule(budget.schedule)
    except InvalidSchedule:
        return True
    span = duration(budget.duration)
    began = schedule.latest(now, span)
    return began is not None and now < began + span


def budget_error(budgets: Iterable[DisruptionBudget]) -> str | None:
    """What the pool's owner must correct; None where every schedule is valid."""
    for budget in budgets:
        if budget.schedule is not None:
            try:
                parse_schedule(budget.schedule)
            except InvalidSchedule as error:
                return f"{error} Until it is corrected, this budget is always active."
    return None
