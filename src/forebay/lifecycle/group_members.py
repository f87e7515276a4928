"""Members of instance groups: adopted where they are found, followed where their group recreates them, and left in
their group when its NodeProvisioner is deleted.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, InstanceState, ProvisionerRef, Purpose
from forebay.api.instance_order import PlannedNode
from forebay.api.names import OWN_PROVISIONER_LABEL, PROVISIONER_LABEL
from forebay.api.node_provisioner import NodeProvisioner
from forebay.demand.maintenance import cordon_is_ours
from forebay.lifecycle.deliveries.policies import MEMBERS_ARE
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.presence import presence_of
from forebay.lifecycle.record_fields import billing_terms, offer_record, planned_node
from forebay.lifecycle.rule import RuleContext
from forebay.lifecycle.steps import Adopt, AnyStep, Uncordon, WriteStatus
from forebay.lifecycle.transitions import transition, whole_seconds, with_message
from forebay.lifecycle.wording import describe
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.reasons import Reason
from forebay.model.sources import Instance, InstancePhase, Listing, Offer, Source

#: What a DNS label of 63 characters leaves beside a hyphen and the digest.
_LONGEST_PREFIX: Final = 52
_NOT_THERE: Final = frozenset({InstancePhase.ENDING, InstancePhase.FAILED})


def group_of(instance: Instance) -> str:
    """The group of a listed member, whose id is `group/name`."""
    return instance.id.rpartition("/")[0]


def unrecorded_members(
    provisioner: NodeProvisioner, source: Source, records: Iterable[GPUInstance]
) -> tuple[Instance, ...]:
    """Listed members of the provisioner's groups that have no record, without those that are being deleted."""
    if source.listing is None or provisioner.spec.node_class_ref is not None:
        return ()
    known = {instance_id(each) for each in members_of(provisioner.metadata.name, records)}
    return tuple(
        each
        for each in source.listing.found.instances
        if each.id not in known and each.phase not in _NOT_THERE and group_of(each)
    )


def members_of(provisioner: str, records: Iterable[GPUInstance]) -> Iterator[GPUInstance]:
    """Records of the provisioner's members, without those that are gone."""
    for record in records:
        reference = record.spec.provisioner_ref
        if reference is not None and reference.name == provisioner and record.state is not InstanceState.GONE:
            yield record


def member_adoptions(
    provisioner: NodeProvisioner,
    source: Source,
    records: Mapping[str, GPUInstance],
    nodes: Mapping[str, Node],
    now: datetime,
) -> tuple[Adopt, ...]:
    """Records for the members that have none: they were in the group before, or somebody else added them.

    A member is billed to this cluster from when its NodeProvisioner knows it.
    """
    listing = source.listing
    if listing is None:
        return ()
    offers = group_offers(listing)
    return tuple(
        _adopt(provisioner, instance, offers.get(group_of(instance)), source, records, nodes, now)
        for instance in unrecorded_members(provisioner, source, records.values())
    )


def group_offers(listing: Listing) -> dict[str, Offer]:
    """What a member of each group is, as far as that is known."""
    return {each.name: each.offer for each in listing.found.groups if each.offer is not None}


def member_spec(  # noqa: PLR0917 (each is a part of the record)
    provisioner: str, group: str, name: str, provider: str, offer: Offer | None, why: str
) -> GPUInstanceSpec:
    """The record of one member."""
    return GPUInstanceSpec(
        purpose=Purpose.GROUP,
        provider=provider,
        delivers=MEMBERS_ARE,
        provisioner_ref=ProvisionerRef(name=provisioner, group=group),
        offer=None if offer is None else offer_record(offer),
        hourly_price=None if offer is None else offer.price.exact(),
        billing=None if offer is None else billing_terms(offer.billing),
        node=member_node(provisioner, name, offer),
        why=why,
    )


def member_node(provisioner: str, name: str, offer: Offer | None) -> PlannedNode:
    """The node of a member. Its template gives it its taints, and its labels beside those of the provisioner."""
    labels = {PROVISIONER_LABEL: provisioner, OWN_PROVISIONER_LABEL: provisioner}
    if offer is None:
        return planned_node(name, labels, (), Resources())
    return planned_node(name, {**offer.labels, **labels}, offer.taints, offer.allocatable)


