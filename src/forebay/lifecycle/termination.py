"""Termination: rules of the states Draining and Terminating, until absence is proven."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState
from forebay.demand.initialization import has_been_ready, is_initialized
from forebay.demand.maintenance import cordon_is_ours
from forebay.lifecycle.call_outcomes import termination_backoff
from forebay.lifecycle.cordon import cordoned_at
from forebay.lifecycle.deliveries.policy import missing
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.facts import instance_id
from forebay.lifecycle.moving import kept_for_pods
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
from forebay.lifecycle.steps import AnyStep, Drain, Terminate, Uncordon, WriteStatus
from forebay.lifecycle.transitions import TABLE, cause, transition, whole_seconds, with_message
from forebay.lifecycle.wording import describe, terminated, termination_noun, termination_phrase
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import FailureScope, InstancePhase
from forebay.model.spans import human
from forebay.model.workloads import Pod, pod_names

#: Between two requests to evict the same pods.
EVICTION_INTERVAL: Final = timedelta(seconds=10)
#: The longest interval for pods that come back although the node is cordoned.
RETURN_INTERVAL: Final = timedelta(minutes=10)
#: A rented machine whose pods were all created so long after its cordon is not kept for them: their controllers put
#: every pod that is evicted there again.
RETURNED_FOR: Final = timedelta(minutes=5)
#: Pods on a NotReady node cannot be seen to end: after this long they count as lost.
PODS_LOST_AFTER: Final = timedelta(minutes=10)
#: A machine whose node is still Ready this long after a termination call that failed has not been terminated by it.
STILL_ON_AFTER: Final = timedelta(minutes=1)

#: Reasons for which all pods are evicted. For any other, the machine goes only if no GPU pod comes (`Facts.users`).
EVICTING: Final = TABLE[InstanceState.DRAINING][InstanceState.TERMINATING] - {Reason.IDLE}

#: Reasons that no longer hold once the node is initialized after all. Pods may have been bound to it by then.
_RECOVERABLE: Final = frozenset({Reason.UNHEALTHY, Reason.JOIN_TIMEOUT, Reason.GPUS_MISSING})
#: Reasons after which a machine that could not be terminated serves again.
_RETURNABLE: Final = _RECOVERABLE | {Reason.IDLE, Reason.POOL_GONE}


def begin_termination(ctx: RuleContext, reason: Reason, sentence: str, *, failed: bool = False) -> AnyStep:
    """The way out: through Draining where pods run or could be bound, otherwise straight to Terminating."""
    node = ctx.facts.node
    if node is None or not (node.ready or ctx.facts.pods):
        return into_terminating(ctx, reason, sentence, failed=failed)
    failures = (ctx.status.failures or 0) + 1 if failed else ctx.status.failures
    return ctx.move(InstanceState.DRAINING, reason, sentence, failures=failures)


def into_terminating(
    ctx: RuleContext, reason: Reason, sentence: str, *, failed: bool = False, scope: FailureScope | None = None
) -> WriteStatus:
    """`scope`: what the failure speaks against, where that is more than the offer."""
    failures = (ctx.status.failures or 0) + 1 if failed else ctx.status.failures
    learned = {} if scope is None else {"failure_scope": scope}
    return ctx.move(InstanceState.TERMINATING, reason, sentence, failures=failures, **learned, **NO_ABSENCES)


def uncordon(ctx: RuleContext, node: Node) -> Uncordon:
    sentence = f"Uncordoning node {node.name}: Forebay cordoned it, and the reason no longer holds."
    return Uncordon(record=ctx.record, reason=Reason.BACK_IN_USE, sentence=sentence, node=node)


def draining(ctx: RuleContext) -> RuleResult:
    """Rule of the state Draining: cordon, check for pods once more, evict them where that is due, then terminate."""
    facts, status, now = ctx.facts, ctx.status, ctx.now
    why, node = cause(status), facts.node
    if facts.held is not None and why != Reason.DELETED:
        return _held(ctx, facts.held)
    if why not in EVICTING:
        if (revocation := revoked(facts, now)) is not None:
            sentence = f"{termination_phrase(ctx.record)}: {revocation[1]}."
            return ctx.move(InstanceState.DRAINING, revocation[0], sentence)
        if facts.users:
            came = f"{pod_names(facts.users)} came before it was {terminated(ctx.record)}"
            return _keep(ctx, Reason.BACK_IN_USE, f"Keeping node {ctx.record.node_name}: {came}.")
        if facts.pods and facts.needed:
            # Their eviction may be blocked for long, and the cordon keeps out pods that could use the GPUs.
            waits = "GPU pods wait for it, and other pods have not left it"
            return _keep(ctx, Reason.BACK_IN_USE, f"Keeping node {ctx.record.node_name}: {waits}.")
    if (kept := kept_for_pods(ctx, why)) is not None:
        return _keep(ctx, Reason.BACK_IN_USE, f"Keeping node {ctx.record.node_name}: {kept}.")
    if why == Reason.POOL_GONE and _usable(ctx) and revoked(facts, now) is None:
        return _keep(ctx, Reason.BACK_IN_USE, f"Keeping node {ctx.record.node_name}: its GPUNodePool exists again.")
    if why in _RECOVERABLE and node is not None and _usable(ctx) and revoked(facts, now) is None:
        return _keep(ctx, Reason.NODE_READY, f"Keeping node {node.name}: it is Ready with its GPUs after all.")
    if (step := vanished(ctx, presence_of(facts))) is not None:
        return step
    if node is None:
        # Pods outlive their node for a moment, until the cluster's garbage collection.
        return Wait(_pods_lost_at(ctx)) if facts.pods and now < _pods_lost_at(ctx) else _drained(ctx)
    cordoned = cordoned_at(node, facts.since)
    if cordoned is None:
        return _cordon(ctx, node)
    if now < cordoned + facts.cordon_wait:
        return Wait(cordoned + facts.cordon_wait)
    if facts.pods:
        return _evict(ctx, node) or _drained(ctx)
    return _drained(ctx)


def _usable(ctx: RuleContext) -> bool:
    return ctx.facts.node is not None and is_initialized(ctx.record, ctx.facts.node, ctx.facts.pods)


def _held(ctx: RuleContext, held: str) -> RuleResult:
    """Keeps a machine that people hold. One that has never been of use, or may be off already, stays in its state."""
    if ctx.record.state is InstanceState.DRAINING:
        if has_been_ready(ctx.record):
            return _keep(ctx, Reason.UNDER_MAINTENANCE, f"Keeping node {ctx.record.node_name}: {held}.")
        if (step := vanished(ctx, presence_of(ctx.facts))) is not None:
            return step
    sentence = f"{describe(ctx.record)} is not {terminated(ctx.record)}, because {held}."
    return ctx.write(with_message(ctx.status, Reason.UNDER_MAINTENANCE, sentence), Reason.UNDER_MAINTENANCE, sentence)


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
    lost = ctx.facts.pods
    state = "its node is empty"
    if lost and ctx.facts.node is not None and ctx.facts.node.ready:
        state = (
            f"{pod_names(lost)} came to it although it is cordoned, as pods that tolerate "
            "node.kubernetes.io/unschedulable do after each eviction. They end with the node"
        )
    elif lost:
        how = "NotReady" if ctx.facts.node is not None else "missing"
        state = f"{pod_names(lost)} cannot be seen to end, because node {ctx.record.node_name} is {how}"
    step = into_terminating(ctx, reason, f"{termination_phrase(ctx.record)}: {state}.")
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
    """Evicts the pods on the node, or waits for them; None once they count as lost, or end with the machine."""
    status, now = ctx.status, ctx.now
    if not node.ready and now >= _pods_lost_at(ctx):
        return None
    there = tuple(pod for pod in ctx.facts.pods if pod.deleted is None)
    cordoned = cordoned_at(node, ctx.facts.since) or now
    # Those that came in spite of the cordon would come again, so they are evicted when no other pod is left.
    to_evict = tuple(pod for pod in there if pod.created <= cordoned + ctx.facts.cordon_wait)
    if there and not to_evict and _only_returned(ctx, cordoned):
        return None
    if there and not to_evict:
        return _evict_returned(ctx, node, there, now - cordoned)
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


def _only_returned(ctx: RuleContext, cordoned: datetime) -> bool:
    """True where nothing but pods that come back again and again keeps a machine whose node goes with it.

    Evictions work, as otherwise older pods would be there: the next one would be one more. Not for an owned machine:
    its Node object stays, and kube-scheduler would bind such pods to a machine that is off, where they wait for ever.
    """
    returned = all(pod.created > cordoned + RETURNED_FOR for pod in ctx.facts.pods)
    return returned and not ctx.facts.policy.node_outlives_it


def _evict_returned(ctx: RuleContext, node: Node, pods: tuple[Pod, ...], cordoned_for: timedelta) -> RuleResult:
    """Evicts pods that tolerate the cordon, and whose controllers put them there again: ever more rarely."""
    if ctx.status.not_before is not None and ctx.now < ctx.status.not_before:
        return Wait(ctx.status.not_before)
    wait = max(EVICTION_INTERVAL, min(RETURN_INTERVAL, cordoned_for / 4))
    sentence = (
        f"{pod_names(pods)} came to node {node.name} although it is cordoned, and keeps it from being "
        f"{terminated(ctx.record)}: such pods tolerate node.kubernetes.io/unschedulable. Evicting them again, next in "
        f"{human(timedelta(seconds=round(wait.total_seconds())))}. Give them fewer tolerations, or a node affinity."
    )
    updated = with_message(ctx.status, Reason.DRAINING, sentence, not_before=whole_seconds(ctx.now) + wait)
    return Drain(record=ctx.record, reason=Reason.DRAINING, sentence=sentence, node=node, evict=pods, status=updated)


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
    if not _is_stopped(seen, node) and (step := _clear_node(ctx, node)) is not None:
        return step
    accepted = status.termination_accepted_at
    still_on = facts.policy.still_on(node)
    if facts.held is not None and cause(status) != Reason.DELETED and (accepted is None or still_on):
        return _held(ctx, facts.held)
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
        return Wait(called + STILL_ON_AFTER)
    # The rule of Ready takes the cordon back. Not before: a pod bound to a node that is Terminating would be evicted.
    sentence = f"Keeping node {node.name}: {describe(ctx.record)} is still on, and pods wait for it."
    return ctx.move(
        InstanceState.READY, Reason.BACK_IN_USE, sentence, termination_attempts=None, failures=None, **NO_ABSENCES
    )


def _is_stopped(seen: Presence, node: Node | None) -> bool:
    """True where the provider has stopped the machine: its pods have ended, although nobody can see them end."""
    stopped = seen.present and all(each.phase is InstancePhase.STOPPED for each in seen.instances)
    return stopped and (node is None or not node.ready)


def _clear_node(ctx: RuleContext, node: Node | None) -> RuleResult:
    """Cordons and drains a node that still takes or runs pods; None once nothing runs on it, or its pods are lost."""
    facts = ctx.facts
    first = not ctx.status.termination_attempts
    if node is None:
        return Wait(_pods_lost_at(ctx)) if facts.pods and first and ctx.now < _pods_lost_at(ctx) else None
    if node.ready:
        cordoned = cordoned_at(node, facts.since)
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
