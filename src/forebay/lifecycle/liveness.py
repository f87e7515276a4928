"""Liveness: a Ready GPUInstance whose node is lost, and when it is replaced."""

from datetime import timedelta

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus
from forebay.api.parts import Truth
from forebay.demand.maintenance import cordon_is_ours, waits_for_its_node
from forebay.lifecycle.begin_termination import begin_termination, uncordon
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.presence import presence_of
from forebay.lifecycle.reclaim import reclaim_due, reclaimed
from forebay.lifecycle.revocation import revoked
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.transitions import NODE_READY, condition, restore_message, with_condition, with_message
from forebay.lifecycle.wording import terminated, terminating_it, termination_phrase
from forebay.model.reasons import Reason
from forebay.model.spans import human


def unhealthy_after(ctx: RuleContext) -> timedelta:
    """How long a node may be NotReady before it is replaced."""
    return ctx.facts.policy.unhealthy_after(ctx.record, ctx.capabilities)


def ready(ctx: RuleContext) -> RuleResult:
    """Rule of the state Ready."""
    facts = ctx.facts
    if (why := revoked(facts, ctx.now)) is not None:
        return begin_termination(ctx, why[0], f"{termination_phrase(ctx.record)}: {why[1]}.")
    node = facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(ctx, node)
    seen = presence_of(facts)
    if (step := reclaimed(ctx, seen) or vanished(ctx, seen)) is not None:
        return step
    result = _healthy(ctx, node.name) if node is not None and node.ready else _unhealthy(ctx)
    due = reclaim_due(ctx, seen)
    if due is None or not (result is None or isinstance(result, Wait)):
        return result
    return Wait(due if result is None else min(due, result.until))


def _healthy(ctx: RuleContext, node: str) -> RuleResult:
    before = condition(ctx.status, NODE_READY)
    if before is not None and before.status is Truth.TRUE:
        return None
    sentence = f"Node {node} is Ready."
    status = with_condition(restore_message(ctx.status), NODE_READY, True, Reason.NODE_READY, sentence, ctx.now)
    return ctx.write(status, Reason.NODE_READY, sentence)


def _unhealthy(ctx: RuleContext) -> RuleResult:
    facts, now = ctx.facts, ctx.now
    name, how = ctx.record.node_name, "NotReady" if facts.node is not None else "missing"
    before = condition(ctx.status, NODE_READY)
    if (held := _held(ctx)) is not None:
        sentence = f"Node {name} is {how}, but {held}: Forebay leaves its machine as it is."
        return _note_unready(ctx, ctx.status, Reason.UNDER_MAINTENANCE, sentence)
    if not facts.policy.replaced_when_unhealthy:
        sentence = f"Node {name} is {how}. Its instance group may repair it; Forebay deletes it only when it is empty."
        return _note_unready(ctx, ctx.status, Reason.UNHEALTHY, sentence)
    limit = unhealthy_after(ctx)
    if before is None or before.status is not Truth.FALSE or before.reason == Reason.UNDER_MAINTENANCE:
        sentence = f"Node {name} is {how}. If this lasts for {human(limit)}, it is {terminated(ctx.record)}."
        # The time under maintenance does not count.
        others = tuple(each for each in ctx.status.conditions if each is not before)
        return _note_unready(ctx, replace(ctx.status, conditions=others), Reason.UNHEALTHY, sentence)
    late = before.last_transition_time + limit
    if now < late:
        return Wait(late)
    if facts.replacement_paused:
        sentence = (
            f"Node {name} is {how}, but too many nodes of its pool are unhealthy at once, so none is replaced. Check "
            "the network and the control plane; delete this GPUInstance to replace its machine anyway."
        )
        status = with_message(ctx.status, Reason.DISRUPTION_PAUSED, sentence)
        return ctx.write(status, Reason.DISRUPTION_PAUSED, sentence)
    lasted = human(now - before.last_transition_time)
    sentence = f"Node {name} has been {how} for {lasted}. {terminating_it(ctx.record)}."
    return begin_termination(ctx, Reason.UNHEALTHY, sentence, failed=True)


def _held(ctx: RuleContext) -> str | None:
    """Why the machine of a lost node is left as it is, as a clause; None where it is replaced."""
    if ctx.facts.held is not None:
        return ctx.facts.held
    pod = waits_for_its_node(ctx.facts.pods, by_toleration=ctx.facts.policy.left_to_tolerating_pods)
    return None if pod is None else f"pod {pod} is to stay there (an annotation, or tolerations without an end)"


def _note_unready(ctx: RuleContext, status: GPUInstanceStatus, reason: Reason, sentence: str) -> RuleResult:
    status = with_condition(status, NODE_READY, False, reason, sentence, ctx.now)
    return ctx.write(with_message(status, reason, sentence), reason, sentence)
