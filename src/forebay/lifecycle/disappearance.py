"""Instances that vanished: the provider no longer lists what a record stands for, though Forebay did not end it."""

from forebay.api.gpu_instance import InstanceState
from forebay.lifecycle.deliveries.policy import missing
from forebay.lifecycle.presence import (
    ABSENCES_NEEDED,
    Presence,
    billing_ended,
    count_absences,
    counted_from,
    settle_time,
)
from forebay.lifecycle.rule import RuleContext, RuleResult
from forebay.lifecycle.wording import describe
from forebay.model.reasons import Reason

_HAS_SERVED = (InstanceState.READY, InstanceState.RUNNING, InstanceState.FINISHED, InstanceState.DRAINING)


def vanished(ctx: RuleContext, seen: Presence) -> RuleResult:
    """Counts the listings without the instance. Two in a row are proof, unless its node is Ready."""
    status, node = ctx.status, ctx.facts.node
    if seen.present and not status.absences:
        return None
    settled = (status.attempted_at or ctx.since) + settle_time(ctx.capabilities)
    runs = node is not None and node.ready
    counted = count_absences(status, seen, counted_from(status, settled, None if runs else ctx.since))
    provider = ctx.record.spec.provider
    proven = (counted.absences or 0) >= ABSENCES_NEEDED and seen.absent_after(settled)
    if not proven or runs:
        sentence = f"{describe(ctx.record)} is {missing(counted.absences or 0, provider)}."
        return ctx.write(counted, Reason.VANISHED, sentence)
    sentence = (
        f"{describe(ctx.record)} has vanished: {missing(ABSENCES_NEEDED, provider)}. "
        f"{ctx.facts.policy.vanished(ctx.record)}"
    )
    # A launch that vanished before it was of use counts as failed: without a cooldown it would be repeated at once.
    failures = status.failures if status.state in _HAS_SERVED else (status.failures or 0) + 1
    return ctx.move(
        InstanceState.GONE,
        Reason.VANISHED,
        sentence,
        failures=failures,
        absences=counted.absences,
        absent_since=counted.absent_since,
        absent_at=counted.absent_at,
        billed_until=billing_ended(ctx.facts, counted, ctx.now) if status.billed_from is not None else None,
    )
