"""The providers at work: each is asked for its offers and its instances by a task of its own.

A provider that is slow or stuck delays nobody else. One that fails keeps what it showed last, with the time at which it
was asked: from an old listing nothing new may be concluded, and `lifecycle` looks at that time.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from forebay.model.sources import Listing, Offer, Source, SourceKey
from forebay.providers.base import Provider, ProviderError
from forebay.providers.registry import NotInThisRelease

log = structlog.get_logger(__name__)

#: How often offers are asked for.
OFFERS_EVERY: Final = timedelta(seconds=60)
#: How often the listing is asked for while a launch or an end waits for it.
HURRIED: Final = timedelta(seconds=2)
#: A call that takes longer counts as failed; the next is made all the same.
CALL_LIMIT: Final = 60.0


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A source as it should be. `build` is called once, and again when `digest` has become another."""

    key: SourceKey
    digest: str
    priority: int
    enabled: bool
    build: Callable[[], Provider]


class Sources:
    """`configure` says which there should be; `states` says what is known of them."""

    def __init__(self, wake: Callable[[], None], clock: Callable[[], datetime]) -> None:
        self._wake = wake
        self._clock = clock
        self._running: dict[SourceKey, _Watched] = {}
        #: Why one could not be made, by key.
        self._unmade: dict[SourceKey, tuple[str, str]] = {}

    def configure(self, wanted: Iterable[SourceConfig]) -> None:
        by_key = {each.key: each for each in wanted}
        for key in self._running.keys() - by_key.keys():
            self._running.pop(key).stop()
        self._unmade = {key: why for key, why in self._unmade.items() if key in by_key}
        for key, each in by_key.items():
            running = self._running.get(key)
            if running is not None and running.configured.digest == each.digest:
                running.configured = each
                continue
            if key in self._unmade and self._unmade[key][0] == each.digest:
                continue
            if running is not None:
                running.stop()
            self._make(each)

    def _make(self, each: SourceConfig) -> None:
        try:
            provider = each.build()
        except NotInThisRelease as error:
            self._unmade[each.key] = (each.digest, str(error))
            log.warning("a provider cannot be used", source=each.key, why=str(error))
            return
        self._unmade.pop(each.key, None)
        self._running[each.key] = _Watched(each, provider, self._wake, self._clock)

    @property
    def unmade(self) -> Mapping[SourceKey, str]:
        return {key: why for key, (_, why) in self._unmade.items()}

    def states(self) -> dict[SourceKey, Source]:
        return {key: running.state() for key, running in self._running.items()}

    def provider(self, key: SourceKey) -> Provider | None:
        running = self._running.get(key)
        return None if running is None else running.provider

    def hurry(self, keys: Iterable[SourceKey]) -> None:
        """Something waits for the next listing of these; the others may take their time."""
        hurried = set(keys)
        for key, running in self._running.items():
            running.hurry(key in hurried)

    async def close(self) -> None:
        running = list(self._running.values())
        self._running.clear()
        for each in running:
            each.stop()
        await asyncio.gather(*(each.stopped() for each in running))


class _Watched:
    """One provider and the task that asks it."""

    def __init__(
        self, configured: SourceConfig, provider: Provider, wake: Callable[[], None], clock: Callable[[], datetime]
    ) -> None:
        self.configured = configured
        self.provider = provider
        self._capabilities = provider.capabilities()
        self._wake = wake
        self._clock = clock
        self._listing: Listing | None = None
        self._offers: tuple[Offer, ...] | None = None
        self._errors: dict[str, str] = {}
        self._hurried = False
        self._sooner = asyncio.Event()
        key = configured.key
        self._tasks = [
            asyncio.create_task(self._watch_offers(), name=f"offers of {key.provider} {key.node_class}"),
            asyncio.create_task(self._watch_instances(), name=f"instances of {key.provider} {key.node_class}"),
        ]
        self._closing: asyncio.Task[None] | None = None

    def state(self) -> Source:
        return Source(
            key=self.configured.key,
            capabilities=self._capabilities,
            priority=self.configured.priority,
            enabled=self.configured.enabled,
            listing=self._listing,
            offers=self._offers,
            error="; ".join(self._errors.values()) or None,
        )

    def hurry(self, hurried: bool) -> None:  # noqa: FBT001 (a fact, not a mode)
        if hurried and not self._hurried:
            self._sooner.set()
        self._hurried = hurried

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._closing = asyncio.create_task(self._close())

    async def _close(self) -> None:
        await asyncio.wait(self._tasks)
        await self.provider.close()

    async def stopped(self) -> None:
        if self._closing is not None:
            await self._closing

    async def _watch_offers(self) -> None:
        while True:
            try:
                async with asyncio.timeout(CALL_LIMIT):
                    offers = tuple(await self.provider.offers())
            except (ProviderError, TimeoutError) as error:
                self._failed("offers", error)
            except Exception as fault:  # noqa: BLE001 (a fault of ours; without this task nothing would be known any more)
                self._broke("offers", fault)
            else:
                self._errors.pop("offers", None)
                if offers != self._offers:
                    self._offers = offers
                    self._wake()
            await asyncio.sleep(OFFERS_EVERY.total_seconds())

    async def _watch_instances(self) -> None:
        while True:
            self._sooner.clear()
            asked = self._clock()
            try:
                async with asyncio.timeout(CALL_LIMIT):
                    found = await self.provider.instances()
            except (ProviderError, TimeoutError) as error:
                self._failed("instances", error)
            except Exception as fault:  # noqa: BLE001 (a fault of ours; without this task nothing would be known any more)
                self._broke("instances", fault)
            else:
                self._errors.pop("instances", None)
                before = self._listing.found if self._listing is not None else None
                changed = before is None or before != found
                # Equal ones stay one object: `lifecycle` keeps what it has looked up in each.
                self._listing = Listing(asked=asked, found=before if before is not None and not changed else found)
                # While somebody waits for proof, an unchanged listing is news too.
                if changed or self._hurried:
                    self._wake()
            pause = HURRIED if self._hurried else self._capabilities.poll
            try:
                async with asyncio.timeout(pause.total_seconds()):
                    await self._sooner.wait()
            except TimeoutError:
                continue

    def _broke(self, what: str, fault: Exception) -> None:
        log.error("a provider could not be asked", source=self.configured.key, asked_for=what, exc_info=fault)
        provider = self.configured.key.provider
        self._note_error(what, f"Forebay itself failed when it asked {provider} ({type(fault).__name__}): see its log")

    def _failed(self, what: str, error: ProviderError | TimeoutError) -> None:
        sentence = str(error) or f"{self.configured.key.provider} did not answer within {CALL_LIMIT:.0f} s"
        if self._note_error(what, sentence):
            log.warning("a provider could not be asked", source=self.configured.key, asked_for=what, why=sentence)

    def _note_error(self, what: str, sentence: str) -> bool:
        """Whether that is news."""
        if self._errors.get(what) == sentence:
            return False
        self._errors[what] = sentence
        self._wake()
        return True
