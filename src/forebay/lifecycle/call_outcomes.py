"""What a provider's answer to a launch or termination call means: each function returns the status to write.

An answer may come late: if somebody else has moved the record meanwhile, its state stays as it is.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.lifecycle.deadlines import deadline
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.node_identity import is_own_provider_id
from forebay.lifecycle.presence import ABSENCES_NEEDED, NO_ABSENCES, has_registered
from forebay.lifecycle.transitions import MACHINE_RUNNING, transition, whole_seconds, with_condition, with_message
from forebay.lifecycle.wording import describe, launch_noun, termination_noun, termination_phrase
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Failure, FailureKind, FailureScope, Instance, InstancePhase
from forebay.model.spans import human

#: Launch calls for one record before Forebay tries other capacity.
MAX_ATTEMPTS: Final = 3
#: Launch calls for one container, each of which ended with its process, before Forebay tries other capacity.
MAX_KILLED_CALLS: Final = 10
#: Pods wait no longer than this for a provider that asks for patience: then they are released and the offer cools down.
MAX_LAUNCH_WAIT: Final = timedelta(minutes=1)
#: A container whose pod's Secrets cannot be read is tried at least this often.
MAX_CONTAINER_WAIT: Final = timedelta(minutes=5)
#: A termination is repeated at least this often, whatever the provider asks for: the machine costs money meanwhile.
MAX_TERMINATION_WAIT: Final = timedelta(minutes=5)
#: A termination that was accepted but does not show is repeated after this long.
REPEAT_TERMINATION_AFTER: Final = timedelta(minutes=2)

_REASONS: Final = {
    FailureKind.NO_CAPACITY: Reason.NO_CAPACITY,
    FailureKind.QUOTA: Reason.PROVIDER_QUOTA,
    FailureKind.BAD_CREDENTIALS: Reason.BAD_CREDENTIALS,
    FailureKind.REJECTED: Reason.LAUNCH_REJECTED,
    FailureKind.GONE: Reason.LAUNCH_REJECTED,
    FailureKind.RATE_LIMITED: Reason.RATE_LIMITED,
    FailureKind.UNAVAILABLE: Reason.PROVIDER_UNAVAILABLE,
}
#: So many doublings exceed every limit used here; an unlimited number would overflow.
_MOST_DOUBLINGS: Final = 16
#: Versions that the API stores of one failure.
MOST_VERSIONS: Final = 64
_TRANSIENT: Final = (FailureKind.RATE_LIMITED, FailureKind.UNAVAILABLE)


def launch_backoff(attempts: int) -> timedelta:
    """Wait before the same launch call is repeated."""
    return _doubled(timedelta(seconds=5), attempts, MAX_LAUNCH_WAIT)


def termination_backoff(attempts: int) -> timedelta:
    """Wait before the same termination call is repeated."""
    return _doubled(timedelta(seconds=2), attempts, MAX_TERMINATION_WAIT)


def _doubled(first: timedelta, attempts: int, most: timedelta) -> timedelta:
    return min(first * (1 << min(attempts - 1, _MOST_DOUBLINGS)), most)


def launch_succeeded(
    record: GPUInstance, instance: Instance, now: datetime, capabilities: Capabilities | None = None
) -> GPUInstanceStatus:
    """The status after the provider accepted the launch."""
    following = policy_of(record).accepted(record, instance)
    sentence = f"{launch_noun(record)} of {describe(record)} accepted{following}"
    return instance_found(record, instance, Reason.LAUNCH_ACCEPTED, sentence, now, capabilities)


def instance_found(  # noqa: PLR0917 (all of them are what is written)
    record: GPUInstance,
    instance: Instance,
    reason: Reason,
    sentence: str,
    now: datetime,
    capabilities: Capabilities | None = None,
) -> GPUInstanceStatus:
    """The status once the provider's answer, or its listing, shows the instance of this record."""
    before = record.status or GPUInstanceStatus()
    learned = {
        "instance_id": instance.id,
        "provider_id": _provider_id(before, instance),
        "node_name": _node_name(record, instance),
        "hourly_price": instance.price.exact() if instance.price is not None else before.hourly_price,
        "billed_from": whole_seconds(_billed_from(before, instance, now)),
    }
    if before.state is InstanceState.GONE:
        # Too late for this record: `orphans` finds the instance and terminates it.
        return before
    if before.state not in (None, InstanceState.REQUESTED, InstanceState.LAUNCHING):
        return before if before.instance_id is not None else replace(before, **learned)
    status = transition(record.status, InstanceState.LAUNCHED, reason, sentence, now, **learned, **NO_ABSENCES)
    becomes_node = record.spec.delivers.has_node and policy_of(record).listed_while_booting
    if instance.phase is InstancePhase.RUNNING and becomes_node:
        status = with_condition(status, MACHINE_RUNNING, True, reason, sentence, now)
    if capabilities is not None:
        status = replace(status, deadline=deadline(record, status, capabilities))
    return status


