"""Ledgers in the cluster: every chunk is a ConfigMap in the operator's own namespace.

No object there can be owned by a budget of another namespace (the garbage collector would take it for an orphan), so
labels say whose it is, and whoever keeps the books deletes what belongs to no budget any more.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from forebay.api.names import BUDGET_UID_LABEL, LEDGER_LABEL
from forebay.budgets.ledger.chunk_log import ChunkWrite
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.config_maps import CONFIG_MAPS, ConfigMap
from forebay.kube.errors import AlreadyExists, Conflict, NotFound

_KEY: Final = "chunk"
_PREFIX: Final = "forebay-ledger"
_SERIAL_DIGITS: Final = 6
#: A page of full chunks is 5 MB.
_PAGE: Final = 20


class Unit(StrEnum):
    """What a ledger is kept in; a budget has one of each of the first two."""

    GPU_HOURS = "gpu-hours"
    DOLLARS = "dollars"
    #: A line of the bill for all machines; and until when each of these is on it.
    SPEND = "spend"
    MACHINES = "machines"

    @property
    def of_budgets(self) -> bool:
        return self in {Unit.GPU_HOURS, Unit.DOLLARS}


class LedgerKey(NamedTuple):
    """One ledger, by the UID of its budget, or of its line of the bill."""

    uid: str
    unit: Unit


Chunks = Mapping[int, bytes]


class ChunkConflict(Exception):
    """A chunk is not as it was left: somebody else keeps this ledger, or the answer to an earlier write was lost.

    Either way what is stored must be read again before anything is written.
    """


class _Version(NamedTuple):
    uid: str
    resource_version: int


class LedgerStore:
    """Every write is a compare-and-swap on what was read or written last: of two leaders neither undoes the other."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._versions: dict[LedgerKey, dict[int, _Version]] = defaultdict(dict)

    async def load(self) -> dict[LedgerKey, Chunks]:
        """All that is stored. Nothing is known before: a listing is complete or an error."""
        self._versions.clear()
        return await self._read(LEDGER_LABEL)

    async def load_one(self, book: LedgerKey) -> Chunks:
        self._versions.pop(book, None)
        found = await self._read(f"{LEDGER_LABEL}={book.unit},{BUDGET_UID_LABEL}={book.uid}")
        return found.get(book, {})

    async def _read(self, labels: str) -> dict[LedgerKey, Chunks]:
        page = await self._client.list_all(CONFIG_MAPS, self._namespace, labels=labels, limit=_PAGE)
        found: defaultdict[LedgerKey, dict[int, bytes]] = defaultdict(dict)
        for stored in page.items:
            place = _place(stored)
            if place is not None:
                book, serial = place
                self._note(book, serial, stored)
                found[book][serial] = stored.binary_data.get(_KEY, b"")
        return dict(found)

    def books(self) -> tuple[LedgerKey, ...]:
        """Of which something is stored."""
        return tuple(book for book, versions in self._versions.items() if versions)

    async def write(self, book: LedgerKey, chunk: ChunkWrite, about: tuple[str, str]) -> None:
        """`about` is the budget's namespace and name, or so, for people who look at the object. Raises `Overtaken`."""
        try:
            stored = await self._swap(book, chunk) or await self._create(book, chunk, about)
        except (Conflict, AlreadyExists) as error:
            raise ChunkConflict(f"{_name(book, chunk.serial)}: {error}") from error
        self._note(book, chunk.serial, stored)

    async def _swap(self, book: LedgerKey, chunk: ChunkWrite) -> ConfigMap | None:
        """None where it is not stored yet, or somebody has deleted it: all of it is here, too."""
        known = self._versions[book].get(chunk.serial)
        if known is None:
            return None
        swap = {"uid": known.uid, "resourceVersion": str(known.resource_version)}
        patch = writes.merge_patch({"metadata": swap, "binaryData": {_KEY: chunk.data}})
        try:
            return await self._client.patch(CONFIG_MAPS, _name(book, chunk.serial), patch, self._namespace)
        except NotFound:
            return None

    async def _create(self, book: LedgerKey, chunk: ChunkWrite, about: tuple[str, str]) -> ConfigMap:
        metadata = {
            "name": _name(book, chunk.serial),
            "namespace": self._namespace,
            "labels": {LEDGER_LABEL: book.unit.value, BUDGET_UID_LABEL: book.uid},
            "annotations": {"forebay.dev/budget": "/".join(about)},
        }
        return await self._client.create(CONFIG_MAPS, {"metadata": metadata, "binaryData": {_KEY: chunk.data}})

    async def delete(self, book: LedgerKey, serials: Collection[int]) -> None:
        await asyncio.gather(*(self._delete(book, serial) for serial in serials))

    async def delete_all(self, book: LedgerKey) -> None:
        """Of a budget that is gone."""
        await self.delete(book, tuple(self._versions[book]))
        self._versions.pop(book, None)

    async def _delete(self, book: LedgerKey, serial: int) -> None:
        known = self._versions[book].get(serial)
        try:
            name = _name(book, serial)
            await self._client.delete(CONFIG_MAPS, name, self._namespace, uid=None if known is None else known.uid)
        except NotFound:
            pass
        except Conflict as error:
            raise ChunkConflict(str(error)) from error
        self._versions[book].pop(serial, None)

    def _note(self, book: LedgerKey, serial: int, stored: ConfigMap) -> None:
        self._versions[book][serial] = _Version(stored.uid, stored.resource_version)


def _name(book: LedgerKey, serial: int) -> str:
    return f"{_PREFIX}-{book.uid}-{book.unit}-{serial:0{_SERIAL_DIGITS}d}"


def _place(stored: ConfigMap) -> tuple[LedgerKey, int] | None:
    """As its name says, which nobody can change. None: it is not one of ours, whatever its labels say."""
    rest, _, serial = stored.metadata.name.rpartition("-")
    for unit in Unit:
        uid = rest.removeprefix(f"{_PREFIX}-").removesuffix(f"-{unit}")
        if serial.isascii() and serial.isdigit() and rest == f"{_PREFIX}-{uid}-{unit}":
            return LedgerKey(uid, unit), int(serial)
    return None
