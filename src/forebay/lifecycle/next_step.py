"""The next step of one GPUInstance, given the facts about it: at most one at a time."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.lifecycle.call_outcomes import MAX_ATTEMPTS
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.launch import abandon_unlaunched, launching, made_for_adoption, requested
from forebay.lifecycle.liveness import ready
from forebay.lifecycle.presence import ABSENCES_NEEDED, presence_of
from forebay.lifecycle.registration import joined, launched
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import AnyStep, WriteStatus
from forebay.lifecycle.termination import draining, expired_record, into_terminating, revoked, terminating
from forebay.lifecycle.transitions import restore_message, with_message
from forebay.lifecycle.wording import describe, termination_phrase
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery

#: How long after a call the provider is listed more often, to learn the outcome soon.
FAST_LISTING: Final = timedelta(minutes=3)


def step_or_wait(facts: Facts, now: datetime) -> tuple[AnyStep | None, datetime | None]:
    """The step to take now, or when time alone may bring one. (None, None): only a change of the facts can."""
    result = _apply_rule(facts, now)
    return (None, result.until) if isinstance(result, Wait) else (result, None)


def awaits_listing(record: GPUInstance, now: datetime) -> bool:
    """True where the next listing of the provider decides something, so that it is worth making soon.

    After `FAST_LISTING` without an outcome, or after several terminations without effect, the usual interval will do.
    """
    status = record.status
    if status is None:
        return False
    if status.absences and status.absences < ABSENCES_NEEDED:
        return True
    called = status.attempted_at if (status.termination_attempts or 0) <= MAX_ATTEMPTS else None
    latest = max((each for each in (status.since, called) if each is not None), default=now)
    return status.state in (InstanceState.LAUNCHING, InstanceState.TERMINATING) and now < latest + FAST_LISTING


def _apply_rule(facts: Facts, now: datetime) -> RuleResult:
    state = facts.record.state
    if state is InstanceState.GONE:
        return expired_record(facts, now)
    if facts.capabilities is None:
        return (abandon_unlaunched(facts, now) if state is InstanceState.REQUESTED else None) or _unconfigured(facts)
    ctx = RuleContext(facts, facts.capabilities, now)
    if ctx.status.reason == Reason.PROVIDER_NOT_CONFIGURED:
        sentence = f"Provider {ctx.record.spec.provider} is configured again."
        return ctx.write(restore_message(ctx.status), Reason.ADOPTED, sentence)
    if facts.record.spec.delivers is Delivery.CONTAINER and state in _CONTAINER_STATES:
        return _container(ctx)
    return _RULES[state](ctx)


def _container(ctx: RuleContext) -> RuleResult:
    """Rule of containers, which `offload` runs: here they are only terminated or found to have vanished."""
    if (why := revoked(ctx.facts)) is not None:
        return into_terminating(ctx, why[0], f"{termination_phrase(ctx.record)}: {why[1]}.")
    return vanished(ctx, presence_of(ctx.facts))


def _unconfigured(facts: Facts) -> WriteStatus | None:
    """Tells the user what to do about a record whose provider is no longer configured, once."""
    record, status = facts.record, facts.status
    if status.state is None and made_for_adoption(record):
        return None
    of_class = f" of GPUNodeClass {record.spec.node_class_name}" if record.spec.node_class_name else ""
    sentence = (
        f"Provider {record.spec.provider}{of_class} is no longer configured, so Forebay can neither check nor "
        f"terminate {describe(record)}; billing may continue. Configure the provider again; or terminate the instance "
        "by hand, make sure that it is gone, and remove the finalizer from this GPUInstance."
    )
    if facts.owned:
        sentence = (
            f"Machine {describe(record)}{of_class} is no longer configured, so Forebay can neither check it nor power "
            "it off; billing may continue. Configure the machine again; or power it off by hand, make sure that it is "
            "off, and remove the finalizer from this GPUInstance."
        )
    updated = with_message(status, Reason.PROVIDER_NOT_CONFIGURED, sentence)
    if updated == record.status:
        return None
    return WriteStatus(record=record, reason=Reason.PROVIDER_NOT_CONFIGURED, sentence=sentence, status=updated)


_CONTAINER_STATES: Final = (InstanceState.LAUNCHED, InstanceState.RUNNING, InstanceState.FINISHED)
_RULES: Final[Mapping[InstanceState, Callable[[RuleContext], RuleResult]]] = {
    InstanceState.REQUESTED: requested,
    InstanceState.LAUNCHING: launching,
    InstanceState.LAUNCHED: launched,
    InstanceState.JOINED: joined,
    InstanceState.READY: ready,
    InstanceState.RUNNING: _container,
    InstanceState.FINISHED: _container,
    InstanceState.DRAINING: draining,
    InstanceState.TERMINATING: terminating,
}
