"""Sync of ledgers to the cluster, beside the reconcile loop, so that slow writes do not delay a tick.

Usage that is not stored yet counts, but no finalizer is removed before it is stored.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from forebay.budgets.budget_accounts import BudgetKey
from forebay.budgets.ledger.chunk_log import ChunkWrite
from forebay.budgets.ledger.chunks import UnreadableChunk, decode_chunk
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import seconds
from forebay.engine.ledger.store import ChunkConflict, Chunks, LedgerKey, LedgerStore, Unit
from forebay.kube.errors import KubeError
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

#: Seconds between two rounds: changes within one round share a write.
_ROUND_INTERVAL: Final = 1.0
_AFTER_ERROR: Final = 2.0
#: Ledgers written in one round, and concurrently.
_PER_ROUND: Final = 64
_CONCURRENT: Final = 8
#: Seconds between two checks of what is stored: chunks may have been deleted, and damaged ones restored, or deleted to
#: accept the loss.
_CHECK_INTERVAL: Final = 60.0


class TrackedLedger(NamedTuple):
    """Ledger to keep stored."""

    key: LedgerKey
    #: Key of the budget, or another name that people know the ledger by.
    subject: BudgetKey
    ledger: Ledger
    #: Puts another ledger in its place, after a reload.
    replace: Callable[[Ledger], None]
    #: What the budget counts; None for the bill.
    resource: str | None = None


class LedgerSync:
    """Reads stored ledgers at the start, then stores changes and deletes orphaned ledgers.

    `ledgers` returns all ledgers. `live` returns the UIDs of all budgets and keys of the bill, or None while they are
    not known for certain.
    """

    def __init__(
        self,
        store: LedgerStore,
        ledgers: Callable[[], Iterable[TrackedLedger]],
        *,
        clock: Callable[[], datetime],
        still_leader: Callable[[], bool],
        live: Callable[[], Collection[str] | None],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._ledgers = ledgers
        self._clock = clock
        self._still_leader = still_leader
        self._live = live
        self._wake = wake
        #: Chunks of ledgers that are not opened yet, as stored when this process began to lead; None: not read yet.
        self._loaded_chunks: dict[LedgerKey, Chunks] | None = None
        self._work = asyncio.Event()
        #: Since when each ledger has had changes that are not stored.
        self._waiting: dict[LedgerKey, datetime] = {}
        #: Ledgers with chunks that cannot be read: the subject, and what to do.
        self._damaged: dict[LedgerKey, tuple[BudgetKey, str]] = {}
        #: Ledgers with chunks that somebody deleted, as the last check found, and what was done about it.
        self._rewritten: dict[LedgerKey, tuple[BudgetKey, str]] = {}
        #: When ledgers that are not opened were last written, in seconds.
        self._last_written: dict[LedgerKey, int] = {}
        #: When to check again what is stored, on the loop's clock.
        self._next_check = 0.0
        #: Why the last round did not store everything.
        self.error: str | None = None

    @property
    def ready(self) -> bool:
        return self._loaded_chunks is not None

    @property
    def waiting_since(self) -> datetime | None:
        """Time of the oldest change that is not stored yet."""
        return min(self._waiting.values(), default=None)

    @property
    def damages(self) -> dict[BudgetKey, str]:
        """Budgets with damaged ledgers, and what to do about each."""
        return _of_budgets(self._damaged)

    @property
    def rewritten(self) -> dict[BudgetKey, str]:
        """Budgets with stored chunks that somebody deleted and Forebay has written again."""
        return _of_budgets(self._rewritten)

    @property
    def server_time(self) -> datetime | None:
        """Time on the API server's clock when it last responded; None if it has not said."""
        return self._store.server_time

    def uid_for(self, subject: BudgetKey, uid: str, resource: str, *, reset: bool) -> str:
        """UID under which the ledgers of a budget are stored: see `LedgerStore.uid_for`."""
        return self._store.uid_for(subject, uid, resource, reset=reset)

    def not_opened(self) -> Iterator[tuple[BudgetKey, str, int]]:
        """Stored ledgers of budgets that do not exist: budget, UID of the ledger, and when it was last written."""
        for key, chunks in (self._loaded_chunks or {}).items():
            subject = self._store.subject(key)
            if subject is not None:
                if key not in self._last_written:
                    self._last_written[key] = _last_written(chunks)
                yield subject, key.uid, self._last_written[key]

    def open(self, subject: BudgetKey, uid: str, unit: Unit, owner: str | None = None) -> Ledger:
        """Ledger as it was stored. Call once for each, when its account is opened. The owner defaults to the UID."""
        assert self._loaded_chunks is not None
        key = LedgerKey(uid, unit)
        return self._loaded(subject, key, owner or uid, self._loaded_chunks.pop(key, {}))

    def stored(self, unit: Unit) -> dict[LedgerKey, Chunks]:
        """Stored chunks of the ledgers in this unit that are not opened yet."""
        assert self._loaded_chunks is not None
        return {key: chunks for key, chunks in self._loaded_chunks.items() if key.unit is unit}

    def is_damaged(self, key: LedgerKey) -> bool:
        return key in self._damaged

    def close(self, subject: BudgetKey) -> None:
        """Forget the damage of a deleted budget's ledgers, and have them stored, or deleted if they are not kept."""
        self._damaged = {key: damage for key, damage in self._damaged.items() if damage[0] != subject}
        self.request_round()

    def request_round(self) -> None:
        """Start a round even if no ledger has changed, for example to delete the ledgers of deleted budgets."""
        self._work.set()

    def schedule(self, now: datetime) -> None:
        """Schedule the storing of changed ledgers. Call whenever ledgers may have changed."""
        for due in self._due():
            self._waiting.setdefault(due.key, now)
        if self._waiting:
            self._work.set()

    async def load(self) -> None:
        """Read all stored ledgers, and retry until that succeeds: before, no budget can be assessed."""
        while self._loaded_chunks is None:
            try:
                self._loaded_chunks = await self._store.load()
            except (KubeError, TransportError) as error:
                self.error = str(error)
                log.warning("ledger read failed", error=self.error)
                await asyncio.sleep(_AFTER_ERROR)
        self.error = None
        self._work.set()
        self._wake()

    async def load_once(self) -> None:
        """Read all stored ledgers, for a process that does not write. Raises the errors of the API server."""
        self._loaded_chunks = await self._store.load()

    async def store_next(self) -> None:
        """Wait until there is work, do one round of it, and pause."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_check:
            self._next_check = loop.time() + _CHECK_INTERVAL
            await self._check()
        try:
            async with asyncio.timeout_at(self._next_check):
                await self._work.wait()
        except TimeoutError:
            return
        self._work.clear()
        before, now = self.error, await self._round()
        if now is not None:
            if now != before:
                log.warning("ledger write failed", error=now)
            self._work.set()
        self._wake()
        await asyncio.sleep(_ROUND_INTERVAL if now is None else _AFTER_ERROR)

    async def _round(self) -> str | None:
        self.error = None
        await self._store_round()
        await self._delete_orphans()
        return self.error

    async def store_rest(self) -> None:
        """Store all changes once, before this process ends; then what somebody deleted."""
        if self.ready and self._still_leader():
            # The check lists every ledger, which may take the rest of the time.
            await self._store_round()
            await self._rewrite_missing()
            if self._rewritten:
                await self._store_round()

    def _due(self) -> Iterator[TrackedLedger]:
        return (each for each in self._ledgers() if each.ledger.chunk_log.pending)

    async def _store_round(self) -> None:
        now = self._clock()
        due = sorted(self._due(), key=lambda each: self._waiting.get(each.key, now))
        # The machine ledger says until when costs are recorded. So it is encoded before those costs are stored, and
        # written after them. The dollars of budgets are stored before the bill.
        machines = [each for each in due if each.key.unit is Unit.MACHINES]
        machine_writes = [(each, each.ledger.chunk_log.writes(seconds(now))) for each in machines]
        hours, dollars, bill = (
            [each for each in due if each.key.unit is unit] for unit in (Unit.GPU_HOURS, Unit.DOLLARS, Unit.BILL)
        )
        done = {each.key for each in hours[:_PER_ROUND]}
        whole = await self._store_all(hours[:_PER_ROUND])
        for stage in (dollars, bill):
            if await self._store_all(stage):
                done |= {each.key for each in stage}
            else:
                break
        else:
            for each, writes in machine_writes:
                if await self._try_store(each, writes):
                    done.add(each.key)
        still = {each.key for each in self._due()}
        if not whole:
            done = set()
        # Changes that were made meanwhile are younger than those that were just stored.
        self._waiting = {key: now if key in done else since for key, since in self._waiting.items() if key in still}
        if still:
            self._work.set()

    async def _store_all(self, due: list[TrackedLedger]) -> bool:
        """Store ledgers concurrently; returns whether all are stored."""
        turns = asyncio.Semaphore(_CONCURRENT)

        async def in_turn(each: TrackedLedger) -> bool:
            async with turns:
                return await self._try_store(each)

        return all(await asyncio.gather(*map(in_turn, due)))

    async def _try_store(self, due: TrackedLedger, writes: list[ChunkWrite] | None = None) -> bool:
        try:
            return await self._store_one(due, writes)
        except ChunkConflict as conflict:
            log.warning("ledger conflict", ledger="/".join(due.subject), unit=due.key.unit, error=str(conflict))
            # Reported if it lasts: after the reload the next write should succeed.
            self.error = str(conflict)
            await self._reload(due)
        except (KubeError, TransportError) as error:
            self.error = str(error)
        return False

    async def _store_one(self, due: TrackedLedger, writes: list[ChunkWrite] | None) -> bool:
        chunk_log = due.ledger.chunk_log
        for write in chunk_log.writes(seconds(self._clock())) if writes is None else writes:
            if not self._still_leader():
                return False
            await self._store.write(due.key, write, due.subject, due.resource)
            chunk_log.wrote(write)
        obsolete = chunk_log.obsolete()
        if self._still_leader():
            await self._store.delete(due.key, obsolete)
            for serial in obsolete:
                chunk_log.deleted(serial)
        return True

    async def _reload(self, due: TrackedLedger) -> None:
        """Read a ledger again, and merge what only this process knows: entries count once however often stored."""
        try:
            stored = await self._store.load_one(due.key)
        except (KubeError, TransportError) as error:
            self.error = str(error)
            return
        ledger = self._loaded(due.subject, due.key, due.ledger.chunk_log.owner, stored)
        ledger.merge(due.ledger)
        due.replace(ledger)

    async def _check(self) -> None:
        if self._still_leader():
            await self._rewrite_missing()
        for due in [each for each in self._ledgers() if each.key in self._damaged]:
            await self._reload(due)
        self._wake()

    async def _rewrite_missing(self) -> None:
        """Have chunks written again that somebody deleted: this process still knows what they held."""
        try:
            missing = await self._store.find_missing()
        except (KubeError, TransportError) as error:
            log.warning("ledger check failed", error=str(error))
            return
        self._rewritten = {}
        for due in self._ledgers():
            serials = due.ledger.chunk_log.lost(missing.get(due.key, ()))
            if serials:
                chunks = ", ".join(map(str, serials))
                log.warning("ledger chunk missing", ledger="/".join(due.subject), unit=due.key.unit, chunks=chunks)
                sentence = (
                    f"Somebody deleted the ConfigMap of chunk {chunks} of the ledger. Forebay has written it again; "
                    "no usage is lost."
                )
                self._rewritten[due.key] = (due.subject, sentence)
                self._work.set()

    async def _delete_orphans(self) -> None:
        """Delete ledgers of deleted budgets and of keys that are no longer in the bill."""
        live = self._live()
        if live is None:
            return
        for key in self._store.stored_keys():
            if key.uid not in live and self._still_leader():
                try:
                    await self._store.delete_all(key)
                    if self._loaded_chunks is not None:
                        self._loaded_chunks.pop(key, None)
                except (KubeError, TransportError, ChunkConflict) as error:
                    self.error = str(error)

    def _loaded(self, subject: BudgetKey, key: LedgerKey, owner: str, stored: Chunks) -> Ledger:
        ledger, damages = Ledger.load(owner, stored)
        if damages:
            self._damaged[key] = (subject, " ".join(each.sentence for each in damages))
            log.warning("ledger damaged", ledger="/".join(subject), unit=key.unit, error=self._damaged[key][1])
        else:
            self._damaged.pop(key, None)
        return ledger


def _last_written(chunks: Chunks) -> int:
    """When one of the chunks was last written, in seconds; 0 if none can be read."""
    found = [0]
    for data in chunks.values():
        with suppress(UnreadableChunk):
            found.append(decode_chunk(data).saved)
    return max(found)


def _of_budgets(said: Mapping[LedgerKey, tuple[BudgetKey, str]]) -> dict[BudgetKey, str]:
    """Sentences about ledgers of budgets, by budget."""
    found: dict[BudgetKey, str] = {}
    for key, (subject, sentence) in said.items():
        if key.unit.of_budgets:
            found[subject] = f"{found[subject]} {sentence}" if subject in found else sentence
    return found
