"""The work queue of controllers: delays."""

import asyncio

from forebay.embedded.controllers.workqueue import WorkQueue


async def test_a_delay_below_the_resolution_of_the_clock_still_passes():
    await asyncio.sleep(2062.45)
    loop = asyncio.get_running_loop()
    begun, calls = loop.time(), []

    def work(key):
        calls.append(key)
        if loop.time() == begun and len(calls) < 100:
            queue.add(key, 1e-14)

    queue = WorkQueue(work, lambda *_: None)
    queue.add("node")
    await asyncio.sleep(1)

    assert len(calls) == 2
