"""The end of each remote pod's log, in memory: providers delete a log together with its container.

So `kubectl logs` of a Job that has finished shows what its pod wrote last, while this process leads. Whoever follows a
log is shown the one that is read anyway.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

from forebay.providers.base import LogLine

#: Bytes that are kept of one log, and of all of them together.
MOST_OF_ONE: Final = 256 * 1024
MOST_OF_ALL: Final = 24 * 1024 * 1024
#: After this long a stream has brought what was written before it was opened.
_CAUGHT_UP: Final = timedelta(seconds=5)
#: Bytes that a line costs besides its text.
_OVERHEAD: Final = 100


class LogTails:
    """Tails by UID of the pod."""

    def __init__(
        self, clock: Callable[[], datetime], *, most_of_one: int = MOST_OF_ONE, most_of_all: int = MOST_OF_ALL
    ) -> None:
        self._clock = clock
        self._most_of_one = most_of_one
        self._most_of_all = most_of_all
        self._tails: dict[str, _Tail] = {}
        self._size = 0

    def begin(self, pod: str) -> None:
        """The log of the pod is read from its beginning, perhaps again, and followed."""
        self._drop(pod)
        self._tails[pod] = _Tail(self._clock())

    def end(self, pod: str) -> None:
        """The log is not followed any more."""
        if (tail := self._tails.get(pod)) is not None:
            tail.close()

    def following(self, pod: str, *, tail: int | None, since: datetime | None) -> AsyncIterator[LogLine] | None:
        """Lines of a log that is followed, with those to come; None where it is not, or its first lines are gone.

        Whoever follows a log that is read already costs the provider no request.
        """
        found = self._tails.get(pod)
        if found is None or found.closed or not found.has(tail, since):
            return None
        return found.following(tail)

    def so_far(self, pod: str, *, tail: int | None, since: datetime | None, ended: bool) -> tuple[LogLine, ...] | None:
        """All lines that are kept of a log that is followed, or was until its command had `ended`; None where it is not
        followed, or lines are missing that are asked for.
        """
        found = self._tails.get(pod)
        if found is None or (found.closed and not ended) or not found.has(tail, since):
            return None
        caught_up = ended or self._clock() >= found.began + _CAUGHT_UP
        return tuple(found.lines) if caught_up else None

    def add(self, pod: str, line: LogLine) -> None:
        tail = self._tails.get(pod)
        if tail is None:
            return
        self._size += tail.add(line)
        while tail.size > self._most_of_one:
            self._size -= tail.shorten()
        while self._size > self._most_of_all:
            longest = max(self._tails.values(), key=lambda each: each.size)
            self._size -= longest.shorten()

    def tail(self, pod: str) -> tuple[LogLine, ...] | None:
        """The last lines of the pod's log; None where it was never read."""
        found = self._tails.get(pod)
        return None if found is None else tuple(found.lines)

    def keep(self, pods: Iterable[str]) -> None:
        """Forgets the logs of all other pods."""
        for gone in self._tails.keys() - set(pods):
            self._drop(gone)

    def _drop(self, pod: str) -> None:
        found = self._tails.pop(pod, None)
        if found is not None:
            found.close()
            self._size -= found.size


class _Tail:
    def __init__(self, began: datetime) -> None:
        self.began = began
        self.lines: deque[LogLine] = deque()
        self.size = 0
        self.closed = False
        #: Lines that were forgotten.
        self._forgotten = 0
        #: Set at the next change, where somebody waits for it.
        self._changed: asyncio.Event | None = None

    def add(self, line: LogLine) -> int:
        cost = _cost(line)
        self.lines.append(line)
        self.size += cost
        self._wake()
        return cost

    def shorten(self) -> int:
        """Forgets the first line; how many bytes that frees."""
        cost = _cost(self.lines.popleft())
        self._forgotten += 1
        self.size -= cost
        return cost

    def close(self) -> None:
        self.closed = True
        self._wake()

    def has(self, tail: int | None, since: datetime | None) -> bool:
        """Whether all lines are here that somebody asks for."""
        if not self._forgotten or (tail is not None and tail <= len(self.lines)):
            return True
        first = self.lines[0].at if self.lines else None
        return tail is None and since is not None and first is not None and first <= since

    async def following(self, tail: int | None) -> AsyncIterator[LogLine]:
        number = self._forgotten + (0 if tail is None else max(len(self.lines) - tail, 0))
        while True:
            while number < self._forgotten + len(self.lines):
                number = max(number, self._forgotten)
                line = self.lines[number - self._forgotten]
                number += 1
                yield line
            if self.closed:
                return
            self._changed = self._changed or asyncio.Event()
            await self._changed.wait()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


def _cost(line: LogLine) -> int:
    return len(line.text) + _OVERHEAD
