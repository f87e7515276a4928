"""Launch: rules of the states Requested and Launching. One record brings one instance, whatever crashes in between."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState, Purpose
from forebay.demand.maintenance import maintenance
from forebay.lifecycle.begin_termination import into_terminating
from forebay.lifecycle.call_outcomes import (
    MAX_ATTEMPTS,
    MAX_KILLED_CALLS,
    calls_in_a_row,
    earlier_outcome_unknown,
    instance_found,
    launch_backoff,
)
from forebay.lifecycle.deadlines import deadline
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.presence import NO_ABSENCES, Presence, confirmed_present, presence_of, settle_time
from forebay.lifecycle.revocation import owner_gone, revoked
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.secondary_resources import join_credentials
from forebay.lifecycle.steps import Launch, WriteStatus
from forebay.lifecycle.transitions import transition, whole_seconds
from forebay.lifecycle.wording import describe, for_pods, launch_noun, launch_phrase, termination_phrase
from forebay.model.reasons import Reason
from forebay.model.sources import FailureScope, Instance, InstancePhase
from forebay.model.spans import human

#: How soon a machine that is powering off is checked again.
_POWERING_OFF_CHECK: Final = timedelta(seconds=5)
#: Why a record was created, where that was not for pods.
_REQUESTED_BECAUSE: Final = {Purpose.GROUP: Reason.GROUP_TARGET, Purpose.STATIC: Reason.MIN_NODES}


def abandon_unlaunched(facts: Facts, now: datetime) -> WriteStatus | None:
    """Ends a record for which nothing was started, if it is not needed or cannot be launched any more.

    Works without the provider.
    """
    record = facts.record
    if (why := owner_gone(facts)) is not None:
        reason, words = why
    elif facts.policy.held_by_cordon and (why_not := maintenance(facts.node)) is not None:
        reason, words = Reason.UNDER_MAINTENANCE, why_not
    elif not facts.wanted and not made_for_adoption(record):
        reason, words = Reason.NOT_NEEDED, _unwanted(record)
    elif facts.withdrawn is not None:
        reason, words = facts.withdrawn
    elif facts.capabilities is None and not made_for_adoption(record):
        # Its pods would wait for it for ever.
        reason, words = Reason.PROVIDER_NOT_CONFIGURED, f"{describe(record)} is no longer configured"
    elif facts.cooling_down is not None and not made_for_adoption(record):
        # Whatever failed for another record would fail for this one too: its pods try other capacity at once.
        reason, words = Reason.COOLING_DOWN, facts.cooling_down.rstrip(".")
    else:
        return None
    sentence = f"Cancelled before anything was started: {words}."
    status = transition(with_request(record, now), InstanceState.GONE, reason, sentence, now, billed_from=None)
    return WriteStatus(record=record, reason=reason, sentence=sentence, status=status)


def with_request(record: GPUInstance, now: datetime) -> GPUInstanceStatus:
    """The record's status, which begins with the request: a record is created without a status."""
    if record.status is not None and record.status.state is not None:
        return record.status
    why = record.spec.why or f"Requested for {for_pods(record)}."
    created = record.metadata.creation_timestamp or now
    reason = _REQUESTED_BECAUSE.get(record.purpose, Reason.CAPACITY_NEEDED)
    return transition(record.status, InstanceState.REQUESTED, reason, why, created)


def _unwanted(record: GPUInstance) -> str:
    if record.spec.replaces:
        names = ", ".join(each.name for each in record.spec.replaces)
        return f"it was to replace {names}, which is not to be replaced any more or is gone"
    if record.purpose is Purpose.STATIC:
        return "its pool has enough nodes without it (spec.minNodes)"
    return f"{policy_of(record).unwanted(record)} (requested for {for_pods(record)})"


def made_for_adoption(record: GPUInstance) -> bool:
    """True for the record of an instance that was found, not requested."""
    return record.purpose is Purpose.ADOPTED


def requested(ctx: RuleContext) -> RuleResult:
    """Rule of the state Requested."""
    facts, now = ctx.facts, ctx.now
    seen = presence_of(facts)
    if not facts.policy.configured_by_name and seen.present:
        return _adopt(ctx, seen)
    if (end := abandon_unlaunched(facts, now)) is not None:
        return end
    if made_for_adoption(ctx.record):
        # Its status is not written yet. The replica that found the instance finds it again and writes the status.
        return None
    if (step := _already_running(ctx, seen)) is not None:
        return step
    not_before = ctx.status.not_before
    if not_before is not None and now < not_before:
        return Wait(not_before)
    return _launch(ctx)


