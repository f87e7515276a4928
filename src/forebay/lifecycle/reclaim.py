"""Reclaims: the provider takes a rented machine back, or shows that it stopped or failed."""

from forebay.api.gpu_instance import InstanceState
from forebay.lifecycle.facts import instance_id
from forebay.lifecycle.presence import Presence
from forebay.lifecycle.rule import RuleContext, RuleResult
from forebay.lifecycle.termination import begin_termination, into_terminating
from forebay.lifecycle.wording import describe, terminating_it
from forebay.model.reasons import Reason
from forebay.model.sources import FailureScope, InstancePhase


def reclaimed(ctx: RuleContext, seen: Presence) -> RuleResult:
    """The way out of a machine that its provider takes back or does not run any more; None where it runs on."""
    if not seen.present:
        return None
    instance, what = seen.instances[0], describe(ctx.record)
    told = f": {instance.message.rstrip('.')}" if instance.message else ""
    if instance.phase is InstancePhase.FAILED:
        if _others_ordered(ctx):
            return None
        sentence = f"{ctx.record.spec.provider} reports that {what} failed{told}. {terminating_it(ctx.record)}."
        serving = ctx.status.state is InstanceState.READY
        reason = Reason.UNHEALTHY if serving else Reason.LAUNCH_FAILED
        return into_terminating(ctx, reason, sentence, failed=True, scope=_member_failure_scope(ctx))
    if instance.phase is InstancePhase.STOPPED:
        ending = f"{terminating_it(ctx.record)}, because it may still be billed"
        sentence = f"{ctx.record.spec.provider} has stopped {what}{told}. {ending}."
        return into_terminating(ctx, Reason.RECLAIMED, sentence)
    if instance.reclaim_at is not None:
        when = f"{instance.reclaim_at:%H:%M:%S} UTC"
        sentence = f"{ctx.record.spec.provider} takes {what} back at {when}{told}. Draining its node before that."
        return begin_termination(ctx, Reason.RECLAIMED, sentence)
    return None


def _others_ordered(ctx: RuleContext) -> bool:
    """Whether somebody else has asked the group for this member: its group goes on trying, and Forebay lets it."""
    return ctx.record.spec.provisioner_ref is not None and not ctx.status.attempt


def _member_failure_scope(ctx: RuleContext) -> FailureScope | None:
    """What the failure of a group's member speaks against, where its group says why it could not be created."""
    reference, listing = ctx.record.spec.provisioner_ref, ctx.facts.listing
    if reference is None or listing is None:
        return None
    name = (instance_id(ctx.record) or "").rpartition("/")[2]
    failures = (group.failures for group in listing.found.groups if group.name == reference.group)
    failure = next((found[name] for found in failures if name in found), None)
    return None if failure is None or failure.scope is FailureScope.OFFER else failure.scope
