"""Revocation: the GPUInstance, its pool or its class was deleted, so the machine has to go whatever runs on it."""

from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import InstanceState
from forebay.api.parts import Truth
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.rule import RuleContext
from forebay.lifecycle.steps import WriteStatus
from forebay.lifecycle.transitions import condition, restore_message, with_condition, with_message
from forebay.lifecycle.wording import terminated
from forebay.model.reasons import Reason
from forebay.model.spans import human

#: A pool that was deleted has this long to come back before its machines are drained.
POOL_GONE_AFTER: Final = timedelta(minutes=5)
#: Condition of a GPUInstance whose pool was deleted, or was and has come back.
_POOL_EXISTS: Final = "PoolExists"
_UNAFFECTED: Final = frozenset(
    {InstanceState.REQUESTED, InstanceState.DRAINING, InstanceState.TERMINATING, InstanceState.GONE}
)


def revoked(facts: Facts, now: datetime) -> tuple[Reason, str] | None:
    """Why the machine has to go whatever runs on it; None where nobody asked for that, or people hold the machine."""
    if facts.deleting:
        return Reason.DELETED, "the GPUInstance was deleted"
    if facts.held is not None:
        return None
    if not facts.class_exists:
        return Reason.POOL_GONE, "its GPUNodeClass was deleted"
    late = pool_gone_at(facts)
    if late is not None and now >= late:
        return Reason.POOL_GONE, f"its GPUNodePool was deleted and not created again within {human(POOL_GONE_AFTER)}"
    return None


def owner_gone(facts: Facts) -> tuple[Reason, str] | None:
    """As `revoked`, for a machine for which nothing was started: it need not wait for its pool to come back."""
    if facts.deleting:
        return Reason.DELETED, "the GPUInstance was deleted"
    if not (facts.pool_exists and facts.class_exists):
        return Reason.POOL_GONE, "its pool or class was deleted"
    return None


def pool_gone_at(facts: Facts) -> datetime | None:
    """When the loss of the pool counts; None while the pool exists, or its loss is not recorded yet."""
    lost = condition(facts.status, _POOL_EXISTS)
    if facts.pool_exists or lost is None or lost.status is not Truth.FALSE:
        return None
    return lost.last_transition_time + POOL_GONE_AFTER


def pool_noticed(ctx: RuleContext) -> WriteStatus | None:
    """Records that the pool of the machine was deleted, or has come back: `kubectl replace --force` does both."""
    facts, pool = ctx.facts, ctx.record.spec.pool_ref
    before = condition(ctx.status, _POOL_EXISTS)
    lost = before is not None and before.status is Truth.FALSE
    if pool is None or lost is not facts.pool_exists or ctx.record.state in _UNAFFECTED:
        return None
    name = f"GPUNodePool {pool.namespace}/{pool.name}"
    if facts.pool_exists:
        sentence = f"{name} exists again."
        status = with_condition(restore_message(ctx.status), _POOL_EXISTS, True, Reason.BACK_IN_USE, sentence, ctx.now)
        return ctx.write(status, Reason.BACK_IN_USE, sentence)
    sentence = (
        f"{name} was deleted. Unless it is created again within {human(POOL_GONE_AFTER)}, the pods on this machine are "
        f"evicted and it is {terminated(ctx.record)}."
    )
    status = with_condition(ctx.status, _POOL_EXISTS, False, Reason.POOL_GONE, sentence, ctx.now)
    return ctx.write(with_message(status, Reason.POOL_GONE, sentence), Reason.POOL_GONE, sentence)
