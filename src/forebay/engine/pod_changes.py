"""What happens to pods between two looks at the books, in its order and with its time."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from forebay.model.workloads import Pod

#: How many departures a replica remembers that only stands by: whoever leads next must not miss what ended meanwhile.
_REMEMBERED: Final = 10_000


class PodChange(NamedTuple):
    pod: Pod
    at: datetime
    gone: bool


class PodChanges:
    """Kept current with the view of pods."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._news: deque[PodChange] = deque()
        #: Somebody reads all of it, and soon.
        self.followed = False

    def add(self, new: Pod) -> None:
        if self.followed:
            self.change(None, new)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and old.started is not None and (new is None or new.uid != old.uid):
            self._news.append(PodChange(old, self._clock(), True))
            if not self.followed and len(self._news) > _REMEMBERED:
                self._news.popleft()
        if new is not None and self.followed:
            self._news.append(PodChange(new, self._clock(), False))

    def take(self) -> list[PodChange]:
        found = list(self._news)
        self._news.clear()
        return found
