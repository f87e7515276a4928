"""Work that waits for its time."""

import asyncio

from forebay.embedded.controllers.worklist import Worklist


async def test_a_delay_that_the_clock_cannot_show_still_passes():
    await asyncio.sleep(2062.45)
    loop = asyncio.get_running_loop()
    begun, calls = loop.time(), []

    def work(key):
        calls.append(key)
        if loop.time() == begun and len(calls) < 100:
            worklist.add(key, 1e-14)

    worklist = Worklist(work, lambda *_: None)
    worklist.add("node")
    await asyncio.sleep(1)

    assert len(calls) == 2
