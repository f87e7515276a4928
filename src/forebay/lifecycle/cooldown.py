"""Cooldowns: how long an offer, a zone or a whole source is not tried again after a failure.

Computed from the records alone, which outlive a restart: nothing else has to be stored.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState, Transition
from forebay.lifecycle.clock_jumps import CLOCKS_DIFFER
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.facts import kept_by, source_of
from forebay.model.kept import among, kept
from forebay.model.reasons import Reason
from forebay.model.sources import CooldownKey, FailureScope, OfferKey, SourceKey, SourcePoolKey, cooldown_keys

FIRST: Final = timedelta(minutes=5)
LONGEST: Final = timedelta(hours=1)
#: So many doublings exceed the longest cooldown; an unlimited number would overflow.
_MOST_DOUBLINGS: Final = 8

#: Reasons that speak against the offer. Others, such as a deletion, say nothing about the next launch.
FAILURES: Final = frozenset(
    {
        Reason.NO_CAPACITY,
        Reason.PROVIDER_QUOTA,
        Reason.LAUNCH_REJECTED,
        Reason.BAD_CREDENTIALS,
        Reason.RATE_LIMITED,
        Reason.PROVIDER_UNAVAILABLE,
        Reason.LAUNCH_FAILED,
        Reason.LAUNCH_TIMEOUT,
        Reason.PRICE_RAISED,
        Reason.JOIN_TIMEOUT,
        Reason.GPUS_MISSING,
        Reason.UNHEALTHY,
        Reason.VANISHED,
    }
)
#: Failures that another configuration or Secret may mend.
_MENDABLE: Final = frozenset({Reason.PROVIDER_QUOTA, Reason.LAUNCH_REJECTED, Reason.BAD_CREDENTIALS})
#: Failures of machines that ran and did not become usable nodes. How they join, and what becomes of their nodes, is the
#: same for all offers of a class and pool.
NOT_USABLE: Final = frozenset({Reason.JOIN_TIMEOUT, Reason.GPUS_MISSING})
#: So many of these in a row, one after the other, speak against more than their offers.
_IN_A_ROW: Final = 3
_ENDING: Final = (InstanceState.DRAINING, InstanceState.TERMINATING, InstanceState.GONE)

#: Version of the entry and of the Secrets of each source, as they are now.
Revisions = Mapping[SourceKey, Mapping[str, str]]


class Cooldown(NamedTuple):
    until: datetime
    #: What failed, and when; without a full stop.
    cause: str
    #: The failure, as its record tells it.
    failure: Transition

    @property
    def sentence(self) -> str:
        """Conditions keep it for long: its times are those of a clock, and no spans."""
        return f"{self.cause}; next attempt at {self.until:%H:%M:%S} UTC."


def cooldowns(
    records: Iterable[GPUInstance], now: datetime, revisions: Revisions | None = None
) -> Mapping[CooldownKey, Cooldown]:
    """Offers, zones and sources that are cooling down now, each until when and why."""
    found: dict[CooldownKey, Cooldown] = {}
    for record in among(records, failures_of):
        if (failure := _failure(record)) is None or (against := _spoken_against(record)) is None:
            continue
        key = against.key
        if _mended(record, failure, revisions or {}):
            continue
        until = _counted_from(record, failure) + cooldown_span(failures_of(record))
        # One that ends later than the longest began at an hour that this clock has not reached: another was ahead.
        if until <= now or until > now + LONGEST + CLOCKS_DIFFER or (key in found and found[key].until >= until):
            continue
        cause = f"{record.metadata.name} failed at {failure.at:%H:%M:%S} UTC ({failure.reason})"
        found[key] = Cooldown(until, cause, failure)
    return found


def cooldown_span(failures: int) -> timedelta:
    """How long an offer, zone or source cools down after this many failures in a row."""
    return min(FIRST * (1 << min(failures - 1, _MOST_DOUBLINGS)), LONGEST)


def failures_so_far(
    records: Iterable[GPUInstance], source: SourceKey, offer: OfferKey, pool: tuple[str, str] = ("", "")
) -> int:
    """Failures in a row of this offer, its zone, its source or the pool there, whichever has most. A new record starts
    with this count, so that cooldowns grow.
    """
    latest: dict[CooldownKey, tuple[datetime, int]] = {}
    wanted = cooldown_keys(source, offer, pool)
    for record in records:
        against = _spoken_against(record)
        if against is None or record.status is None or not record.status.transitions:
            continue
        at = record.status.transitions[-1].at
        for key in cooldown_keys(source_of(record), against.offer, kept_by(record)):
            # What failed in a narrower scope says nothing about the wider one.
            if key in wanted and (key in against or not failures_of(record)):
                latest[key] = max(latest.get(key, (at, 0)), (at, failures_of(record)))
    return max((failures for _, failures in latest.values()), default=0)


@kept
def without_usable_nodes(records: Iterable[GPUInstance]) -> frozenset[SourcePoolKey]:
    """Pools and NodeProvisioners, each at one source, that cool down as a whole if their next machine does not become a
    usable node either.

    Of machines that were launched beside one another, only one counts. A machine that became Ready ends the row.
    """
    rows: dict[SourcePoolKey, list[tuple[datetime, datetime, bool]]] = {}
    for record in among(records, failures_of):
        failure, ordered = _failure(record), record.metadata.creation_timestamp
        if record.status is None or failure is None or ordered is None or failure.reason not in NOT_USABLE:
            continue
        if kept_by(record) != ("", "") and policy_of(record).joins_as_new_node:
            # The first of its drain and termination: the next machine is ordered at once.
            ended = next(each.at for each in record.status.transitions if each.reason == failure.reason)
            whole = _scope(record) is FailureScope.POOL
            rows.setdefault(_pool_at_source(record), []).append((ended, ordered, whole))
    if not rows:
        return frozenset()
    served = _last_ready(records)
    return frozenset(key for key, row in rows.items() if _is_long(row, served.get(key)))


def _is_long(row: Iterable[tuple[datetime, datetime, bool]], served: datetime | None) -> bool:
    """Whether the next failure makes the row long enough. `row`: when each failed, when it was ordered, and whether the
    pool has cooled down as a whole for it.
    """
    count, last = 1, None
    for at, ordered, whole in sorted(row):
        if served is not None and at <= served:
            continue
        if whole:
            return True
        if last is None or ordered >= last:
            count, last = count + 1, at
    return count >= _IN_A_ROW


def _last_ready(records: Iterable[GPUInstance]) -> Mapping[SourcePoolKey, datetime]:
    found: dict[SourcePoolKey, datetime] = {}
    for record in records:
        for each in record.status.transitions if record.status is not None else ():
            if each.state is InstanceState.READY:
                key = _pool_at_source(record)
                found[key] = max(each.at, found.get(key, each.at))
    return found


def _pool_at_source(record: GPUInstance) -> SourcePoolKey:
    return SourcePoolKey(*kept_by(record), *source_of(record))


def order_cooldown(records: Iterable[GPUInstance], offer: OfferKey) -> Cooldown | None:
    """Until when the pod of these records does not get the offer again, because its order was refused; else None."""
    refused = [
        failure
        for record in records
        if _scope(record) is FailureScope.ORDER
        and offer_key(record) == offer
        and (failure := _failure(record)) is not None
    ]
    if not refused:
        return None
    last = max(refused, key=lambda each: each.at)
    return Cooldown(last.at + cooldown_span(len(refused)), last.message.rstrip("."), last)


def cooldown_end(record: GPUInstance) -> datetime | None:
    """Until when what the record was launched from cools down; None where it did not fail."""
    failure = _failure(record)
    return None if failure is None else _counted_from(record, failure) + cooldown_span(failures_of(record))


def retained_until(record: GPUInstance) -> datetime | None:
    """Until when the record of a failed launch is needed: so that the next failure knows how many came before it."""
    end = cooldown_end(record)
    return None if end is None else end + LONGEST


def offer_key(record: GPUInstance) -> OfferKey | None:
    offer = record.spec.offer
    if offer is None:
        return None
    return OfferKey(record.spec.provider, offer.instance_type, offer.region or "", offer.zone or "", offer.spot)


def failures_of(record: GPUInstance) -> int:
    return (record.status.failures or 0) if record.status is not None else 0


class _SpokenAgainst(NamedTuple):
    """The offer of a record, and what of it a failure speaks against."""

    offer: OfferKey
    key: CooldownKey


def _spoken_against(record: GPUInstance) -> _SpokenAgainst | None:
    """What the failure of the record speaks against; None: nothing that others could have."""
    own, scope = offer_key(record), _scope(record)
    if own is None or scope is FailureScope.ORDER:
        return None
    offer, zone, pool, source = cooldown_keys(source_of(record), own, kept_by(record))
    keys: dict[FailureScope | None, CooldownKey] = {
        FailureScope.SOURCE: source,
        FailureScope.POOL: pool,
        FailureScope.ZONE: zone,
    }
    return _SpokenAgainst(own, keys.get(scope, offer))


def _scope(record: GPUInstance) -> FailureScope | None:
    return record.status.failure_scope if record.status is not None else None


def _failure(record: GPUInstance) -> Transition | None:
    """The transition with which the record failed, once it is draining, terminating or gone because of that."""
    if record.status is None or not failures_of(record) or record.state not in _ENDING:
        return None
    ends = (each for each in reversed(record.status.transitions) if each.state in _ENDING)
    return next((each for each in ends if each.reason in FAILURES), None)


def _counted_from(record: GPUInstance, failure: Transition) -> datetime:
    """When the cooldown begins: where answers were lost, and no listing showed a machine, with the first call.

    Its pods have waited since then, and nothing else was tried at the source on their account.
    """
    waited = _scope(record) is FailureScope.SOURCE or not record.spec.delivers.has_node
    lost = failure.reason == Reason.LAUNCH_FAILED and waited
    if not lost or record.in_instance_group or record.status is None:
        return failure.at
    calls = (each.at for each in record.status.transitions if each.state is InstanceState.LAUNCHING)
    return next(calls, failure.at)


def _mended(record: GPUInstance, failure: Transition, revisions: Revisions) -> bool:
    """True where the configuration or a Secret has changed since a failure that this may have mended."""
    status = record.status
    if status is None or (status.failure_scope in {None, FailureScope.OFFER} and failure.reason not in _MENDABLE):
        return False
    now = revisions.get(source_of(record), {})
    # A Secret that was not read again since a restart is not known to have changed.
    return any(now.get(name, version) != version for name, version in status.failure_revision.items())
