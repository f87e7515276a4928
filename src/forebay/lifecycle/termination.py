"""Termination: rules of the states Draining, Terminating (until absence is proven) and Gone (until it is deleted)."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState
from forebay.api.names import INSTANCE_FINALIZER
from forebay.demand.initialization import is_initialized
from forebay.lifecycle.call_outcomes import termination_backoff
from forebay.lifecycle.cordon import cordon_is_ours, cordoned_at
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.presence import (
    ABSENCES_NEEDED,
    NO_ABSENCES,
    Presence,
    confirmed_present,
    count_absences,
    presence_of,
    settle_time,
)
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import AnyStep, DeleteRecord, Drain, Terminate, Uncordon, WriteStatus
from forebay.lifecycle.transitions import TABLE, cause, transition, whole_seconds, with_message
from forebay.lifecycle.wording import describe, pod_names, terminated, termination_noun, termination_phrase
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import InstancePhase
from forebay.model.spans import human

#: How long a record is kept in Gone. Cooldowns are computed from records, so they must outlast the longest one.
RECORD_RETENTION: Final = timedelta(hours=1)
#: Between two requests to evict the same pods.
EVICTION_INTERVAL: Final = timedelta(seconds=10)
#: Pods on a NotReady node cannot be seen to end: after this long they count as lost.
PODS_LOST_AFTER: Final = timedelta(minutes=10)
#: A machine whose node is still Ready this long after a termination call that failed has not been terminated by it.
STILL_ON_AFTER: Final = timedelta(minutes=1)

#: Reasons for which pods are evicted. For any other, the machine goes only if it stays empty.
EVICTING: Final = TABLE[InstanceState.DRAINING][InstanceState.TERMINATING] - {Reason.IDLE}

#: Reasons that no longer hold once the node is initialized after all. Pods may have been bound to it by then.
_RECOVERABLE: Final = frozenset({Reason.UNHEALTHY, Reason.JOIN_TIMEOUT, Reason.GPUS_MISSING})


def revoked(facts: Facts) -> tuple[Reason, str] | None:
    """Why the machine has to go whatever runs on it; None where nobody asked for that."""
    if facts.deleting:
        return Reason.DELETED, "the GPUInstance was deleted"
    if not facts.pool_exists:
        return Reason.POOL_GONE, "its pool or class was deleted"
    return None


def begin_termination(ctx: RuleContext, reason: Reason, sentence: str, *, failed: bool = False) -> AnyStep:
    """The way out: through Draining where pods run or could be bound, otherwise straight to Terminating."""
    node = ctx.facts.node
    if node is None or not (node.ready or ctx.facts.pods):
        return into_terminating(ctx, reason, sentence, failed=failed)
    failures = (ctx.status.failures or 0) + 1 if failed else ctx.status.failures
    return ctx.move(InstanceState.DRAINING, reason, sentence, failures=failures)


def into_terminating(ctx: RuleContext, reason: Reason, sentence: str, *, failed: bool = False) -> WriteStatus:
    failures = (ctx.status.failures or 0) + 1 if failed else ctx.status.failures
    return ctx.move(InstanceState.TERMINATING, reason, sentence, failures=failures, **NO_ABSENCES)


def uncordon(ctx: RuleContext, node: Node) -> Uncordon:
    sentence = f"Uncordoning node {node.name}: Forebay cordoned it, and the reason no longer holds."
    return Uncordon(record=ctx.record, reason=Reason.BACK_IN_USE, sentence=sentence, node=node)


def draining(ctx: RuleContext) -> RuleResult:
    """Rule of the state Draining: cordon, check for pods once more, evict them where that is due, then terminate."""
    facts, status, now = ctx.facts, ctx.status, ctx.now
    why, node = cause(status), facts.node
    if why not in EVICTING:
        if (revocation := revoked(facts)) is not None:
            sentence = f"{termination_phrase(ctx.record)}: {revocation[1]}."
            return ctx.move(InstanceState.DRAINING, revocation[0], sentence)
        if facts.pods:
            came = f"{pod_names(facts.pods)} came before it was {terminated(ctx.record)}"
            return _keep(ctx, Reason.BACK_IN_USE, f"Keeping node {ctx.record.node_name}: {came}.")
    if why in _RECOVERABLE and node is not None and is_initialized(ctx.record, node) and revoked(facts) is None:
        return _keep(ctx, Reason.NODE_READY, f"Keeping node {node.name}: it is Ready with its GPUs after all.")
    if (step := vanished(ctx, presence_of(facts))) is not None:
        return step
    if node is None:
        # Pods outlive their node for a moment, until the cluster's garbage collection.
        return Wait(_pods_lost_at(ctx)) if facts.pods and now < _pods_lost_at(ctx) else _drained(ctx)
    cordoned = cordoned_at(facts)
    if cordoned is None:
        return _cordon(ctx, node)
    if now < cordoned + facts.cordon_wait:
        return Wait(cordoned + facts.cordon_wait)
    if facts.pods:
        return _evict(ctx, node) or _drained(ctx)
    return _drained(ctx)


def _cordon(ctx: RuleContext, node: Node) -> Drain:
    sentence = (
        f"Cordoning node {node.name}, so that no more pods are placed on it before it is {terminated(ctx.record)}."
    )
    return Drain(record=ctx.record, reason=Reason.DRAINING, sentence=sentence, node=node)


def _keep(ctx: RuleContext, reason: Reason, sentence: str) -> AnyStep:
    """Back to Ready; but first the cordon is taken back, because a Ready node must take pods."""
    node = ctx.facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(ctx, node)
    return ctx.move(InstanceState.READY, reason, sentence)


def _drained(ctx: RuleContext) -> AnyStep:
    """From Draining to Terminating: the node is empty, or its pods count as lost."""
    why = cause(ctx.status)
    reason = Reason(why) if why in EVICTING else Reason.IDLE
    drain_message = ctx.status.transitions[-1].message if ctx.status.transitions else ""
    lost = ctx.facts.pods
    state = "its node is empty"
    if lost:
        how = "NotReady" if ctx.facts.node is not None else "missing"
        state = f"{pod_names(lost)} cannot be seen to end, because node {ctx.record.node_name} is {how}"
    step = into_terminating(ctx, reason, f"{termination_phrase(ctx.record)}: {state}. {drain_message}".rstrip())
    return replace(step, given_up=frozenset(pod.uid for pod in lost))


def _pods_lost_at(ctx: RuleContext) -> datetime:
    """When pods count as lost if their node stays NotReady or missing.

    Counted from the start of the drain or, if that is later, from when the node became NotReady: a short outage late in
    a long drain loses no pods.
    """
    began = ctx.since
    for step in reversed(ctx.status.transitions):
        if step.state not in (InstanceState.DRAINING, InstanceState.TERMINATING):
            break
        began = step.at
    node = ctx.facts.node
    unready_since = node.unready_since if node is not None else None
    return max(began, unready_since or began) + PODS_LOST_AFTER


def _evict(ctx: RuleContext, node: Node) -> RuleResult:
    """Evicts the pods on the node, or waits for them; None once they count as lost."""
    status, now = ctx.status, ctx.now
    if not node.ready and now >= _pods_lost_at(ctx):
        return None
    to_evict = tuple(pod for pod in ctx.facts.pods if pod.deleted is None)
    if status.not_before is not None and now < status.not_before:
        return Wait(status.not_before)
    sentence = (
        f"Draining node {node.name}: evicting {pod_names(ctx.facts.pods)}, as their PodDisruptionBudgets allow. "
        f"The node is {terminated(ctx.record)} when they have left."
    )
    updated = with_message(status, Reason.DRAINING, sentence, not_before=whole_seconds(now) + EVICTION_INTERVAL)
    if not to_evict:
        return Wait(now + EVICTION_INTERVAL)
    return Drain(
        record=ctx.record, reason=Reason.DRAINING, sentence=sentence, node=node, evict=to_evict, status=updated
    )


def terminating(ctx: RuleContext) -> RuleResult:
    """Rule of the state Terminating: repeat the termination call until there is proof of absence."""
    facts, status, now = ctx.facts, ctx.status, ctx.now
    node, seen = facts.node, presence_of(facts)
    if (step := _check_absence(ctx, seen) or _back_in_use(ctx)) is not None:
        return step
    if status.not_before is not None and now < status.not_before:
        return Wait(status.not_before)
    target = _target(ctx, seen)
    if target is None:
        # The instance was never listed, and no answer gave its id: only a listing can tell.
        return None
    if (step := _clear_node(ctx, node)) is not None:
        return step
    accepted = status.termination_accepted_at
    if accepted is None:
        attempt = (status.termination_attempts or 0) + 1
        proof = "it is off" if facts.owned else "it is gone"
        sentence = f"{termination_phrase(ctx.record)} (attempt {attempt}). Next: proof that {proof}."
        updated = with_message(status, Reason.TERMINATION_STARTED, sentence)
        return _terminate(ctx, updated, target, Reason.TERMINATION_STARTED, sentence)
    still_on = facts.owned and node is not None and node.ready
    if not still_on and not (seen.present and seen.asked is not None and seen.asked > accepted):
        return None
    sign = f"node {node.name} is still Ready" if still_on and node is not None else "it is still listed"
    sentence = (
        f"{termination_noun(ctx.record)} of {describe(ctx.record)} was accepted {human(now - accepted)} ago, but "
        f"{sign}. Trying again; if this goes on, {'power it off' if facts.owned else 'terminate it'} by hand."
    )
    updated = with_message(status, Reason.TERMINATION_FAILED, sentence, termination_accepted_at=None)
    return _terminate(ctx, updated, target, Reason.TERMINATION_FAILED, sentence)


def _back_in_use(ctx: RuleContext) -> RuleResult:
    """Keeps a machine that pods wait for, where terminating it has failed and its node is up all the same.

    A failed call may have acted: the node must stay Ready for a while after it. Meanwhile no call is made.
    """
    facts, status, node = ctx.facts, ctx.status, ctx.facts.node
    called = status.attempted_at if status.termination_attempts else None
    if not facts.needed or called is None or status.termination_accepted_at is not None or revoked(facts) is not None:
        return None
    if node is None or not is_initialized(ctx.record, node) or cause(status) not in _RECOVERABLE | {Reason.IDLE}:
        return None
    if ctx.now < called + STILL_ON_AFTER:
        return Wait(called + STILL_ON_AFTER)
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
        return Wait(_pods_lost_at(ctx)) if facts.pods and first and ctx.now < _pods_lost_at(ctx) else None
    if node.ready:
        cordoned = cordoned_at(facts)
        if cordoned is None:
            return _cordon(ctx, node)
        if ctx.now < cordoned + facts.cordon_wait:
            return Wait(cordoned + facts.cordon_wait)
    if facts.pods and (node.ready or first):
        return _evict(ctx, node)
    return None


def _target(ctx: RuleContext, seen: Presence) -> str | None:
    """Id of the instance to terminate, where it is known."""
    return instance_id(ctx.record) or (seen.instances[0].id if seen.present else None)


def _terminate(ctx: RuleContext, status: GPUInstanceStatus, target: str, reason: Reason, sentence: str) -> Terminate:
    attempts = (status.termination_attempts or 0) + 1
    status = replace(
        status,
        # An owned machine's id is its name. It is recorded only when a launch was confirmed, which matters as proof.
        instance_id=status.instance_id if ctx.facts.owned else target,
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

    Listings count from the accepted termination call on. Where no call was accepted, or a launch may still be under
    way, they count from when any launch would have shown up.
    """
    facts, status = ctx.facts, ctx.status
    accepted, settled = status.termination_accepted_at, ctx.since + settle_time(ctx.capabilities)
    still_on = facts.owned and facts.node is not None and facts.node.ready
    if seen.asked is None:
        # No listing can tell about this owned machine: the accepted call and a node that is not Ready have to do.
        if facts.listing is None or not facts.owned or accepted is None or still_on:
            return None
        if status.instance_id is None and ctx.now < settled:
            return Wait(settled)
        if status.instance_id is None and accepted < settled:
            return _power_off_again(ctx, seen)
        return _gone(ctx, status, f"the power-off call was accepted and node {ctx.record.node_name} is not Ready")
    after = accepted if accepted is not None and status.instance_id is not None else max(settled, accepted or settled)
    counted = count_absences(status, seen, after)
    provider = ctx.record.spec.provider
    if (counted.absences or 0) >= ABSENCES_NEEDED and not still_on:
        return _gone(ctx, counted, f"missing from {ABSENCES_NEEDED} consecutive listings of {provider}")
    sentence = f"{describe(ctx.record)} is missing from {counted.absences or 0} consecutive listings of {provider}."
    return ctx.write(counted, Reason.TERMINATION_STARTED, sentence)


