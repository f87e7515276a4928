"""The virtual clock: hours pass at once, and things happen in the same order as in real time."""

import asyncio
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from forebay.net import clock
from forebay.simulate.virtual_time import Deadlock, VirtualTimeLoop, run, virtual_loop_factory


async def busy_program() -> list[str]:
    """Timers that tie, timers that are cancelled, a queue, a timeout, a thread, a socket pair."""
    log: list[str] = []
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def sleeper(name: str, *naps: float) -> None:
        for nap in naps:
            await asyncio.sleep(nap)
            log.append(f"{name} woke after {nap}")

    async def producer() -> None:
        for number in range(3):
            await asyncio.sleep(0.04)
            await queue.put(f"parcel {number}")

    async def consumer() -> None:
        for _ in range(3):
            parcel = await queue.get()
            log.append(f"got {parcel}")

    async def impatient() -> None:
        try:
            async with asyncio.timeout(0.06):
                await asyncio.Event().wait()
        except TimeoutError:
            log.append("gave up")

    async def thread() -> None:
        await asyncio.sleep(0.16)
        log.append(await asyncio.to_thread(lambda: "the thread answered"))

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async def caller() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello\n")
            log.append(f"echo {(await reader.readline()).decode().strip()}")
            writer.close()
            await writer.wait_closed()

    loop = asyncio.get_running_loop()
    loop.call_later(0.05, log.append, "never").cancel()
    await caller()
    async with asyncio.TaskGroup() as tasks:
        for number in range(9):
            tasks.create_task(sleeper(f"tied {number}", 0.1))
        tasks.create_task(sleeper("napper", 0.02, 0.18, 0.08))
        for task in (producer(), consumer(), impatient(), thread()):
            tasks.create_task(task)
    log.append("the end")
    return log


def test_the_same_test_runs_in_virtual_and_in_real_time():
    virtual = run(busy_program())
    # Timers here are 20 ms apart. On a machine with other things to do, real time may be later than that; not always.
    assert any(asyncio.run(busy_program()) == virtual for _ in range(10))
    assert [line for line in virtual if line.startswith("tied")] == [f"tied {n} woke after 0.1" for n in range(9)]
    assert virtual[-1] == "the end"
    assert "never" not in virtual


def test_a_year_passes_at_once_and_to_the_second():
    async def year() -> tuple[float, datetime]:
        for _ in range(365):
            await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time(), clock.now()

    began = time.monotonic()
    elapsed, date = run(year(), start=datetime(2031, 1, 1, 12, tzinfo=UTC))
    assert elapsed == 365 * 86_400
    assert date == datetime(2032, 1, 1, 12, tzinfo=UTC)
    assert time.monotonic() - began < 5


def test_the_calendar_starts_in_2030_by_default_and_is_in_utc():
    async def today() -> datetime:
        return clock.now()

    assert run(today()) == datetime(2030, 1, 1, tzinfo=UTC)
    east = datetime(2030, 6, 1, 2, tzinfo=UTC).astimezone()
    assert run(today(), start=east) == east
    with pytest.raises(ValueError, match="aware"):
        VirtualTimeLoop(datetime(2030, 1, 1))  # noqa: DTZ001


def test_timers_set_for_the_same_instant_run_in_the_order_they_were_set():
    async def many() -> list[int]:
        loop, order = asyncio.get_running_loop(), []
        for number in range(1000):
            loop.call_at(7.0, order.append, number)
        await asyncio.sleep(8)
        return order

    assert run(many()) == list(range(1000))


def test_work_in_a_thread_takes_no_virtual_time_even_if_its_task_was_cancelled():
    async def impatient() -> tuple[float, bool]:
        loop = asyncio.get_running_loop()
        go, done = threading.Event(), threading.Event()

        def slow() -> None:
            go.wait(5)
            done.set()

        with ThreadPoolExecutor() as threads:
            work = loop.run_in_executor(threads, slow)
            await asyncio.sleep(0)
            work.cancel()
            before = loop.time()
            threading.Timer(0.05, go.set).start()
            await asyncio.sleep(1)
            return loop.time() - before, done.is_set()

    assert run(impatient()) == (1.0, True)


def test_a_thread_can_call_back_into_the_loop_while_the_clock_is_held():
    async def handed() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[str] = loop.create_future()
        watchdog = loop.call_later(3600, arrived.cancel)
        with ThreadPoolExecutor() as threads:
            await loop.run_in_executor(threads, loop.call_soon_threadsafe, arrived.set_result, "from a thread")
            watchdog.cancel()
            return await arrived, loop.time()

    assert run(handed()) == ("from a thread", 0.0)


def test_what_is_given_to_a_thread_is_done_before_anything_else_runs():
    """In a thread, how far the other task comes meanwhile would be chance, and no run would be like another."""

    async def planning() -> list[str]:
        log: list[str] = []

        async def other() -> None:
            for number in range(3):
                log.append(f"other {number}")
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await asyncio.to_thread(lambda: (time.sleep(0.01), log.append("planned")))
        await task
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return log

    assert run(planning()) == ["planned", "other 0", "other 1", "other 2"]


def test_a_deadlock_is_an_error_that_names_the_waiting_tasks():
    async def forgotten(event: asyncio.Event) -> None:
        await event.wait()

    async def main() -> None:
        await asyncio.create_task(forgotten(asyncio.Event()), name="the forgotten one")

    with pytest.raises(Deadlock, match=r"the forgotten one \(.*forgotten at test_virtual_time.py:\d+") as caught:
        run(main(), start=datetime(2030, 5, 1, tzinfo=UTC) + timedelta(hours=1))
    assert "2030-05-01T01:00:00Z" in str(caught.value)


def test_an_infinite_sleep_is_a_deadlock():
    with pytest.raises(Deadlock, match="nothing can run at 2030-01-01"):
        run(asyncio.sleep(math.inf))


def test_leftover_tasks_are_cancelled_and_generators_closed_at_the_end():
    log: list[str] = []

    async def numbers():
        try:
            yield 1
        finally:
            log.append("generator closed")

    async def background() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            log.append("task cancelled")

    async def main() -> None:
        task = asyncio.create_task(background())
        await asyncio.sleep(0)
        async for _ in numbers():
            break
        log.append(f"main ends, task done: {task.done()}")

    run(main())
    assert log[0] == "main ends, task done: False"
    assert sorted(log[1:]) == ["generator closed", "task cancelled"]


def test_a_runner_keeps_one_clock_over_several_runs():
    with asyncio.Runner(loop_factory=virtual_loop_factory()) as runner:
        runner.run(asyncio.sleep(60))
        assert runner.get_loop().time() == 60
        runner.run(asyncio.sleep(30))
        assert runner.get_loop().time() == 90


def test_tiny_steps_far_from_the_start_still_advance_the_clock():
    async def late() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1e9)
        deadline = loop.time() + 1e-6
        while loop.time() < deadline:  # noqa: ASYNC110 (the point of the test)
            await asyncio.sleep(deadline - loop.time())
        return loop.time() - deadline

    assert run(late()) == 0
