"""Expiry of records: the rule of the state Gone, until the record is deleted."""

from datetime import datetime, timedelta
from typing import Final

from forebay.api.names import INSTANCE_FINALIZER
from forebay.demand.maintenance import cordon_is_ours
from forebay.lifecycle.cooldown import retained_until
from forebay.lifecycle.facts import Facts, may_take_effect_late
from forebay.lifecycle.node_identity import goes_with
from forebay.lifecycle.presence import confirmed_present, presence_of
from forebay.lifecycle.rule import RuleResult, Wait
from forebay.lifecycle.steps import DeleteNode, DeleteRecord, Uncordon
from forebay.lifecycle.transitions import cause
from forebay.lifecycle.wording import describe
from forebay.model.reasons import Reason
from forebay.model.sources import InstancePhase

#: How long a record is kept in Gone; longer where its failure makes the next cooldown grow.
RECORD_RETENTION: Final = timedelta(hours=1)


def expired_record(facts: Facts, now: datetime) -> RuleResult:
    """Rule of the state Gone: deletes the record when it is no longer needed. Works without the provider."""
    if facts.deleting and INSTANCE_FINALIZER not in facts.record.metadata.finalizers:
        return None  # somebody else's finalizer holds it
    node, seen = facts.node, presence_of(facts)
    named = facts.policy.configured_by_name
    on = named and confirmed_present(facts, seen, now) and seen.instances[0].phase is InstancePhase.RUNNING
    late = may_take_effect_late(facts.record)
    if not late and (on or facts.policy.still_on(node)):
        # A machine has one record at a time: the next can be created only when this one is deleted. Not where a call
        # may have taken effect late: the record tells so, until an adoption replaces it.
        sentence = f"{describe(facts.record)} is on again. Deleting this record, so that a new one can be created."
        return DeleteRecord(record=facts.record, reason=Reason.TERMINATED, sentence=sentence)
    if node is not None and goes_with(facts.record, node) and cause(facts.status) != Reason.LEFT_IN_GROUP:
        sentence = f"Deleting node {node.name}: its machine, {describe(facts.record)}, is gone."
        return DeleteNode(record=facts.record, reason=Reason.TERMINATED, sentence=sentence, node=node)
    if node is not None and cordon_is_ours(node) and facts.policy.node_outlives_it:
        sentence = f"Uncordoning node {node.name}, which Forebay cordoned, so that it takes pods when it comes back."
        return Uncordon(record=facts.record, reason=Reason.TERMINATED, sentence=sentence, node=node)
    until = max((facts.since or now) + RECORD_RETENTION, retained_until(facts.record) or now)
    if now < until and not facts.deleting:
        return Wait(until)
    sentence = f"{describe(facts.record)} is gone, and no cooldown depends on its record any more. Deleting the record."
    return DeleteRecord(record=facts.record, reason=Reason.TERMINATED, sentence=sentence)
