"""Changes of pods in the order they were observed, queued for the accounting of budgets."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from forebay.demand.maintenance import keeps_without_gpu
from forebay.model.workloads import Pod

#: Deletions that a standby replica keeps, so that it still accounts for pods deleted just before it became leader.
_MAX_KEPT: Final = 10_000


class PodChange(NamedTuple):
    pod: Pod
    at: datetime
    deleted: bool


class PodChanges:
    """Queue fed by the informer of pods. `take` empties it."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._changes: deque[PodChange] = deque()
        #: True while a reader empties the queue regularly. Otherwise only deletions are kept, at most `_MAX_KEPT`.
        self.followed = False

    def add(self, new: Pod) -> None:
        if self.followed:
            self.change(None, new)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and _counts(old) and (new is None or new.uid != old.uid):
            self._changes.append(PodChange(old, self._clock(), True))
            if not self.followed and len(self._changes) > _MAX_KEPT:
                self._changes.popleft()
        if new is not None and self.followed:
            self._changes.append(PodChange(new, self._clock(), False))

    def take(self) -> list[PodChange]:
        taken = list(self._changes)
        self._changes.clear()
        return taken


def _counts(pod: Pod) -> bool:
    # Of pods without GPUs it is not read when they started; some of them pay for the machine that they keep.
    return pod.started is not None or (pod.node is not None and keeps_without_gpu(pod))
