"""What a provider's answer means for the record that asked. Each function gives the status to write.

An answer may come late: where somebody else has moved the record meanwhile, its state is left as it is.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.lifecycle.deadlines import deadline
from forebay.lifecycle.presence import NO_ABSENCES
from forebay.lifecycle.transitions import MACHINE_RUNNING, transition, whole_seconds, with_condition, with_message
from forebay.lifecycle.wording import describe
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery, Failure, FailureKind, Instance, InstancePhase
from forebay.model.spans import human

#: Launches that were asked for in vain before Forebay turns to something else.
MOST_ATTEMPTS: Final = 3
#: An end that was accepted and still does not show is asked for again after this long.
STILL_THERE: Final = timedelta(minutes=2)

_REASONS: Final = {
    FailureKind.NO_CAPACITY: Reason.NO_CAPACITY,
    FailureKind.BAD_CREDENTIALS: Reason.BAD_CREDENTIALS,
    FailureKind.REJECTED: Reason.LAUNCH_REJECTED,
    FailureKind.GONE: Reason.LAUNCH_REJECTED,
    FailureKind.RATE_LIMITED: Reason.RATE_LIMITED,
    FailureKind.UNAVAILABLE: Reason.PROVIDER_UNAVAILABLE,
}
_PASSING: Final = (FailureKind.RATE_LIMITED, FailureKind.UNAVAILABLE)


def launch_wait(attempts: int) -> timedelta:
    """Before the same launch is asked for again."""
    return _doubled(timedelta(seconds=5), attempts, timedelta(minutes=1))


def termination_wait(attempts: int) -> timedelta:
    return _doubled(timedelta(seconds=2), attempts, timedelta(minutes=5))


def _doubled(first: timedelta, attempts: int, most: timedelta) -> timedelta:
    # More doublings than this are over any bound, and too many would overflow.
    return min(first * (1 << min(max(attempts - 1, 0), 16)), most)


def launch_succeeded(
    record: GPUInstance, instance: Instance, now: datetime, capabilities: Capabilities | None = None
) -> GPUInstanceStatus:
    owned = record.spec.delivers is Delivery.POWER
    next_ = "its node must be ready" if owned else "it must run and become a node"
    if record.spec.delivers is Delivery.CONTAINER:
        next_ = "it must run"
    sentence = f"{describe(record)} was accepted as {instance.id}. Next: {next_}."
    return instance_found(record, instance, Reason.LAUNCH_ACCEPTED, sentence, now, capabilities)


def instance_found(  # noqa: PLR0917 (all of them are what is written)
    record: GPUInstance,
    instance: Instance,
    reason: Reason,
    sentence: str,
    now: datetime,
    capabilities: Capabilities | None = None,
) -> GPUInstanceStatus:
    """The provider has it, by its answer or by its list."""
    before = record.status or GPUInstanceStatus()
    learned = {
        "instance_id": instance.id,
        "provider_id": instance.provider_id or before.provider_id,
        "node_name": instance.node_name or before.node_name or (record.spec.node.name if record.spec.node else None),
        "hourly_price": instance.price.exact() if instance.price is not None else before.hourly_price,
        "billed_from": before.billed_from or whole_seconds(instance.created or now),
    }
    if before.state is InstanceState.GONE:
        # `orphans` finds what has come too late, and gives it back.
        return before
    if before.state not in (None, InstanceState.REQUESTED, InstanceState.LAUNCHING):
        return before if before.instance_id is not None else replace(before, **learned)
    status = transition(record.status, InstanceState.LAUNCHED, reason, sentence, now, **learned, **NO_ABSENCES)
    if instance.phase is InstancePhase.RUNNING and record.spec.delivers is Delivery.NODE:
        status = with_condition(status, MACHINE_RUNNING, True, reason, sentence, now)
    if capabilities is not None:
        status = replace(status, deadline=deadline(record, status, capabilities))
    return status


def launch_failed(record: GPUInstance, failure: Failure, now: datetime) -> GPUInstanceStatus:
    status = record.status or GPUInstanceStatus()
    if status.state is not InstanceState.LAUNCHING:
        return status
    attempts = status.attempt or 1
    wait = max(launch_wait(attempts), failure.retry_after or timedelta(0))
    if failure.kind is FailureKind.OUTCOME_UNKNOWN:
        sentence = (
            f"The launch of {describe(record)} was sent and its outcome is not known: {failure.sentence} "
            "Forebay finds out before it asks for another."
        )
        return with_message(status, Reason.OUTCOME_UNKNOWN, sentence, not_before=whole_seconds(now) + wait)
    reason = _REASONS[failure.kind]
    if record.spec.delivers is Delivery.POWER and _earlier_outcome_unknown(status):
        # This request started nothing. The one before it may have, and an owned machine cannot be asked which.
        if failure.kind in _PASSING and attempts < MOST_ATTEMPTS:
            sentence = f"{failure.sentence} An earlier call may have been heeded; it is asked again in {human(wait)}."
            return with_message(status, reason, sentence, not_before=whole_seconds(now) + wait)
        sentence = (
            f"{failure.sentence} An earlier call may have switched {describe(record)} on, so it is switched off again."
        )
        failures = (status.failures or 0) + 1
        return transition(status, InstanceState.TERMINATING, Reason.LAUNCH_FAILED, sentence, now, failures=failures)
    if failure.kind in _PASSING and attempts < MOST_ATTEMPTS:
        sentence = f"{failure.sentence} Nothing was started; it is asked for again in {human(wait)}."
        return transition(
            status,
            InstanceState.REQUESTED,
            reason,
            sentence,
            now,
            billed_from=None,
            not_before=whole_seconds(now) + wait,
        )
    tried = f" after {attempts} attempts" if failure.kind in _PASSING else ""
    sentence = f"{failure.sentence} Nothing was started{tried}; other capacity is looked for."
    return transition(
        status, InstanceState.GONE, reason, sentence, now, billed_from=None, failures=(status.failures or 0) + 1
    )


def _earlier_outcome_unknown(status: GPUInstanceStatus) -> bool:
    """It was asked for more than once without an answer in between."""
    states = [each.state for each in status.transitions[-2:]]
    return states == [InstanceState.LAUNCHING, InstanceState.LAUNCHING]


def termination_accepted(record: GPUInstance, now: datetime) -> GPUInstanceStatus:
    status = record.status or GPUInstanceStatus()
    if status.state is not InstanceState.TERMINATING:
        return status
    shown = "its node is no longer ready" if record.spec.delivers is Delivery.POWER else "two lists no longer show it"
    sentence = f"The end of {describe(record)} was accepted. It counts as billed until {shown}."
    return with_message(
        status,
        Reason.TERMINATION_STARTED,
        sentence,
        termination_accepted_at=whole_seconds(now),
        not_before=whole_seconds(now) + max(STILL_THERE, termination_wait(status.termination_attempts or 1)),
        **NO_ABSENCES,
    )


def termination_failed(record: GPUInstance, failure: Failure, now: datetime) -> GPUInstanceStatus:
    status = record.status or GPUInstanceStatus()
    if failure.kind is FailureKind.GONE:
        return termination_accepted(record, now)
    if status.state is not InstanceState.TERMINATING:
        return status
    wait = max(termination_wait(status.termination_attempts or 1), failure.retry_after or timedelta(0))
    sentence = (
        f"{describe(record)} could not be ended: {failure.sentence} It may still cost money. "
        f"It is tried again in {human(wait)}, for as long as it takes."
    )
    return with_message(status, Reason.TERMINATION_FAILED, sentence, not_before=whole_seconds(now) + wait)
