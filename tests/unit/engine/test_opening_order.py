"""Whose log is opened next: the urgent ones first, then whoever has waited longest."""

import asyncio

from forebay.engine.virtual_node.opening_order import OpeningOrder


async def opened(order, name, into, *, urgent=False):
    with await order.place(lambda: urgent):
        into.append(name)
        await asyncio.sleep(0)


async def test_of_those_who_wait_the_urgent_one_is_next_and_the_others_keep_their_order():
    order, done = OpeningOrder(1), []
    async with asyncio.TaskGroup() as group:
        for name in ("first", "second", "third"):
            group.create_task(opened(order, name, done))
        group.create_task(opened(order, "urgent", done, urgent=True))
    assert done == ["first", "urgent", "second", "third"]


async def test_whoever_leaves_before_or_after_a_place_was_given_keeps_nobody_waiting():
    order, done = OpeningOrder(1), []
    held = await order.place(lambda: False)
    leaves, given = (asyncio.create_task(opened(order, name, done)) for name in ("leaves", "given"))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.gather(leaves, return_exceptions=True)
    held.close()
    given.cancel()
    await asyncio.gather(given, return_exceptions=True)
    await asyncio.wait_for(opened(order, "last", done), 1)
    assert done == ["last"]


async def test_a_place_that_becomes_free_in_the_moment_in_which_one_leaves_goes_to_the_next():
    order, done = OpeningOrder(1), []
    held = await order.place(lambda: False)
    leaves, stays = (asyncio.create_task(opened(order, name, done)) for name in ("leaves", "stays"))
    await asyncio.sleep(0)
    leaves.cancel()
    held.close()
    await asyncio.wait_for(stays, 1)
    await asyncio.wait_for(opened(order, "last", done), 1)
    assert done == ["stays", "last"]
    assert leaves.cancelled()
