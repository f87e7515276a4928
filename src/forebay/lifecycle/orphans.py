"""Orphans: instances that run at a provider without a record.

A rented instance is terminated. An owned machine is adopted: it counts as capacity and is powered off when idle.
Nothing is concluded from a single listing: the record may have been created a moment after it.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, InstanceState, Purpose
from forebay.lifecycle.deliveries.policies import policy_for
from forebay.lifecycle.facts import instance_id
from forebay.lifecycle.node_identity import node_of_orphan
from forebay.lifecycle.record_fields import billing_terms, offer_record, planned_node
from forebay.lifecycle.steps import Adopt
from forebay.lifecycle.transitions import transition, whole_seconds
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import Instance, InstancePhase, Offer, Source, SourceKey

#: So many listings must have shown an instance without a record.
SIGHTINGS_NEEDED: Final = 2
#: How long an instance must have been seen without a record.
ORPHAN_AFTER: Final = timedelta(seconds=60)


class OrphanSightings(NamedTuple):
    """The listings that showed one instance without a record."""

    first: datetime
    last: datetime
    listings: int = 1


class Orphans(msgspec.Struct, frozen=True):
    """Instances without a record, and the listings that showed them. Kept from tick to tick; a restart starts over."""

    seen: Mapping[tuple[SourceKey, str], OrphanSightings] = {}
    #: Names of owned machines that a call of Forebay's seems to have powered on late. Their former record, which said
    #: so, is deleted before the new one is created, and that may fail.
    powered_on_late: frozenset[str] = frozenset()

    def long_enough(self, key: SourceKey, instance: str, now: datetime, created: datetime | None = None) -> bool:
        """Whether it has been without a record for long enough. `created`: since when the provider says it exists; a
        record is made before its instance, so that an operator that is restarted again and again need not count anew.
        """
        found = self.seen.get((key, instance))
        if found is None or found.listings < SIGHTINGS_NEEDED:
            return False
        return now >= (found.first if created is None else min(created, found.first)) + ORPHAN_AFTER


def orphans_seen(before: Orphans, sources: Iterable[Source], recorded: "RecordedInstances") -> Orphans:
    """The orphans after the latest listings. Those that now have a record, or are no longer listed, are dropped."""
    seen: dict[tuple[SourceKey, str], OrphanSightings] = {}
    for source in sources:
        if source.listing is None:
            continue
        asked = source.listing.asked
        for instance, _ in recorded.orphans_of(source):
            known = before.seen.get((source.key, instance.id))
            if known is None:
                known = OrphanSightings(asked, asked)
            elif asked > known.last:
                known = OrphanSightings(known.first, asked, known.listings + 1)
            seen[source.key, instance.id] = known
    return Orphans(seen)


def adoptions(
    found: Orphans,
    sources: Iterable[Source],
    recorded: "RecordedInstances",
    nodes: Mapping[str, Node],
    now: datetime,
) -> tuple[Adopt, ...]:
    """Records to create. Names are derived from the instance, so that two replicas cannot create two records for it."""
    adopted: dict[str, Adopt] = {}
    for source in sources:
        for adopt in (
            *_owned_machines(found, source, recorded, nodes, now),
            *_leftovers(found, source, recorded, nodes, now),
        ):
            # Two classes may share an account, and then both list what is in it.
            adopted.setdefault(adopt.name, adopt)
    return tuple(adopted.values())


class RecordedInstances:
    """Which instances have a record. Those `besides` these names are replaced by a new one, if need be."""

    def __init__(self, records: Iterable[GPUInstance], besides: Collection[str] = ()) -> None:
        records = tuple(records)
        self.by_name = {record.metadata.name: record for record in records}
        for name in besides:
            del self.by_name[name]
        self._live = [record for record in records if record.state is not InstanceState.GONE]
        self._orphans: dict[SourceKey, tuple[Source, Sequence[tuple[Instance, Reason]]]] = {}
        self._unnamed: dict[SourceKey, tuple[Source, Sequence[Offer]]] = {}

    @cached_property
    def _by_uid(self) -> dict[str, GPUInstance]:
        return {record.uid: record for record in self._live}

    @cached_property
    def _ids(self) -> Mapping[str, Collection[str | None]]:
        """By provider, the instances that have a record."""
        found: defaultdict[str, set[str | None]] = defaultdict(set)
        for record in self._live:
            found[record.spec.provider].add(instance_id(record))
        return found

    @cached_property
    def _launching(self) -> set[str]:
        """Providers with a launch whose outcome is unknown: an instance without an owner may be its result."""
        return {
            record.spec.provider
            for record in self._live
            if record.status is not None and record.status.state is not None and instance_id(record) is None
        }

    def orphans_of(self, source: Source) -> Sequence[tuple[Instance, Reason]]:
        """The instances without a record in the source's last listing, and why each is an orphan."""
        if source.listing is None or source.key.provisioner is not None:
            # Members of groups are adopted by `group_members`, and never terminated for having no record.
            return ()
        known = self._orphans.get(source.key)
        if known is None or known[0] is not source:
            recorded = self._ids.get(source.key.provider, ())
            others = (each for each in source.listing.found.instances if each.id not in recorded)
            reasons = ((each, self._orphan_reason(each, source)) for each in others)
            known = source, [(each, why) for each, why in reasons if why is not None]
            self._orphans[source.key] = known
        return known[1]

    def without_record(self, source: Source) -> Sequence[Offer]:
        """The source's offers of owned machines of whose name there is no record."""
        known = self._unnamed.get(source.key)
        if known is None or known[0] is not source:
            offers = (each for each in source.offers or () if _machine_of(each) not in self.by_name)
            adopted = (each for each in offers if policy_for(source.delivery_of(each)).adopted_when_found)
            known = self._unnamed[source.key] = source, tuple(adopted)
        return known[1]

    def ordered(self, instance: Instance) -> GPUInstanceSpec | None:
        """The order that the instance is a second result of; None where no record has asked for it."""
        owner = None if instance.owner is None else self._by_uid.get(instance.owner)
        return None if owner is None else owner.spec

    def _orphan_reason(self, instance: Instance, source: Source) -> Reason | None:
        """Why an instance without a record is an orphan; None where it may be the result of a launch under way."""
        provider = source.key.provider
        if policy_for(source.delivery_of(instance)).adopted_when_found:
            return Reason.ADOPTED if instance.phase is InstancePhase.RUNNING else None
        if instance.owner is None:
            return None if provider in self._launching else Reason.LEFTOVER
        owner = self._by_uid.get(instance.owner)
        if owner is None:
            return Reason.LEFTOVER
        return Reason.DUPLICATE if instance_id(owner) is not None else None


