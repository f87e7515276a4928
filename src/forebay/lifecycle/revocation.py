"""Revocation: the GPUInstance, its pool or its class was deleted, so the machine has to go whatever runs on it."""

from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.parts import Truth
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.rule import RuleContext
from forebay.lifecycle.steps import WriteStatus
from forebay.lifecycle.transitions import condition, restore_message, with_condition, with_message
from forebay.lifecycle.wording import terminated
from forebay.model.reasons import Reason
from forebay.model.spans import human

#: A pool or NodeProvisioner that was deleted has this long to come back before its machines are drained.
POOL_GONE_AFTER: Final = timedelta(minutes=5)
#: Condition of a GPUInstance whose pool (or NodeProvisioner) was deleted, or was and has come back.
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
    # A machine of a NodeProvisioner stays while pods are on it: whoever sizes groups drains it when it is empty.
    late = pool_gone_at(facts) if facts.record.spec.provisioner_ref is None else None
    if late is not None and now >= late:
        return Reason.POOL_GONE, f"its GPUNodePool was deleted and not created again within {human(POOL_GONE_AFTER)}"
    return None


def owner_gone(facts: Facts) -> tuple[Reason, str] | None:
    """As `revoked`, for a machine for which nothing was started: it need not wait for its pool to come back."""
    if facts.deleting:
        return Reason.DELETED, "the GPUInstance was deleted"
    if not (facts.pool_exists and facts.class_exists):
        return Reason.POOL_GONE, "its pool, NodeProvisioner or class was deleted"
    return None


def pool_gone_at(facts: Facts) -> datetime | None:
    """When the loss of the pool counts; None while the pool exists, or its loss is not recorded yet."""
    since = None if facts.pool_exists else owner_lost_since(facts.record)
    return None if since is None else since + POOL_GONE_AFTER


def owner_lost_since(record: GPUInstance) -> datetime | None:
    """Since when the pool or NodeProvisioner of the machine is deleted, as its record says."""
    lost = condition(record.status, _POOL_EXISTS) if record.status is not None else None
    return None if lost is None or lost.status is not Truth.FALSE else lost.last_transition_time


def pool_noticed(ctx: RuleContext) -> WriteStatus | None:
    """Records that the pool of the machine was deleted, or has come back: `kubectl replace --force` does both."""
    facts, owner = ctx.facts, _owner(ctx.record)
    before = condition(ctx.status, _POOL_EXISTS)
    lost = before is not None and before.status is Truth.FALSE
    if owner is None or lost is not facts.pool_exists or ctx.record.state in _UNAFFECTED:
        return None
    if facts.pool_exists:
        sentence = f"{owner} exists again."
        status = with_condition(restore_message(ctx.status), _POOL_EXISTS, True, Reason.BACK_IN_USE, sentence, ctx.now)
        return ctx.write(status, Reason.BACK_IN_USE, sentence)
    end = (
        f"the pods on this machine are evicted and it is {terminated(ctx.record)}"
        if ctx.record.spec.provisioner_ref is None
        else f"this machine is {terminated(ctx.record)} when no pod is left on it"
    )
    sentence = f"{owner} was deleted. Unless it is created again within {human(POOL_GONE_AFTER)}, {end}."
    status = with_condition(ctx.status, _POOL_EXISTS, False, Reason.POOL_GONE, sentence, ctx.now)
    return ctx.write(with_message(status, Reason.POOL_GONE, sentence), Reason.POOL_GONE, sentence)


def _owner(record: GPUInstance) -> str | None:
    """The object that says how long the machine is kept; None for one in a group that is not Forebay's."""
    pool, provisioner = record.spec.pool_ref, record.spec.provisioner_ref
    if pool is not None:
        return f"GPUNodePool {pool.namespace}/{pool.name}"
    return None if provisioner is None or record.in_instance_group else f"NodeProvisioner {provisioner.name}"
