"""Moving pods to other nodes: when a node that is drained for that stays after all."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from forebay.demand.maintenance import may_be_moved, must_stay
from forebay.lifecycle.rule import RuleContext
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod, pod_names

#: Pods of a node that is drained only to save cost have this long to leave it; after that it stays, for so long.
MOVE_TIMEOUT: Final = timedelta(minutes=10)
MOVE_RETRY: Final = timedelta(hours=1)


def kept_for_pods(ctx: RuleContext, why: str | None) -> str | None:
    """Why the node stays after all, as a clause: what would have kept it from being drained came in the last moment."""
    if why == Reason.UNDERUTILIZED:
        return not_worth_moving(ctx)
    if why == Reason.DRIFTED:
        return _staying(pod for pod in ctx.facts.pods if not may_be_moved(pod))
    if why == Reason.EXPIRED and ctx.record.spec.pool_ref is not None:
        return _staying(pod for pod in ctx.facts.pods if must_stay(pod))
    return None


def _staying(pods: Iterable[Pod]) -> str | None:
    staying = next(iter(pods), None)
    return None if staying is None else f"{pod_names([staying])} is there and must not be moved"


def not_worth_moving(ctx: RuleContext) -> str | None:
    """Why the node that is drained only to save cost stays after all, as a clause; asked until its pods have left."""
    facts = ctx.facts
    if (staying := _staying(pod for pod in facts.pods if not may_be_moved(pod))) is not None:
        return staying
    if not facts.room_elsewhere:
        return "its pods have no room on other nodes any more"
    if facts.pods and ctx.now >= ctx.since + MOVE_TIMEOUT:
        blocked = f"{pod_names(facts.pods)} could not be evicted within {human(MOVE_TIMEOUT)}"
        return f"{blocked}, as by a PodDisruptionBudget; Forebay does not try again within {human(MOVE_RETRY)}"
    return None
