"""Draining: the last look before a machine goes. Terminating: until there is proof. Gone: until it may be forgotten."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState
from forebay.api.names import INSTANCE_FINALIZER
from forebay.demand.initialization import is_initialized
from forebay.lifecycle.call_outcomes import termination_wait
from forebay.lifecycle.cordon import cordon_is_ours, cordoned_at
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.presence import (
    ENOUGH,
    NO_ABSENCES,
    Presence,
    confirmed_present,
    count_absences,
    presence_of,
    settled_at,
)
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import AnyStep, DeleteRecord, Drain, Terminate, Uncordon, WriteStatus
from forebay.lifecycle.transitions import TABLE, cause, transition, whole_seconds, with_message
from forebay.lifecycle.wording import describe, ended, named
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import InstancePhase
from forebay.model.spans import human

#: How long a record is kept after its end, so that what failed is not tried again at once after a restart.
KEPT: Final = timedelta(hours=1)
#: Between two requests to evict the same pods.
EVICT_EVERY: Final = timedelta(seconds=10)
#: Pods on a node that is not ready cannot be seen to end: after this long they are given up.
LOST_AFTER: Final = timedelta(minutes=10)

#: Causes for which pods have to leave. For any other the machine was only to go because it was empty.
EVICTING: Final = TABLE[InstanceState.DRAINING][InstanceState.TERMINATING] - {Reason.IDLE}

#: Of these nothing is left once the node is ready with its GPUs; and pods may have come by then.
_MENDED: Final = frozenset({Reason.UNHEALTHY, Reason.JOIN_TIMEOUT, Reason.GPUS_MISSING})


def revoked(facts: Facts) -> tuple[Reason, str] | None:
    """It has to go, whatever it is doing."""
    if facts.deleting:
        return Reason.DELETED, "the GPUInstance was deleted"
    if not facts.pool_exists:
        return Reason.POOL_GONE, "its pool or class is gone"
    return None


def give_up(known: RuleContext, reason: Reason, sentence: str, *, failed: bool = False) -> AnyStep:
    """On the way out: through Draining where pods run or could be placed, else at once."""
    node = known.facts.node
    if node is None or not (node.ready or known.facts.pods):
        return into_terminating(known, reason, sentence, failed=failed)
    failures = (known.status.failures or 0) + 1 if failed else known.status.failures
    return known.move(InstanceState.DRAINING, reason, sentence, failures=failures)


def into_terminating(known: RuleContext, reason: Reason, sentence: str, *, failed: bool = False) -> WriteStatus:
    failures = (known.status.failures or 0) + 1 if failed else known.status.failures
    return known.move(InstanceState.TERMINATING, reason, sentence, failures=failures, **NO_ABSENCES)


def uncordon(known: RuleContext, node: Node) -> Uncordon:
    sentence = f"Node {node.name} takes pods again: the cordon was Forebay's, and its reason is gone."
    return Uncordon(record=known.record, reason=Reason.BACK_IN_USE, sentence=sentence, node=node)


def draining(known: RuleContext) -> RuleResult:
    facts, status, now = known.facts, known.status, known.now
    why, node = cause(status), facts.node
    if why not in EVICTING:
        if (revocation := revoked(facts)) is not None:
            return known.move(InstanceState.DRAINING, revocation[0], f"Given back: {revocation[1]}.")
        if facts.pods:
            return _back(known, Reason.BACK_IN_USE, f"{named(facts.pods)} came before it was given back; it stays.")
    if why in _MENDED and node is not None and is_initialized(known.record, node) and revoked(facts) is None:
        return _back(known, Reason.NODE_READY, "Its node is ready after all, with its GPUs; it stays.")
    if (thought := vanished(known, presence_of(facts))) is not None:
        return thought
    if node is None:
        # Pods outlive their node for a moment: the cluster collects them.
        return Wait(_lost_at(known)) if facts.pods and now < _lost_at(known) else _end(known)
    cordoned = cordoned_at(facts)
    if cordoned is None:
        sentence = f"Node {node.name} is cordoned, so that nothing more is placed on it before it goes."
        return Drain(record=known.record, reason=Reason.DRAINING, sentence=sentence, node=node)
    settled = cordoned + facts.drain_settle
    if now < settled:
        return Wait(settled)
    if facts.pods:
        return _evict(known, node) or _end(known)
    return _end(known)


def _back(known: RuleContext, reason: Reason, sentence: str) -> AnyStep:
    """The cordon first: a node that counts as ready must take pods."""
    node = known.facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(known, node)
    return known.move(InstanceState.READY, reason, sentence)


def _end(known: RuleContext) -> AnyStep:
    said_cause = cause(known.status)
    why = Reason(said_cause) if said_cause in EVICTING else Reason.IDLE
    said = known.status.transitions[-1].message if known.status.transitions else ""
    lost = known.facts.pods
    state = f"{named(lost)} cannot be seen to end, and nothing is heard of its node" if lost else "it is empty"
    step = into_terminating(known, why, f"{ended(known.record)}: {state}. {said}".rstrip())
    return replace(step, given_up=frozenset(pod.uid for pod in lost))


def _lost_at(known: RuleContext) -> datetime:
    """When pods are given up if their node stays as it is. A node that was silent only for a moment, after it has long
    been drained, has lost none.
    """
    began = known.since
    for step in reversed(known.status.transitions):
        if step.state not in (InstanceState.DRAINING, InstanceState.TERMINATING):
            break
        began = step.at
    node = known.facts.node
    silent = node.unready_since if node is not None else None
    return max(began, silent or began) + LOST_AFTER


def _evict(known: RuleContext, node: Node) -> RuleResult:
    """None: whoever is still there is not waited for any longer."""
    status, now = known.status, known.now
    if not node.ready and now >= _lost_at(known):
        return None
    staying = tuple(pod for pod in known.facts.pods if pod.deleted is None)
    if status.not_before is not None and now < status.not_before:
        return Wait(status.not_before)
    sentence = (
        f"{named(known.facts.pods)} must leave node {node.name}, as their disruption budgets allow; then it goes."
    )
    said = with_message(status, Reason.DRAINING, sentence, not_before=whole_seconds(now) + EVICT_EVERY)
    if not staying:
        return Wait(now + EVICT_EVERY)
    return Drain(record=known.record, reason=Reason.DRAINING, sentence=sentence, node=node, evict=staying, status=said)


def terminating(known: RuleContext) -> RuleResult:
    facts, status, now = known.facts, known.status, known.now
    node, seen = facts.node, presence_of(facts)
    if (thought := _proof(known, seen)) is not None:
        return thought
    if status.not_before is not None and now < status.not_before:
        return Wait(status.not_before)
    target = _target(known, seen)
    if target is None:
        # Never seen, and no answer told its name: only the list can say.
        return None
    if (thought := _cleared(known, node)) is not None:
        return thought
    accepted = status.termination_accepted_at
    if accepted is None:
        sentence = (
            f"{ended(known.record)} (attempt {(status.termination_attempts or 0) + 1}), until there is proof of it."
        )
        said = with_message(status, Reason.TERMINATION_STARTED, sentence)
        return _terminate(known, said, target, Reason.TERMINATION_STARTED, sentence)
    still_on = facts.owned and node is not None and node.ready
    if not still_on and not (seen.present and seen.asked is not None and seen.asked > accepted):
        return None
    sign = f"node {node.name} is still ready" if still_on and node is not None else "it is still listed"
    sentence = (
        f"The end of {describe(known.record)} was accepted {human(now - accepted)} ago, but {sign}. It is asked again; "
        "if this goes on, end it by hand."
    )
    said = with_message(status, Reason.TERMINATION_FAILED, sentence, termination_accepted_at=None)
    return _terminate(known, said, target, Reason.TERMINATION_FAILED, sentence)


def _cleared(known: RuleContext, node: Node | None) -> RuleResult:
    """Nothing must run there when it ends. None: nothing does, or what does cannot be waited for."""
    facts = known.facts
    first = not known.status.termination_attempts
    if node is None:
        return Wait(_lost_at(known)) if facts.pods and first and known.now < _lost_at(known) else None
    if node.ready and first:
        cordoned = cordoned_at(facts)
        if cordoned is None:
            sentence = f"Node {node.name} is cordoned, so that nothing more is placed on it before it goes."
            return Drain(record=known.record, reason=Reason.DRAINING, sentence=sentence, node=node)
        if known.now < cordoned + facts.drain_settle:
            return Wait(cordoned + facts.drain_settle)
    if facts.pods and (node.ready or first):
        return _evict(known, node)
    return None


def _target(known: RuleContext, seen: Presence) -> str | None:
    """What the provider is asked to end."""
    return instance_id(known.record) or (seen.instances[0].id if seen.present else None)


def _terminate(known: RuleContext, status: GPUInstanceStatus, target: str, reason: Reason, sentence: str) -> Terminate:
    attempts = (status.termination_attempts or 0) + 1
    status = replace(
        status,
        # An owned machine's id is its name: recorded only when a launch was confirmed, which `_proof` looks at.
        instance_id=status.instance_id if known.facts.owned else target,
        termination_attempts=attempts,
        attempted_at=whole_seconds(known.now),
        not_before=whole_seconds(known.now) + termination_wait(attempts),
    )
    return Terminate(
        record=known.record,
        reason=reason,
        sentence=sentence,
        status=status,
        instance_id=target,
        given_up=frozenset(pod.uid for pod in known.facts.pods),
    )


def _ended_again(known: RuleContext, seen: Presence) -> RuleResult:
    target = _target(known, seen)
    assert target is not None, "an owned machine has a name"
    sentence = f"{ended(known.record)} once more: a call to start it may have arrived later than the one to end it."
    said = with_message(known.status, Reason.TERMINATION_STARTED, sentence, termination_accepted_at=None)
    return _terminate(known, said, target, Reason.TERMINATION_STARTED, sentence)


def _proof(known: RuleContext, seen: Presence) -> RuleResult:
    """That nothing is left. Lists count from the accepted call on; where no call was accepted or it is not certain
    that a launch has come to rest, from when any launch must have shown.
    """
    facts, status = known.facts, known.status
    accepted, settled = status.termination_accepted_at, known.since + settled_at(known.capabilities)
    still_on = facts.owned and facts.node is not None and facts.node.ready
    if seen.asked is None:
        # An owned machine of which no list can tell: its own word and its node's must do.
        if facts.listing is None or not facts.owned or accepted is None or still_on:
            return None
        if status.instance_id is None and known.now < settled:
            return Wait(settled)
        if status.instance_id is None and accepted < settled:
            return _ended_again(known, seen)
        return _gone(known, status, "it was switched off, and its node is not ready")
    after = accepted if accepted is not None and status.instance_id is not None else max(settled, accepted or settled)
    now_counted = count_absences(status, seen, after)
    if (now_counted.absences or 0) >= ENOUGH and not still_on:
        return _gone(known, now_counted, f"{ENOUGH} lists of {known.record.spec.provider} in a row do not show it")
    return known.write(now_counted, Reason.TERMINATION_STARTED, "A list was looked at for proof that it is gone.")


def _gone(known: RuleContext, status: GPUInstanceStatus, proof: str) -> RuleResult:
    if status.secondary_resources:
        left = ", ".join(f"{each.kind} {each.id}" for each in status.secondary_resources)
        sentence = f"{describe(known.record)} itself is gone, but what was made along with it is not yet: {left}."
        return known.write(
            with_message(status, Reason.TERMINATION_STARTED, sentence), Reason.TERMINATION_STARTED, sentence
        )
    never = status.instance_id is None and not known.facts.owned
    sentence = f"Nothing is left of {describe(known.record)}: {proof}."
    gone = transition(
        status,
        InstanceState.GONE,
        Reason.TERMINATED,
        sentence,
        known.now,
        # No list has ever shown it: it was never there to be billed.
        billed_from=None if never else status.billed_from,
        billed_until=None if never or status.billed_from is None else whole_seconds(known.now),
    )
    return WriteStatus(record=known.record, reason=Reason.TERMINATED, sentence=sentence, status=gone)


def expired_record(facts: Facts, now: datetime) -> RuleResult:
    """A record in Gone. Its provider is not needed any more."""
    if facts.deleting and INSTANCE_FINALIZER not in facts.record.metadata.finalizers:
        return None  # what holds it now is somebody else's
    node, seen = facts.node, presence_of(facts)
    on = facts.owned and confirmed_present(facts, seen, now) and seen.instances[0].phase is InstancePhase.RUNNING
    if on or (facts.owned and node is not None and node.ready):
        # One record for one machine: the next can be made only when this one is out of its way.
        sentence = f"{describe(facts.record)} is on again, so that another record of it begins."
        return DeleteRecord(record=facts.record, reason=Reason.TERMINATED, sentence=sentence)
    if node is not None and cordon_is_ours(node):
        sentence = f"Node {node.name} may take pods when it comes back: the cordon was Forebay's."
        return Uncordon(record=facts.record, reason=Reason.TERMINATED, sentence=sentence, node=node)
    until = (facts.since or now) + KEPT
    if now < until and not facts.deleting:
        return Wait(until)
    sentence = f"{describe(facts.record)} is gone and nothing has to be remembered about it."
    return DeleteRecord(record=facts.record, reason=Reason.TERMINATED, sentence=sentence)
