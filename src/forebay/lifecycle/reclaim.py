"""Reclaims: the provider takes a rented machine back, or shows that it stopped or failed."""

from forebay.api.gpu_instance import InstanceState
from forebay.lifecycle.presence import Presence
from forebay.lifecycle.rule import RuleContext, RuleResult
from forebay.lifecycle.termination import begin_termination, into_terminating
from forebay.lifecycle.wording import describe, terminating_it
from forebay.model.reasons import Reason
from forebay.model.sources import InstancePhase


def reclaimed(ctx: RuleContext, seen: Presence) -> RuleResult:
    """The way out of a machine that its provider takes back or does not run any more; None where it runs on."""
    if not seen.present:
        return None
    instance, what = seen.instances[0], describe(ctx.record)
    told = f": {instance.message.rstrip('.')}" if instance.message else ""
    if instance.phase is InstancePhase.FAILED:
        sentence = f"{ctx.record.spec.provider} reports that {what} failed{told}. {terminating_it(ctx.record)}."
        serving = ctx.status.state is InstanceState.READY
        return into_terminating(ctx, Reason.UNHEALTHY if serving else Reason.LAUNCH_FAILED, sentence, failed=True)
    if instance.phase is InstancePhase.STOPPED:
        ending = f"{terminating_it(ctx.record)}, because it may still be billed"
        sentence = f"{ctx.record.spec.provider} has stopped {what}{told}. {ending}."
        return into_terminating(ctx, Reason.RECLAIMED, sentence)
    if instance.reclaim_at is not None:
        when = f"{instance.reclaim_at:%H:%M:%S} UTC"
        sentence = f"{ctx.record.spec.provider} takes {what} back at {when}{told}. Draining its node before that."
        return begin_termination(ctx, Reason.RECLAIMED, sentence)
    return None
