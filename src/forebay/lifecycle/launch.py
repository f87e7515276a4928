"""Requested and Launching: one provider is asked for one instance, however many crashes lie between."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.lifecycle.call_outcomes import MOST_ATTEMPTS, instance_found, launch_wait
from forebay.lifecycle.deadlines import deadline
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.presence import NO_ABSENCES, Presence, confirmed_present, presence_of, settled_at
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import Launch, WriteStatus
from forebay.lifecycle.termination import into_terminating, revoked
from forebay.lifecycle.transitions import transition, whole_seconds
from forebay.lifecycle.wording import describe, for_pods, started
from forebay.model.reasons import Reason
from forebay.model.sources import Instance, InstancePhase
from forebay.model.spans import human

#: How soon a machine that is being switched off is looked at again.
_LOOK_AGAIN: Final = timedelta(seconds=5)


def abandon_unlaunched(facts: Facts, now: datetime) -> WriteStatus | None:
    """The end of a record for which nothing runs, if it has no future. Its provider is not needed for this."""
    record = facts.record
    if (why := revoked(facts)) is not None:
        reason, words = why
    elif not facts.wanted and not made_for_adoption(record):
        reason, words = Reason.NOT_NEEDED, _unwanted(record)
    elif facts.capabilities is None and not made_for_adoption(record):
        # Pods would wait for it for ever.
        reason, words = Reason.PROVIDER_NOT_CONFIGURED, f"{describe(record)} is no longer configured"
    else:
        return None
    sentence = f"Given up before anything was started: {words}."
    status = transition(begun(record, now), InstanceState.GONE, reason, sentence, now, billed_from=None)
    return WriteStatus(record=record, reason=reason, sentence=sentence, status=status)


def begun(record: GPUInstance, now: datetime) -> GPUInstanceStatus:
    """A record is created without a status; its story begins with the intent all the same."""
    if record.status is not None and record.status.state is not None:
        return record.status
    why = record.spec.why or f"Needed for {for_pods(record)}."
    created = record.metadata.creation_timestamp or now
    return transition(record.status, InstanceState.REQUESTED, Reason.CAPACITY_NEEDED, why, created)


def _unwanted(record: GPUInstance) -> str:
    return f"nothing waits for it any more; it was for {for_pods(record)}"


def made_for_adoption(record: GPUInstance) -> bool:
    """The record of something that was found, and not of something asked for: it is for no pod."""
    return not record.spec.pods and record.spec.provisioner_ref is None


def requested(known: RuleContext) -> RuleResult:
    facts, now = known.facts, known.now
    seen = presence_of(facts)
    if not facts.owned and seen.present:
        return _adopt(known, seen)
    if (end := abandon_unlaunched(facts, now)) is not None:
        return end
    if made_for_adoption(known.record):
        # Its status is not written yet: whoever found the instance finds it again and writes it.
        return None
    if (thought := _already_on(known, seen)) is not None:
        return thought
    not_before = known.status.not_before
    if not_before is not None and now < not_before:
        return Wait(not_before)
    return _launch(known)


def launching(known: RuleContext) -> RuleResult:
    """The provider was asked, and no answer is recorded: whoever asked crashed, or the answer was lost."""
    facts, status, now = known.facts, known.status, known.now
    seen = presence_of(facts)
    # Before anything else: pods that no longer wait may be running on it.
    if (thought := _already_on(known, seen)) is not None:
        return thought
    why = revoked(facts)
    if why is None and not facts.wanted:
        why = Reason.NOT_NEEDED, _unwanted(known.record)
    if why is not None:
        words = "The provider had been asked, so Forebay makes sure that nothing of it is left."
        return into_terminating(known, why[0], f"Given back: {why[1]}. {words}")
    attempts, asked = status.attempt or 1, status.attempted_at or known.since
    if known.capabilities.idempotent_launch:
        again = status.not_before or asked + launch_wait(attempts)
        if now < again:
            return Wait(again)
        return _launch(known) if attempts < MOST_ATTEMPTS else _failed(known, attempts)
    if seen.absent_after(asked + settled_at(known.capabilities)):
        # It would be shown by now: that launch never happened, so another cannot bring a second one.
        return _launch(known) if attempts < MOST_ATTEMPTS else _failed(known, attempts)
    late = deadline(known.record, status, known.capabilities) or now
    if now < late:
        return Wait(late)
    sentence = (
        f"No answer to the launch for {human(now - asked)}, and {known.record.spec.provider} could not be listed to "
        "find out what became of it. It counts as failed; should it show up, it is ended."
    )
    return into_terminating(known, Reason.LAUNCH_TIMEOUT, sentence, failed=True)


def _launch(known: RuleContext) -> Launch:
    record, status = known.record, known.status
    attempt = (status.attempt or 0) + 1
    again = f" (attempt {attempt} of {MOST_ATTEMPTS})" if attempt > 1 else ""
    sentence = f"{started(record)} for {for_pods(record)}{again}. The provider's answer decides what is next."
    asked = transition(
        begun(record, known.now),
        InstanceState.LAUNCHING,
        Reason.LAUNCH_STARTED,
        sentence,
        known.now,
        attempt=attempt,
        attempted_at=whole_seconds(known.now),
        # Until the provider says that nothing was started, it may cost money from here on.
        billed_from=status.billed_from or whole_seconds(known.now),
        **NO_ABSENCES,
    )
    asked = replace(asked, deadline=deadline(record, asked, known.capabilities))
    return Launch(record=record, reason=Reason.LAUNCH_STARTED, sentence=sentence, status=asked)


def _already_on(known: RuleContext, seen: Presence) -> RuleResult:
    """By the provider's list; for an owned machine also by its node, often the only sign that there is."""
    facts = known.facts
    if confirmed_present(facts, seen, known.now):
        return _adopt(known, seen)
    if facts.owned and facts.node is not None and facts.node.ready:
        machine = instance_id(known.record) or facts.name
        instance = Instance(id=machine, phase=InstancePhase.RUNNING, node_name=facts.node.name)
        return _take_over(known, instance, f"Node {facts.node.name} is ready, so {machine} is on, and is taken over.")
    return None


def _adopt(known: RuleContext, seen: Presence) -> RuleResult:
    """Of two, the oldest is kept; `orphans` gives the other back."""
    instance = seen.instances[0]
    if known.facts.owned and instance.phase is InstancePhase.ENDING:
        # It is on its way down, and a call to switch it on might come too early to be heeded.
        return Wait(known.now + _LOOK_AGAIN)
    return _take_over(
        known, instance, f"{describe(known.record)} was found at the provider as {instance.id}, and is taken over."
    )


def _take_over(known: RuleContext, instance: Instance, sentence: str) -> WriteStatus:
    status = instance_found(known.record, instance, Reason.ADOPTED, sentence, known.now, known.capabilities)
    return WriteStatus(record=known.record, reason=Reason.ADOPTED, sentence=sentence, status=status)


def _failed(known: RuleContext, attempts: int) -> RuleResult:
    sentence = (
        f"{describe(known.record)} was asked for {attempts} times and the provider never said what became of it. "
        "Whatever may have been started is ended, and other capacity is looked for."
    )
    return into_terminating(known, Reason.LAUNCH_FAILED, sentence, failed=True)
