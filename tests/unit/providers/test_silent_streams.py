"""One look at all streams that are waited for: those that have been silent for too long are given up."""

import asyncio

import pytest

from forebay.providers.silent_streams import SilentStreams


async def spoken(*pauses):
    for each in pauses:
        await asyncio.sleep(each)
        yield b"word"
    await asyncio.Event().wait()


async def test_a_silent_stream_is_given_up_and_one_that_speaks_is_not():
    streams, loop = SilentStreams(), asyncio.get_running_loop()
    began = loop.time()

    dead = asyncio.ensure_future(streams.next(spoken(), lambda silent: silent >= 300))
    alive = spoken(*[200] * 5)
    for _ in range(5):
        assert await streams.next(alive, lambda silent: silent >= 300) == b"word"

    assert await dead is None
    assert loop.time() - began == 1000
    late = await streams.next(alive, lambda silent: silent >= 300)
    assert late is None
    assert 1300 <= loop.time() - began <= 1330


async def test_a_thousand_silences_end_at_the_same_look():
    streams, loop = SilentStreams(), asyncio.get_running_loop()
    ends = []

    async def wait(number):
        await asyncio.sleep(number / 100)
        assert await streams.next(spoken(), lambda silent: silent >= 60) is None
        ends.append(loop.time())

    began = loop.time()
    await asyncio.gather(*map(wait, range(1000)))

    assert {end - began for end in ends} == {60, 90}


async def test_a_stream_that_ends_has_no_next_chunk_and_an_error_is_raised():
    async def empty():
        for each in ():
            yield each

    async def broken():
        yield b"word"
        raise ConnectionError("cut")

    streams = SilentStreams()
    assert await streams.next(empty(), lambda _: False) is None
    chunks = broken()
    assert await streams.next(chunks, lambda _: False) == b"word"
    with pytest.raises(ConnectionError, match="cut"):
        await streams.next(chunks, lambda _: False)
