"""Provider calls in flight: at most one per record, each a task of its own, so that none delays the loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class ProviderCalls:
    """Starts calls. A record with a call in flight is `busy`: ticks leave it alone until the outcome is recorded."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._in_flight: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> frozenset[str]:
        return frozenset(self._in_flight)

    def start(self, name: str, call: Coroutine[Any, Any, None]) -> None:
        """Runs the call for the record of this name, unless one is in flight already."""
        if name in self._in_flight:
            call.close()
            return
        task = asyncio.create_task(call, name=f"provider call for {name}")
        self._in_flight[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))

    def _ended(self, name: str, done: asyncio.Task[None]) -> None:
        self._in_flight.pop(name, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            # A bug. The record shows the attempt, and the next tick resolves its outcome.
            log.error("provider call failed", instance=name, exc_info=error)
        self._wake()

    async def finish(self, timeout: float) -> None:  # noqa: ASYNC109 (not all calls are to be cancelled alike)
        """Waits for calls in flight, and cancels those that take longer than `timeout` seconds. Their attempts are
        recorded, so the next leader resolves the outcomes.
        """
        if not self._in_flight:
            return
        _, late = await asyncio.wait(self._in_flight.values(), timeout=timeout)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
