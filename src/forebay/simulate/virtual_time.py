"""An event loop with a virtual clock: when nothing can run, the clock jumps to the next timer.

`asyncio.to_thread` runs its function at once, in the thread of the loop: when a thread is done is chance, and would
decide what else runs before. An executor that is named is at work in threads, and the clock does not jump meanwhile;
nor does it while anything is runnable or a file descriptor is ready. Three things do not work: a process at the other
end of a pipe (the clock may jump before it answers), a thread that waits for a timer of this loop (the clock waits for
the thread), and a function given to `to_thread` that waits for this loop.
"""

import asyncio
import heapq
import itertools
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import Context
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_Ready = list[tuple[selectors.SelectorKey, int]]

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)

#: Real seconds that a loop with sockets but no timer waits for its peers before it raises `Deadlock`.
_SOCKET_TIMEOUT = 5.0


class Deadlock(RuntimeError):
    """Nothing can run, no timer is set and no thread is at work, so the waiting tasks would wait forever."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop with a virtual clock: `time()` starts at 0, `wall_time()` at `start`.

    Timers that are due at the same instant run in the order in which they were set.
    """

    def __init__(self, start: datetime = EPOCH) -> None:
        self._now = 0.0
        self._working = 0
        self._order = itertools.count()
        super().__init__(_JumpingSelector(self))
        if start.tzinfo is None:
            self.close()
            raise ValueError("a virtual-time loop starts at an aware datetime")
        self._start = start.astimezone(UTC)
        # Two of asyncio's own attributes: the heap of timers, which `call_at` pushes onto, and the tolerance within
        # which a later timer counts as due. It must be as good as zero: otherwise the clock would not advance, and a
        # loop that sleeps until an exact time would spin.
        self._scheduled: list[_Timer] = []
        self._clock_resolution = math.ulp(self._now)

    def time(self) -> float:
        return self._now

    def wall_time(self) -> datetime:
        """Date and time of the virtual clock (see `forebay.net.clock`)."""
        return self._start + timedelta(seconds=self._now)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        # A heap of plain TimerHandles does not keep the order of equal times. In real time no two are equal; in virtual
        # time many are, so without an order a test would run differently on the two clocks.
        self._check_closed()
        timer = _Timer(when, callback, args, self, context)
        timer.order = next(self._order)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 (asyncio counts cancelled timers by it)
        return timer

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        self._check_closed()
        if executor is None:
            return self._run_at_once(func, *args)
        work = executor.submit(func, *args)
        self._working += 1
        result = asyncio.wrap_future(work, loop=self)
        # Added after wrap_future's own callback: the clock may jump only when the result has been handed to the loop.
        work.add_done_callback(self._work_done_in_thread)
        return result

    def _run_at_once(self, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        result: asyncio.Future[T] = self.create_future()
        try:
            result.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 (raised where the result is awaited)
            result.set_exception(error)
        return result

    def _work_done_in_thread(self, _work: Future[Any]) -> None:
        with suppress(RuntimeError):  # the loop was closed without waiting for the thread
            self.call_soon_threadsafe(self._work_done)

    def _work_done(self) -> None:
        self._working -= 1

    def _check_closed(self) -> None:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")

    def _before_jump(self, wait: Callable[[float], _Ready]) -> _Ready:  # noqa: ARG002 (for subclasses)
        """Called before each jump. A subclass may `wait(seconds)` in real time; returns what became ready meanwhile."""
        return []

    def _jump(self) -> bool:
        """Advance the clock to the next timer; False if that is infinitely far away."""
        if self._scheduled[0].when() == math.inf:
            return False
        self._now = self._scheduled[0].when()
        self._clock_resolution = math.ulp(self._now)
        return True

    def _deadlock(self) -> Deadlock:
        waiting = sorted(_where(task) for task in asyncio.all_tasks(self))
        return Deadlock(
            f"nothing can run at {self.wall_time():%Y-%m-%dT%H:%M:%S}Z ({self._now:.6g} s): no timer, no ready file, "
            f"no thread at work. Waiting forever: {'; '.join(waiting) or 'no task, only a future'}"
        )


class _Timer(asyncio.TimerHandle):
    __slots__ = ("order",)
    order: int

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, _Timer):
            return NotImplemented
        mine, theirs = self.when(), other.when()
        return mine < theirs or (mine == theirs and self.order < other.order)


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that advances the virtual clock where the loop would sleep."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> _Ready:
        loop = self._loop
        alone = len(self.get_map()) == 1 and not loop._working  # noqa: SLF001 (one class in two halves)
        # Without sockets and threads nobody writes to the loop's wake-up pipe, and each look at it is a system call.
        ready = [] if alone else super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if loop._working:  # noqa: SLF001
            return super().select(None)
        if timeout is not None:
            ready = loop._before_jump(super().select)  # noqa: SLF001
            if ready or loop._jump():  # noqa: SLF001
                return ready
        # One descriptor is the loop's own wake-up pipe. Any other may still become ready: a peer may answer.
        if len(self.get_map()) > 1:
            ready = super().select(_SOCKET_TIMEOUT)
        if not ready:
            raise loop._deadlock()  # noqa: SLF001
        return ready


def _where(task: asyncio.Task[Any]) -> str:
    coroutine = getattr(task.get_coro(), "__qualname__", repr(task.get_coro()))
    # Follow the awaits inwards: the innermost line outside asyncio shows what the task waits for.
    frame: FrameType | None = None
    awaited: object | None = task.get_coro()
    while awaited is not None:
        inner = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)
        if inner is not None and "/asyncio/" not in inner.f_code.co_filename:
            frame = inner
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    line = f" at {frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}" if frame is not None else ""
    return f"{task.get_name()} ({coroutine}{line})"


def virtual_loop_factory(start: datetime = EPOCH) -> Callable[[], VirtualTimeLoop]:
    """A loop factory for `asyncio.Runner`."""
    return lambda: VirtualTimeLoop(start)


def run(main: Coroutine[Any, Any, T], *, start: datetime = EPOCH, debug: bool | None = None) -> T:
    """`asyncio.run` in virtual time. Raises `Deadlock` instead of waiting forever."""
    with asyncio.Runner(loop_factory=virtual_loop_factory(start), debug=debug) as runner:
        return runner.run(main)
