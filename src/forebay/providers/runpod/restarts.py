"""Containers that RunPod has started again: what ran in them had exited, and would run and be billed without an end."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from forebay.providers.runpod.wire import RunpodPod

#: A start that is told so much later than the first one is another one.
_LATER: Final = timedelta(minutes=1)


class _Seen(NamedTuple):
    first_start: datetime
    longest: int
    #: How many listings in a row have shown a shorter run that began later.
    shorter: int = 0


class Restarts:
    """What listings say about how long containers have run.

    A run is another one where two listings show it as shorter than before. A figure that stands still, or is missing
    for a while (0), proves nothing.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def look(self, pods: Iterable[RunpodPod], asked: datetime) -> None:
        """Notes a listing of all pods."""
        before, self._seen = self._seen, {}
        for pod in pods:
            known, uptime = before.get(pod.id), pod.uptime
            if uptime is None:
                if known is not None:
                    self._seen[pod.id] = known
                continue
            start = asked - timedelta(seconds=uptime)
            first, longest, shorter = known or _Seen(start, uptime)
            is_another = uptime < longest and start > first + _LATER
            self._seen[pod.id] = _Seen(min(first, start), max(longest, uptime), shorter + 1 if is_another else 0)

    def __contains__(self, pod: str) -> bool:
        """Whether RunPod has started the container again."""
        known = self._seen.get(pod)
        return known is not None and known.shorter > 1
