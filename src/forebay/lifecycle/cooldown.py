"""Offers that have just failed are left alone for a while.

Derived from the records alone, which outlive a restart: nothing else has to be remembered.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState, Transition
from forebay.model.reasons import Reason
from forebay.model.sources import OfferKey
from forebay.model.spans import human

FIRST: Final = timedelta(minutes=5)
LONGEST: Final = timedelta(hours=1)

#: What says more about the offer than about what was done with it.
FAILURES: Final = frozenset(
    {
        Reason.NO_CAPACITY,
        Reason.LAUNCH_REJECTED,
        Reason.BAD_CREDENTIALS,
        Reason.RATE_LIMITED,
        Reason.PROVIDER_UNAVAILABLE,
        Reason.LAUNCH_FAILED,
        Reason.LAUNCH_TIMEOUT,
        Reason.JOIN_TIMEOUT,
        Reason.GPUS_MISSING,
        Reason.UNHEALTHY,
        Reason.VANISHED,
    }
)
_ON_THE_WAY_OUT: Final = (InstanceState.DRAINING, InstanceState.TERMINATING, InstanceState.GONE)


class Cooldown(NamedTuple):
    until: datetime
    sentence: str


def cooldowns(records: Iterable[GPUInstance], now: datetime) -> Mapping[OfferKey, Cooldown]:
    """Offers that must not be tried now, until when, and why."""
    found: dict[OfferKey, Cooldown] = {}
    for record in records:
        key, failure = offer_key(record), _failure(record)
        if key is None or failure is None:
            continue
        until = failure.at + _span(failure, _failures(record))
        if until <= now or (key in found and found[key].until >= until):
            continue
        left = human(until - now)
        sentence = (
            f"{record.metadata.name} failed {human(now - failure.at)} ago ({failure.reason}); used again in {left}."
        )
        found[key] = Cooldown(until, sentence)
    return found


def failures_so_far(records: Iterable[GPUInstance], key: OfferKey) -> int:
    """In a row, up to now: what a new record for the same offer begins with, so that the wait grows."""
    latest: tuple[datetime, int] | None = None
    for record in records:
        if offer_key(record) == key and record.status is not None and record.status.transitions:
            at = record.status.transitions[-1].at
            if latest is None or at > latest[0]:
                latest = (at, _failures(record))
    return latest[1] if latest is not None else 0


def offer_key(record: GPUInstance) -> OfferKey | None:
    offer = record.spec.offer
    if offer is None:
        return None
    provider = record.spec.provider.value
    return OfferKey(provider, offer.instance_type, offer.region or "", offer.zone or "", offer.spot)


def _failures(record: GPUInstance) -> int:
    return (record.status.failures or 0) if record.status is not None else 0


def _failure(record: GPUInstance) -> Transition | None:
    """The step with which it failed, once it is on its way out because of that."""
    if record.status is None or not _failures(record) or record.state not in _ON_THE_WAY_OUT:
        return None
    ends = (each for each in reversed(record.status.transitions) if each.state in _ON_THE_WAY_OUT)
    return next((each for each in ends if each.reason in FAILURES), None)


def _span(failure: Transition, failures: int) -> timedelta:
    if failure.reason == Reason.NO_CAPACITY:
        # Stock comes and goes; that there was none says nothing about the next time.
        return FIRST
    return min(FIRST * (1 << min(max(failures - 1, 0), 8)), LONGEST)
