"""Containers: rules of the states Launched (not running yet), Running and Finished.

A container is wanted while the pod that it runs exists and has not ended. It has no node: what the provider lists is
all that is known of it.
"""

from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import InstanceState
from forebay.api.values import duration
from forebay.lifecycle.begin_termination import into_terminating
from forebay.lifecycle.deadlines import deadline
from forebay.lifecycle.deliveries.policy import PRICE_ROUNDING
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.presence import Presence, presence_of
from forebay.lifecycle.revocation import revoked
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.transitions import whole_seconds, with_message
from forebay.lifecycle.wording import describe, for_pods, terminating_it, termination_phrase
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Instance, InstancePhase
from forebay.model.spans import human

#: A container that has finished is kept this long for its pod to take over exit code and logs. It may be billed.
FINISHED_RETENTION: Final = timedelta(minutes=1)


def container_launched(ctx: RuleContext) -> RuleResult:
    """Rule of the state Launched: wait until the container runs, or has run."""
    seen = presence_of(ctx.facts)
    if (step := _not_wanted(ctx) or _ended(ctx, seen)) is not None:
        return step
    instance = _latest(seen)
    if instance is not None and instance.phase is InstancePhase.RUNNING:
        # Whatever it costs: it may have done something for its pod, which has had its run then.
        sentence = f"{describe(ctx.record)} runs the container of {for_pods(ctx.record)}."
        return ctx.move(
            InstanceState.RUNNING,
            Reason.CONTAINER_RUNNING,
            sentence,
            failures=None,
            deadline=_expires(ctx),
            hourly_price=_price(ctx, instance),
        )
    if (step := vanished(ctx, seen)) is not None:
        return step
    # Before the first listing nobody knows whether it runs: another operator may have launched it long ago.
    if seen.asked is not None and (step := _overpriced(ctx, instance)) is not None:
        return step
    late = deadline(ctx.record, ctx.status, ctx.capabilities) or ctx.now
    if ctx.now < late:
        return _noted(ctx, instance) or Wait(late)
    within = human(late - (ctx.status.attempted_at or ctx.since))
    sentence = f"Launch of {describe(ctx.record)} was accepted, but its container did not run within {within}"
    told = f" ({instance.message.rstrip('.')})" if instance is not None and instance.message else ""
    return into_terminating(ctx, Reason.LAUNCH_TIMEOUT, f"{sentence}{told}. {terminating_it(ctx.record)}.", failed=True)


def container_running(ctx: RuleContext) -> RuleResult:
    """Rule of the state Running: until the container has ended, its pod has, or its time is up."""
    seen = presence_of(ctx.facts)
    if (step := _not_wanted(ctx) or _ended(ctx, seen) or vanished(ctx, seen) or _overpriced(ctx)) is not None:
        return step
    expires = _expires(ctx)
    if expires is not None and ctx.now >= expires:
        sentence = f"The container has run for {human(ctx.now - ctx.since)}, its maximum. {terminating_it(ctx.record)}."
        return into_terminating(ctx, Reason.EXPIRED, sentence)
    return _noted(ctx, _latest(seen)) or (None if expires is None else Wait(expires))


def container_finished(ctx: RuleContext) -> RuleResult:
    """Rule of the state Finished: terminate as soon as the pod has taken over the outcome, or soon anyway."""
    if (why := revoked(ctx.facts, ctx.now)) is not None:
        return into_terminating(ctx, why[0], f"{termination_phrase(ctx.record)}: {why[1]}.")
    if (step := vanished(ctx, presence_of(ctx.facts))) is not None:
        return step
    late = ctx.since + FINISHED_RETENTION
    if ctx.facts.wanted and ctx.now < late:
        return Wait(late)
    sentence = f"{termination_phrase(ctx.record)}: its container has finished."
    return into_terminating(ctx, Reason.CONTAINER_FINISHED, sentence)


def _not_wanted(ctx: RuleContext) -> RuleResult:
    if (why := revoked(ctx.facts, ctx.now)) is not None:
        return into_terminating(ctx, why[0], f"{termination_phrase(ctx.record)}: {why[1]}.")
    if not ctx.facts.wanted:
        clause = ctx.facts.policy.unwanted(ctx.record)
        sentence = f"{termination_phrase(ctx.record)}: {clause} (pod {for_pods(ctx.record)})."
        return into_terminating(ctx, Reason.NOT_NEEDED, sentence)
    return None


def _ended(ctx: RuleContext, seen: Presence) -> RuleResult:
    """The step to Finished, where the provider shows that the container has exited or cannot go on."""
    instance = _latest(seen)
    if instance is None or instance.phase not in (
        InstancePhase.FINISHED,
        InstancePhase.FAILED,
        InstancePhase.STOPPED,
    ):
        return None
    told = f": {instance.message.rstrip('.')}" if instance.message else ""
    kept = human(FINISHED_RETENTION)
    if instance.phase is InstancePhase.FINISHED:
        code = "" if instance.exit_code is None else f" with exit code {instance.exit_code}"
        reason = Reason.CONTAINER_FINISHED
        sentence = f"The container of {for_pods(ctx.record)} has finished{code}{told}."
    else:
        how = "was stopped by its provider" if instance.phase is InstancePhase.STOPPED else "failed"
        reason = Reason.CONTAINER_FAILED
        sentence = f"The container of {for_pods(ctx.record)} {how}{told}."
    return ctx.move(
        InstanceState.FINISHED,
        reason,
        f"{sentence} Terminating it when its pod has ended, after {kept} at the latest.",
        exit_code=instance.exit_code,
        deadline=whole_seconds(ctx.now) + FINISHED_RETENTION,
        hourly_price=_price(ctx, instance),
    )


def _overpriced(ctx: RuleContext, instance: Instance | None = None) -> RuleResult:
    """The end of a container that its provider bills for more than was allowed when it was ordered."""
    container, billed = ctx.record.spec.container, _price(ctx, instance)
    if container is None or container.max_hourly_price is None or billed is None:
        return None
    price, most = UsdPerHour(billed), UsdPerHour(container.max_hourly_price)
    if price <= most + PRICE_ROUNDING:
        return None
    offered = UsdPerHour(ctx.record.spec.hourly_price or 0)
    sentence = (
        f"{ctx.record.spec.provider} bills {price} for {describe(ctx.record)}, which was offered at {offered}. Its Job "
        f"and pool allowed {most}. {terminating_it(ctx.record)}, and trying other capacity."
    )
    return into_terminating(ctx, Reason.PRICE_RAISED, sentence, failed=True)


def _noted(ctx: RuleContext, instance: Instance | None) -> RuleResult:
    """Writes down a reclaim notice, once: nothing can be moved away from a container."""
    if instance is None or instance.reclaim_at is None:
        return None
    sentence = f"{ctx.record.spec.provider} takes the container back at {instance.reclaim_at:%H:%M:%S} UTC."
    return ctx.write(with_message(ctx.status, Reason.RECLAIMED, sentence), Reason.RECLAIMED, sentence)


def _latest(seen: Presence) -> Instance | None:
    return seen.instances[0] if seen.present else None


def _price(ctx: RuleContext, instance: Instance | None) -> str | int | None:
    """What the provider bills, by the listing or, before one tells, by its answer."""
    return ctx.status.hourly_price if instance is None or instance.price is None else instance.price.exact()


def _expires(ctx: RuleContext) -> datetime | None:
    """When its maximum run time is over, counted from the launch call."""
    stated = ctx.record.spec.max_run_time
    return None if stated is None else (ctx.status.attempted_at or ctx.since) + duration(stated)
