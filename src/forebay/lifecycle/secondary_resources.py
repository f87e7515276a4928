"""Resources made beside a machine: named in its record before they are made, deleted on every path.

A join credential is needed until its machine has joined; a disk or an address until the machine is gone. A state that
ends the need (Joined, Terminating, Gone; another launch call) makes the resource due for deletion. The machine's own
life never waits for that; only the record does: it is not deleted before everything made beside its machine is gone.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import (
    GPUInstance,
    GPUInstanceStatus,
    InstanceState,
    ResourceLifetime,
    SecondaryResource,
)
from forebay.lifecycle.transitions import whole_seconds, with_condition
from forebay.model.reasons import Reason

#: Condition of a GPUInstance: False while a resource that is no longer needed could not be deleted.
RESOURCES_DELETED: Final = "SecondaryResourcesDeleted"
_JOINING: Final = frozenset({InstanceState.LAUNCHING, InstanceState.LAUNCHED})
_FIRST_RETRY: Final = timedelta(seconds=5)
_LAST_RETRY: Final = timedelta(minutes=5)
#: So many doublings exceed the last wait; an unlimited number would overflow.
_MOST_DOUBLINGS: Final = 16


def unneeded(record: GPUInstance) -> tuple[SecondaryResource, ...]:
    """Resources of the record that nothing needs any more."""
    status = record.status
    return () if status is None else tuple(each for each in status.secondary_resources if not _needed(record, each))


def _needed(record: GPUInstance, resource: SecondaryResource) -> bool:
    if resource.until is ResourceLifetime.GONE:
        return record.state is not InstanceState.GONE
    attempt = record.status.attempt if record.status is not None else None
    return record.state in _JOINING and resource.attempt in (None, attempt)


def join_credentials(record: GPUInstance) -> tuple[SecondaryResource, ...]:
    """What was made for the latest launch call, for the machine to join with."""
    return tuple(
        each
        for each in (record.status.secondary_resources if record.status is not None else ())
        if each.until is not ResourceLifetime.GONE and _needed(record, each)
    )


def due(record: GPUInstance, now: datetime) -> tuple[SecondaryResource, ...]:
    """Those of the unneeded resources whose deletion can be tried now."""
    return tuple(each for each in unneeded(record) if each.retry_at is None or each.retry_at <= now)


def next_due(record: GPUInstance) -> datetime | None:
    return min((each.retry_at for each in unneeded(record) if each.retry_at is not None), default=None)


def noted(status: GPUInstanceStatus, planned: tuple[SecondaryResource, ...]) -> GPUInstanceStatus:
    """The status with these resources, which are about to be made."""
    names = {(each.kind, each.name) for each in planned}
    others = tuple(each for each in status.secondary_resources if (each.kind, each.name) not in names)
    return replace(status, secondary_resources=(*others, *planned))


def deleted(
    record: GPUInstance, gone: tuple[SecondaryResource, ...], failed: dict[SecondaryResource, str], now: datetime
) -> GPUInstanceStatus:
    """The status after deletions: those in `gone` are proven absent, those in `failed` are tried again later."""
    status = record.status or GPUInstanceStatus()
    names = {(each.kind, each.name) for each in gone}
    errors = {(each.kind, each.name): error for each, error in failed.items()}
    left = tuple(
        _retried(each, now) if (each.kind, each.name) in errors else each
        for each in status.secondary_resources
        if (each.kind, each.name) not in names
    )
    status = replace(status, secondary_resources=left)
    if failed:
        error = next(iter(failed.values())).rstrip(".")
        sentence = f"{_listed(tuple(failed))} of {record.metadata.name} could not be deleted: {error}. Trying again."
        return with_condition(
            status, RESOURCES_DELETED, holds=False, reason=Reason.CLEANUP_FAILED, sentence=sentence, now=now
        )
    if any(each.type == RESOURCES_DELETED for each in status.conditions):
        sentence = f"{_listed(gone)} of {record.metadata.name} deleted."
        return with_condition(
            status, RESOURCES_DELETED, holds=True, reason=Reason.TERMINATED, sentence=sentence, now=now
        )
    return status


def _listed(resources: tuple[SecondaryResource, ...]) -> str:
    return ", ".join(f"{each.kind} {each.name}" for each in resources)


def _retried(resource: SecondaryResource, now: datetime) -> SecondaryResource:
    failures = (resource.failures or 0) + 1
    wait = min(_FIRST_RETRY * (1 << min(failures - 1, _MOST_DOUBLINGS)), _LAST_RETRY)
    return replace(resource, failures=failures, retry_at=whole_seconds(now) + wait)
