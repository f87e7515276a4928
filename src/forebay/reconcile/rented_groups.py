"""Rented groups: machines that a NodeProvisioner rents one by one by a GPUNodeClass, and keeps by names of its own."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, InstanceState, ProvisionerRef, Purpose
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.names import OWN_PROVISIONER_LABEL, PROVISIONER_LABEL
from forebay.api.node_provisioner import NodeProvisioner
from forebay.lifecycle.deliveries.policies import MEMBERS_ARE
from forebay.lifecycle.member_names import is_member_name
from forebay.lifecycle.record_fields import billing_terms, initial_status, offer_record, planned_node
from forebay.lifecycle.revocation import POOL_GONE_AFTER, owner_lost_since
from forebay.lifecycle.steps import Adopt, WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.nodes import Node
from forebay.model.observed_capacity import with_observed_size
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Offer, Source, SourceKey
from forebay.planning.limits import caps
from forebay.planning.plan import Candidate, Cap
from forebay.planning.pool_policies import PoolPolicy
from forebay.reconcile.class_finalizers import may_buy
from forebay.reconcile.observed_sizes import observed_sizes
from forebay.reconcile.orders import OrderTerms, template_hash
from forebay.reconcile.snapshot import Snapshot


class RentedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What a NodeProvisioner may rent now."""

    #: None: there is no such class.
    node_class: GPUNodeClass | None = None
    #: Of what its machines are made now.
    template_hash: str | None = None
    #: By zone or region.
    candidates: Mapping[str, Candidate] = {}
    #: Why machines of the type must not be rented, of those that are offered.
    refused: tuple[str, ...] = ()
    #: Limits of the class, less what runs and is launching.
    caps: tuple[Cap, ...] = ()

    @property
    def offers(self) -> Mapping[str, Offer]:
        return {place: each.offer for place, each in self.candidates.items()}

    def room(self, place: str, taken: Mapping[str, int]) -> int | None:
        """How many more machines may be rented there, beside those that are `taken` already; None: no limit."""
        candidate = self.candidates[place]
        found = [] if candidate.available is None else [candidate.available - taken.get(place, 0)]
        found += (left for cap in self.caps if (left := self._left(cap, candidate, taken)) is not None)
        return max(min(found), 0) if found else None

    def drifted(self, record: GPUInstance) -> bool:
        """Whether the machine was launched from an earlier class, type, labels or taints."""
        made_of = record.spec.template_hash
        return None not in {made_of, self.template_hash} and made_of != self.template_hash

    def limit(self, place: str) -> str | None:
        """The limit that leaves no room for one more machine there."""
        left = {cap.name: self._left(cap, self.candidates[place], {}) for cap in self.caps}
        return next((name for name, number in left.items() if number is not None and number <= 0), None)

    def _left(self, cap: Cap, candidate: Candidate, taken: Mapping[str, int]) -> int | None:
        if cap.nodes is not None:
            return cap.nodes - sum(taken.values())
        if cap.hourly_cost is not None:
            spent = sum(self.candidates[place].offer.price.units * count for place, count in taken.items())
            price = candidate.offer.price.units
            return (cap.hourly_cost.units - spent) // price if price > UsdPerHour.zero().units else None
        if cap.resources is None:
            return None
        found: list[int] = []
        for name, amount in cap.resources.items():
            used = sum(self.candidates[place].node.allocatable.amount(name) * n for place, n in taken.items())
            each = candidate.node.allocatable.amount(name)
            if each:
                found.append((amount - used) // each)
        return min(found, default=None)


def rented_source(provisioner: NodeProvisioner) -> SourceKey | None:
    """The source that a rented group comes from; None for groups that are the provider's."""
    reference = provisioner.spec.node_class_ref
    return None if reference is None else SourceKey(reference.name, provisioner.spec.provider.name)


def rented_group(provisioner: NodeProvisioner, source: Source, snapshot: Snapshot) -> RentedGroup:
    """Offers of the machine type that the class allows, as the nodes that they would become."""
    reference, provider = provisioner.spec.node_class_ref, provisioner.spec.provider
    named = (each for each in snapshot.classes if reference is not None and each.metadata.name == reference.name)
    node_class = next(named, None)
    if node_class is None or node_class.metadata.deletion_timestamp is not None or not may_buy(node_class):
        return RentedGroup(node_class=node_class)
    policy = PoolPolicy.of_group(provisioner.spec, node_class, provisioner_labels(provisioner.metadata.name))
    offers = source.offers or ()
    zoned = any(offer.zone for offer in offers)
    size = observed_sizes(snapshot.records, snapshot.classes).get((source.key, provider.instance_type or ""))
    found: dict[str, Candidate] = {}
    refused: dict[str, None] = {}
    for offer in offers:
        if offer.instance_type != provider.instance_type or source.delivery_of(offer) is not MEMBERS_ARE:
            continue
        if provider.location is not None and provider.location not in {offer.region, offer.zone}:
            continue
        sized = offer if size is None else with_observed_size(offer, size)
        # Without DaemonSets: these are subtracted where pods are packed.
        candidate = policy.candidate(source, sized, (), zoned=zoned)
        why = policy.refuses(source, candidate, None)
        if why is None:
            place = offer.zone or offer.region or offer.provider
            found[f"{place} (spot)" if offer.spot else place] = candidate
        else:
            refused[why[1]] = None
    return RentedGroup(
        node_class=node_class,
        template_hash=template_hash(node_class, None, provisioner.spec),
        candidates=found,
        refused=tuple(refused),
        caps=caps((), [node_class], snapshot.records) if node_class.spec.limits is not None else (),
    )


def provisioner_labels(name: str) -> Mapping[str, str]:
    return {PROVISIONER_LABEL: name, OWN_PROVISIONER_LABEL: name}


def rented_member_spec(  # noqa: PLR0917 (each is a part of the record)
    provisioner: str, place: str, name: str, group: RentedGroup, source: Source, why: str
) -> GPUInstanceSpec:
    """The record of one machine of the group."""
    candidate, node_class = group.candidates[place], group.node_class
    offer, node = candidate.offer, candidate.node
    terms = OrderTerms(node_class=node_class, capabilities=source.capabilities, purpose=Purpose.GROUP)
    return GPUInstanceSpec(
        purpose=Purpose.GROUP,
        provider=offer.provider,
        delivers=MEMBERS_ARE,
        provisioner_ref=ProvisionerRef(name=provisioner, group=place),
        node_class_name=source.key.node_class,
        offer=offer_record(offer),
        hourly_price=offer.price.exact(),
        billing=billing_terms(offer.billing),
        node=planned_node(name, node.labels, node.taints, node.capacity),
        image=terms.image,
        template_hash=group.template_hash,
        tags=node_class.spec.tags if node_class is not None else {},
        why=why,
    )


def into_groups(snapshot: Snapshot, adopted: Iterable[Adopt]) -> Iterator[Adopt]:
    """The adoptions; a machine that a NodeProvisioner named and that has lost its record is its member again, and is
    not terminated.
    """
    rented = [each for each in snapshot.provisioners if each.spec.node_class_ref is not None]
    rented = [each for each in rented if each.metadata.deletion_timestamp is None]
    records = {record.metadata.name: record for record in snapshot.records}
    for adopt in adopted:
        name, owner = adopt.status.node_name, None
        if rented and name is not None and adopt.reason is Reason.LEFTOVER:
            owner = next((each for each in rented if _named_by(each, adopt, name)), None)
        before = records.get(name or "")
        if owner is None or name is None or (before is not None and initial_status(before) is None):
            yield adopt
        elif before is None:
            yield _member(adopt, owner, name, snapshot)
        # Else it is adopted already, and the status of its record is about to be written.


def _named_by(provisioner: NodeProvisioner, adopt: Adopt, name: str) -> bool:
    return provisioner.spec.provider.name == adopt.spec.provider and is_member_name(provisioner, name)


def _member(adopt: Adopt, provisioner: NodeProvisioner, name: str, snapshot: Snapshot) -> Adopt:
    own, key = provisioner.metadata.name, rented_source(provisioner)
    source = snapshot.sources.get(key) if key is not None else None
    if source is None:
        return adopt
    node, group = snapshot.nodes.get(name), rented_group(provisioner, source, snapshot)
    sentence = (
        f"{name} at {adopt.spec.provider} is a machine of NodeProvisioner {own} that has lost its GPUInstance. "
        "Adopting it."
    )
    place = _place_of(node, group)
    if place is None:
        reference = ProvisionerRef(name=own, group=None)
        spec = replace(
            adopt.spec, purpose=Purpose.GROUP, provisioner_ref=reference, node_class_name=source.key.node_class
        )
        spec = replace(spec, why=sentence)
    else:
        spec = rented_member_spec(own, place, name, group, source, sentence)
        if adopt.spec.hourly_price is not None:
            spec = replace(spec, hourly_price=adopt.spec.hourly_price)
    up = node is not None and node.deleted is None and node.ready
    status = transition(
        None,
        InstanceState.JOINED if up else InstanceState.LAUNCHED,
        Reason.ADOPTED,
        sentence,
        snapshot.now,
        instance_id=adopt.status.instance_id,
        provider_id=adopt.status.provider_id,
        node_name=name,
        hourly_price=adopt.status.hourly_price,
        billed_from=adopt.status.billed_from,
    )
    return Adopt(name=name, spec=spec, status=status, reason=Reason.ADOPTED, sentence=sentence)


def _place_of(node: Node | None, group: RentedGroup) -> str | None:
    """Where a machine that was found is: by the labels of its node, or else the first place."""
    topology = set() if node is None else {value for key, value in node.labels.items() if "topology" in key}
    at = (place for place, each in group.candidates.items() if {each.offer.zone, each.offer.region} & topology)
    return next(at, next(iter(group.candidates), None))


def leave_deleted(snapshot: Snapshot, excluded: Iterable[str]) -> Iterator[WriteStatus]:
    """Drains machines of deleted NodeProvisioners that have no pods: nobody else would ever terminate them."""
    live = {each.metadata.name for each in snapshot.provisioners} | snapshot.unreadable_provisioners
    busy = set(excluded)
    for record in snapshot.records:
        reference = record.spec.provisioner_ref
        if reference is None or record.in_instance_group or record.state is not InstanceState.READY:
            continue
        since = None if reference.name in live else owner_lost_since(record)
        if since is None or snapshot.now < since + POOL_GONE_AFTER or record.metadata.name in busy:
            continue
        if snapshot.pods_by_node.get(record.node_name or ""):
            continue
        sentence = (
            f"NodeProvisioner {reference.name} was deleted, and no pod is left on node {record.node_name}. Draining "
            "it; a pod that comes keeps it."
        )
        status = transition(record.status, InstanceState.DRAINING, Reason.IDLE, sentence, snapshot.now)
        yield WriteStatus(record=record, reason=Reason.IDLE, sentence=sentence, status=status)


def next_leave(snapshot: Snapshot) -> datetime | None:
    """When the next machine of a deleted NodeProvisioner may be drained."""
    found = (owner_lost_since(each) for each in snapshot.records if _is_rented_member(each))
    due = (since + POOL_GONE_AFTER for since in found if since is not None)
    return min((at for at in due if at > snapshot.now), default=None)


def _is_rented_member(record: GPUInstance) -> bool:
    return record.spec.provisioner_ref is not None and not record.in_instance_group
