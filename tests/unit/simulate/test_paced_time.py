"""A clock that walks instead of jumping: as fast as it is told to, and with the same story at every speed."""

import asyncio
import socket
import time

import pytest

from forebay.net import clock
from forebay.simulate import paced_time, virtual_time
from forebay.simulate.paced_time import PacedLoop


async def story():
    """Who came when, of three that sleep and work."""
    told, begun = [], clock.now()

    async def character(name, *pauses):
        for pause in pauses:
            await asyncio.sleep(pause)
            told.append((name, (clock.now() - begun).total_seconds()))

    await asyncio.gather(character("a", 1, 2, 3), character("b", 3, 3), character("c", 0.5, 5.5))
    return told


def test_the_story_is_the_same_at_every_speed():
    jumped = virtual_time.run(story())

    assert paced_time.run(story(), speed=100) == jumped
    assert paced_time.run(story(), speed=5000) == jumped
    assert jumped[-1][1] == 6


def test_a_minute_takes_as_long_as_the_speed_says():
    begun = time.monotonic()
    paced_time.run(asyncio.sleep(60), speed=200)

    assert 0.3 <= time.monotonic() - begun < 3


def test_while_something_works_the_clock_stands_still():
    async def work():
        before = clock.now()
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        return clock.now() - before

    assert paced_time.run(work(), speed=1000).total_seconds() == 0


def test_a_socket_is_heard_between_two_timers_and_the_clock_has_walked_meanwhile():
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
def test_there_are_speeds_no_clock_runs_at(speed):
    with pytest.raises(ValueError, match="a clock cannot run"):
        PacedLoop(speed)
