"""What a provider's listing says about one GPUInstance: present, absent, or unknown."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.transitions import whole_seconds
from forebay.model.sources import Capabilities, Found, Instance

#: So many consecutive listings without an instance prove that it is absent.
ABSENCES_NEEDED: Final = 2
#: Times in a record are cut to whole seconds: only what is this much later certainly came after.
_ROUNDING: Final = timedelta(seconds=1)
#: A launch call of a process that has crashed may still be under way for this long.
_LONGEST_CALL: Final = timedelta(minutes=1)
NO_ABSENCES: Final[Mapping[str, None]] = {"absences": None, "absent_since": None, "absent_at": None}
#: States that an instance reaches only once its node has registered.
_REGISTERED: Final = frozenset({InstanceState.JOINED, InstanceState.READY})
#: Sorts instances of unknown age after all others.
_NO_AGE: Final = timedelta(days=365_000)


class Presence(NamedTuple):
    #: When the listing was requested; None: nothing is known.
    asked: datetime | None
    #: Instances of this record in the listing, the oldest first.
    instances: tuple[Instance, ...] = ()
    #: When its answer came; None: at once.
    answered: datetime | None = None

    @property
    def present(self) -> bool:
        return bool(self.instances)

    def absent_after(self, moment: datetime) -> bool:
        """True where a listing that was requested after that moment does not show the instance."""
        return self.asked is not None and not self.instances and self.asked >= moment + _ROUNDING


def presence_of(facts: Facts) -> Presence:
    listing = facts.listing
    if listing is None:
        return Presence(None)
    own = _index(listing.found).of(facts.record)
    if not own and (facts.other_account or instance_id(facts.record) in listing.found.unknown):
        return Presence(None)
    return Presence(listing.asked, own, listing.answered)


def shows(found: Found, record: GPUInstance) -> bool:
    """Whether the listing has an instance of the record."""
    return bool(_index(found).of(record))


class _ListingIndex:
    """A listing by instance id and by owner: thousands of records look up the same listing in each tick."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._by_id: defaultdict[str, list[Instance]] = defaultdict(list)
        self._by_owner: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in found.instances:
            self._by_id[instance.id].append(instance)
            if instance.owner is not None:
                self._by_owner[instance.owner].append(instance)

    def of(self, record: GPUInstance) -> tuple[Instance, ...]:
        """Instances of this record, the oldest first."""
        own_id = instance_id(record)
        some = self._by_owner.get(record.uid) if own_id is None else self._by_id.get(own_id)
        if some is None:
            return ()
        if len(some) == 1:
            return (some[0],) if is_of(some[0], record) else ()
        return tuple(sorted((each for each in some if is_of(each, record)), key=_age))


#: Indexes of the latest listings, by identity: comparing two long listings costs more than indexing one.
_INDEXES: Final[dict[int, _ListingIndex]] = {}
_MAX_INDEXES: Final = 64


def _index(found: Found) -> _ListingIndex:
    index = _INDEXES.get(id(found))
    if index is None or index.found is not found:
        while len(_INDEXES) >= _MAX_INDEXES:
            _INDEXES.pop(next(iter(_INDEXES)), None)
        index = _INDEXES[id(found)] = _ListingIndex(found)
    return index


def is_of(instance: Instance, record: GPUInstance) -> bool:
    """True where the listed instance is that of the record."""
    own_id = instance_id(record)
    if own_id is None:
        return instance.owner is not None and instance.owner == record.uid
    return instance.id == own_id and policy_of(record).is_present(instance)


def _age(instance: Instance) -> tuple[float, str]:
    return (instance.created.timestamp() if instance.created is not None else _NO_AGE.total_seconds(), instance.id)


def confirmed_present(facts: Facts, seen: Presence, now: datetime) -> bool:
    """True where the instance exists for certain.

    A rented one carries its record's tag, so any listing will do; an owned machine may have been powered off since.
    """
    if not seen.present or seen.asked is None:
        return False
    return facts.policy.sighting_holds(seen.asked, now)


