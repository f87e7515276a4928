"""Writes of GPUInstance records, each conditional on the state that was last observed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus
from forebay.api.names import INSTANCE_FINALIZER, NODEPOOL_LABEL, PROVIDER_LABEL
from forebay.engine.views import Views
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, KubeError, NotFound
from forebay.kube.own_kinds import GPU_INSTANCES
from forebay.lifecycle.record_fields import INITIAL_STATUS_ANNOTATION

#: Objects written to at the same time. Each write in flight needs a connection, and opening one costs the API server
#: more than the write. Hundreds of launches at once would also crowd out the writes that pods wait for.
MAX_CONCURRENT: Final = 16
#: After a conflict, how often and at which interval (seconds) the informer is checked for the newer record.
_CHECKS: Final = 100
_CHECK_INTERVAL: Final = 0.1


class StatusNotStored(KubeError):
    """The API server accepted a status and stored none of it. Retrying cannot help: a person must act."""


class Records:
    """Writes records. Each write is a compare-and-swap on the observed version, and updates the informer at once."""

    def __init__(self, client: Client, views: Views) -> None:
        self._client = client
        self._views = views
        self._turns = asyncio.Semaphore(MAX_CONCURRENT)

    async def create(self, name: str, spec: GPUInstanceSpec, status: GPUInstanceStatus | None = None) -> GPUInstance:
        labels = {PROVIDER_LABEL: str(spec.provider)}
        if spec.pool_ref is not None:
            labels[NODEPOOL_LABEL] = spec.pool_ref.name[:63].strip("-.")
        metadata: dict[str, Any] = {"name": name, "finalizers": [INSTANCE_FINALIZER], "labels": labels}
        if status is not None:
            metadata["annotations"] = {INITIAL_STATUS_ANNOTATION: msgspec.json.encode(status).decode()}
        record = await self._client.create(GPU_INSTANCES, {"metadata": metadata, "spec": spec})
        self._views.instances.observe(record)
        return record

    async def write(self, record: GPUInstance, status: GPUInstanceStatus) -> GPUInstance:
        """Replaces the status. Raises `Conflict` where the record has changed since, and `StatusNotStored`."""
        metadata = {"uid": record.uid, "resourceVersion": str(record.resource_version)}
        patch = writes.merge_patch({"metadata": metadata, "status": _replacing(record.status, status)})
        async with self._turns:
            written = await self._client.patch(GPU_INSTANCES, record.metadata.name, patch, subresource="status")
        self._views.instances.observe(written)
        if written.resource_version == record.resource_version and status != record.status:
            raise StatusNotStored(
                f"The API server dropped the status written to GPUInstance {record.metadata.name}: "
                "its CustomResourceDefinition is of another release than this operator. Apply the CRDs of this release"
            )
        return written

    async def write_outcome(
        self, record: GPUInstance, outcome: Callable[[GPUInstance], GPUInstanceStatus]
    ) -> GPUInstance | None:
        """Records the outcome of a provider call, also where the record has changed meanwhile (a deletion, say).

        Returns None where the record no longer stands at this attempt: then its outcome has been recorded already.
        """
        attempt = _attempt(record)
        while True:
            try:
                return await self.write(record, outcome(record))
            except NotFound:
                return None
            except Conflict:
                newer = await self._newer(record)
                if newer is None or _attempt(newer) != attempt:
                    return None
                record = newer

    async def _newer(self, record: GPUInstance) -> GPUInstance | None:
        """The state that caused a conflict, once the informer has it; None where the record is gone or none came."""
        for _ in range(_CHECKS):
            seen = self._views.instances.get(record.key)
            if seen is None or seen.uid != record.uid:
                return None
            if seen.resource_version != record.resource_version:
                return seen
            await asyncio.sleep(_CHECK_INTERVAL)
        return None

    async def delete(self, record: GPUInstance) -> None:
        name, uid = record.metadata.name, record.uid
        kept = [each for each in record.metadata.finalizers if each != INSTANCE_FINALIZER]
        metadata = {"uid": uid, "resourceVersion": str(record.resource_version), "finalizers": kept or None}
        written = await self._client.patch(GPU_INSTANCES, name, writes.merge_patch({"metadata": metadata}))
        if written.metadata.deletion_timestamp is None:
            await self._client.delete(GPU_INSTANCES, name, uid=uid)
        if not kept:
            self._views.instances.observe_deleted(record.key, uid)


def _attempt(record: GPUInstance) -> tuple[str, Any, Any, Any]:
    status = record.status or GPUInstanceStatus()
    return (record.uid, status.state, status.attempt, status.attempted_at)


def _replacing(old: GPUInstanceStatus | None, new: GPUInstanceStatus) -> Mapping[str, Any]:
    """The new status as a merge patch, in which a field that is no longer set must be null."""
    fields = msgspec.to_builtins(new)
    before = {} if old is None else msgspec.to_builtins(old)
    return {**dict.fromkeys(before.keys() - fields.keys()), **fields}
