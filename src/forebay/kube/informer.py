"""A view of one kind that keeps itself current, and says how current it is.

    pods = Informer(transport, base_url, PODS, indexes=pod_indexes())
    async with pods:
        await pods.wait_synced()
        pods.get(("default", "web-0")), pods.by(BY_NODE, "n1")

Before `synced` the view is a part, and nothing may be concluded from what is not in it. Later it may be late but never
in part; `staleness` says how late.
"""

import asyncio
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, ValuesView
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Self

from forebay.kube.backoff import Backoff
from forebay.kube.decoders import ObjectDecoder
from forebay.kube.index import ChangeHandler, Index, ObjectKey
from forebay.kube.reflector import PAGE_SIZE, Counters, Reflector
from forebay.kube.resources import Resource, T
from forebay.kube.view import ObjectChange, View
from forebay.net.transport import Transport

#: Longer than a silent watch is waited for and a new one needs for its first bookmark.
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
        indexes: Iterable[Index[T]] = (),
        handlers: Iterable[ChangeHandler[T]] = (),
        page_size: int = PAGE_SIZE,
        stale_after: float = STALE_AFTER,
        wake: asyncio.Event | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.resource = resource
        self.stale_after = stale_after
        self._view: View[T] = View(indexes, on_change=None if wake is None else wake.set, handlers=handlers)
        self._reflector = Reflector(
            transport,
            base_url,
            resource,
            self._view,
            decoder=decoder,
            label_selector=label_selector,
            page_size=page_size,
            backoff=backoff,
        )
        self._task: asyncio.Task[NoReturn] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self) -> NoReturn:
        """Keeps the view current for as long as the task lives."""
        self._loop = asyncio.get_running_loop()
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
        # Only a fault of ours ends it before its time: a subscriber that raised.
        if not self._task.cancelled() and error is None:
            self._task.result()

    async def relist(self, before: Callable[[], None]) -> None:
        """Reads every object anew, after `before`, which may change how they are read. The view stays as it is until
        then. Returns when it is whole again.
        """
        assert self._task is not None
        last = self._task
        last.cancel()
        # Before anything is waited for: whoever asks may be cancelled, and must not leave it standing still.
        self._reflector.refilled.clear()
        self._task = asyncio.create_task(self._run_after(last, before), name=f"informer of {self.resource.plural}")
        await self._wait(self._reflector.refilled)

    async def _run_after(self, last: "asyncio.Task[NoReturn]", before: Callable[[], None]) -> NoReturn:
        await asyncio.wait({last})
        if not last.cancelled():
            last.result()
        before()
        self._reflector.forget_place()
        await self.run()

    async def wait_synced(self) -> None:
        """Returns once the view is whole. It may never be: what hinders it is in `last_error`."""
        await self._wait(self._reflector.synced)

    async def _wait(self, event: asyncio.Event) -> None:
        synced = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({synced, *([self._task] if self._task else [])}, return_when=asyncio.FIRST_COMPLETED)
            if self._task is not None and self._task.done():
                self._task.result()
        finally:
            synced.cancel()

    @property
    def synced(self) -> bool:
        """The view has been whole, and deletions since then are not missed."""
        return self._reflector.synced.is_set()

    @property
    def ended(self) -> bool:
        """By a fault of ours: it will never be current again."""
        return self._task is not None and self._task.done()

    @property
    def staleness(self) -> float:
        """Seconds since the view was last known to be current; infinite before the first listing."""
        current_at = self._reflector.current_at
        # The loop it runs on, so that metrics may ask from any thread.
        return math.inf if self._loop is None or current_at is None else max(0.0, self._loop.time() - current_at)

    @property
    def stale(self) -> bool:
        """Too late to act upon."""
        return self.staleness > self.stale_after

    @property
    def last_error(self) -> str | None:
        """What keeps the view from being current, in one sentence. None while all is well."""
        return self._reflector.last_error

    @property
    def counters(self) -> Counters:
        return self._reflector.counters

    @property
    def resource_version(self) -> int:
        """Every change of this kind up to here is in the view."""
        return self._view.resource_version

    def __len__(self) -> int:
        return len(self._view)

    def get(self, key: ObjectKey) -> T | None:
        return self._view.get(key)

    def values(self) -> ValuesView[T]:
        """Live: copy it before an `await`."""
        return self._view.values()

    def index(self, name: str) -> Index[T]:
        return self._view.index(name)

    def by(self, name: str, value: Hashable) -> tuple[T, ...]:
        return self._view.by(name, value)

    @property
    def undecodable(self) -> Mapping[ObjectKey, str]:
        """Objects that are there and could not be read, with the reason. Their last readable state, if any, is kept."""
        return self._view.undecodable

    def subscribe(self, subscriber: Callable[[ObjectChange[T]], None]) -> Callable[[], None]:
        """Calls it with every change from now on, after the view has it. The returned function ends that."""
        return self._view.subscribe(subscriber)

    def observe(self, written: T) -> bool:
        """Puts the response to a write of ours into the view at once. False where the view already knows better."""
        return self._view.observe(written, asyncio.get_running_loop().time())

    def observe_deleted(self, key: ObjectKey, uid: str) -> None:
        """Takes out what a response proved to be gone: not merely asked to go, with finalizers or a grace period."""
        self._view.observe_deleted(key, uid, asyncio.get_running_loop().time())