def _adopt(  # noqa: PLR0917 (each is a part of the record)
    provisioner: NodeProvisioner,
    instance: Instance,
    offer: Offer | None,
    source: Source,
    records: Mapping[str, GPUInstance],
    nodes: Mapping[str, Node],
    now: datetime,
) -> Adopt:
    group, name = group_of(instance), instance.node_name or instance.id.rpartition("/")[2]
    own, provider = provisioner.metadata.name, source.key.provider
    node = nodes.get(name)
    up = node is not None and node.deleted is None and node.ready
    sentence = f"{name} is a member of instance group {group} of NodeProvisioner {own}. Adopting it."
    known_since = provisioner.metadata.creation_timestamp or now
    spec = member_spec(own, group, name, provider, offer, sentence)
    # The taints of its template are on its node already, as far as they are wanted there.
    spec = replace(spec, node=None if spec.node is None else replace(spec.node, taints=()))
    status = transition(
        None,
        InstanceState.JOINED if up else InstanceState.LAUNCHED,
        Reason.ADOPTED,
        sentence,
        now,
        instance_id=instance.id,
        provider_id=instance.provider_id,
        node_name=name,
        hourly_price=instance.price.exact() if instance.price is not None else None,
        billed_from=whole_seconds(min(now, max(instance.created or now, known_since))),
    )
    return Adopt(
        name=_record_name(name, f"{provider}\n{instance.id}", records),
        spec=spec,
        status=status,
        reason=Reason.ADOPTED,
        sentence=sentence,
    )


def _record_name(member: str, identity: str, records: Mapping[str, GPUInstance]) -> str:
    """The member's own name, or one with a digest where a record has that name already."""
    name, earlier = member, ""
    while (before := records.get(name)) is not None:
        earlier += before.uid
        digest = hashlib.sha256(f"{identity}\n{earlier}".encode()).hexdigest()[:10]
        name = f"{member[:_LONGEST_PREFIX].rstrip('-')}-{digest}"
    return name


def recreated(ctx: RuleContext) -> WriteStatus | None:
    """Follows a member whose machine its group has replaced under the same name."""
    if not ctx.record.in_instance_group or ctx.status.state in {None, InstanceState.TERMINATING}:
        return None
    seen = presence_of(ctx.facts)
    instance = seen.instances[0] if seen.present else None
    shown = instance.provider_id if instance is not None else None
    if instance is None or shown is None or ctx.status.provider_id == shown:
        return None
    if ctx.status.provider_id is None:
        # The first listing after the launch call. The provider's own time is the one that it bills.
        billed = whole_seconds(instance.created) if instance.created is not None else ctx.status.billed_from
        return WriteStatus(
            record=ctx.record,
            reason=Reason.ADOPTED,
            sentence=f"{describe(ctx.record)} is {shown}.",
            status=replace(ctx.status, provider_id=shown, billed_from=billed),
        )
    sentence = f"Its group has recreated {describe(ctx.record)}: it is {shown} now."
    status = with_message(ctx.status, Reason.ADOPTED, sentence, provider_id=shown)
    return WriteStatus(record=ctx.record, reason=Reason.ADOPTED, sentence=sentence, status=status)


def left_in_group(facts: Facts, now: datetime) -> AnyStep:
    """The end of the record of a member whose NodeProvisioner was deleted: its machine stays as it is."""
    record, node = facts.record, facts.node
    if node is not None and cordon_is_ours(node):
        sentence = f"Uncordoning node {node.name}: its NodeProvisioner was deleted, and the group stays as it is."
        return Uncordon(record=record, reason=Reason.LEFT_IN_GROUP, sentence=sentence, node=node)
    reference = record.spec.provisioner_ref
    of = reference.name if reference is not None else "of its group"
    sentence = (
        f"NodeProvisioner {of} was deleted. {describe(record)} stays as it is; Forebay no longer counts or bills it."
    )
    billed = facts.status.billed_from is not None
    status = transition(
        facts.status,
        InstanceState.GONE,
        Reason.LEFT_IN_GROUP,
        sentence,
        now,
        billed_until=whole_seconds(now) if billed else None,
    )
    return WriteStatus(record=record, reason=Reason.LEFT_IN_GROUP, sentence=sentence, status=status)
