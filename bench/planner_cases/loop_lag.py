"""How late an event loop runs its callbacks while a thread beside it is busy."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

_INTERVAL = 0.001


class Lag(NamedTuple):
    """The longest delay of a callback, in seconds."""

    wall: float
    #: CPU seconds of the busy thread in one delay: what of it the thread caused, however busy the machine is.
    caused: float


def loop_lag(work: Callable[[], object]) -> Lag:
    """Lag while `work` runs in a thread.

    What exists is frozen first, as the operator does when its informers have read the cluster: otherwise a collection
    of garbage would look at all pods and offers of the benchmark.
    """
    gc.collect()
    gc.freeze()
    try:
        return asyncio.run(_lag(work))
    finally:
        gc.unfreeze()


async def _lag(work: Callable[[], object]) -> Lag:
    worst = Lag(0.0, 0.0)
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    thread = 0

    def run() -> None:
        nonlocal thread
        thread = threading.get_ident()
        loop.call_soon_threadsafe(started.set)
        work()
        # The thread must be there until the loop has read its clock for the last time.
        asyncio.run_coroutine_threadsafe(_end(ticking), loop).result()

    async def tick() -> None:
        nonlocal worst
        await started.wait()
        clock = time.pthread_getcpuclockid(thread)
        while True:
            start, busy = time.perf_counter(), time.clock_gettime(clock)
            await asyncio.sleep(_INTERVAL)
            wall, caused = time.perf_counter() - start, time.clock_gettime(clock) - busy
            worst = Lag(max(worst.wall, wall - _INTERVAL), max(worst.caused, min(wall, caused) - _INTERVAL))

    ticking = asyncio.create_task(tick())
    await asyncio.to_thread(run)
    return worst


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
