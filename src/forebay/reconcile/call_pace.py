"""Pace of provider calls: which of the due launches and terminations wait, and until when."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.facts import source_of
from forebay.lifecycle.steps import AnyStep, Launch, Terminate
from forebay.model.sources import Capabilities, SourceKey
from forebay.reconcile.snapshot import Snapshot

#: Times in a record are cut to whole seconds: the call may have been made this much later.
_ROUNDING: Final = timedelta(seconds=1)


def postponed_calls(snapshot: Snapshot, steps: Iterable[AnyStep]) -> tuple[set[str], datetime | None]:
    """Records (by name) whose call has to wait, and when the next one is due without any change."""
    calls = [step for step in steps if isinstance(step, Launch | Terminate)]
    if not calls:
        return set(), None
    postponed, due = _power_ons(snapshot, calls)
    by_source: defaultdict[SourceKey, list[Launch | Terminate]] = defaultdict(list)
    for step in calls:
        if step.record.metadata.name not in postponed:
            by_source[source_of(step.record)].append(step)
    in_flight = _in_flight(snapshot)
    times = [] if due is None else [due]
    for key, own in by_source.items():
        source = snapshot.sources.get(key)
        if source is None:
            continue
        late, at = _of_source(snapshot, own, source.capabilities, in_flight[key])
        postponed |= late
        times += [] if at is None else [at]
    return postponed, min(times, default=None)


def _of_source(
    snapshot: Snapshot, calls: Sequence[Launch | Terminate], capabilities: Capabilities, in_flight: int
) -> tuple[set[str], datetime | None]:
    """As `postponed_calls`, for one source: terminations go first, because what they end costs money."""
    terminations = [step for step in calls if isinstance(step, Terminate)]
    launches = sorted(
        (step for step in calls if isinstance(step, Launch)), key=lambda step: _age(step.record, snapshot)
    )
    due: datetime | None = None
    allowed = launches
    if launches and capabilities.launch_interval:
        last = _last_launch(snapshot, source_of(launches[0].record))
        due = None if last is None else last + capabilities.launch_interval + _ROUNDING
        waits = due is not None and snapshot.now < due
        allowed = [] if waits else launches[:1]
        if not waits:
            due = snapshot.now + capabilities.launch_interval + _ROUNDING if len(launches) > 1 else None
    # A call that ends wakes the loop, and then the next one goes.
    going = [*terminations, *allowed][: max(capabilities.max_calls - in_flight, 0)]
    names = {step.record.metadata.name for step in going}
    return {step.record.metadata.name for step in calls} - names, due


def _last_launch(snapshot: Snapshot, key: SourceKey) -> datetime | None:
    """When the source was last asked for a launch."""
    return max(
        (
            record.status.attempted_at
            for record in snapshot.records
            # Afterwards it is the time of the termination call.
            if record.status is not None
            and record.status.attempted_at is not None
            and not record.status.termination_attempts
            and source_of(record) == key
        ),
        default=None,
    )


def _in_flight(snapshot: Snapshot) -> Counter[SourceKey]:
    if not snapshot.calls_in_flight:
        return Counter()
    return Counter(source_of(record) for record in snapshot.records if record.metadata.name in snapshot.calls_in_flight)


def _power_ons(snapshot: Snapshot, calls: Iterable[Launch | Terminate]) -> tuple[set[str], datetime | None]:
    """Records (by name) whose power-on waits for the next interval, and when that begins: the oldest goes first."""
    interval = snapshot.rules.power_on_interval
    power_ons = [step for step in calls if isinstance(step, Launch) and policy_of(step.record).has_power_on_interval]
    if not interval or not power_ons:
        return set(), None
    latest = max(
        (
            record.status.attempted_at
            for record in snapshot.records
            if policy_of(record).has_power_on_interval
            and record.status is not None
            and record.status.attempted_at is not None
            # Afterwards it is the time of the power-off call.
            and not record.status.termination_attempts
        ),
        default=None,
    )
    if latest is not None and snapshot.now < latest + interval:
        return {step.record.metadata.name for step in power_ons}, latest + interval
    first = min(power_ons, key=lambda step: _age(step.record, snapshot))
    return {step.record.metadata.name for step in power_ons if step is not first}, snapshot.now + interval


def _age(record: GPUInstance, snapshot: Snapshot) -> tuple[datetime, str]:
    return (record.metadata.creation_timestamp or snapshot.now, record.uid)
