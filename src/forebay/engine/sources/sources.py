"""Providers in use. Tasks of its own poll each provider for offers and instances, so that a slow one delays no other.

A provider that fails keeps its last listing, with the time of the request: `lifecycle` uses that time, because nothing
new may be concluded from an old listing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, NoReturn

import msgspec
import structlog
from msgspec.structs import replace

from forebay.model.sources import Check, Listing, Offer, Source, SourceKey
from forebay.providers.base import BadCredentials, Provider, ProviderError, Rejected, Unavailable
from forebay.providers.plugin import ProviderNotServed

log = structlog.get_logger(__name__)

#: Seconds from a failed check of credentials and configuration to the next; after another, so many times as long.
CHECK_RETRY: Final = 60.0
_CHECKED_EVERY: Final = 10
#: Seconds after which a call counts as failed.
CALL_TIMEOUT: Final = 60.0
#: Seconds from a provider's first failure to tell its offers, or what runs there, to the next try; twice as long after
#: each.
FIRST_RETRY: Final = 2.0
#: For so long after its last answer a provider counts as answering.
_ANSWER_AGE: Final = timedelta(minutes=2)


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Desired configuration of a source. `build` is called once, and again when `digest` has changed."""

    key: SourceKey
    digest: str
    priority: int
    enabled: bool
    build: Callable[[], Provider]
    #: Versions of the Secrets that the provider has read so far.
    secret_versions: Callable[[], Mapping[str, str]] = dict
    #: Version of how machines join; "" where they do not.
    join_digest: str = ""
    #: Why nothing may be launched as the class is written; None: nothing speaks against it.
    problem: str | None = None

    @property
    def revision(self) -> dict[str, str]:
        joining = {"joining": self.join_digest[:16]} if self.join_digest else {}
        return {"configuration": self.digest[:16], **joining, **self.secret_versions()}