def _machine_of(offer: Offer) -> str:
    """Name of the owned machine that is offered."""
    return offer.node_name or offer.instance_type


def _leftovers(
    found: Orphans, source: Source, recorded: RecordedInstances, nodes: Mapping[str, Node], now: datetime
) -> Iterator[Adopt]:
    for instance, reason in recorded.orphans_of(source):
        if reason is Reason.ADOPTED or not found.long_enough(source.key, instance.id, now, instance.created):
            continue
        provider = source.key.provider
        name = _name(provider, instance.id, recorded)
        if (before := recorded.by_name.get(name)) is not None and before.state is not InstanceState.GONE:
            # It has a record already, whose status is about to be written.
            continue
        why = "is a second instance of the same GPUInstance" if reason is Reason.DUPLICATE else "has no GPUInstance"
        sentence = f"Instance {instance.id} at {provider} carries this cluster's tag but {why}. Terminating it."
        order = recorded.ordered(instance)
        price = None if order is None else order.hourly_price
        if instance.price is not None:
            price = instance.price.exact()
        # Where the provider does not tell since when it runs, that is as long as it has been seen.
        created = instance.created or found.seen[source.key, instance.id].first
        node = node_of_orphan(instance, provider, nodes.values())
        yield Adopt(
            name=name,
            spec=GPUInstanceSpec(
                purpose=Purpose.ADOPTED,
                provider=provider,
                delivers=source.delivery_of(instance),
                node_class_name=source.key.node_class or None,
                hourly_price=price,
                # Of an instance that nobody has ordered, only the usual terms of its provider are known.
                billing=billing_terms(source.capabilities.billing) if order is None else order.billing,
                why=sentence,
            ),
            status=transition(
                None,
                InstanceState.TERMINATING,
                reason,
                sentence,
                now,
                instance_id=instance.id,
                provider_id=instance.provider_id if node is None else node.provider_id,
                node_name=instance.node_name if node is None else node.name,
                hourly_price=price,
                billed_from=whole_seconds(created),
            ),
            reason=reason,
            sentence=sentence,
        )


