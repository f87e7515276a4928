"""Boundary of the operator's tasks: a bug in one piece of work is logged and counted, and the task goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from forebay.engine.counts import Counts

log = structlog.get_logger(__name__)


@contextmanager
def logged_bugs(event: str, counts: Counts, **keys: str) -> Iterator[None]:
    """Catches whatever the block raises. For tasks that must go on, and only where nothing is concluded from what the
    block has not done: what is known stays as it was, and the next round tries again.
    """
    try:
        yield
    except Exception:
        log.exception(event, **keys)
        counts.internal_errors += 1
