"""Store of ledgers in the cluster: every chunk is a ConfigMap in the operator's own namespace.

A ConfigMap there cannot be owned by a budget of another namespace (the garbage collector would take it for an orphan).
So labels name the budget, and `LedgerSync` deletes the ledgers of deleted budgets.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import structlog

from forebay.api.names import BUDGET_UID_LABEL, LEDGER_LABEL, LEDGER_PREFIX
from forebay.budgets.ledger.chunk_log import ChunkWrite
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.config_maps import CONFIG_MAPS, ConfigMap
from forebay.kube.errors import AlreadyExists, Conflict, NotFound

log = structlog.get_logger(__name__)

_DATA_KEY: Final = "chunk"
_BUDGET_ANNOTATION: Final = "forebay.dev/budget"
#: What the budget of a ledger counts; ledgers that an earlier Forebay wrote do not say it.
_RESOURCE_ANNOTATION: Final = "forebay.dev/resource"
_SERIAL_DIGITS: Final = 6
#: A page of full chunks is 5 MB.
_PAGE: Final = 20


class Unit(StrEnum):
    """What a ledger counts, as its label says. A budget has a ledger in GPU-hours and one in dollars."""

    GPU_HOURS = "gpu-hours"
    DOLLARS = "dollars"
    #: Dollars of one key of the bill.
    BILL = "spend"
    #: Until when the cost of each machine is recorded in the bill.
    MACHINES = "machines"

    @property
    def of_budgets(self) -> bool:
        return self in {Unit.GPU_HOURS, Unit.DOLLARS}


class LedgerKey(NamedTuple):
    """Identity of a ledger: the UID of its budget, or of its key of the bill, and the unit."""

    uid: str
    unit: Unit


Chunks = Mapping[int, bytes]


class ChunkConflict(Exception):
    """Stored chunk that differs from what was read or written last.

    Another process has written it, or the answer to an earlier write was lost. Either way the ledger must be read again
    before the next write.
    """


class _Version(NamedTuple):
    uid: str
    resource_version: int


class LedgerStore:
    """Reads and writes ledgers. Every write is a compare-and-swap, so two leaders cannot overwrite each other."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._versions: dict[LedgerKey, dict[int, _Version]] = defaultdict(dict)
        #: Budget of each ledger that was read, as its annotation says.
        self._subjects: dict[LedgerKey, tuple[str, str]] = {}
        #: Resource that the budget of each ledger counts, by the budget's UID, as the annotation says.
        self._resources: dict[str, str] = {}

    @property
    def server_time(self) -> datetime | None:
        """Time on the API server's clock when it last responded; None if it has not said."""
        return self._client.server_time

    async def load(self) -> dict[LedgerKey, Chunks]:
        """All stored ledgers; raises if the listing is not complete."""
        self._versions.clear()
        found: defaultdict[LedgerKey, dict[int, bytes]] = defaultdict(dict)
        async for key, serial, stored in self._listed():
            self._note(key, serial, stored)
            found[key][serial] = stored.binary_data.get(_DATA_KEY, b"")
            namespace, _, name = stored.metadata.annotations.get(_BUDGET_ANNOTATION, "").partition("/")
            if name and key.unit.of_budgets:
                self._subjects[key] = (namespace, name)
            if resource := stored.metadata.annotations.get(_RESOURCE_ANNOTATION):
                self._resources[key.uid] = resource
        return dict(found)

    def uid_for(self, subject: tuple[str, str], uid: str, resource: str, *, reset: bool) -> str:
        """UID under which the ledgers of a budget are stored: its own, or that of a deleted budget of the same name
        that counted the same resource.

        With `reset` it is always its own.
        """
        stored = {key: versions for key, versions in self._versions.items() if versions}
        if reset or any(key.uid == uid for key in stored):
            return uid
        earlier = (
            (max(each.resource_version for each in versions.values()), key.uid)
            for key, versions in stored.items()
            if self._subjects.get(key) == subject and self._resources.get(key.uid, resource) == resource
        )
        return max(earlier, default=(0, uid))[1]

    def subject(self, key: LedgerKey) -> tuple[str, str] | None:
        """Budget of a ledger that was read, as its annotation says."""
        return self._subjects.get(key)

    async def load_one(self, key: LedgerKey) -> Chunks:
        """Stored chunks of one ledger."""
        self._versions.pop(key, None)
        found: dict[int, bytes] = {}
        async for each, serial, stored in self._listed():
            if each == key:
                self._note(key, serial, stored)
                found[serial] = stored.binary_data.get(_DATA_KEY, b"")
        return found

    async def _listed(self) -> AsyncIterator[tuple[LedgerKey, int, ConfigMap]]:
        """Stored chunks, found by their names: labels are for people, and people remove them."""
        page = await self._client.list_all(CONFIG_MAPS, self._namespace, limit=_PAGE)
        for stored in page.items:
            found_key = _key_and_serial(stored)
            if found_key is not None:
                yield *found_key, stored

    async def find_missing(self) -> dict[LedgerKey, set[int]]:
        """Serials of chunks that somebody else deleted. Lost labels are put back. Not to be called during a write."""
        missing = {key: set(versions) for key, versions in self._versions.items() if versions}
        async for key, serial, stored in self._listed():
            if serial not in missing.get(key, ()):
                continue
            missing[key].discard(serial)
            labels = _labels(key)
            if any(stored.metadata.labels.get(name) != value for name, value in labels.items()):
                log.warning("ledger label restored", configmap=stored.metadata.name)
                patch = writes.merge_patch({"metadata": {"uid": stored.uid, "labels": labels}})
                await self._client.patch(CONFIG_MAPS, stored.metadata.name, patch, self._namespace)
        lost = {key: serials for key, serials in missing.items() if serials}
        for key, serials in lost.items():
            for serial in serials:
                del self._versions[key][serial]
        return lost

    def stored_keys(self) -> tuple[LedgerKey, ...]:
        """Keys of the ledgers that have a stored chunk."""
        return tuple(key for key, versions in self._versions.items() if versions)

    async def write(
        self, key: LedgerKey, chunk: ChunkWrite, subject: tuple[str, str], resource: str | None = None
    ) -> None:
        """Store a chunk. Raises `ChunkConflict`.

        `subject` is the budget's namespace and name, or the like, written to the object for people who read it;
        `resource` is what the budget counts.
        """
        annotations = {} if resource is None else {_RESOURCE_ANNOTATION: resource}
        try:
            stored = await self._swap(key, chunk, annotations) or await self._create(key, chunk, subject, annotations)
        except (Conflict, AlreadyExists) as error:
            raise ChunkConflict(f"{_name(key, chunk.serial)}: {error}") from error
        self._note(key, chunk.serial, stored)

    async def _swap(self, key: LedgerKey, chunk: ChunkWrite, annotations: Mapping[str, str]) -> ConfigMap | None:
        """Stored chunk after an update; None if it is not stored yet or was deleted, so that it must be created."""
        known = self._versions[key].get(chunk.serial)
        if known is None:
            return None
        swap = {"uid": known.uid, "resourceVersion": str(known.resource_version)}
        patch = writes.merge_patch(
            {
                "metadata": {**swap, "labels": _labels(key), "annotations": annotations},
                "binaryData": {_DATA_KEY: chunk.data},
            }
        )
        try:
            return await self._client.patch(CONFIG_MAPS, _name(key, chunk.serial), patch, self._namespace)
        except NotFound:
            return None

    async def _create(
        self, key: LedgerKey, chunk: ChunkWrite, subject: tuple[str, str], annotations: Mapping[str, str]
    ) -> ConfigMap:
        metadata = {
            "name": _name(key, chunk.serial),
            "namespace": self._namespace,
            "labels": _labels(key),
            "annotations": {_BUDGET_ANNOTATION: "/".join(subject), **annotations},
        }
        return await self._client.create(CONFIG_MAPS, {"metadata": metadata, "binaryData": {_DATA_KEY: chunk.data}})

    async def delete(self, key: LedgerKey, serials: Collection[int]) -> None:
        await asyncio.gather(*(self._delete(key, serial) for serial in serials))

    async def delete_all(self, key: LedgerKey) -> None:
        """Delete the ledger of a deleted budget."""
        await self.delete(key, tuple(self._versions[key]))
        self._versions.pop(key, None)

    async def _delete(self, key: LedgerKey, serial: int) -> None:
        known = self._versions[key].get(serial)
        try:
            name = _name(key, serial)
            await self._client.delete(CONFIG_MAPS, name, self._namespace, uid=None if known is None else known.uid)
        except NotFound:
            pass
        except Conflict as error:
            raise ChunkConflict(str(error)) from error
        self._versions[key].pop(serial, None)

    def _note(self, key: LedgerKey, serial: int, stored: ConfigMap) -> None:
        self._versions[key][serial] = _Version(stored.uid, stored.resource_version)


def _name(key: LedgerKey, serial: int) -> str:
    return f"{LEDGER_PREFIX}-{key.uid}-{key.unit}-{serial:0{_SERIAL_DIGITS}d}"


def _labels(key: LedgerKey) -> dict[str, str]:
    return {LEDGER_LABEL: key.unit.value, BUDGET_UID_LABEL: key.uid}


def _key_and_serial(stored: ConfigMap) -> tuple[LedgerKey, int] | None:
    """Ledger and serial from a ConfigMap's name, which is immutable; None if the name is not that of a chunk."""
    rest, _, serial = stored.metadata.name.rpartition("-")
    for unit in Unit:
        uid = rest.removeprefix(f"{LEDGER_PREFIX}-").removesuffix(f"-{unit}")
        if serial.isascii() and serial.isdigit() and rest == f"{LEDGER_PREFIX}-{uid}-{unit}":
            return LedgerKey(uid, unit), int(serial)
    return None
