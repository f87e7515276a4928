"""Cooldowns: how long an offer is not tried again after a failure.

Computed from the records alone, which outlive a restart: nothing else has to be stored.
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

#: Reasons that speak against the offer. Others, such as a deletion, say nothing about the next launch.
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
_ENDING: Final = (InstanceState.DRAINING, InstanceState.TERMINATING, InstanceState.GONE)


class Cooldown(NamedTuple):
    until: datetime
    sentence: str


def cooldowns(records: Iterable[GPUInstance], now: datetime) -> Mapping[OfferKey, Cooldown]:
    """Offers that are cooling down now, each until when and why."""
    found: dict[OfferKey, Cooldown] = {}
    for record in records:
        key, failure = offer_key(record), _failure(record)
        if key is None or failure is None:
            continue
        until = failure.at + cooldown_span(failure.reason, _failures(record))
        if until <= now or (key in found and found[key].until >= until):
            continue
        left = human(until - now)
        sentence = (
            f"{record.metadata.name} failed {human(now - failure.at)} ago ({failure.reason}); next attempt in {left}."
        )
        found[key] = Cooldown(until, sentence)
    return found


def cooldown_span(reason: str, failures: int) -> timedelta:
    """How long an offer cools down after this many failures in a row, the last one for this reason."""
    if reason == Reason.NO_CAPACITY:
        # Stock comes and goes: having had none says nothing about the next attempt.
        return FIRST
    return min(FIRST * (1 << min(max(failures - 1, 0), 8)), LONGEST)


def failures_so_far(records: Iterable[GPUInstance], key: OfferKey) -> int:
    """Failures of this offer since its last success. A new record starts with this count, so that cooldowns grow."""
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
    """The transition with which the record failed, once it is draining, terminating or gone because of that."""
    if record.status is None or not _failures(record) or record.state not in _ENDING:
        return None
    ends = (each for each in reversed(record.status.transitions) if each.state in _ENDING)
    return next((each for each in ends if each.reason in FAILURES), None)
