"""Reclaims: the provider takes a rented machine back, or shows that it stopped or failed."""

from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import InstanceState
from forebay.api.parts import Truth
from forebay.api.values import duration
from forebay.demand.replacements import REPLACEMENT
from forebay.lifecycle.begin_termination import begin_termination, into_terminating
from forebay.lifecycle.facts import instance_id
from forebay.lifecycle.presence import Presence
from forebay.lifecycle.rule import RuleContext, RuleResult
from forebay.lifecycle.transitions import condition, with_condition, with_message
from forebay.lifecycle.wording import describe, terminating_it
from forebay.model.reasons import Reason
from forebay.model.sources import FailureScope, Instance, InstancePhase

#: A node is drained this long before its provider takes the machine back, though no replacement is Ready.
TIME_TO_DRAIN: Final = timedelta(minutes=2)
#: A machine that its provider ends because it was ordered for so long counts as taken back this long before that.
ORDERED_END_NOTICE: Final = timedelta(minutes=30)


def reclaimed(ctx: RuleContext, seen: Presence) -> RuleResult:
    """The way out of a machine that its provider takes back or does not run any more; None where it runs on."""
    if not seen.present:
        return None
    instance, what = seen.instances[0], describe(ctx.record)
    told = f": {instance.message.rstrip('.')}" if instance.message else ""
    if instance.phase is InstancePhase.FAILED:
        serving = ctx.status.state is InstanceState.READY
        if _others_ordered(ctx) or (serving and ctx.facts.node is not None and ctx.facts.node.ready):
            # Where it has failed, its node is NotReady in a moment. What listings call failed is wrong at times.
            return None
        sentence = f"{ctx.record.spec.provider} reports that {what} failed{told}. {terminating_it(ctx.record)}."
        reason = Reason.UNHEALTHY if serving else Reason.LAUNCH_FAILED
        return into_terminating(ctx, reason, sentence, failed=True, scope=_member_failure_scope(ctx))
    if instance.phase is InstancePhase.STOPPED:
        ending = f"{terminating_it(ctx.record)}, because it may still be billed"
        sentence = f"{ctx.record.spec.provider} has stopped {what}{told}. {ending}."
        return into_terminating(ctx, Reason.RECLAIMED, sentence)
    at = _taken_back_at(ctx, instance)
    if at is None or (ctx.now < at - ORDERED_END_NOTICE and instance.reclaim_at is None):
        return None
    if instance.reclaim_at is None:
        told = ": it was ordered for no longer (spec.maxRunTime of its GPUInstance)"
    if (drain_at := _drain_at(ctx, at)) is not None:
        return _noticed(ctx, at, drain_at, f"{what} back", told)
    sentence = (
        f"{ctx.record.spec.provider} takes {what} back at {at:%H:%M:%S} UTC{told}. Draining its node before that."
    )
    return begin_termination(ctx, Reason.RECLAIMED, sentence)


def _taken_back_at(ctx: RuleContext, instance: Instance) -> datetime | None:
    """When the provider takes the machine back, by its notice or by the order; None where it does not.

    A pool's `expireAfter` comes long before the end that was ordered, unless it was raised since, or something kept the
    machine from being replaced. Members of groups are replaced by these.
    """
    if instance.reclaim_at is not None:
        return instance.reclaim_at
    stated, began = ctx.record.spec.max_run_time, ctx.status.billed_from
    if not ctx.facts.policy.joins_as_new_node or ctx.record.spec.provisioner_ref is not None:
        return None
    if instance.ends_at is not None or stated is None or began is None or not ctx.capabilities.dead_man_switch:
        return instance.ends_at
    return began + duration(stated)


def _others_ordered(ctx: RuleContext) -> bool:
    """Whether somebody else has asked the group for this member: its group goes on trying, and Forebay lets it."""
    return ctx.record.in_instance_group and not ctx.status.attempt


def _member_failure_scope(ctx: RuleContext) -> FailureScope | None:
    """What the failure of a group's member speaks against, where its group says why it could not be created."""
    reference, listing = ctx.record.spec.provisioner_ref, ctx.facts.listing
    if reference is None or listing is None or not ctx.record.in_instance_group:
        return None
    name = (instance_id(ctx.record) or "").rpartition("/")[2]
    failures = (group.failures for group in listing.found.groups if group.name == reference.group)
    failure = next((found[name] for found in failures if name in found), None)
    return None if failure is None or failure.scope is FailureScope.OFFER else failure.scope


def reclaim_due(ctx: RuleContext, seen: Presence) -> datetime | None:
    """When the next step is due before the machine is taken back: the notice, or the drain at the latest."""
    instance = seen.instances[0] if seen.present else None
    at = _taken_back_at(ctx, instance) if instance is not None else None
    if instance is None or at is None:
        return None
    noticed_at = at - ORDERED_END_NOTICE
    return noticed_at if instance.reclaim_at is None and ctx.now < noticed_at else _drain_at(ctx, at)


def _drain_at(ctx: RuleContext, reclaim_at: datetime) -> datetime | None:
    """When a node in service has to be drained; None where that is now. A group replaces its members itself."""
    at = reclaim_at - TIME_TO_DRAIN
    replaced_first = ctx.facts.policy.joins_as_new_node and ctx.record.spec.provisioner_ref is None
    serves = ctx.status.state is InstanceState.READY and replaced_first
    return at if serves and ctx.now < at else None


def _noticed(ctx: RuleContext, reclaim_at: datetime, drain_at: datetime, what: str, told: str) -> RuleResult:
    """Notes, once, that the machine has to be replaced before its provider takes it back."""
    before = condition(ctx.status, REPLACEMENT)
    if before is not None and before.status is Truth.TRUE and before.reason == Reason.RECLAIMED:
        return None
    sentence = (
        f"{ctx.record.spec.provider} takes {what} at {reclaim_at:%H:%M:%S} UTC{told}. Its node is drained when a "
        f"replacement is Ready, or at {drain_at:%H:%M:%S} UTC."
    )
    status = with_condition(ctx.status, REPLACEMENT, True, Reason.RECLAIMED, sentence, ctx.now)
    return ctx.write(with_message(status, Reason.RECLAIMED, sentence), Reason.RECLAIMED, sentence)
