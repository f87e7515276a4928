"""Informer: a local copy of all objects of one kind, kept up to date by a watch.

    pods = Informer(transport, base_url, PODS, indexes=pod_indexes())
    async with pods:
        await pods.wait_synced()
        pods.get(("default", "web-0")), pods.by(BY_NODE, "n1")

Before `synced`, objects may be missing, and nothing may be concluded from their absence. Afterwards the copy is
complete, but may be late; `staleness` says how late.
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, ValuesView
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Self

from forebay.kube.backoff import Backoff
from forebay.kube.decoders import ObjectDecoder
from forebay.kube.errors import NotListed
from forebay.kube.index import ChangeHandler, Index, ObjectKey
from forebay.kube.reflector import PAGE_SIZE, Reflector
from forebay.kube.resources import Resource, T
from forebay.kube.sync_state import Counters
from forebay.kube.view import ObjectChange, View
from forebay.model.kept import KeptTuple
from forebay.net.transport import Transport

#: Seconds. Longer than a silent watch is tolerated plus the time until the first bookmark of the next watch.
STALE_AFTER: Final = 240.0


class Informer(Generic[T]):
    def __init__(
        self,
        transport: Transport,
        base_url: str,
        resource: Resource[T],
        *,
        decoder: ObjectDecoder[Any, T] | None = None,
        label_selector: str | None = None,
        optional: bool = False,
        disabled: bool = False,
        field_selector: str | None = None,
        indexes: Iterable[Index[T]] = (),
        handlers: Iterable[ChangeHandler[T]] = (),
        page_size: int = PAGE_SIZE,
        stale_after: float = STALE_AFTER,
        wake: asyncio.Event | None = None,
        matters: Callable[[T, T], bool] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """`optional`: a server that does not serve the resource has no objects of it, and may serve it later.

        `disabled`: nothing is requested, and there are no objects.
        """
        self._disabled = disabled
        self.resource = resource
        self.stale_after = stale_after
        self._view: View[T] = View(
            indexes, on_change=None if wake is None else wake.set, handlers=handlers, matters=matters
        )
        self._reflector = Reflector(
            transport,
            base_url,
            resource,
            self._view,
            decoder=decoder,
            label_selector=label_selector,
            optional=optional,
            field_selector=field_selector,
            page_size=page_size,
            backoff=backoff,
        )
        self._task: asyncio.Task[NoReturn] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> NoReturn:
        """Keeps the objects up to date until the task is cancelled."""
        self._loop = asyncio.get_running_loop()
        if self._disabled:
            self._reflector.synced.set()
            await self._loop.create_future()
        await self._reflector.run()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name=f"informer of {self.resource.plural}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})
        # Only a bug ends the task early, such as a subscriber that raised.
        if not self._task.cancelled() and error is None:
            self._task.result()

    async def relist(self, before: Callable[[], None]) -> None:
        """Lists every object again, after calling `before`, which may reconfigure the decoder. Returns when done.

        Until then the informer keeps the objects that it has.
        """
        assert self._task is not None
        last = self._task
        last.cancel()
        # Before the first await: a caller that is cancelled must not leave the informer without a task.
        self._reflector.relisted.clear()
        self._task = asyncio.create_task(self._run_after(last, before), name=f"informer of {self.resource.plural}")
        await self._wait(self._reflector.relisted)

    async def _run_after(self, last: "asyncio.Task[NoReturn]", before: Callable[[], None]) -> NoReturn:
        await asyncio.wait({last})
        if not last.cancelled():
            last.result()
        before()
        self._reflector.require_list()
        await self.run()

    async def wait_synced(self) -> None:
        """Returns once all objects are listed. While that fails, `last_error` says why."""
        await self._wait(self._reflector.synced)

    async def wait_listed(self, within: float) -> None:
        """Returns once all objects are listed, for commands that read once.

        Raises `NotListed` after `within` seconds, and at once where this user may not list them.
        """
        try:
            await asyncio.wait_for(self._wait(self._reflector.synced, self._reflector.forbidden), within)
        except TimeoutError:
            why = self.last_error or "the API server answers, but slowly"
            raise NotListed(
                f"listing {self.resource.plural} took longer than {within:.0f} s: {why}", forbidden=False
            ) from None
        if not self.synced:
            raise NotListed(self.last_error or f"{self.resource.plural} may not be listed", forbidden=True)

    async def _wait(self, *events: asyncio.Event) -> None:
        """Returns once one of the events is set."""
        waits = {asyncio.ensure_future(each.wait()) for each in events}
        try:
            await asyncio.wait({*waits, *([self._task] if self._task else [])}, return_when=asyncio.FIRST_COMPLETED)
            if self._task is not None and self._task.done():
                self._task.result()
        finally:
            for each in waits:
                each.cancel()

    @property
    def synced(self) -> bool:
        """Whether all objects have been listed once. No deletion since then is missed."""
        return self._reflector.synced.is_set()

    @property
    def ended(self) -> bool:
        """Whether the task has ended because of a bug: the objects will never be up to date again."""
        return self._task is not None and self._task.done()

    @property
    def staleness(self) -> float:
        """Seconds since the objects were last known to be up to date; infinite before the first list."""
        if self._disabled and self.synced:
            return 0.0
        current_at = self._reflector.current_at
        # `self._loop`, not the running loop: metrics may be collected in another thread.
        return math.inf if self._loop is None or current_at is None else max(0.0, self._loop.time() - current_at)

    @property
    def stale(self) -> bool:
        """Whether the objects are too old to act upon."""
        return self.staleness > self.stale_after

    @property
    def last_error(self) -> str | None:
        """Why the objects are not up to date. None while they are."""
        return self._reflector.last_error

    @property
    def counters(self) -> Counters:
        return self._reflector.counters

    @property
    def resource_version(self) -> int:
        """Every change up to this resourceVersion is in the local copy."""
        return self._view.resource_version

    def __len__(self) -> int:
        return len(self._view)

    def get(self, key: ObjectKey) -> T | None:
        return self._view.get(key)

    def values(self) -> ValuesView[T]:
        """A live view of the objects: copy it before an `await`."""
        return self._view.values()

    def all(self) -> KeptTuple[T]:
        """The objects, in a tuple that is the same until one of them changes."""
        return self._view.all()

    def index(self, name: str) -> Index[T]:
        return self._view.index(name)

    def by(self, name: str, value: Hashable) -> tuple[T, ...]:
        """The objects with this value in the index of this name."""
        return self._view.by(name, value)

    @property
    def undecodable(self) -> Mapping[ObjectKey, str]:
        """Errors of objects that exist but do not decode. Their last decodable state, if any, is kept."""
        return self._view.undecodable

    def subscribe(self, subscriber: Callable[[ObjectChange[T]], None]) -> Callable[[], None]:
        """Calls `subscriber` with every change from now on. The returned function unsubscribes."""
        return self._view.subscribe(subscriber)

    def observe(self, written: T) -> bool:
        """Stores the response to our own write before the watch brings it. False if a newer state is there."""
        return self._view.observe(written, asyncio.get_running_loop().time())

    def observe_deleted(self, key: ObjectKey, uid: str) -> None:
        """Removes an object that a response proved to be gone (not one that finalizers or a grace period keep)."""
        self._view.observe_deleted(key, uid, asyncio.get_running_loop().time())