def count_absences(status: GPUInstanceStatus, seen: Presence, after: datetime) -> GPUInstanceStatus:
    """The status with this listing counted: one absence more, or none at all if it shows the instance.

    A listing that was requested before `after` does not count.
    """
    if seen.asked is None:
        return status
    if seen.present:
        if not status.absences or (status.absent_at is not None and seen.asked <= status.absent_at):
            return status
        return replace(status, **NO_ABSENCES)
    if not seen.absent_after(after) or (status.absent_at is not None and whole_seconds(seen.asked) <= status.absent_at):
        return status
    asked, absences = whole_seconds(seen.asked), (status.absences or 0) + 1
    if absences > ABSENCES_NEEDED:
        return status
    # It may have ended while the listing was made, which takes a while: pages, and requests that are repeated.
    since = status.absent_since or whole_seconds(seen.answered or seen.asked)
    return replace(status, absences=absences, absent_since=since, absent_at=asked)


def counted_from(status: GPUInstanceStatus, proof: datetime, stopped: datetime | None) -> datetime:
    """From when listings without the instance are counted, where those after `proof` show that it is gone.

    One that was listed before is missing from a listing only if it has ended, or if listings are at odds. One whose
    node has registered exists as surely, but listings may lag behind it while it runs: they are counted from `stopped`
    on, when it may have ended (None: it runs).
    """
    if status.listed_at is not None:
        return min(status.listed_at, proof)
    return min(stopped, proof) if stopped is not None and has_registered(status) else proof


def has_registered(status: GPUInstanceStatus) -> bool:
    """True where the node of the instance has registered at some time, which proves that the instance was launched."""
    return any(each.state in _REGISTERED for each in status.transitions)


def with_sighting(status: GPUInstanceStatus, seen: Presence, now: datetime) -> GPUInstanceStatus:
    """The status with the listing noted that showed the instance, where none was, or none since it was to be gone; with
    the price that the first such listing tells; and with the end of its bill, where the provider tells that it costs
    nothing any more: it may have ended after the listing was requested, but before now.
    """
    if not seen.present or seen.asked is None or status.instance_id is None or status.state is InstanceState.GONE:
        return status
    if (status.billed_until is None) is not any(each.billed for each in seen.instances):
        until = whole_seconds(now) if status.billed_until is None else None
        status = replace(status, billed_until=until)
    accepted = status.termination_accepted_at
    if accepted is not None and seen.asked < accepted + _ROUNDING:
        accepted = None
    if status.listed_at is not None and (accepted is None or status.listed_at > accepted):
        return status
    billed = next((each.price for each in seen.instances if each.price is not None), None)
    if status.listed_at is None and billed is not None:
        # Not every answer to a launch tells it, and what was offered may have cost more a moment later.
        status = replace(status, hourly_price=billed.exact())
    return replace(status, listed_at=whole_seconds(seen.asked))


def billing_ended(facts: Facts, status: GPUInstanceStatus, now: datetime) -> datetime:
    """When the instance, which is gone, ceased to be billed: the provider's own time, or else the latest it can be.

    That is when the first of the listings that prove it was answered; or before, when a listing showed it as one that
    costs nothing any more, or when the provider accepted the termination, where it bills no longer than that and no
    listing has shown the instance since.
    """
    known = instance_id(facts.record)
    told = facts.listing.found.ended.get(known) if facts.listing is not None and known is not None else None
    latest = now if told is None else min(told, now)
    if told is None and status.billed_until is not None:
        latest = min(latest, status.billed_until)
    if told is None and (status.absences or 0) >= ABSENCES_NEEDED:
        latest = min(latest, status.absent_since or now)
    accepted, listed = status.termination_accepted_at, status.listed_at
    if told is None and accepted is not None and (listed is None or listed <= accepted):
        billed_until_accepted = facts.capabilities is not None and facts.capabilities.billed_until_accepted
        latest = min(latest, accepted) if billed_until_accepted else latest
    return whole_seconds(latest)


def settle_time(capabilities: Capabilities) -> timedelta:
    """Time after a launch call within which a listing must show its instance, if there is one."""
    return capabilities.settle_time if capabilities.idempotent_launch else max(capabilities.settle_time, _LONGEST_CALL)
