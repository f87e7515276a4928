"""Liveness: a Ready GPUInstance whose node is lost, and when it is replaced."""

from datetime import timedelta
from typing import Final

from forebay.api.parts import Truth
from forebay.lifecycle.cordon import cordon_is_ours
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.presence import presence_of
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.termination import begin_termination, revoked, uncordon
from forebay.lifecycle.transitions import NODE_READY, condition, restore_message, with_condition, with_message
from forebay.lifecycle.wording import terminated, terminating_it, termination_phrase
from forebay.model.reasons import Reason
from forebay.model.spans import human

#: A node that has been NotReady for this long is replaced.
UNHEALTHY_AFTER: Final = timedelta(minutes=5)


def ready(ctx: RuleContext) -> RuleResult:
    """Rule of the state Ready."""
    facts = ctx.facts
    if (why := revoked(facts)) is not None:
        return begin_termination(ctx, why[0], f"{termination_phrase(ctx.record)}: {why[1]}.")
    node = facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(ctx, node)
    if (step := vanished(ctx, presence_of(facts))) is not None:
        return step
    return _healthy(ctx, node.name) if node is not None and node.ready else _unhealthy(ctx)


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
    if before is None or before.status is not Truth.FALSE:
        sentence = f"Node {name} is {how}. If this lasts for {human(UNHEALTHY_AFTER)}, it is {terminated(ctx.record)}."
        status = with_condition(ctx.status, NODE_READY, False, Reason.UNHEALTHY, sentence, now)
        return ctx.write(with_message(status, Reason.UNHEALTHY, sentence), Reason.UNHEALTHY, sentence)
    late = before.last_transition_time + UNHEALTHY_AFTER
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