def _name(provider: str, instance: str, recorded: RecordedInstances) -> str:
    """Name of the record; another one where a Gone record for an earlier sighting of the instance has that name."""
    earlier = ""
    while True:
        digest = hashlib.sha256(f"{provider}\n{instance}\n{earlier}".encode()).hexdigest()[:10]
        before = recorded.by_name.get(name := f"leftover-{provider}-{digest}")
        if before is None or before.state is not InstanceState.GONE:
            return name
        earlier = before.uid


def _owned_machines(
    found: Orphans, source: Source, recorded: RecordedInstances, nodes: Mapping[str, Node], now: datetime
) -> Iterator[Adopt]:
    listing = source.listing
    if listing is None:
        return
    running = {
        each.id
        for each, _ in recorded.orphans_of(source)
        if policy_for(source.delivery_of(each)).sighting_holds(listing.asked, now)
    }
    # Not where the record is Gone either: it has to be deleted first.
    for offer in recorded.without_record(source):
        machine = _machine_of(offer)
        node = nodes.get(machine)
        up = node is not None and node.ready and node.deleted is None
        if up and (machine in running or machine in listing.found.unknown):
            sentence = f"{machine} is on and node {machine} is Ready. Adopting it."
            yield _adopt_machine(source, offer, machine, InstanceState.JOINED, sentence, now)
        elif machine in running and found.long_enough(source.key, machine, now):
            sentence = f"{machine} is on, but Forebay did not power it on. Adopting it; its node must become Ready."
            yield _adopt_machine(source, offer, machine, InstanceState.LAUNCHED, sentence, now)


def powered_on_late(adopt: Adopt) -> Adopt:
    """The adoption of a machine that a power-on call of its previous GPUInstance has powered on, and nobody by hand."""
    sentence = (
        f"{adopt.name} is on: a power-on call of Forebay's whose outcome was unknown seems to have taken effect late. "
        "Adopting it; powered off unless its node becomes Ready with its GPUs."
    )
    first = adopt.status.transitions[-1]
    status = msgspec.structs.replace(
        adopt.status,
        message=sentence,
        attempt=1,
        transitions=(*adopt.status.transitions[:-1], msgspec.structs.replace(first, message=sentence)),
    )
    spec = msgspec.structs.replace(adopt.spec, why=sentence)
    return msgspec.structs.replace(adopt, spec=spec, status=status, sentence=sentence)


def _adopt_machine(  # noqa: PLR0917 (each is a part of the record)
    source: Source, offer: Offer, machine: str, state: InstanceState, sentence: str, now: datetime
) -> Adopt:
    return Adopt(
        name=machine,
        spec=GPUInstanceSpec(
            purpose=Purpose.ADOPTED,
            provider=source.key.provider,
            delivers=source.delivery_of(offer),
            node_class_name=source.key.node_class or None,
            offer=offer_record(offer),
            hourly_price=offer.price.exact(),
            billing=billing_terms(offer.billing),
            node=planned_node(machine, offer.labels, offer.taints, offer.allocatable),
            why=sentence,
        ),
        status=transition(
            None,
            state,
            Reason.ADOPTED,
            sentence,
            now,
            instance_id=machine,
            node_name=machine,
            billed_from=whole_seconds(now),
        ),
        reason=Reason.ADOPTED,
        sentence=sentence,
    )
