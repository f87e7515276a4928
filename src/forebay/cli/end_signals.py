"""Signals that end a command in order."""

import asyncio
import signal
from collections.abc import Callable


def on_end_signals(end: Callable[[], object]) -> None:
    """Calls `end` on SIGINT, SIGTERM, and on SIGHUP, which a terminal sends that is closed; not under nohup."""
    loop = asyncio.get_running_loop()
    ends = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ends.append(signal.SIGHUP)
    for number in ends:
        loop.add_signal_handler(number, end)
