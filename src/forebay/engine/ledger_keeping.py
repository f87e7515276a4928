"""Stores ledgers in the cluster beside the loop: a server that is slow to write delays nobody.

What is not stored yet counts, and is only not relied on: no pod is let go for it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import structlog

from forebay.budgets.accounts import Account, Accounts, Key
from forebay.budgets.ledger import Ledger
from forebay.budgets.usage import seconds
from forebay.engine.ledger_store import Book, Chunks, LedgerStore, Overtaken, Unit
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


class _Due(NamedTuple):
    account: Account
    unit: Unit

    @property
    def book(self) -> Book:
        return Book(self.account.uid, self.unit)

    @property
    def ledger(self) -> Ledger:
        return self.account.ledger if self.unit is Unit.GPU_HOURS else self.account.money

    def replace(self, ledger: Ledger) -> None:
        if self.unit is Unit.GPU_HOURS:
            self.account.ledger = ledger
        else:
            self.account.money = ledger


class LedgerKeeper:
    """`live` names the UIDs of all budgets that there are, or None while that is not known for sure."""

    def __init__(
        self,
        store: LedgerStore,
        accounts: Accounts,
        *,
        clock: Callable[[], datetime],
        still_leader: Callable[[], bool],
        live: Callable[[], Collection[str] | None],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._accounts = accounts
        self._clock = clock
        self._still_leader = still_leader
        self._live = live
        self._wake = wake
        #: As it was stored when this process began to lead; None: not read yet.
        self._unopened: dict[Book, Chunks] | None = None
        self._news = asyncio.Event()
        #: Since when each ledger has waited to be stored.
        self._waiting: dict[Book, datetime] = {}
        #: Stored parts that cannot be read.
        self._damages: dict[Key, dict[Unit, str]] = {}
        #: Why the last round could not store everything.
        self.trouble: str | None = None

    @property
    def ready(self) -> bool:
        return self._unopened is not None

    @property
    def waiting_since(self) -> datetime | None:
        """The oldest change that is not stored yet."""
        return min(self._waiting.values(), default=None)

    @property
    def damages(self) -> dict[Key, str]:
        return {key: " ".join(said.values()) for key, said in self._damages.items() if said}

    def open(self, key: Key, uid: str, unit: Unit) -> Ledger:
        """As it was stored. Only once for each, when its account is opened."""
        assert self._unopened is not None
        return self._loaded(key, Book(uid, unit), self._unopened.pop(Book(uid, unit), {}))

    def close(self, key: Key) -> None:
        self._damages.pop(key, None)
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
                self.trouble = str(error)
                log.warning("the ledgers of budgets cannot be read", why=self.trouble)
                await asyncio.sleep(_AFTER_TROUBLE)
        self.trouble = None
        self._news.set()
        self._wake()

    async def store_next(self) -> None:
        """Waits until there is something to store, stores it, and rests."""
        try:
            async with asyncio.timeout(_DAMAGE_LOOK if self.damages else None):
                await self._news.wait()
        except TimeoutError:
            await self._read_damaged_again()
            return
        self._news.clear()
        before, now = self.trouble, await self._round()
        if now is not None:
            if now != before:
                log.warning("the ledgers of budgets cannot be stored", why=now)
            self._news.set()
        self._wake()
        await asyncio.sleep(_BETWEEN_ROUNDS if now is None else _AFTER_TROUBLE)

    async def _round(self) -> str | None:
        self.trouble = None
        await self._store_round()
        await self._delete_strays()
        return self.trouble

    async def store_rest(self) -> None:
        if self.ready and self._still_leader():
            await self._store_round()

    def _due(self) -> Iterator[_Due]:
        for account in self._accounts:
            for unit in Unit:
                due = _Due(account, unit)
                if due.ledger.shelf.pending:
                    yield due

    async def _store_round(self) -> None:
        now = self._clock()
        due = sorted(self._due(), key=lambda each: self._waiting.get(each.book, now))
        turns = asyncio.Semaphore(_AT_ONCE)

        async def in_turn(each: _Due) -> None:
            async with turns:
                await self._guarded(each)

        await asyncio.gather(*map(in_turn, due[:_PER_ROUND]))
        still = {each.book for each in self._due()}
        # Changes that came meanwhile are younger than those that were just stored.
        done = {each.book for each in due[:_PER_ROUND]} if self.trouble is None else set()
        self._waiting = {book: now if book in done else since for book, since in self._waiting.items() if book in still}
        if still:
            self._news.set()

    async def _guarded(self, due: _Due) -> None:
        try:
            await self._store_one(due)
        except Overtaken as overtaken:
            log.warning("a ledger has changed behind us and is read again", why=str(overtaken))
            await self._reload(due)
        except (KubeError, TransportError) as error:
            self.trouble = str(error)

    async def _store_one(self, due: _Due) -> None:
        shelf = due.ledger.shelf
        for write in shelf.writes(seconds(self._clock())):
            if not self._still_leader():
                return
            await self._store.write(due.book, write, due.account.key)
            shelf.wrote(write)
        obsolete = shelf.obsolete()
        if obsolete and self._still_leader():
            await self._store.delete(due.book, obsolete)
            for serial in obsolete:
                shelf.deleted(serial)

    async def _reload(self, due: _Due) -> None:
        """What is stored, and what only this process knows: records count once, however often they are stored."""
        try:
            stored = await self._store.load_one(due.book)
        except (KubeError, TransportError) as error:
            self.trouble = str(error)
            return
        ledger = self._loaded(due.account.key, due.book, stored)
        ledger.merge(due.ledger)
        due.replace(ledger)

    async def _read_damaged_again(self) -> None:
        for key, said in list(self._damages.items()):
            account = self._accounts.get(key)
            for unit in list(said) if account is not None else ():
                assert account is not None
                await self._reload(_Due(account, unit))
        self._wake()

    async def _delete_strays(self) -> None:
        """Ledgers of budgets that are gone."""
        live = self._live()
        if live is None:
            return
        for book in self._store.books():
            if book.uid not in live and self._still_leader():
                try:
                    await self._store.delete_all(book)
                except (KubeError, TransportError, Overtaken) as error:
                    self.trouble = str(error)

    def _loaded(self, key: Key, book: Book, stored: Chunks) -> Ledger:
        ledger, damages = Ledger.load(book.uid, stored)
        said = self._damages.setdefault(key, {})
        if damages:
            said[book.unit] = " ".join(each.sentence for each in damages)
        else:
            said.pop(book.unit, None)
        return ledger
