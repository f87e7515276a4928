"""Moving pods to save cost: when a node that is drained only for that stays after all."""

from datetime import timedelta
from typing import Final

from forebay.demand.maintenance import may_be_moved
from forebay.lifecycle.rule import RuleContext
from forebay.model.spans import human
from forebay.model.workloads import pod_names

#: Pods of a node that is drained only to save cost have this long to leave it; after that it stays, for so long.
MOVE_TIMEOUT: Final = timedelta(minutes=10)
MOVE_RETRY: Final = timedelta(hours=1)


def not_worth_moving(ctx: RuleContext) -> str | None:
    """Why the node that is drained only to save cost stays after all, as a clause; asked until its pods have left."""
    facts = ctx.facts
    staying = next((pod for pod in facts.pods if not may_be_moved(pod)), None)
    if staying is not None:
        return f"{pod_names([staying])} is there and must not be moved"
    if not facts.room_elsewhere:
        return "its pods have no room on other nodes any more"
    if facts.pods and ctx.now >= ctx.since + MOVE_TIMEOUT:
        blocked = f"{pod_names(facts.pods)} could not be evicted within {human(MOVE_TIMEOUT)}"
        return f"{blocked}, as by a PodDisruptionBudget; Forebay does not try again within {human(MOVE_RETRY)}"
    return None
