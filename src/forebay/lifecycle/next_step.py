"""The next step of one GPUInstance, given the facts about it: at most one at a time."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.lifecycle.call_outcomes import MAX_ATTEMPTS
from forebay.lifecycle.clock_jumps import by_this_clock
from forebay.lifecycle.container_states import container_finished, container_launched, container_running
from forebay.lifecycle.draining import draining
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.group_members import recreated
from forebay.lifecycle.launch import abandon_unlaunched, launching, made_for_adoption, requested
from forebay.lifecycle.liveness import ready
from forebay.lifecycle.presence import ABSENCES_NEEDED, presence_of, with_sighting
from forebay.lifecycle.record_expiry import expired_record
from forebay.lifecycle.registration import joined, launched
from forebay.lifecycle.revocation import pool_gone_at, pool_noticed
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.secondary_resources import due, next_due
from forebay.lifecycle.steps import AnyStep, DeleteRecord, DeleteResources, Terminate, WriteStatus
from forebay.lifecycle.termination import terminating
from forebay.lifecycle.transitions import restore_message, with_message
from forebay.lifecycle.wording import describe
from forebay.model.reasons import Reason

#: How long after a call the provider is listed more often, to learn the outcome soon.
FAST_LISTING: Final = timedelta(minutes=3)
#: States that end with what a listing shows.
_AWAITED: Final = (InstanceState.LAUNCHING, InstanceState.TERMINATING)


def step_or_wait(facts: Facts, now: datetime) -> tuple[AnyStep | None, datetime | None]:
    """The step to take now, or when time alone may bring one. (None, None): only a change of the facts can."""
    result = _with_resources(facts, _apply_rule(facts, now), now)
    return (None, result.until) if isinstance(result, Wait) else (result, None)


def _with_resources(facts: Facts, result: RuleResult, now: datetime) -> RuleResult:
    """The step of the state; where it has none, or would delete the record, first the deletion of what was made beside
    the machine and is no longer needed.
    """
    if not (result is None or isinstance(result, Wait | DeleteRecord)):
        return result
    if resources := due(facts.record, now):
        sentence = f"Deleting {', '.join(f'{each.kind} {each.name}' for each in resources)} of {facts.name}."
        return DeleteResources(record=facts.record, reason=Reason.TERMINATED, sentence=sentence, resources=resources)
    retry = next_due(facts.record)
    if retry is None:
        return result
    return Wait(min(retry, result.until)) if isinstance(result, Wait) else Wait(retry)


def awaits_listing(record: GPUInstance, now: datetime) -> bool:
    """True where the next listing of the provider decides something, so that it is worth making soon.

    After `FAST_LISTING` without an outcome, or after several terminations without effect, the usual interval will do.
    """
    status = record.status
    if status is None or not may_await_listing(record):
        return False
    if status.absences and status.absences < ABSENCES_NEEDED:
        return True
    called = status.attempted_at if (status.termination_attempts or 0) <= MAX_ATTEMPTS else None
    latest = max((each for each in (status.since, called) if each is not None), default=now)
    return _is_awaited(record) and now < latest + FAST_LISTING


def may_await_listing(record: GPUInstance) -> bool:
    """False where no listing decides anything, whatever time it is."""
    status = record.status
    return status is not None and bool(status.absences or _is_awaited(record))


def _is_awaited(record: GPUInstance) -> bool:
    """Whether its state ends with what a listing shows. Nothing else tells that a container runs."""
    starts = record.state is InstanceState.LAUNCHED and not record.spec.delivers.has_node
    return starts or record.state in _AWAITED


def _apply_rule(facts: Facts, now: datetime) -> RuleResult:
    state = facts.record.state
    if state is InstanceState.GONE:
        return expired_record(facts, now)
    if facts.capabilities is None:
        return (abandon_unlaunched(facts, now) if state is InstanceState.REQUESTED else None) or _unconfigured(facts)
    ctx = RuleContext(by_this_clock(facts, now), facts.capabilities, now)
    if ctx.status.reason == Reason.PROVIDER_NOT_CONFIGURED:
        sentence = f"Provider {ctx.record.spec.provider} is configured again."
        restored = restore_message(ctx.status)
        if restored.account is not None:
            # A call in between went to another account, if there was one: no answer counts.
            restored = replace(restored, termination_accepted_at=None, not_before=None)
        return ctx.write(restored, Reason.ADOPTED, sentence)
    if (noticed := pool_noticed(ctx) or recreated(ctx)) is not None:
        return noticed
    rules = _RULES if facts.record.spec.delivers.has_node else _CONTAINER_RULES
    result = _with_sighting(ctx, rules[state](ctx))
    late = pool_gone_at(facts)
    if late is not None and late > now and (result is None or isinstance(result, Wait)):
        return Wait(late if result is None else min(late, result.until))
    return result


def _with_sighting(ctx: RuleContext, result: RuleResult) -> RuleResult:
    """The step with the sighting noted that a listing gives; where there is no step, only if the bill depends on it."""
    seen = presence_of(ctx.facts)
    if isinstance(result, WriteStatus | Terminate):
        noted = with_sighting(result.status, seen, ctx.now)
        if ctx.facts.account is not None:
            noted = replace(noted, account=ctx.facts.account)
        return result if noted is result.status else replace(result, status=noted)
    if ctx.facts.account is not None and (result is None or isinstance(result, Wait)):
        sentence = f"The account of {describe(ctx.record)} is known."
        noted = replace(ctx.status, account=ctx.facts.account)
        return WriteStatus(record=ctx.record, reason=Reason.ADOPTED, sentence=sentence, status=noted)
    if ctx.record.state is not InstanceState.TERMINATING or not (result is None or isinstance(result, Wait)):
        return result
    status = ctx.status
    matters = status.listed_at is None if status.termination_accepted_at is None else False
    matters = matters or any(not each.billed for each in seen.instances)
    if not (matters or ctx.capabilities.billed_until_accepted):
        return result
    sentence = f"{describe(ctx.record)} is still listed."
    return ctx.write(with_sighting(status, seen, ctx.now), Reason.TERMINATION_STARTED, sentence) or result


def _unconfigured(facts: Facts) -> WriteStatus | None:
    """Tells the user what to do about a record whose provider is no longer configured, once."""
    record, status = facts.record, facts.status
    if status.state is None and made_for_adoption(record):
        return None
    sentence = facts.policy.in_other_account(record) if facts.other_account else facts.policy.unconfigured(record)
    updated = with_message(status, Reason.PROVIDER_NOT_CONFIGURED, sentence)
    if updated == record.status:
        return None
    return WriteStatus(record=record, reason=Reason.PROVIDER_NOT_CONFIGURED, sentence=sentence, status=updated)


_Rules = Mapping[InstanceState, Callable[[RuleContext], RuleResult]]
_SHARED: Final[_Rules] = {
    InstanceState.REQUESTED: requested,
    InstanceState.LAUNCHING: launching,
    InstanceState.TERMINATING: terminating,
}
#: Rules of what becomes a node.
_RULES: Final[_Rules] = {
    **_SHARED,
    InstanceState.LAUNCHED: launched,
    InstanceState.JOINED: joined,
    InstanceState.READY: ready,
    InstanceState.DRAINING: draining,
}
_CONTAINER_RULES: Final[_Rules] = {
    **_SHARED,
    InstanceState.LAUNCHED: container_launched,
    InstanceState.RUNNING: container_running,
    InstanceState.FINISHED: container_finished,
}
