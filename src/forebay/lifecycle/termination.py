"""Termination: the call is repeated until listings, or the node, prove that the instance is gone."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState
from forebay.demand.initialization import is_initialized
from forebay.lifecycle.call_outcomes import termination_backoff
from forebay.lifecycle.cordon import cordoned_at
from forebay.lifecycle.deliveries.policy import missing
from forebay.lifecycle.draining import RECOVERABLE, evict, is_stopped, kept_by_people, pods_lost_at
from forebay.lifecycle.facts import instance_id
from forebay.lifecycle.late_nodes import cordon, cordon_late_node
from forebay.lifecycle.presence import (
    ABSENCES_NEEDED,
    NO_ABSENCES,
    Presence,
    billing_ended,
    count_absences,
    counted_from,
    presence_of,
    settle_time,
)
from forebay.lifecycle.revocation import revoked
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import Terminate, WriteStatus
from forebay.lifecycle.transitions import cause, transition, whole_seconds, with_message
from forebay.lifecycle.wording import describe, termination_noun, termination_phrase
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.spans import human

#: A machine whose node is still Ready this long after a termination call that failed has not been terminated by it.
STILL_ON_AFTER: Final = timedelta(minutes=1)
#: Reasons after which a machine that could not be terminated serves again.
_RETURNABLE: Final = RECOVERABLE | {Reason.IDLE, Reason.POOL_GONE}


def terminating(ctx: RuleContext) -> RuleResult:
    """Rule of the state Terminating: repeat the termination call until there is proof of absence."""
    facts, status, now = ctx.facts, ctx.status, ctx.now
    node, seen = facts.node, presence_of(facts)
    if (step := _check_absence(ctx, seen) or _back_in_use(ctx)) is not None:
        return step
    if status.not_before is not None and now < status.not_before:
        return cordon_late_node(ctx.record, node) or Wait(status.not_before)
    target = _target(ctx, seen)
    if target is None:
        # The instance was never listed, and no answer gave its id: only a listing can tell.
        return None
    if not is_stopped(seen, node) and (step := _clear_node(ctx, node)) is not None:
        return step
    accepted = status.termination_accepted_at
    still_on = facts.policy.still_on(node)
    if facts.held is not None and cause(status) != Reason.DELETED and (accepted is None or still_on):
        return kept_by_people(ctx, facts.held)
    if accepted is None:
        attempt = (status.termination_attempts or 0) + 1
        sentence = (
            f"{termination_phrase(ctx.record)} (attempt {attempt}). Next: proof that {facts.policy.words.proven}."
        )
        updated = with_message(status, Reason.TERMINATION_STARTED, sentence)
        return _terminate(ctx, updated, target, Reason.TERMINATION_STARTED, sentence)
    if not still_on and not (seen.present and seen.asked is not None and seen.asked > accepted):
        return None
    sign = f"node {node.name} is still Ready" if still_on and node is not None else "it is still listed"
    sentence = (
        f"{termination_noun(ctx.record)} of {describe(ctx.record)} was accepted {human(now - accepted)} ago, but "
        f"{sign}. Trying again; if this goes on, {facts.policy.words.terminate} by hand."
    )
    updated = with_message(status, Reason.TERMINATION_FAILED, sentence, termination_accepted_at=None)
    return _terminate(ctx, updated, target, Reason.TERMINATION_FAILED, sentence)


def _back_in_use(ctx: RuleContext) -> RuleResult:
    """Keeps a machine that pods wait for, where terminating it has failed and its node is up all the same.

    A failed call may have acted: the node must stay Ready for a while after it. Meanwhile no call is made.
    """
    facts, status, node = ctx.facts, ctx.status, ctx.facts.node
    called = status.attempted_at if status.termination_attempts else None
    if (
        not facts.needed
        or called is None
        or status.termination_accepted_at is not None
        or revoked(facts, ctx.now) is not None
    ):
        return None
    if node is None or not is_initialized(ctx.record, node) or cause(status) not in _RETURNABLE:
        return None
    if ctx.now < called + STILL_ON_AFTER:
        return cordon_late_node(ctx.record, node) or Wait(called + STILL_ON_AFTER)
    # The rule of Ready takes the cordon back. Not before: a pod bound to a node that is Terminating would be evicted.
    sentence = f"Keeping node {node.name}: {describe(ctx.record)} is still on, and pods wait for it."
    return ctx.move(
        InstanceState.READY, Reason.BACK_IN_USE, sentence, termination_attempts=None, failures=None, **NO_ABSENCES
    )


def _clear_node(ctx: RuleContext, node: Node | None) -> RuleResult:
    """Cordons and drains a node that still takes or runs pods; None once nothing runs on it, or its pods are lost."""
    facts = ctx.facts
    first = not ctx.status.termination_attempts
    if node is None:
        return Wait(pods_lost_at(ctx)) if facts.pods and first and ctx.now < pods_lost_at(ctx) else None
    if node.ready:
        cordoned = cordoned_at(node, facts.since)
        if cordoned is None:
            return cordon(ctx.record, node)
        if ctx.now < cordoned + facts.cordon_wait:
            return Wait(cordoned + facts.cordon_wait)
    if facts.pods and (node.ready or first):
        return evict(ctx, node)
    return None


def _target(ctx: RuleContext, seen: Presence) -> str | None:
    """Id of the instance to terminate, where it is known."""
    return instance_id(ctx.record) or (seen.instances[0].id if seen.present else None)


def _terminate(ctx: RuleContext, status: GPUInstanceStatus, target: str, reason: Reason, sentence: str) -> Terminate:
    attempts = (status.termination_attempts or 0) + 1
    status = replace(
        status,
        # The name of an owned machine is recorded as its id only when a launch was confirmed, which matters as proof.
        instance_id=status.instance_id if ctx.facts.policy.configured_by_name else target,
        termination_attempts=attempts,
        attempted_at=whole_seconds(ctx.now),
        not_before=whole_seconds(ctx.now) + termination_backoff(attempts),
    )
    return Terminate(
        record=ctx.record,
        reason=reason,
        sentence=sentence,
        status=status,
        instance_id=target,
        given_up=frozenset(pod.uid for pod in ctx.facts.pods),
    )


def _power_off_again(ctx: RuleContext, seen: Presence) -> RuleResult:
    target = _target(ctx, seen)
    assert target is not None, "an owned machine has a name"
    sentence = (
        f"{termination_phrase(ctx.record)} again: a power-on call may have arrived later than the power-off call."
    )
    updated = with_message(ctx.status, Reason.TERMINATION_STARTED, sentence, termination_accepted_at=None)
    return _terminate(ctx, updated, target, Reason.TERMINATION_STARTED, sentence)


def _check_absence(ctx: RuleContext, seen: Presence) -> RuleResult:
    """Counts listings without the instance, and moves to Gone once they are proof.

    Listings are proof from the accepted termination call on. Where no call was accepted, or a launch may still be under
    way, they are from when any launch would have shown up. Of an instance that certainly existed, they are counted
    until then as well: once it is proven gone, the first of them tells until when it was billed.
    """
    facts, status = ctx.facts, ctx.status
    accepted, settled = status.termination_accepted_at, ctx.since + settle_time(ctx.capabilities)
    still_on = facts.policy.still_on(facts.node)
    if seen.asked is None:
        # No listing can tell: the accepted call and a node that is not Ready have to do, where that is proof.
        if facts.listing is None or not facts.policy.proven_by_node or accepted is None or still_on:
            return None
        if status.instance_id is None and ctx.now < settled:
            return Wait(settled)
        if status.instance_id is None and accepted < settled:
            return _power_off_again(ctx, seen) if facts.held is None or facts.deleting else None
        return _gone(ctx, status, f"the power-off call was accepted and node {ctx.record.node_name} is not Ready")
    after = accepted if accepted is not None and status.instance_id is not None else max(settled, accepted or settled)
    counted = count_absences(status, seen, after if accepted is not None else counted_from(status, after, ctx.since))
    provider = ctx.record.spec.provider
    if (counted.absences or 0) >= ABSENCES_NEEDED and seen.absent_after(after) and not still_on:
        return _gone(ctx, counted, missing(ABSENCES_NEEDED, provider))
    sentence = f"{describe(ctx.record)} is {missing(counted.absences or 0, provider)}."
    return ctx.write(counted, Reason.TERMINATION_STARTED, sentence)


def _gone(ctx: RuleContext, status: GPUInstanceStatus, proof: str) -> RuleResult:
    # An instance that no listing has ever shown was never there to be billed.
    policy = ctx.facts.policy
    never = status.instance_id is None and not policy.configured_by_name
    never = never or not policy.was_created(ctx.record, ctx.facts.listing)
    state = "was never started" if never else ctx.facts.policy.words.gone
    sentence = f"{describe(ctx.record)} {state}: {proof}."
    gone = transition(
        status,
        InstanceState.GONE,
        Reason.TERMINATED,
        sentence,
        ctx.now,
        billed_from=None if never else status.billed_from,
        billed_until=None if never or status.billed_from is None else billing_ended(ctx.facts, status, ctx.now),
    )
    return WriteStatus(record=ctx.record, reason=Reason.TERMINATED, sentence=sentence, status=gone)
