"""What a provider's listing says about one GPUInstance: there, not there, or nothing at all."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus
from forebay.lifecycle.facts import Facts, instance_id
from forebay.lifecycle.transitions import whole
from forebay.model.sources import Delivery, Instance, InstancePhase

#: A machine is taken to be on only by a listing this young: an old one is kept when its provider stops answering.
FRESH: Final = timedelta(minutes=2)
#: So many lists in a row without it are proof.
ENOUGH: Final = 2
#: Times in a record are cut to whole seconds, so that what came after is surely after only when this much later.
_CUT: Final = timedelta(seconds=1)
NO_ABSENCES: Final[Mapping[str, None]] = {"absences": None, "absent_since": None, "absent_at": None}
_LAST: Final = timedelta(days=365_000)


class Sighting(NamedTuple):
    """`asked` is when; None: nothing is known. `instances` are those that are its own, the oldest first."""

    asked: datetime | None
    instances: tuple[Instance, ...] = ()

    @property
    def present(self) -> bool:
        return bool(self.instances)

    def absent_after(self, moment: datetime) -> bool:
        """Not there, in a list that was asked for after that moment."""
        return self.asked is not None and not self.instances and self.asked >= moment + _CUT


def sighting(facts: Facts) -> Sighting:
    listing = facts.listing
    if listing is None:
        return Sighting(None)
    own = tuple(sorted((each for each in listing.found.instances if is_of(each, facts.record)), key=_age))
    if not own and instance_id(facts.record) in listing.found.unknown:
        return Sighting(None)
    return Sighting(listing.asked, own)


def is_of(instance: Instance, record: GPUInstance) -> bool:
    if record.spec.delivers is Delivery.POWER:
        # An owned machine never goes away: one that is off counts as absent.
        return instance.id == instance_id(record) and instance.phase is not InstancePhase.STOPPED
    known = instance_id(record)
    return instance.id == known if known is not None else instance.owner is not None and instance.owner == record.uid


def _age(instance: Instance) -> tuple[float, str]:
    return (instance.created.timestamp() if instance.created is not None else _LAST.total_seconds(), instance.id)


def surely_there(facts: Facts, seen: Sighting, now: datetime) -> bool:
    """A rented instance bears the mark of its record, so that any list that shows it will do."""
    if not seen.present or seen.asked is None:
        return False
    return not facts.owned or seen.asked >= now - FRESH


def counted(status: GPUInstanceStatus, seen: Sighting, after: datetime) -> GPUInstanceStatus:
    """The absences, with this list among them if it is one more; none, if it shows the instance."""
    if seen.asked is None:
        return status
    if seen.present:
        if not status.absences or (status.absent_at is not None and seen.asked <= status.absent_at):
            return status
        return replace(status, **NO_ABSENCES)
    if not seen.absent_after(after) or (status.absent_at is not None and whole(seen.asked) <= status.absent_at):
        return status
    asked, absences = whole(seen.asked), (status.absences or 0) + 1
    if absences > ENOUGH:
        return status
    return replace(status, absences=absences, absent_since=status.absent_since or asked, absent_at=asked)
