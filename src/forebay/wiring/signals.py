"""What the operator does when it gets a signal."""

import asyncio
import itertools
import signal

import structlog

from forebay.engine.operator import Operator
from forebay.engine.support_bundle import dump
from forebay.net.redaction import Redactor
from forebay.reporting.observation import Standby

log = structlog.get_logger(__name__)


def handle_signals(operator: Operator, redactor: Redactor, level: str) -> None:
    """On SIGUSR1 the last snapshot is saved; on SIGUSR2 the log level changes to debug, and back again."""
    loop = asyncio.get_running_loop()
    saves: set[asyncio.Task[None]] = set()
    levels = itertools.cycle(("debug", level))

    async def save() -> None:
        seen = operator.observation()
        if isinstance(seen, Standby):
            log.warning("snapshot not saved", error="this replica does not lead, or has not reconciled yet")
            return
        try:
            path = await asyncio.to_thread(dump, seen.snapshot, redactor)
        except OSError as error:
            log.warning("snapshot not saved", error=str(error))
        else:
            log.info("snapshot saved", path=str(path))

    def start_save() -> None:
        task = loop.create_task(save(), name="save of the snapshot")
        saves.add(task)
        task.add_done_callback(saves.discard)

    def change_level() -> None:
        chosen = next(levels)
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(chosen))
        # `level` is the key of the line's own.
        log.warning("log level changed", to=chosen)

    loop.add_signal_handler(signal.SIGUSR1, start_save)
    loop.add_signal_handler(signal.SIGUSR2, change_level)
