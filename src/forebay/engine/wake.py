"""`WakeEvent`: wakes the reconcile loop, and knows since when something waits to be seen."""

import asyncio


class WakeEvent(asyncio.Event):
    """An event that remembers when it was set."""

    def __init__(self) -> None:
        super().__init__()
        self._since = 0.0

    @property
    def since(self) -> float | None:
        """Time of the event loop at which the event was set; None where it is not set."""
        return self._since if self.is_set() else None

    def set(self) -> None:
        if not self.is_set():
            self._since = asyncio.get_running_loop().time()
        super().set()
