"""Calls to providers, one per record at a time, beside the loop and never in its way."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)


class ProviderCalls:
    """Whoever is on an errand is `busy`: nothing else is decided about it until the outcome is written."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._under_way: dict[str, asyncio.Task[None]] = {}

    @property
    def busy(self) -> frozenset[str]:
        return frozenset(self._under_way)

    def send(self, name: str, errand: Coroutine[Any, Any, None]) -> None:
        if name in self._under_way:
            errand.close()
            return
        task = asyncio.create_task(errand, name=f"errand for {name}")
        self._under_way[name] = task
        task.add_done_callback(lambda done: self._back(name, done))

    def _back(self, name: str, done: asyncio.Task[None]) -> None:
        self._under_way.pop(name, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            # A fault of ours. What was asked of the provider is in the record, and the next tick finds out.
            log.error("an errand broke", errand=name, exc_info=error)
        self._wake()

    async def finish(self, patience: float) -> None:
        """Waits for what is under way; what takes longer is dropped: its intent is recorded, its outcome is found out
        by whoever leads next.
        """
        if not self._under_way:
            return
        _, late = await asyncio.wait(self._under_way.values(), timeout=patience)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
