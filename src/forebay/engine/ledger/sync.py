"""Stores ledgers in the cluster beside the loop: a server that is slow to write delays nobody.

What is not stored yet counts, and is only not relied on: no pod is let go for it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from forebay.budgets.accounts import BudgetKey
from forebay.budgets.ledger.chunk_log import ChunkWrite
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import seconds
from forebay.engine.ledger.store import ChunkConflict, Chunks, LedgerKey, LedgerStore, Unit
from forebay.kube.errors import KubeError
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

#: Seconds between two rounds: what ends within one is one write.
_BETWEEN_ROUNDS: Final = 1.0
_AFTER_TROUBLE: Final = 2.0
#: Ledgers in one round, and at once.
_PER_ROUND: Final = 64
_AT_ONCE: Final = 8
#: How often a damaged ledger is read again, in seconds: it may have been restored, or its loss accepted.
_DAMAGE_LOOK: Final = 60.0


class TrackedLedger(NamedTuple):
    """One ledger, and where it has its place."""

    book: LedgerKey
    #: The budget's key, or what else people know it by.
    about: BudgetKey
    ledger: Ledger
    #: Another one takes its place.
    replace: Callable[[Ledger], None]


class LedgerSync:
    """`ledgers` are all that there are; `live` names the UIDs of all budgets (and lines of the bill) that there are, or
    None while that is not known for sure.
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
        #: As it was stored when this process began to lead; None: not read yet.
        self._unopened: dict[LedgerKey, Chunks] | None = None
        self._news = asyncio.Event()
        #: Since when each ledger has waited to be stored.
        self._waiting: dict[LedgerKey, datetime] = {}
        #: Stored parts that cannot be read.
        self._damages: dict[LedgerKey, tuple[BudgetKey, str]] = {}
        #: Why the last round could not store everything.
        self.error: str | None = None

    @property
    def ready(self) -> bool:
        return self._unopened is not None

    @property
    def waiting_since(self) -> datetime | None:
        """The oldest change that is not stored yet."""
        return min(self._waiting.values(), default=None)

    @property
    def damages(self) -> dict[BudgetKey, str]:
        """By budget."""
        found: dict[BudgetKey, str] = {}
        for book, (key, said) in self._damages.items():
            if book.unit.of_budgets:
                found[key] = f"{found[key]} {said}" if key in found else said
        return found

    def open(self, about: BudgetKey, uid: str, unit: Unit, owner: str | None = None) -> Ledger:
        """As it was stored. Only once for each, when its account is opened. The owner is the UID, if not another."""
        assert self._unopened is not None
        book = LedgerKey(uid, unit)
        return self._loaded(about, book, owner or uid, self._unopened.pop(book, {}))

    def stored(self, unit: Unit) -> dict[LedgerKey, Chunks]:
        """What is not opened yet."""
        assert self._unopened is not None
        return {book: chunks for book, chunks in self._unopened.items() if book.unit is unit}

    def is_damaged(self, book: LedgerKey) -> bool:
        return book in self._damages

    def close(self, key: BudgetKey) -> None:
        self._damages = {book: said for book, said in self._damages.items() if said[0] != key}
        self.look_for_strays()

    def look_for_strays(self) -> None:
        """There may be ledgers of budgets that are gone."""
        self._news.set()

    def look(self, now: datetime) -> None:
        """To be called whenever the books have changed."""
        for due in self._due():
            self._waiting.setdefault(due.book, now)
        if self._waiting:
            self._news.set()

    async def load(self) -> None:
        """Until all that is stored is read: before that nothing is known of any budget."""
        while self._unopened is None:
            try:
                self._unopened = await self._store.load()
            except (KubeError, TransportError) as error:
                self.error = str(error)
                log.warning("the ledgers of budgets cannot be read", why=self.error)
                await asyncio.sleep(_AFTER_TROUBLE)
        self.error = None
        self._news.set()
        self._wake()

    async def load_once(self) -> None:
        """For whoever only looks. Raises what the API server says."""
        self._unopened = await self._store.load()

    async def store_next(self) -> None:
        """Waits until there is something to store, stores it, and rests."""
        try:
            async with asyncio.timeout(_DAMAGE_LOOK if self._damages else None):
                await self._news.wait()
        except TimeoutError:
            await self._read_damaged_again()
            return
        self._news.clear()
        before, now = self.error, await self._round()
        if now is not None:
            if now != before:
                log.warning("the ledgers of budgets cannot be stored", why=now)
            self._news.set()
        self._wake()
        await asyncio.sleep(_BETWEEN_ROUNDS if now is None else _AFTER_TROUBLE)

    async def _round(self) -> str | None:
        self.error = None
        await self._store_round()
        await self._delete_strays()
        return self.error

    async def store_rest(self) -> None:
        if self.ready and self._still_leader():
            await self._store_round()

    def _due(self) -> Iterator[TrackedLedger]:
        return (each for each in self._ledgers() if each.ledger.shelf.pending)

    async def _store_round(self) -> None:
        now = self._clock()
        due = sorted(self._due(), key=lambda each: self._waiting.get(each.book, now))
        journals = [(each, each.ledger.shelf.writes(seconds(now))) for each in due if each.book.unit is Unit.MACHINES]
        # Until when machines are settled is stored as it was before, and after, what was settled: first where others
        # rely on it.
        hours, money, lines = (
            [each for each in due if each.book.unit is unit] for unit in (Unit.GPU_HOURS, Unit.DOLLARS, Unit.SPEND)
        )
        done = {each.book for each in hours[:_PER_ROUND]}
        whole = await self._store_all(hours[:_PER_ROUND])
        for stage in (money, lines):
            if await self._store_all(stage):
                done |= {each.book for each in stage}
            else:
                break
        else:
            for each, writes in journals:
                if await self._guarded(each, writes):
                    done.add(each.book)
        still = {each.book for each in self._due()}
        if not whole:
            done = set()
        # Changes that came meanwhile are younger than those that were just stored.
        self._waiting = {book: now if book in done else since for book, since in self._waiting.items() if book in still}
        if still:
            self._news.set()

    async def _store_all(self, due: list[TrackedLedger]) -> bool:
        """Whether all of them are stored as they were."""
        turns = asyncio.Semaphore(_AT_ONCE)

        async def in_turn(each: TrackedLedger) -> bool:
            async with turns:
                return await self._guarded(each)

        return all(await asyncio.gather(*map(in_turn, due)))

    async def _guarded(self, due: TrackedLedger, writes: list[ChunkWrite] | None = None) -> bool:
        try:
            return await self._store_one(due, writes)
        except ChunkConflict as overtaken:
            log.warning("a ledger has changed behind us and is read again", why=str(overtaken))
            await self._reload(due)
        except (KubeError, TransportError) as error:
            self.error = str(error)
        return False

    async def _store_one(self, due: TrackedLedger, writes: list[ChunkWrite] | None) -> bool:
        shelf = due.ledger.shelf
        for write in shelf.writes(seconds(self._clock())) if writes is None else writes:
            if not self._still_leader():
                return False
            await self._store.write(due.book, write, due.about)
            shelf.wrote(write)
        obsolete = shelf.obsolete()
        if obsolete and self._still_leader():
            await self._store.delete(due.book, obsolete)
            for serial in obsolete:
                shelf.deleted(serial)
        return True

    async def _reload(self, due: TrackedLedger) -> None:
        """What is stored, and what only this process knows: records count once, however often they are stored."""
        try:
            stored = await self._store.load_one(due.book)
        except (KubeError, TransportError) as error:
            self.error = str(error)
            return
        ledger = self._loaded(due.about, due.book, due.ledger.shelf.owner, stored)
        ledger.merge(due.ledger)
        due.replace(ledger)

    async def _read_damaged_again(self) -> None:
        for due in [each for each in self._ledgers() if each.book in self._damages]:
            await self._reload(due)
        self._wake()

    async def _delete_strays(self) -> None:
        """Ledgers of what is gone."""
        live = self._live()
        if live is None:
            return
        for book in self._store.books():
            if book.uid not in live and self._still_leader():
                try:
                    await self._store.delete_all(book)
                except (KubeError, TransportError, ChunkConflict) as error:
                    self.error = str(error)

    def _loaded(self, about: BudgetKey, book: LedgerKey, owner: str, stored: Chunks) -> Ledger:
        ledger, damages = Ledger.load(owner, stored)
        if damages:
            self._damages[book] = (about, " ".join(each.sentence for each in damages))
            log.warning("a ledger is damaged", about="/".join(about), unit=book.unit, why=self._damages[book][1])
        else:
            self._damages.pop(book, None)
        return ledger
