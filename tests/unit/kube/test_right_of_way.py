"""Right of way: what only tells of a change waits for what brings it about, and not for ever."""

import asyncio

from forebay.kube.right_of_way import LONGEST_WAIT, RightOfWay


async def waited(way):
    began = asyncio.get_running_loop().time()
    await way.give()
    return asyncio.get_running_loop().time() - began


async def test_nobody_waits_while_nobody_claims_it():
    way = RightOfWay()
    assert await waited(way) == 0
    with way.claimed():
        pass
    assert await waited(way) == 0


async def test_one_waits_until_the_last_claim_ends():
    way = RightOfWay()
    with way.claimed():
        with way.claimed():
            waiting = asyncio.create_task(waited(way))
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.3)
        assert not waiting.done()
    assert await waiting == 0.5


async def test_a_claim_that_does_not_end_holds_one_up_for_a_second():
    way = RightOfWay()
    with way.claimed():
        assert await waited(way) == LONGEST_WAIT
