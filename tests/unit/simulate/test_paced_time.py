"""The paced clock: it runs at the given speed, and what happens does not depend on the speed."""

import asyncio
import socket
import time

import pytest

from forebay.net import clock
from forebay.simulate import paced_time, virtual_time
from forebay.simulate.paced_time import PacedLoop


async def wake_ups():
    """Names and virtual times of three tasks that sleep repeatedly."""
    seen, started = [], clock.now()

    async def sleeper(name, *pauses):
        for pause in pauses:
            await asyncio.sleep(pause)
            seen.append((name, (clock.now() - started).total_seconds()))

    await asyncio.gather(sleeper("a", 1, 2, 3), sleeper("b", 3, 3), sleeper("c", 0.5, 5.5))
    return seen


def test_events_and_their_order_are_the_same_at_every_speed():
    jumped = virtual_time.run(wake_ups())

    assert paced_time.run(wake_ups(), speed=100) == jumped
    assert paced_time.run(wake_ups(), speed=5000) == jumped
    assert jumped[-1][1] == 6


def test_a_minute_takes_as_long_as_the_speed_says():
    begun = time.monotonic()
    paced_time.run(asyncio.sleep(60), speed=200)

    assert 0.3 <= time.monotonic() - begun < 3


def test_the_clock_stands_still_while_a_task_runs():
    async def work():
        before = clock.now()
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        return clock.now() - before

    assert paced_time.run(work(), speed=1000).total_seconds() == 0


@pytest.mark.parametrize(("keeps_step", "waits"), [(True, False), (False, True)])
def test_a_clock_that_others_compare_with_theirs_makes_up_for_every_delay(keeps_step, waits):
    async def busy_for_longer_than_is_made_up_for():
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            pass
        await asyncio.sleep(1)
        begun = time.monotonic()
        # One real second, which has passed already.
        await asyncio.sleep(20)
        return time.monotonic() - begun

    waited = paced_time.run(busy_for_longer_than_is_made_up_for(), speed=20, keeps_step=keeps_step)
    assert (waited >= 0.4) is waits


def test_a_socket_wakes_the_loop_between_two_timers_and_the_clock_has_advanced():
    async def listen():
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            loop = asyncio.get_running_loop()
            alarm = loop.call_later(3600, lambda: None)
            begun = clock.now()
            loop.call_later(1, there.send, b"x")
            await loop.sock_recv(here, 1)
            alarm.cancel()
            return (clock.now() - begun).total_seconds()

    assert 1 <= paced_time.run(listen(), speed=100) < 3600


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_an_invalid_speed_is_refused(speed):
    with pytest.raises(ValueError, match="a clock cannot run"):
        PacedLoop(speed)
