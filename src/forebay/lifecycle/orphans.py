"""What runs at a provider without a record that claims it.

A rented instance is given back; an owned machine is taken over, so that it is counted and goes off when idle. Nothing
is concluded from one list: a record may have been written a moment after the list was made.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, InstanceState
from forebay.api.providers import ProviderName
from forebay.lifecycle.facts import instance_id
from forebay.lifecycle.presence import ENOUGH, FRESH
from forebay.lifecycle.record_fields import offer_record, planned_node
from forebay.lifecycle.steps import Adopt
from forebay.lifecycle.transitions import transition, whole_seconds
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery, Instance, InstancePhase, Offer, Source, SourceKey

#: How long an instance must have been without a record.
PATIENCE: Final = timedelta(seconds=60)


class OrphanSightings(NamedTuple):
    """The lists that showed one instance unclaimed."""

    first: datetime
    last: datetime
    lists: int = 1


class Orphans(msgspec.Struct, frozen=True):
    """Of each instance that no record claims, since when. Kept from tick to tick; lost in a restart, it begins anew."""

    seen: Mapping[tuple[SourceKey, str], OrphanSightings] = {}

    def long_enough(self, key: SourceKey, instance: str, now: datetime) -> bool:
        found = self.seen.get((key, instance))
        return found is not None and found.lists >= ENOUGH and now >= found.first + PATIENCE


def orphans_seen(before: Orphans, sources: Iterable[Source], records: Iterable[GPUInstance]) -> Orphans:
    """With what the latest lists show. What is claimed, gone or not listed any more is dropped."""
    claims = _Claims(records)
    seen: dict[tuple[SourceKey, str], OrphanSightings] = {}
    for source in sources:
        if source.listing is None:
            continue
        asked = source.listing.asked
        for instance in source.listing.found.instances:
            if claims.reason_against(instance, source) is None:
                continue
            known = before.seen.get((source.key, instance.id))
            if known is None:
                known = OrphanSightings(asked, asked)
            elif asked > known.last:
                known = OrphanSightings(known.first, asked, known.lists + 1)
            seen[source.key, instance.id] = known
    return Orphans(seen)


def adoptions(
    found: Orphans,
    sources: Iterable[Source],
    records: Iterable[GPUInstance],
    nodes: Mapping[str, Node],
    now: datetime,
) -> tuple[Adopt, ...]:
    """Records to make. Their names follow from what they are for, so that two replicas cannot make two."""
    claims = _Claims(records)
    adopted: dict[str, Adopt] = {}
    for source in sources:
        owned = source.capabilities.delivers is Delivery.POWER
        each = _machines(found, source, claims, nodes, now) if owned else _instances(found, source, claims, now)
        for adopt in each:
            # Two classes may have the same account, and both list what is in it.
            adopted.setdefault(adopt.name, adopt)
    return tuple(adopted.values())


class _Claims:
    """Which records stand for which instances."""

    def __init__(self, records: Iterable[GPUInstance]) -> None:
        self.by_name = {record.metadata.name: record for record in records}
        live = [each for each in self.by_name.values() if each.state is not InstanceState.GONE]
        self._by_uid = {record.uid: record for record in live}
        self._ids = {(record.spec.provider.value, instance_id(record)) for record in live}
        #: Providers with a launch of which it is not known what it has brought.
        self._unsure = {
            record.spec.provider.value
            for record in live
            if instance_id(record) is None and record.status is not None and record.status.state is not None
        }

    def reason_against(self, instance: Instance, source: Source) -> Reason | None:
        """Why no record stands for it; None: one does or might."""
        provider = source.key.provider
        if (provider, instance.id) in self._ids:
            return None
        if source.capabilities.delivers is Delivery.POWER:
            return Reason.ADOPTED if instance.phase is InstancePhase.RUNNING else None
        if instance.owner is None:
            return None if provider in self._unsure else Reason.LEFTOVER
        owner = self._by_uid.get(instance.owner)
        if owner is None:
            return Reason.LEFTOVER
        return Reason.DUPLICATE if instance_id(owner) is not None else None


def _instances(found: Orphans, source: Source, claims: _Claims, now: datetime) -> Iterator[Adopt]:
    for instance in source.listing.found.instances if source.listing is not None else ():
        reason = claims.reason_against(instance, source)
        if reason is None or not found.long_enough(source.key, instance.id, now):
            continue
        provider = source.key.provider
        why = "is a second one for the same GPUInstance" if reason is Reason.DUPLICATE else "belongs to no GPUInstance"
        sentence = f"Instance {instance.id} at {provider} carries this cluster's mark but {why}. It is ended."
        price = instance.price.exact() if instance.price is not None else None
        yield Adopt(
            name=_name(provider, instance.id, claims),
            spec=GPUInstanceSpec(
                provider=ProviderName(provider),
                delivers=source.capabilities.delivers,
                node_class_name=source.key.node_class or None,
                hourly_price=price,
                why=sentence,
            ),
            status=transition(
                None,
                InstanceState.TERMINATING,
                reason,
                sentence,
                now,
                instance_id=instance.id,
                provider_id=instance.provider_id,
                node_name=instance.node_name,
                hourly_price=price,
                billed_from=whole_seconds(instance.created or now),
            ),
            reason=reason,
            sentence=sentence,
        )


def _name(provider: str, instance: str, claims: _Claims) -> str:
    """A record of this name that is Gone was for an earlier appearance of it."""
    name, earlier = "", ""
    for _ in range(len(claims.by_name) + 1):
        digest = hashlib.sha256(f"{provider}\n{instance}\n{earlier}".encode()).hexdigest()[:10]
        name = f"leftover-{provider}-{digest}"
        if name not in claims.by_name:
            break
        earlier = claims.by_name[name].uid
    return name


def _machines(
    found: Orphans, source: Source, claims: _Claims, nodes: Mapping[str, Node], now: datetime
) -> Iterator[Adopt]:
    listing = source.listing
    if listing is None:
        return
    running = {
        each.id
        for each in listing.found.instances
        if listing.asked >= now - FRESH and claims.reason_against(each, source) is not None
    }
    for offer in source.offers or ():
        machine = offer.node_name or offer.instance_type
        if machine in claims.by_name:
            # Also where that record is Gone: it has to be out of the way first.
            continue
        node = nodes.get(machine)
        up = node is not None and node.ready and node.deleted is None
        if up and (machine in running or machine in listing.found.unknown):
            sentence = f"Machine {machine} is on and node {machine} is ready. It is taken over, and goes off when idle."
            yield _machine(source, offer, machine, InstanceState.JOINED, sentence, now)
        elif machine in running and found.long_enough(source.key, machine, now):
            sentence = (
                f"Machine {machine} is on though nobody asked for it. It is taken over; its node must be ready in time."
            )
            yield _machine(source, offer, machine, InstanceState.LAUNCHED, sentence, now)


def _machine(  # noqa: PLR0917 (each is a part of what is made)
    source: Source, offer: Offer, machine: str, state: InstanceState, sentence: str, now: datetime
) -> Adopt:
    return Adopt(
        name=machine,
        spec=GPUInstanceSpec(
            provider=ProviderName(source.key.provider),
            delivers=Delivery.POWER,
            node_class_name=source.key.node_class or None,
            offer=offer_record(offer),
            hourly_price=offer.price.exact(),
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
