"""How long processes were able to run and were not let: on a machine with more work than cores, part of every figure.

A promise in seconds is about a process that gets a processor. The kernel counts for each thread how long it stood in
the queue for one (`schedstat`); that much, and no more, is added to what a test allows. On an idle machine it is
some milliseconds.
"""

import contextlib
from pathlib import Path

_NANOSECONDS = 1e9


class Starvation:
    """From now on, of these processes."""

    def __init__(self, *pids: int) -> None:
        self._before = {pid: _delays(pid) for pid in pids}

    def seconds(self) -> float:
        """What each one's most delayed thread has waited, added up: they wait for each other. 0 where unknown."""
        waits = (
            max((delay - before.get(thread, 0) for thread, delay in _delays(pid).items()), default=0)
            for pid, before in self._before.items()
        )
        return sum(waits) / _NANOSECONDS


def _delays(pid: int) -> dict[str, int]:
    delays = {}
    for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            delays[file.parent.name] = int(file.read_text().split()[1])
    return delays
