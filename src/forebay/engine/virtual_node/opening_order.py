"""Whose log is opened next: a provider that allows few requests a minute lets a new leader open only so many.

A thousand logs take it half an hour. Those of containers whose command may have ended come first: until their exit code
is read, they are billed for nothing.
"""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack


class OpeningOrder:
    """Places for logs that are being opened. Of those who wait, the first that is urgent by then gets the next one."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    async def place(self, urgent: Callable[[], bool]) -> ExitStack:
        """A place, which is free again when the stack is closed."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = urgent
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if self._waiting.pop(turn, None) is None:
                self._leave()
            raise
        stack = ExitStack()
        stack.callback(self._leave)
        return stack

    def _leave(self) -> None:
        self._free += 1
        self._admit()

    def _admit(self) -> None:
        # One that is cancelled leaves by itself, a moment later.
        while self._free and (waiting := [turn for turn in self._waiting if not turn.done()]):
            chosen = next((turn for turn in waiting if self._waiting[turn]()), waiting[0])
            del self._waiting[chosen]
            self._free -= 1
            chosen.set_result(None)