def _node_name(record: GPUInstance, instance: Instance) -> str | None:
    """A machine that is told what to register as has that name, whatever host name its provider has given it."""
    planned = record.spec.node.name if record.spec.node is not None else None
    known = record.status.node_name if record.status is not None else None
    if policy_of(record).joins_as_new_node and planned is not None:
        return planned
    return instance.node_name or known or planned


def _billed_from(before: GPUInstanceStatus, instance: Instance, now: datetime) -> datetime:
    """The provider's own time is the one that it bills. Before the first call, or later than now, only its clock can
    have said: that is set right, because the end is counted by ours.
    """
    if instance.created is None:
        return before.billed_from or now
    calls = (each.at for each in before.transitions if each.state is InstanceState.LAUNCHING)
    return min(max(instance.created, next(calls, instance.created)), now)


def _provider_id(before: GPUInstanceStatus, instance: Instance) -> str | None:
    """The one that Forebay told the machine to register with, else the provider's own."""
    return before.provider_id if is_own_provider_id(before.provider_id) else instance.provider_id or before.provider_id


def launch_failed(
    record: GPUInstance, failure: Failure, now: datetime, revision: Mapping[str, str] | None = None
) -> GPUInstanceStatus:
    """The status after the launch call failed: repeat it, find out what it did, or try other capacity.

    `revision` is that of the source when it failed.
    """
    status = record.status or GPUInstanceStatus()
    if status.state is not InstanceState.LAUNCHING:
        return status
    attempts = status.attempt or 1
    asked = max(launch_backoff(attempts), failure.retry_after or timedelta(0))
    wait = min(asked, MAX_LAUNCH_WAIT)
    launch = f"{launch_noun(record)} of {describe(record)}"
    if failure.kind is FailureKind.OUTCOME_UNKNOWN:
        sentence = (
            f"{launch}: outcome unknown. {failure.sentence} Forebay finds out what happened before it launches "
            "anything else."
        )
        return with_message(status, Reason.OUTCOME_UNKNOWN, sentence, not_before=whole_seconds(now) + wait)
    reason = _REASONS[failure.kind]
    retry = failure.kind in _TRANSIENT and attempts < MAX_ATTEMPTS and asked <= MAX_LAUNCH_WAIT
    policy = policy_of(record)
    if (policy.launches_alike or policy.runs_its_pod) and earlier_outcome_unknown(status):
        # This call started nothing, but the one before it may have.
        earlier = f"An earlier {policy.words.launch_call} call may have succeeded"
        if retry:
            sentence = f"{launch} failed: {failure.sentence} {earlier}. Trying again in {human(wait)}."
            return with_message(status, reason, sentence, not_before=whole_seconds(now) + wait)
        sentence = f"{launch} failed: {failure.sentence} {earlier}. {termination_phrase(record)}."
        failures = (status.failures or 0) + 1
        return transition(status, InstanceState.TERMINATING, Reason.LAUNCH_FAILED, sentence, now, failures=failures)
    if retry:
        sentence = f"{launch} failed: {failure.sentence} Nothing was started. Trying again in {human(wait)}."
        return transition(
            status,
            InstanceState.REQUESTED,
            reason,
            sentence,
            now,
            billed_from=None,
            not_before=whole_seconds(now) + wait,
        )
    tried = f" after {attempts} attempts" if failure.kind in _TRANSIENT and asked <= MAX_LAUNCH_WAIT else ""
    if asked > MAX_LAUNCH_WAIT:
        tried = f", and the provider asks to wait for {human(asked)}"
    sentence = f"{launch} failed{tried}: {failure.sentence} Nothing was started. Trying other capacity."
    return transition(
        status,
        InstanceState.GONE,
        reason,
        sentence,
        now,
        billed_from=None,
        failures=(status.failures or 0) + 1,
        failure_scope=None if failure.scope is FailureScope.OFFER else failure.scope,
        failure_revision=dict(sorted((revision or {}).items())[:MOST_VERSIONS]),
    )


