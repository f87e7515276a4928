"""Draining: the node is cordoned and its pods leave it, before the instance is terminated."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.demand.initialization import has_been_ready, is_initialized
from forebay.demand.maintenance import cordon_is_ours
from forebay.lifecycle.begin_termination import into_terminating, uncordon
from forebay.lifecycle.cordon import cordoned_at
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.late_nodes import cordon
from forebay.lifecycle.moving import kept_for_pods
from forebay.lifecycle.presence import Presence, presence_of
from forebay.lifecycle.revocation import revoked
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import AnyStep, Drain
from forebay.lifecycle.transitions import TABLE, cause, whole_seconds, with_message
from forebay.lifecycle.wording import describe, terminated, termination_phrase
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import InstancePhase
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

#: Reasons for which all pods are evicted. For any other, the machine goes only if no GPU pod comes (`Facts.users`).
EVICTING: Final = TABLE[InstanceState.DRAINING][InstanceState.TERMINATING] - {Reason.IDLE}
#: Reasons that no longer hold once the node is initialized after all. Pods may have been bound to it by then.
RECOVERABLE: Final = frozenset({Reason.UNHEALTHY, Reason.JOIN_TIMEOUT, Reason.GPUS_MISSING})


def draining(ctx: RuleContext) -> RuleResult:
    """Rule of the state Draining: cordon, check for pods once more, evict them where that is due, then terminate."""
    facts, status, now = ctx.facts, ctx.status, ctx.now
    why, node = cause(status), facts.node
    if facts.held is not None and why != Reason.DELETED:
        return kept_by_people(ctx, facts.held)
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
    if why in RECOVERABLE and node is not None and _usable(ctx) and revoked(facts, now) is None:
        return _keep(ctx, Reason.NODE_READY, f"Keeping node {node.name}: it is Ready with its GPUs after all.")
    seen = presence_of(facts)
    if (step := vanished(ctx, seen)) is not None:
        return step
    if is_stopped(seen, node) and not facts.policy.node_outlives_it:
        # Such as one that its provider takes back: nobody will see its pods end, and it may be billed on.
        return _drained(ctx, f"{ctx.record.spec.provider} has stopped it")
    if node is None:
        # Pods outlive their node for a moment, until the cluster's garbage collection.
        return Wait(pods_lost_at(ctx)) if facts.pods and now < pods_lost_at(ctx) else _drained(ctx)
    cordoned = cordoned_at(node, facts.since)
    if cordoned is None:
        return cordon(ctx.record, node)
    if now < cordoned + facts.cordon_wait:
        return Wait(cordoned + facts.cordon_wait)
    if facts.pods:
        return evict(ctx, node) or _drained(ctx)
    return _drained(ctx)


def is_stopped(seen: Presence, node: Node | None) -> bool:
    """True where the provider has stopped the machine: its pods have ended, although nobody can see them end."""
    stopped = seen.present and all(each.phase is InstancePhase.STOPPED for each in seen.instances)
    return stopped and (node is None or not node.ready)


def _usable(ctx: RuleContext) -> bool:
    return ctx.facts.node is not None and is_initialized(ctx.record, ctx.facts.node, ctx.facts.pods)


def kept_by_people(ctx: RuleContext, held: str) -> RuleResult:
    """Keeps a machine that people hold. One that has never been of use, or may be off already, stays in its state."""
    if ctx.record.state is InstanceState.DRAINING:
        if has_been_ready(ctx.record):
            return _keep(ctx, Reason.UNDER_MAINTENANCE, f"Keeping node {ctx.record.node_name}: {held}.")
        if (step := vanished(ctx, presence_of(ctx.facts))) is not None:
            return step
    sentence = f"{describe(ctx.record)} is not {terminated(ctx.record)}, because {held}."
    return ctx.write(with_message(ctx.status, Reason.UNDER_MAINTENANCE, sentence), Reason.UNDER_MAINTENANCE, sentence)


def _keep(ctx: RuleContext, reason: Reason, sentence: str) -> AnyStep:
    """Back to Ready; but first the cordon is taken back, because a Ready node must take pods."""
    node = ctx.facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(ctx, node)
    return ctx.move(InstanceState.READY, reason, sentence)


def _drained(ctx: RuleContext, stopped: str = "") -> AnyStep:
    """From Draining to Terminating: the node is empty, or its pods count as lost. `stopped`: a clause that the machine
    was.
    """
    why = cause(ctx.status)
    reason = Reason(why) if why in EVICTING else Reason.IDLE
    lost = ctx.facts.pods
    state = "its node is empty"
    if stopped:
        state = f"{stopped}, and {pod_names(lost)} with it" if lost else stopped
    elif lost and ctx.facts.node is not None and ctx.facts.node.ready:
        state = (
            f"{pod_names(lost)} came to it although it is cordoned, as pods that tolerate "
            "node.kubernetes.io/unschedulable do after each eviction. They end with the node"
        )
    elif lost:
        how = "NotReady" if ctx.facts.node is not None else "missing"
        state = f"{pod_names(lost)} cannot be seen to end, because node {ctx.record.node_name} is {how}"
    step = into_terminating(ctx, reason, f"{termination_phrase(ctx.record)}: {state}.")
    return replace(step, given_up=frozenset(pod.uid for pod in lost))


def pods_lost_at(ctx: RuleContext) -> datetime:
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


def evict(ctx: RuleContext, node: Node) -> RuleResult:
    """Evicts the pods on the node, or waits for them; None once they count as lost, or end with the machine."""
    status, now = ctx.status, ctx.now
    if not node.ready and now >= pods_lost_at(ctx):
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