class Sources:
    """All sources in use. `configure` starts and stops them; `states` returns what each last reported."""

    def __init__(
        self,
        wake: Callable[[], None],
        clock: Callable[[], datetime],
        join_versions: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`join_versions` returns versions of the Secrets that joins use, whatever the source."""
        self._wake = wake
        self._clock = clock
        self._join_versions = join_versions
        self._running: dict[SourceKey, _PolledSource] = {}
        #: Sources that could not be built: digest and error.
        self._failed_builds: dict[SourceKey, tuple[str, str]] = {}

    def configure(self, wanted: Iterable[SourceConfig]) -> None:
        by_key = {each.key: each for each in wanted}
        for key in self._running.keys() - by_key.keys():
            self._running.pop(key).stop()
        self._failed_builds = {key: why for key, why in self._failed_builds.items() if key in by_key}
        for key, each in by_key.items():
            running = self._running.get(key)
            if running is not None and running.config.digest == each.digest:
                # The provider reads its Secrets through the reader it was built with.
                running.config = replace(each, secret_versions=running.config.secret_versions)
                self._failed_builds.pop(key, None)
                continue
            if key in self._failed_builds and self._failed_builds[key][0] == each.digest:
                continue
            self._build(each, running)

    def _build(self, each: SourceConfig, running: "_PolledSource | None") -> None:
        try:
            provider = each.build()
        except ProviderNotServed as error:
            self._not_built(each, running, str(error))
            return
        except Exception as fault:  # a bug: the other sources must be configured all the same
            log.exception("source not configured", **_log_keys(each.key))
            name = each.key.provider
            why = f"Forebay failed with a bug while it configured {name} ({type(fault).__name__}): see its log."
            self._not_built(each, running, why)
            return
        if running is not None:
            running.stop()
        self._failed_builds.pop(each.key, None)
        log.info("source configured", **_log_keys(each.key), enabled=each.enabled, priority=each.priority)
        # An entry that changes again and again before it is answered is waited for once, not each time anew.
        since = running.unanswered_since if running is not None else None
        self._running[each.key] = _PolledSource(each, provider, self._wake, self._clock, since)

    def _not_built(self, each: SourceConfig, running: "_PolledSource | None", why: str) -> None:
        """Notes why. A source that ran before goes on as it was, without launches: somebody must end its machines."""
        self._failed_builds[each.key] = (each.digest, why)
        log.warning("provider not available", **_log_keys(each.key), error=why)
        if running is not None:
            running.config = replace(running.config, problem=why)

    @property
    def unusable(self) -> Mapping[SourceKey, str]:
        """Sources from which nothing may be launched as their entry or their class is written, and why."""
        problems = {key: each.config.problem for key, each in self._running.items() if each.config.problem is not None}
        return problems | {key: why for key, (_, why) in self._failed_builds.items()}

    def states(self) -> dict[SourceKey, Source]:
        joining = self._join_versions()
        states = {key: running.state() for key, running in self._running.items()}
        if not joining:
            return states
        return {key: replace(each, revision={**joining, **each.revision}) for key, each in states.items()}

    def provider(self, key: SourceKey) -> Provider | None:
        running = self._running.get(key)
        return None if running is None else running.provider

    def revision(self, key: SourceKey) -> Mapping[str, str]:
        """Versions of the source's configuration and Secrets, by which a later change is recognized."""
        running = self._running.get(key)
        return {} if running is None else {**self._join_versions(), **running.config.revision}

    def unanswered(self, providers: Iterable[str]) -> str | None:
        """Which of these providers does not answer, and why; None where all do."""
        states = self.states()
        for name in sorted(providers):
            own = [each for key, each in states.items() if key.provider == name]
            asked = max((each.listing.asked for each in own if each.listing is not None), default=None)
            if asked is None or self._clock() - asked > _ANSWER_AGE:
                why = next((each.error for each in own if each.error), "no answer yet")
                return f"{name} does not answer: {why}"
        return None

    def poll_faster(self, keys: Iterable[SourceKey]) -> None:
        """Lists these sources at short intervals, because a record waits for their next listing; others as usual."""
        faster = set(keys)
        for key, running in self._running.items():
            running.set_fast(key in faster)

    async def close(self) -> None:
        running = list(self._running.values())
        self._running.clear()
        for each in running:
            each.stop()
        await asyncio.gather(*(each.stopped() for each in running))


async def read_offers(provider: Provider, name: str) -> tuple[Offer, ...]:
    """What a provider offers. Raises what it raises; also where it offers by another name than its own, since nobody
    would serve a launch of that.
    """
    async with asyncio.timeout(CALL_TIMEOUT):
        offers = tuple(await provider.offers())
    if others := sorted({each.provider for each in offers} - {name}):
        raise Rejected(
            f"Provider {name} has offers of {', '.join(others)}, and none of them counts: mend the provider."
        )
    return offers


class _PolledSource:
    """One provider and the tasks that poll it."""

    def __init__(
        self,
        config: SourceConfig,
        provider: Provider,
        wake: Callable[[], None],
        clock: Callable[[], datetime],
        since: datetime | None,
    ) -> None:
        self.config = config
        self.provider = provider
        self._capabilities = provider.capabilities()
        self._wake = wake
        self._clock = clock
        self._since = since or clock()
        self._listing: Listing | None = None
        self._offers: tuple[Offer, ...] | None = None
        self._errors: dict[str, str] = {}
        #: Calls that failed the last time because the provider did not answer, or had trouble of its own.
        self._out_of_reach: set[str] = set()
        #: Calls whose credentials the provider refused the last time.
        self._refused: set[str] = set()
        #: By call, of those that have not succeeded yet.
        self._first_retry = {"instances": FIRST_RETRY, "offers": FIRST_RETRY}
        self._check: Check | None = None
        self._fast = False
        self._poll_now = asyncio.Event()
        key = config.key
        self._tasks = [
            asyncio.create_task(self._poll(call, once, pause), name=f"{call} of {key.provider} {key.node_class}")
            for call, once, pause in (
                # First what there is: where a provider takes one request a second, a leader that does not live long
                # would otherwise never find out what became of the launches of the one before.
                ("instances", self._list_instances, self._until_next_listing),
                ("offers", self._read_offers, self._until_next_offers),
                ("check", self._run_check, self._until_next_check),
            )
        ]
        self._closing: asyncio.Task[None] | None = None
        self._state: Source | None = None

    @property
    def unanswered_since(self) -> datetime | None:
        """Since when its first offers are waited for; None once they are known."""
        return self._since if self._known_offers is None else None

    @property
    def _known_offers(self) -> tuple[Offer, ...] | None:
        """None before the first listing: of a launch whose answer is lost nobody could say what became of it, and of a
        machine nobody could prove that it is gone.
        """
        return self._offers if self._listing is not None else None

    def state(self) -> Source:
        """The same object as before, where nothing has changed: ticks compare by identity."""
        state = Source(
            key=self.config.key,
            capabilities=self._capabilities,
            priority=self.config.priority,
            enabled=self.config.enabled,
            listing=self._listing,
            offers=self._known_offers,
            since=self._since,
            error=self._error(),
            credentials_refused=bool(self._refused),
            check=self._check,
            revision=self.config.revision,
            problem=self.config.problem,
        )
        if self._state != state:
            self._state = state
        return self._state

    def _error(self) -> str | None:
        """What is wrong, once each and in an order that stays: an outage has the same error in several calls."""
        *before, last = dict.fromkeys(error for _, error in sorted(self._errors.items())) or ("",)
        return "; ".join((*(each.rstrip(".") for each in before), last)) or None

    def set_fast(self, fast: bool) -> None:  # noqa: FBT001 (a fact, not a mode)
        if fast and not self._fast:
            self._poll_now.set()
        self._fast = fast

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

    async def _poll(
        self, call: str, once: Callable[[], Awaitable[None]], pause: Callable[[], Awaitable[None]]
    ) -> NoReturn:
        """Calls again and again. What a call raises becomes the error of the source; what was known before stays so."""
        while True:
            try:
                await once()
            except (ProviderError, TimeoutError) as error:
                self._note_kind(call, error)
                self._failed(call, error)
            except Exception as fault:  # noqa: BLE001 (a bug; without this task the source would never be polled again)
                self._note_kind(call, fault)
                self._crashed(call, fault)
            else:
                self._note_kind(call, None)
                self._errors.pop(call, None)
            await pause()

    def _note_kind(self, call: str, error: Exception | None) -> None:
        for noted, so in ((self._out_of_reach, _is_passing(error)), (self._refused, isinstance(error, BadCredentials))):
            if so:
                noted.add(call)
            else:
                noted.discard(call)

    async def _read_offers(self) -> None:
        offers = await read_offers(self.provider, self.config.key.provider)
        if offers != self._offers:
            self._offers = offers
            self._wake()

    async def _until_next_offers(self) -> None:
        pause = self._capabilities.offers_poll
        await asyncio.sleep(pause.total_seconds() if self._offers is not None else self._soon("offers", pause))

    def _soon(self, call: str, pause: timedelta) -> float:
        """Seconds until a call is repeated that has never succeeded: few, where the provider was only out of reach."""
        if call not in self._out_of_reach:
            return pause.total_seconds()
        retry = self._first_retry[call]
        self._first_retry[call] *= 2
        return min(pause.total_seconds(), retry)

    async def _list_instances(self) -> None:
        self._poll_now.clear()
        requested = self._clock()
        async with asyncio.timeout(CALL_TIMEOUT):
            found = await self.provider.instances()
        before = self._listing.found if self._listing is not None else None
        changed = before is None or before != found
        # An equal listing stays the same object: `lifecycle` caches lookups per object.
        same = before if before is not None and not changed else found
        self._listing = Listing(asked=requested, answered=self._clock(), found=same)
        # While a record waits for proof, an unchanged listing is a reason for a tick too.
        if changed or self._fast:
            self._wake()

    async def _until_next_listing(self) -> None:
        pause = self._capabilities.fast_poll if self._fast else self._capabilities.poll
        with suppress(TimeoutError):
            seconds = pause.total_seconds() if self._listing is not None else self._soon("instances", pause)
            async with asyncio.timeout(seconds):
                await self._poll_now.wait()

    async def _run_check(self) -> None:
        """Checks at the start (also of a changed entry, whose provider is a new one), and then now and then: soon after
        a check that failed, and after a Secret was read in another version.
        """
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                check = await self.provider.check()
        except TimeoutError:
            provider = self.config.key.provider
            check = Check(ok=False, sentence=f"{provider} did not answer the check within {CALL_TIMEOUT:.0f} s.")
        if check != self._check:
            self._check = check
            note = log.info if check.ok else log.warning
            note("provider checked", **_log_keys(self.config.key), ok=check.ok, result=check.sentence)
            self._wake()

    async def _until_next_check(self) -> None:
        checked = self.config.revision
        for _ in range(_CHECKED_EVERY if self._check is not None and self._check.ok else 1):
            await asyncio.sleep(CHECK_RETRY)
            if self.config.revision != checked:
                return

    def _crashed(self, call: str, fault: Exception) -> None:
        log.error("provider call failed", **_log_keys(self.config.key), call=call, exc_info=fault)
        provider = self.config.key.provider
        self._note_error(
            call, f"Forebay failed with a bug while it called {provider} ({type(fault).__name__}): see its log"
        )

    def _failed(self, call: str, error: ProviderError | TimeoutError) -> None:
        sentence = str(error) or f"{self.config.key.provider} did not answer within {CALL_TIMEOUT:.0f} s"
        if self._note_error(call, sentence):
            log.warning("provider call failed", **_log_keys(self.config.key), call=call, error=sentence)

    def _note_error(self, call: str, sentence: str) -> bool:
        """Whether the error is a new one."""
        if self._errors.get(call) == sentence:
            return False
        self._errors[call] = sentence
        self._wake()
        return True


def _is_passing(error: Exception | None) -> bool:
    """Whether the provider may answer a moment later: it has refused nothing."""
    return isinstance(error, Unavailable | TimeoutError)


def _log_keys(key: SourceKey) -> dict[str, str]:
    return {"provider": str(key.provider), "node_class": key.node_class}