def launching(ctx: RuleContext) -> RuleResult:
    """Rule of the state Launching: a launch call was made, but a crash or a lost answer left its outcome unknown."""
    facts, status, now = ctx.facts, ctx.status, ctx.now
    seen = presence_of(facts)
    # First of all: pods that are no longer pending may be running on it.
    if (step := _already_running(ctx, seen)) is not None:
        return step
    why = revoked(facts, now)
    if why is None and facts.policy.held_by_cordon and (why_not := maintenance(facts.node)) is not None:
        why = Reason.UNDER_MAINTENANCE, why_not
    if why is None and not facts.wanted:
        why = Reason.NOT_NEEDED, _unwanted(ctx.record)
    if why is not None:
        sentence = (
            f"{termination_phrase(ctx.record)}: {why[1]}. A launch call was sent, so Forebay makes sure that nothing "
            "keeps running."
        )
        return into_terminating(ctx, why[0], sentence)
    attempts, called = status.attempt or 1, status.attempted_at or ctx.since
    if ctx.capabilities.idempotent_launch and not join_credentials(ctx.record):
        again = status.not_before or called + launch_backoff(attempts)
        if now < again:
            return Wait(again)
        return _launch(ctx) if attempts < MAX_ATTEMPTS else _failed(ctx, attempts)
    # A repeated call would bring the machine of the call before, which cannot join: each call has credentials of its
    # own and revokes the former ones. So the listing has to show that there is no such machine.
    if seen.absent_after(called + settle_time(ctx.capabilities)):
        # The listing would show it by now. That launch never happened, so another cannot bring a second instance, and
        # nothing has been billed so far.
        if facts.policy.joins_as_new_node and earlier_outcome_unknown(status):
            return _failed(ctx, attempts, FailureScope.SOURCE)
        if facts.policy.runs_its_pod and status.reason == Reason.LAUNCH_STARTED:
            # Not even that the answer was lost is written: the process that called has ended, for which the offer is
            # not to blame. Such calls do not count, unless the process ends at each of them.
            calls = calls_in_a_row(status)
            return _launch(ctx, first=True, uncounted=True) if calls < MAX_KILLED_CALLS else _failed(ctx, calls)
        return _launch(ctx, first=True) if attempts < MAX_ATTEMPTS else _failed(ctx, attempts)
    late = deadline(ctx.record, status, ctx.capabilities) or now
    if now < late:
        return Wait(late)
    sentence = (
        f"{launch_noun(ctx.record)} of {describe(ctx.record)} failed: no answer for {human(now - called)}, and "
        f"{ctx.record.spec.provider} could not be listed to find out what happened. If the instance shows up, Forebay "
        "terminates it."
    )
    return into_terminating(ctx, Reason.LAUNCH_TIMEOUT, sentence, failed=True)


def _launch(ctx: RuleContext, *, first: bool = False, uncounted: bool = False) -> Launch:
    """`first`: earlier calls, if any, certainly started nothing. `uncounted`: the last of them does not count."""
    record, status = ctx.record, ctx.status
    attempt = (status.attempt or 1) if uncounted else (status.attempt or 0) + 1
    again = f" (attempt {attempt} of {MAX_ATTEMPTS})" if attempt > 1 else ""
    sentence = f"{launch_phrase(record)} for {for_pods(record)}{again}. Next: the provider's answer."
    called = transition(
        with_request(record, ctx.now),
        InstanceState.LAUNCHING,
        Reason.LAUNCH_STARTED,
        sentence,
        ctx.now,
        attempt=attempt,
        attempted_at=whole_seconds(ctx.now),
        # It may cost money from here on, until the provider says that nothing was started.
        billed_from=(None if first else status.billed_from) or whole_seconds(ctx.now),
        # Where the answer is lost, only listings of this account tell what became of the call.
        account=ctx.facts.listing.found.account if ctx.facts.listing is not None else None,
        **NO_ABSENCES,
    )
    called = replace(called, deadline=deadline(record, called, ctx.capabilities))
    return Launch(record=record, reason=Reason.LAUNCH_STARTED, sentence=sentence, status=called)


def _already_running(ctx: RuleContext, seen: Presence) -> RuleResult:
    """Adopts what the listing shows; or an owned machine whose node is Ready, which is often the only sign."""
    facts = ctx.facts
    if confirmed_present(facts, seen, ctx.now):
        return _adopt(ctx, seen)
    if facts.node is not None and facts.policy.still_on(facts.node):
        machine = instance_id(ctx.record) or facts.name
        instance = Instance(id=machine, phase=InstancePhase.RUNNING, node_name=facts.node.name)
        return _adopt_instance(ctx, instance, f"{machine} is already on: node {facts.node.name} is Ready. Adopting it.")
    return None


def _adopt(ctx: RuleContext, seen: Presence) -> RuleResult:
    """Adopts the oldest instance of this record; `orphans` terminates any other."""
    instance = seen.instances[0]
    if ctx.facts.policy.repeats_launch and instance.phase is InstancePhase.ENDING:
        # A power-on call that arrives while the machine is still powering off might be ignored.
        return Wait(ctx.now + _POWERING_OFF_CHECK)
    return _adopt_instance(ctx, instance, ctx.facts.policy.already_there(ctx.record, instance))


def _adopt_instance(ctx: RuleContext, instance: Instance, sentence: str) -> WriteStatus:
    status = instance_found(ctx.record, instance, Reason.ADOPTED, sentence, ctx.now, ctx.capabilities)
    return WriteStatus(record=ctx.record, reason=Reason.ADOPTED, sentence=sentence, status=status)


def _failed(ctx: RuleContext, attempts: int, scope: FailureScope | None = None) -> RuleResult:
    """`scope`: where each answer takes minutes to find out about, other offers of the provider are not tried either."""
    sentence = (
        f"{launch_noun(ctx.record)} of {describe(ctx.record)} failed: {attempts} calls without a known outcome. "
        f"{termination_phrase(ctx.record)}, in case one of them succeeded, and trying other capacity."
    )
    return into_terminating(ctx, Reason.LAUNCH_FAILED, sentence, failed=True, scope=scope)
