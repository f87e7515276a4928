"""Launched and Joined: a machine becomes a node, and the node gets its GPUs."""

from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.api.parts import Truth
from forebay.demand.initialization import gpus_allocatable, is_initialized
from forebay.lifecycle.cordon import cordon_is_ours
from forebay.lifecycle.deadlines import deadline
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.facts import boot_deadline
from forebay.lifecycle.liveness import UNHEALTHY_AFTER
from forebay.lifecycle.presence import Presence, presence_of
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.steps import WriteStatus
from forebay.lifecycle.termination import give_up, revoked, uncordon
from forebay.lifecycle.transitions import (
    MACHINE_RUNNING,
    NODE_READY,
    condition,
    transition,
    with_condition,
    with_message,
)
from forebay.lifecycle.wording import describe
from forebay.model.reasons import Reason
from forebay.model.sources import InstancePhase
from forebay.model.spans import human


def launched(known: RuleContext) -> RuleResult:
    facts, now = known.facts, known.now
    if (why := revoked(facts)) is not None:
        return give_up(known, why[0], f"Given back: {why[1]}.")
    node = facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(known, node)
    # The Node of an owned machine is always there: only when it is ready has the machine come up.
    if node is not None and (node.ready or not facts.owned):
        sentence = f"Node {node.name} has joined. Next: it must be ready, with its GPUs."
        status = transition(known.status, InstanceState.JOINED, Reason.NODE_JOINED, sentence, now, node_name=node.name)
        status = replace(status, deadline=deadline(known.record, status, known.capabilities))
        return WriteStatus(record=known.record, reason=Reason.NODE_JOINED, sentence=sentence, status=status)
    seen = presence_of(facts)
    # Not so for owned ones: many report "off" until they have booted.
    if not facts.owned and (thought := _runs(known, seen) or vanished(known, seen)) is not None:
        return thought
    end = _end_of_patience(known, seen)
    return Wait(end.at) if now < end.at else give_up(known, end.reason, end.sentence, failed=True)


def joined(known: RuleContext) -> RuleResult:
    facts, now = known.facts, known.now
    if (why := revoked(facts)) is not None:
        return give_up(known, why[0], f"Given back: {why[1]}.")
    node = facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(known, node)
    if node is not None and is_initialized(known.record, node):
        return _ready(known, node.name)
    if (thought := vanished(known, presence_of(facts))) is not None:
        return thought
    late = deadline(known.record, known.status, known.capabilities) or now
    if now < late:
        return Wait(late)
    reason, sentence = _what_is_missing(known)
    # Of a node that has fallen silent nobody can tell whether its pods still run: they are not waited for for long.
    silent_for_long = None
    if node is not None and not node.ready:
        silent_for_long = (node.unready_since or known.since) + UNHEALTHY_AFTER
    if facts.pods and (silent_for_long is None or now < silent_for_long):
        waiting = f"{sentence} It is given back when the {len(facts.pods)} pods that run on it all the same have ended."
        said = known.write(with_message(known.status, reason, waiting), reason, waiting)
        return said or (None if silent_for_long is None else Wait(silent_for_long))
    return give_up(known, reason, f"{sentence} It is given back and left alone for a while.", failed=True)


def _ready(known: RuleContext, node: str) -> RuleResult:
    called = known.status.attempted_at
    took = f", {human(known.now - called)} after it was asked for" if called is not None else ""
    sentence = f"Node {node} is ready with its GPUs{took}. Pods can run on it."
    status = transition(
        known.status, InstanceState.READY, Reason.NODE_READY, sentence, known.now, failures=None, node_name=node
    )
    status = with_condition(status, NODE_READY, True, Reason.NODE_READY, sentence, known.now)
    return WriteStatus(record=known.record, reason=Reason.NODE_READY, sentence=sentence, status=status)


def _what_is_missing(known: RuleContext) -> tuple[Reason, str]:
    node = known.facts.node
    if node is None or not node.ready:
        return Reason.JOIN_TIMEOUT, f"Node {known.record.node_name} joined but was not ready in time."
    missing = (
        "a startup taint is still on it" if gpus_allocatable(known.record, node) else "its GPUs are not allocatable"
    )
    # Not for how long by now: it would be another sentence with every look, and each is written.
    late = deadline(known.record, known.status, known.capabilities) or known.now
    span = human(late - (known.status.attempted_at or known.since))
    sentence = f"Node {node.name} is ready, but {missing} after {span}: look at its driver and device plugin."
    return Reason.GPUS_MISSING, sentence


def _runs(known: RuleContext, seen: Presence) -> RuleResult:
    """The first time that the provider shows it running: from then on it has its time to join."""
    before = condition(known.status, MACHINE_RUNNING)
    if before is not None and before.status is Truth.TRUE:
        return None
    if not any(each.phase is InstancePhase.RUNNING for each in seen.instances):
        return None
    sentence = f"{describe(known.record)} runs. Next: it must become a node."
    status = with_condition(known.status, MACHINE_RUNNING, True, Reason.LAUNCH_ACCEPTED, sentence, known.now)
    status = with_message(status, Reason.LAUNCH_ACCEPTED, sentence)
    status = replace(status, deadline=deadline(known.record, status, known.capabilities))
    return known.write(status, Reason.LAUNCH_ACCEPTED, sentence)


class _End(NamedTuple):
    at: datetime
    reason: Reason
    sentence: str


def _end_of_patience(known: RuleContext, seen: Presence) -> _End:
    at = deadline(known.record, known.status, known.capabilities) or known.now
    next_ = "It is ended and left alone for a while."
    running = condition(known.status, MACHINE_RUNNING)
    if known.facts.owned or boot_deadline(known.record) is not None or running is not None:
        name = known.record.node_name
        sentence = (
            f"{describe(known.record)} was switched on but node {name} was not ready {_in_time(known, at)}. {next_}"
        )
        if not known.facts.owned:
            sentence = f"{describe(known.record)} runs but node {name} did not join {_in_time(known, at)}. {next_}"
        return _End(at, Reason.JOIN_TIMEOUT, sentence)
    if seen.present or known.now < at:
        sentence = f"{describe(known.record)} was accepted but did not run {_in_time(known, at)}. {next_}"
        return _End(at, Reason.LAUNCH_TIMEOUT, sentence)
    # Nobody can tell whether it runs; that it is no node is certain.
    at += known.capabilities.join_deadline
    return _End(
        at, Reason.JOIN_TIMEOUT, f"{describe(known.record)} did not become a node {_in_time(known, at)}. {next_}"
    )


def _in_time(known: RuleContext, late: datetime) -> str:
    return f"within {human(late - (known.status.attempted_at or known.since))}"
