"""What a provider's listing says about one GPUInstance: there, not there, or nothing at all."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.transitions import whole_seconds
from forebay.model.sources import Capabilities, Delivery, Found, Instance, InstancePhase

#: A machine is taken to be on only by a listing this young: an old one is kept when its provider stops answering.
FRESH: Final = timedelta(minutes=2)
#: So many lists in a row without it are proof.
ENOUGH: Final = 2
#: Times in a record are cut to whole seconds, so that what came after is surely after only when this much later.
_CUT: Final = timedelta(seconds=1)
#: A launch that a process left behind may still be on its way for this long.
_LONGEST_CALL: Final = timedelta(minutes=1)
NO_ABSENCES: Final[Mapping[str, None]] = {"absences": None, "absent_since": None, "absent_at": None}
_LAST: Final = timedelta(days=365_000)


class Presence(NamedTuple):
    """`asked` is when; None: nothing is known. `instances` are those that are its own, the oldest first."""

    asked: datetime | None
    instances: tuple[Instance, ...] = ()

    @property
    def present(self) -> bool:
        return bool(self.instances)

    def absent_after(self, moment: datetime) -> bool:
        """Not there, in a list that was asked for after that moment."""
        return self.asked is not None and not self.instances and self.asked >= moment + _CUT


def presence_of(facts: Facts) -> Presence:
    listing = facts.listing
    if listing is None:
        return Presence(None)
    own = _shown(listing.found).of(facts.record)
    if not own and instance_id(facts.record) in listing.found.unknown:
        return Presence(None)
    return Presence(listing.asked, own)


class _Shown:
    """A listing by what is looked up in it: thousands of records look at the same one in each tick."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self._by_id: defaultdict[str, list[Instance]] = defaultdict(list)
        self._by_owner: defaultdict[str, list[Instance]] = defaultdict(list)
        for instance in found.instances:
            self._by_id[instance.id].append(instance)
            if instance.owner is not None:
                self._by_owner[instance.owner].append(instance)

    def of(self, record: GPUInstance) -> tuple[Instance, ...]:
        known = instance_id(record)
        some = self._by_owner.get(record.uid) if known is None else self._by_id.get(known)
        if some is None:
            return ()
        if len(some) == 1:
            return (some[0],) if is_of(some[0], record) else ()
        return tuple(sorted((each for each in some if is_of(each, record)), key=_age))


#: The latest of each of some sources. By identity: to compare two long lists costs more than to sort one.
_LATEST: Final[dict[int, _Shown]] = {}
_MOST: Final = 64


def _shown(found: Found) -> _Shown:
    shown = _LATEST.get(id(found))
    if shown is None or shown.found is not found:
        while len(_LATEST) >= _MOST:
            _LATEST.pop(next(iter(_LATEST)), None)
        shown = _LATEST[id(found)] = _Shown(found)
    return shown


def is_of(instance: Instance, record: GPUInstance) -> bool:
    if record.spec.delivers is Delivery.POWER:
        # An owned machine never goes away: one that is off counts as absent.
        return instance.id == instance_id(record) and instance.phase is not InstancePhase.STOPPED
    known = instance_id(record)
    return instance.id == known if known is not None else instance.owner is not None and instance.owner == record.uid


def _age(instance: Instance) -> tuple[float, str]:
    return (instance.created.timestamp() if instance.created is not None else _LAST.total_seconds(), instance.id)


def confirmed_present(facts: Facts, seen: Presence, now: datetime) -> bool:
    """A rented instance bears the mark of its record, so that any list that shows it will do."""
    if not seen.present or seen.asked is None:
        return False
    return not facts.owned or seen.asked >= now - FRESH


def count_absences(status: GPUInstanceStatus, seen: Presence, after: datetime) -> GPUInstanceStatus:
    """The absences, with this list among them if it is one more; none, if it shows the instance."""
    if seen.asked is None:
        return status
    if seen.present:
        if not status.absences or (status.absent_at is not None and seen.asked <= status.absent_at):
            return status
        return replace(status, **NO_ABSENCES)
    if not seen.absent_after(after) or (status.absent_at is not None and whole_seconds(seen.asked) <= status.absent_at):
        return status
    asked, absences = whole_seconds(seen.asked), (status.absences or 0) + 1
    if absences > ENOUGH:
        return status
    return replace(status, absences=absences, absent_since=status.absent_since or asked, absent_at=asked)


def settled_at(capabilities: Capabilities) -> timedelta:
    """From the call on: what no list shows after this long was never launched."""
    return capabilities.settle_time if capabilities.idempotent_launch else max(capabilities.settle_time, _LONGEST_CALL)
