"""What is to be done about one GPUInstance now, given the facts: at most one step."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.lifecycle.call_outcomes import MOST_ATTEMPTS
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.launch import abandon_unlaunched, launching, made_for_adoption, requested
from forebay.lifecycle.liveness import ready
from forebay.lifecycle.presence import ENOUGH, presence_of
from forebay.lifecycle.registration import joined, launched
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import AnyStep, WriteStatus
from forebay.lifecycle.termination import draining, expired_record, into_terminating, revoked, terminating
from forebay.lifecycle.transitions import restore_message, with_message
from forebay.lifecycle.wording import describe
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery

#: How long after a call its outcome is looked for in haste.
HASTE: Final = timedelta(minutes=3)


def next_step(facts: Facts, now: datetime) -> AnyStep | None:
    return step_or_wait(facts, now)[0]


def look_again(facts: Facts, now: datetime) -> datetime | None:
    """When time alone may bring the next step; None: only news can."""
    return step_or_wait(facts, now)[1]


def step_or_wait(facts: Facts, now: datetime) -> tuple[AnyStep | None, datetime | None]:
    """Both in one thought."""
    thought = _thought(facts, now)
    return (None, thought.until) if isinstance(thought, Wait) else (thought, None)


def awaits_listing(record: GPUInstance, now: datetime) -> bool:
    """The next list of its provider decides something: it is worth asking for soon. Where a call has not shown in any
    list for longer than `HASTE`, or was made in vain some times, the usual pace will do.
    """
    status = record.status
    if status is None:
        return False
    if status.absences and status.absences < ENOUGH:
        return True
    asked = status.attempted_at if (status.termination_attempts or 0) <= MOST_ATTEMPTS else None
    latest = max((each for each in (status.since, asked) if each is not None), default=now)
    return status.state in (InstanceState.LAUNCHING, InstanceState.TERMINATING) and now < latest + HASTE


def _thought(facts: Facts, now: datetime) -> RuleResult:
    state = facts.record.state
    if state is InstanceState.GONE:
        return expired_record(facts, now)
    if facts.capabilities is None:
        return (abandon_unlaunched(facts, now) if state is InstanceState.REQUESTED else None) or _cannot_ask(facts)
    known = RuleContext(facts, facts.capabilities, now)
    if known.status.reason == Reason.PROVIDER_NOT_CONFIGURED:
        return known.write(restore_message(known.status), Reason.ADOPTED, "Its provider is configured again.")
    if facts.record.spec.delivers is Delivery.CONTAINER and state in _CONTAINER_STATES:
        return _container(known)
    return _RULES[state](known)


def _container(known: RuleContext) -> RuleResult:
    """How it runs and ends is for `offload` to say; here only that it may have to go or is gone."""
    if (why := revoked(known.facts)) is not None:
        return into_terminating(known, why[0], f"Given back: {why[1]}.")
    return vanished(known, presence_of(known.facts))


def _cannot_ask(facts: Facts) -> WriteStatus | None:
    record, status = facts.record, facts.status
    if status.state is None and made_for_adoption(record):
        return None
    of_class = f" of GPUNodeClass {record.spec.node_class_name}" if record.spec.node_class_name else ""
    what = f"Provider {record.spec.provider}{of_class} is no longer configured, so nothing can be asked about"
    if facts.owned:
        what = f"No machine of that name is configured{of_class} any more, so nothing can be asked about"
    sentence = (
        f"{what} {describe(record)}, which may still cost money. Configure it again; or end it by hand, make sure that "
        "it is gone, and take the finalizer off this GPUInstance."
    )
    said: GPUInstanceStatus = with_message(status, Reason.PROVIDER_NOT_CONFIGURED, sentence)
    if said == record.status:
        return None
    return WriteStatus(record=record, reason=Reason.PROVIDER_NOT_CONFIGURED, sentence=sentence, status=said)


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