def _gone(ctx: RuleContext, status: GPUInstanceStatus, proof: str) -> RuleResult:
    if status.secondary_resources:
        left = ", ".join(f"{each.kind} {each.id}" for each in status.secondary_resources)
        sentence = f"{describe(ctx.record)} is gone, but resources created along with it are not yet: {left}."
        return ctx.write(
            with_message(status, Reason.TERMINATION_STARTED, sentence), Reason.TERMINATION_STARTED, sentence
        )
    # An instance that no listing has ever shown was never there to be billed.
    never = status.instance_id is None and not ctx.facts.owned
    state = "was never started" if never else "is off" if ctx.facts.owned else "is terminated"
    sentence = f"{describe(ctx.record)} {state}: {proof}."
    gone = transition(
        status,
        InstanceState.GONE,
        Reason.TERMINATED,
        sentence,
        ctx.now,
        billed_from=None if never else status.billed_from,
        billed_until=None if never or status.billed_from is None else whole_seconds(ctx.now),
    )
    return WriteStatus(record=ctx.record, reason=Reason.TERMINATED, sentence=sentence, status=gone)


def expired_record(facts: Facts, now: datetime) -> RuleResult:
    """Rule of the state Gone: deletes the record when it is no longer needed. Works without the provider."""
    if facts.deleting and INSTANCE_FINALIZER not in facts.record.metadata.finalizers:
        return None  # somebody else's finalizer holds it
    node, seen = facts.node, presence_of(facts)
    on = facts.owned and confirmed_present(facts, seen, now) and seen.instances[0].phase is InstancePhase.RUNNING
    if on or (facts.owned and node is not None and node.ready):
        # A machine has one record at a time: the next can be created only when this one is deleted.
        sentence = f"{describe(facts.record)} is on again. Deleting this record, so that a new one can be created."
        return DeleteRecord(record=facts.record, reason=Reason.TERMINATED, sentence=sentence)
    if node is not None and cordon_is_ours(node):
        sentence = f"Uncordoning node {node.name}, which Forebay cordoned, so that it takes pods when it comes back."
        return Uncordon(record=facts.record, reason=Reason.TERMINATED, sentence=sentence, node=node)
    until = (facts.since or now) + RECORD_RETENTION
    if now < until and not facts.deleting:
        return Wait(until)
    sentence = f"{describe(facts.record)} is gone, and no cooldown depends on its record any more. Deleting the record."
    return DeleteRecord(record=facts.record, reason=Reason.TERMINATED, sentence=sentence)
