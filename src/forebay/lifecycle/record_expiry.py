"""Expiry of records: the rule of the state Gone, until the record is deleted."""

from datetime import datetime, timedelta
from typing import Final

from forebay.api.names import INSTANCE_FINALIZER
from forebay.demand.maintenance import cordon_is_ours
from forebay.lifecycle.cooldown import retained_until
from forebay.lifecycle.facts import Facts, may_take_effect_late
from forebay.lifecycle.node_identity import goes_with, may_be_copy, will_go_with
from forebay.lifecycle.presence import confirmed_present, presence_of
from forebay.lifecycle.rule import RuleResult, Wait
from forebay.lifecycle.steps import DeleteNode, DeleteRecord, Uncordon
from forebay.lifecycle.transitions import cause
from forebay.lifecycle.wording import describe
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import InstancePhase

#: How long a record is kept in Gone; longer where its failure makes the next cooldown grow.
RECORD_RETENTION: Final = timedelta(hours=1)
#: Times in a record are cut to whole seconds.
_ROUNDING: Final = timedelta(seconds=1)


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
    leaves_node = cause(facts.status) == Reason.LEFT_IN_GROUP
    if node is not None and goes_with(facts.record, node) and not leaves_node:
        sentence = f"Deleting node {node.name}: its machine, {describe(facts.record)}, is gone."
        return DeleteNode(record=facts.record, reason=Reason.TERMINATED, sentence=sentence, node=node)
    if (copy := facts.stranger) is not None and _is_lost_copy(facts, copy):
        sentence = f"Deleting node {copy.name}: its machine, a second one of the same launch, is gone."
        return DeleteNode(record=facts.record, reason=Reason.TERMINATED, sentence=sentence, node=copy)
    if node is not None and cordon_is_ours(node) and facts.policy.node_outlives_it:
        sentence = f"Uncordoning node {node.name}, which Forebay cordoned, so that it takes pods when it comes back."
        return Uncordon(record=facts.record, reason=Reason.TERMINATED, sentence=sentence, node=node)
    until = max((facts.since or now) + RECORD_RETENTION, retained_until(facts.record) or now)
    # A kubelet that has died with its machine is noticed a minute later, and only the record knows whose Node that is.
    node_goes = node is not None and will_go_with(facts.record, node) and not leaves_node
    if now < until and (node_goes or not facts.deleting):
        return Wait(until)
    sentence = f"{describe(facts.record)} is gone, and no cooldown depends on its record any more. Deleting the record."
    return DeleteRecord(record=facts.record, reason=Reason.TERMINATED, sentence=sentence)


def _is_lost_copy(facts: Facts, node: Node) -> bool:
    """True where the node is that of a second machine of the same launch, and a listing shows neither any more.

    A provider may act twice on one call. Both machines then join with the same token, under the same name.
    """
    if facts.listing is None or facts.capabilities is None or facts.since is None:
        return False
    found = facts.listing.found
    if found.unknown or facts.listing.asked < facts.since + facts.capabilities.settle_time + _ROUNDING:
        return False
    if any(each.provider_id == node.provider_id or each.owner == facts.record.uid for each in found.instances):
        return False
    return may_be_copy(facts.record, node) and not node.ready and node.deleted is None