def launch_prevented(
    record: GPUInstance, why: str, now: datetime, *, pod_lost: bool, passing: bool = False
) -> GPUInstanceStatus:
    """The status where the provider was not called after all: its pod is lost, or what the container needs is missing.

    The latter is tried again while the pod exists, as a kubelet does, and less often the longer it lasts; sooner where
    it is `passing`, such as a provider that does not answer.
    """
    status = record.status or GPUInstanceStatus()
    if status.state is not InstanceState.LAUNCHING:
        return status
    launch = f"{launch_noun(record)} of {describe(record)}"
    if pod_lost:
        if earlier_outcome_unknown(status):
            sentence = (
                f"{launch} cancelled: {why} An earlier launch call may have succeeded. Terminating what it started."
            )
            return transition(status, InstanceState.TERMINATING, Reason.NOT_NEEDED, sentence, now)
        sentence = f"{launch} cancelled before anything was started: {why}"
        return transition(
            status, InstanceState.GONE, Reason.NOT_NEEDED, sentence, now, billed_from=None, attempt=_one_less(status)
        )
    waited = now - (record.metadata.creation_timestamp or now)
    wait = min(max(waited / 4, launch_backoff(1)), MAX_LAUNCH_WAIT if passing else MAX_CONTAINER_WAIT)
    # Without the wait, which grows: the same event is told once, and counted.
    sentence = f"{launch} waits: {why} Nothing was started. Forebay tries again by itself."
    return transition(
        status,
        InstanceState.REQUESTED,
        Reason.CONTAINER_CONFIG_ERROR,
        sentence,
        now,
        billed_from=None,
        attempt=_one_less(status),
        not_before=whole_seconds(now + wait),
    )


def _one_less(status: GPUInstanceStatus) -> int | None:
    """Number of launch calls without the one that was not made."""
    return (status.attempt or 1) - 1 or None


def earlier_outcome_unknown(status: GPUInstanceStatus) -> bool:
    """True where the launch was called at least twice without an answer in between."""
    return calls_in_a_row(status) > 1


def calls_in_a_row(status: GPUInstanceStatus) -> int:
    """Number of the latest launch calls, without any other state in between."""
    return sum(1 for _ in takewhile(lambda each: each.state is InstanceState.LAUNCHING, reversed(status.transitions)))


def termination_accepted(record: GPUInstance, now: datetime, *, gone: bool = False) -> GPUInstanceStatus:
    """The status after the provider accepted the termination. Proof of absence is counted from here on.

    `gone`: it answered that there is nothing left to terminate, so that earlier listings may have shown the end.
    """
    status = record.status or GPUInstanceStatus()
    if status.state is not InstanceState.TERMINATING:
        return status
    proof = policy_of(record).proof(record, ABSENCES_NEEDED)
    sentence = f"{termination_noun(record)} of {describe(record)} accepted. Billing continues until {proof}."
    return with_message(
        status,
        Reason.TERMINATION_STARTED,
        sentence,
        termination_accepted_at=whole_seconds(now),
        not_before=whole_seconds(now)
        + max(REPEAT_TERMINATION_AFTER, termination_backoff(status.termination_attempts or 1)),
        **({} if gone else NO_ABSENCES),
    )


def termination_failed(
    record: GPUInstance, failure: Failure, now: datetime, capabilities: Capabilities | None = None
) -> GPUInstanceStatus:
    """The status after the termination call failed. It is repeated for as long as it takes."""
    status = record.status or GPUInstanceStatus()
    if failure.kind is FailureKind.GONE and not _may_be_unknown_yet(record, now, capabilities):
        return termination_accepted(record, now, gone=True)
    if status.state is not InstanceState.TERMINATING:
        return status
    asked = failure.retry_after or timedelta(0)
    wait = min(max(termination_backoff(status.termination_attempts or 1), asked), MAX_TERMINATION_WAIT)
    sentence = (
        f"{termination_noun(record)} of {describe(record)} failed: {failure.sentence} Billing may continue. "
        f"Trying again in {human(wait)}, for as long as it takes."
    )
    return with_message(status, Reason.TERMINATION_FAILED, sentence, not_before=whole_seconds(now) + wait)


def _may_be_unknown_yet(record: GPUInstance, now: datetime, capabilities: Capabilities | None) -> bool:
    """True where the provider may say that there is no such instance because it is so new: nothing has shown it yet."""
    status = record.status
    if capabilities is None or status is None or status.billed_from is None:
        return False
    if status.listed_at is not None or has_registered(status):
        return False
    return not policy_of(record).configured_by_name and now < status.billed_from + capabilities.settle_time
