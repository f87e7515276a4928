"""Registration and initialization: rules of the states Launched (no node yet) and Joined (a node without its GPUs)."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.api.parts import Truth
from forebay.demand.initialization import gpus_allocatable, has_a_gpu, is_initialized, is_up
from forebay.demand.maintenance import cordon_is_ours
from forebay.lifecycle.begin_termination import begin_termination, into_terminating, uncordon
from forebay.lifecycle.call_outcomes import MAX_ATTEMPTS
from forebay.lifecycle.cooldown import NOT_USABLE, cooldown_span
from forebay.lifecycle.deadlines import deadline
from forebay.lifecycle.deliveries.policy import PRICE_ROUNDING, boot_deadline
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.facts import kept_by
from forebay.lifecycle.gpu_counts import gpus_found, wrong_gpu_count
from forebay.lifecycle.launch import made_for_adoption
from forebay.lifecycle.liveness import unhealthy_after
from forebay.lifecycle.presence import Presence, presence_of
from forebay.lifecycle.reclaim import reclaimed
from forebay.lifecycle.record_fields import reported_size
from forebay.lifecycle.revocation import revoked
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import AnyStep, Drain, Launch, WriteStatus
from forebay.lifecycle.transitions import (
    MACHINE_RUNNING,
    NODE_READY,
    condition,
    transition,
    whole_seconds,
    with_condition,
    with_message,
)
from forebay.lifecycle.wording import describe, launch_noun, terminated, terminating_it, termination_phrase
from forebay.model.nodes import Node, is_startup_taint
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import FailureScope, InstancePhase
from forebay.model.spans import human

#: A power-on call is repeated after this long while the node does not come.
REPEAT_POWER_ON_AFTER: Final = timedelta(minutes=2)
#: A node that has some of its GPUs is accepted with these after so long.
DRIVER_TIME: Final = timedelta(minutes=2)


def launched(ctx: RuleContext) -> RuleResult:
    """Rule of the state Launched: wait until the machine has registered as a node."""
    facts, now = ctx.facts, ctx.now
    if (why := revoked(facts, now)) is not None:
        return begin_termination(ctx, why[0], f"{termination_phrase(ctx.record)}: {why[1]}.")
    node = facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(ctx, node)
    if node is not None and facts.policy.has_registered(ctx.record, node):
        sentence = f"Node {node.name} has registered. Next: it must become Ready with its GPUs."
        status = transition(ctx.status, InstanceState.JOINED, Reason.NODE_JOINED, sentence, now, node_name=node.name)
        status = replace(status, deadline=deadline(ctx.record, status, ctx.capabilities))
        return WriteStatus(record=ctx.record, reason=Reason.NODE_JOINED, sentence=sentence, status=status)
    if facts.stranger is not None and (step := _refuse(ctx, facts.stranger)) is not None:
        return step
    seen = presence_of(facts)
    if (step := _overpriced(ctx, seen)) is not None:
        return step
    listed = facts.policy.listed_while_booting
    if listed and (step := reclaimed(ctx, seen) or _running(ctx, seen)) is not None:
        return step
    if (listed or made_for_adoption(ctx.record) or _found_on(ctx)) and (step := vanished(ctx, seen)) is not None:
        return step
    timeout = _timeout(ctx, seen)
    if now < timeout.at:
        repeats = facts.policy.repeats_launch and ctx.capabilities.idempotent_launch
        again = _repeat_power_on(ctx, seen) if repeats else None
        return again if isinstance(again, Launch) else Wait(min(timeout.at, again or timeout.at))
    if (left := _left_alone(ctx, timeout.reason, timeout.sentence)) is not None:
        return left.step
    return _end(ctx, timeout.reason, timeout.sentence)


def _overpriced(ctx: RuleContext, seen: Presence) -> RuleResult:
    """The end of a machine that its provider bills for more than it was offered for, and than its pool allows."""
    most, listed = ctx.facts.most_hourly_price, next((each.price for each in seen.instances), None)
    billed = listed.exact() if listed is not None else ctx.status.hourly_price
    if most is None or billed is None or not ctx.facts.policy.joins_as_new_node:
        return None
    price, offered = UsdPerHour(billed), UsdPerHour(ctx.record.spec.hourly_price or 0)
    if price <= max(most, offered) + PRICE_ROUNDING:
        return None
    sentence = (
        f"{ctx.record.spec.provider} bills {price} for {describe(ctx.record)}, which was offered at {offered}. "
        f"GPUNodePool {'/'.join(ctx.record.pool_key)} allows {most}. {terminating_it(ctx.record)}, and trying other "
        "capacity."
    )
    return into_terminating(ctx, Reason.PRICE_RAISED, sentence, failed=True)


def _refuse(ctx: RuleContext, node: Node) -> RuleResult:
    """Cordons a node of the planned name that is another machine, and says so, once."""
    sentence = (
        f"Node {node.name} is not {describe(ctx.record)}: its spec.providerID is {node.provider_id}, and that of the "
        f"machine is {ctx.status.provider_id}. Forebay does not use the node; find out how it joined, and delete it."
    )
    if not node.unschedulable:
        return Drain(record=ctx.record, reason=Reason.NODE_IDENTITY_MISMATCH, sentence=sentence, node=node)
    told = with_message(ctx.status, Reason.NODE_IDENTITY_MISMATCH, sentence)
    return ctx.write(told, Reason.NODE_IDENTITY_MISMATCH, sentence)


class _LeftAlone(NamedTuple):
    """The machine stays as it is; `step` says so on the record, once."""

    step: WriteStatus | None


def _left_alone(ctx: RuleContext, reason: Reason, sentence: str) -> _LeftAlone | None:
    """Leaves a machine on that people hold, or powered on themselves, though its node does not become usable.

    Whoever powered it on may use it for other work.
    """
    facts = ctx.facts
    if facts.held is not None:
        reason, why = Reason.UNDER_MAINTENANCE, facts.held
    elif _found_on(ctx):
        why = f"Forebay did not {facts.policy.words.launch_it}"
    else:
        return None
    left = terminated(ctx.record)
    told = f"{sentence} {facts.policy.stays}, because {why}; to have it {left}, delete this GPUInstance."
    return _LeftAlone(ctx.write(with_message(ctx.status, reason, told), reason, told))


def _found_on(ctx: RuleContext) -> bool:
    """Whether the machine was on before Forebay made any power-on call, also where its record was made for pods."""
    return ctx.facts.policy.adopted_when_found and not ctx.status.attempt


def _repeat_power_on(ctx: RuleContext, seen: Presence) -> Launch | datetime | None:
    """The power-on call once more, or when it is due; None where it is not repeated.

    Many machines accept a power-on call while they shut down, and ignore it.
    """
    status, attempts = ctx.status, ctx.status.attempt or 1
    if ctx.facts.held is not None:
        return None
    if seen.present or not ctx.facts.wanted or made_for_adoption(ctx.record) or attempts >= MAX_ATTEMPTS:
        return None
    due = status.not_before or (status.attempted_at or ctx.since) + REPEAT_POWER_ON_AFTER
    if ctx.now < due:
        return due
    sentence = (
        f"Repeating the power-on call of {describe(ctx.record)}: node {ctx.record.node_name} is not Ready yet, and a "
        "machine that was still shutting down may have ignored the call."
    )
    following = whole_seconds(ctx.now) + REPEAT_POWER_ON_AFTER
    repeated = with_message(status, Reason.LAUNCH_ACCEPTED, sentence, attempt=attempts + 1, not_before=following)
    return Launch(record=ctx.record, reason=Reason.LAUNCH_STARTED, sentence=sentence, status=repeated)


def joined(ctx: RuleContext) -> RuleResult:
    """Rule of the state Joined: wait until the node is initialized."""
    facts, now = ctx.facts, ctx.now
    if (why := revoked(facts, now)) is not None:
        return begin_termination(ctx, why[0], f"{termination_phrase(ctx.record)}: {why[1]}.")
    node = facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(ctx, node)
    if node is not None and is_initialized(ctx.record, node, facts.pods):
        return _ready(ctx, node)
    seen = presence_of(facts)
    if (step := reclaimed(ctx, seen) or vanished(ctx, seen)) is not None:
        return step
    late = deadline(ctx.record, ctx.status, ctx.capabilities) or now
    if node is not None and is_up(ctx.record, node) and has_a_gpu(ctx.record, node):
        # A device plugin reports all GPUs at once: what is missing a while later has failed, or was never there.
        enough = max(ctx.since, node.ready_since or ctx.since) + DRIVER_TIME
        return Wait(min(enough, late)) if now < min(enough, late) else _ready(ctx, node)
    if now < late:
        return Wait(late)
    reason, sentence = _what_is_missing(ctx, late)
    if (left := _left_alone(ctx, reason, sentence)) is not None:
        return left.step
    # Whether pods still run on a NotReady node cannot be known: they are waited for only this long.
    lost_at = None
    if node is not None and not node.ready and facts.policy.replaced_when_unhealthy:
        lost_at = (node.unready_since or ctx.since) + unhealthy_after(ctx)
    if facts.pods and (lost_at is None or now < lost_at):
        waiting = (
            f"{sentence} {len(facts.pods)} pods run on it anyway; it is {terminated(ctx.record)} when they have ended."
        )
        step = ctx.write(with_message(ctx.status, reason, waiting), reason, waiting)
        return step or (None if lost_at is None else Wait(lost_at))
    return _end(ctx, reason, sentence)


def _ready(ctx: RuleContext, node: Node) -> RuleResult:
    called = ctx.status.attempted_at
    took = f", {human(ctx.now - called)} after the {launch_noun(ctx.record).lower()} call" if called is not None else ""
    sentence = f"Node {node.name} is Ready with {gpus_found(ctx.record, node)}{took}. Pods can run on it."
    if (wrong := wrong_gpu_count(ctx.record, node, variable=ctx.facts.gpu_count_variable)) is not None:
        sentence = f"{sentence} {wrong}"
    status = transition(
        ctx.status,
        InstanceState.READY,
        Reason.NODE_READY,
        sentence,
        ctx.now,
        failures=None,
        failure_scope=None,
        node_name=node.name,
        allocatable=reported_size(node) if ctx.facts.policy.joins_as_new_node else {},
    )
    status = with_condition(status, NODE_READY, True, Reason.NODE_READY, sentence, ctx.now)
    return WriteStatus(record=ctx.record, reason=Reason.NODE_READY, sentence=sentence, status=status)


def _what_is_missing(ctx: RuleContext, late: datetime) -> tuple[Reason, str]:
    """Why the node was not initialized by its deadline. The sentence stays the same until that changes."""
    node = ctx.facts.node
    if node is None or not node.ready:
        name, within = ctx.record.node_name, _within(ctx, late)
        return Reason.JOIN_TIMEOUT, f"Node {name} registered but did not become Ready {within}."
    missing, check = "its GPUs did not become allocatable", "its driver and device plugin"
    if (wrong := wrong_gpu_count(ctx.record, node, variable=ctx.facts.gpu_count_variable)) is not None:
        check = f"{check}. {wrong}"
    if gpus_allocatable(ctx.record, node):
        kept = next((taint.key for taint in node.taints if is_startup_taint(taint.key)), None)
        missing, check = f"{'a startup taint' if kept is None else f'taint {kept}'} was not removed", "what removes it"
    sentence = f"Node {node.name} is Ready, but {missing} {_within(ctx, late)}: check {check.rstrip('.')}."
    return Reason.GPUS_MISSING, sentence


def _running(ctx: RuleContext, seen: Presence) -> RuleResult:
    """Notes the first listing that shows the machine running: from then on its time to register counts."""
    before = condition(ctx.status, MACHINE_RUNNING)
    if before is not None and before.status is Truth.TRUE:
        return None
    if not any(each.phase is InstancePhase.RUNNING for each in seen.instances):
        return None
    sentence = f"{describe(ctx.record)} is running. Next: it must register as a node."
    status = with_condition(ctx.status, MACHINE_RUNNING, True, Reason.LAUNCH_ACCEPTED, sentence, ctx.now)
    status = with_message(status, Reason.LAUNCH_ACCEPTED, sentence)
    status = replace(status, deadline=deadline(ctx.record, status, ctx.capabilities))
    return ctx.write(status, Reason.LAUNCH_ACCEPTED, sentence)


class _Timeout(NamedTuple):
    at: datetime
    reason: Reason
    sentence: str


def _timeout(ctx: RuleContext, seen: Presence) -> _Timeout:
    """When the launch counts as failed if no node registers, and why."""
    at = deadline(ctx.record, ctx.status, ctx.capabilities) or ctx.now
    what, node = describe(ctx.record), ctx.record.node_name
    running = condition(ctx.status, MACHINE_RUNNING)
    if not ctx.facts.policy.listed_while_booting:
        on = "is on" if made_for_adoption(ctx.record) else "was powered on"
        sentence = f"{what} {on} but node {node} did not become Ready {_within(ctx, at)}."
        return _Timeout(at, Reason.JOIN_TIMEOUT, sentence)
    if boot_deadline(ctx.record) is not None or running is not None:
        sentence = f"{what} is running but node {node} did not register {_within(ctx, at)}."
        return _Timeout(at, Reason.JOIN_TIMEOUT, sentence)
    if seen.present or ctx.now < at:
        sentence = f"Launch of {what} was accepted, but it did not run {_within(ctx, at)}."
        return _Timeout(at, Reason.LAUNCH_TIMEOUT, sentence)
    # The provider does not tell whether it runs, so it also gets the time to register.
    at += ctx.capabilities.join_deadline
    return _Timeout(at, Reason.JOIN_TIMEOUT, f"{what} did not register as a node {_within(ctx, at)}.")


def _within(ctx: RuleContext, late: datetime) -> str:
    return f"within {human(late - (ctx.status.attempted_at or ctx.since))}"


def _end(ctx: RuleContext, reason: Reason, sentence: str) -> AnyStep:
    """Terminates a machine that did not become a usable node. After several in a row, no other offer is tried."""
    wait = f"next attempt in {human(cooldown_span((ctx.status.failures or 0) + 1))} at the earliest"
    others = ctx.facts.others_unusable or ctx.status.failure_scope is FailureScope.POOL
    if reason not in NOT_USABLE or not others:
        return begin_termination(ctx, reason, f"{sentence} {terminating_it(ctx.record)}; {wait}.", failed=True)
    told = (
        f"{sentence} {terminating_it(ctx.record)}. The machines of {'/'.join(kept_by(ctx.record)).lstrip('/')} at "
        f"{ctx.record.spec.provider} before it did not become usable nodes either, so that other offers are not tried; "
        f"{wait}. Check how machines of the class join, and what their nodes wait for."
    )
    return begin_termination(ctx, reason, told, failed=True, scope=FailureScope.POOL)
