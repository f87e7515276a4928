"""Boundary of the operator's tasks: a bug in one piece of work is logged and counted, and the task goes on."""

from types import TracebackType

import structlog

from forebay.engine.counts import Counts

log = structlog.get_logger(__name__)


class LoggedBugs:
    """Context manager that catches whatever its block raises. For tasks that must go on, and only where nothing is
    concluded from what the block has not done: what is known stays as it was, and the next round tries again.
    """

    def __init__(self, event: str, counts: Counts, **keys: str) -> None:
        self._event = event
        self._counts = counts
        self._keys = keys

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        log.error(self._event, **self._keys, exc_info=error)
        self._counts.internal_errors += 1
        return True
