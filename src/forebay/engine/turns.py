"""Work on many objects at a time, but not on all of them: each request in flight needs a connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def each_in_turn(work: Callable[[T], Awaitable[None]], objects: Iterable[T], most: int) -> None:
    """Does the work for each object, for `most` of them at the same time."""
    turns = asyncio.Semaphore(most)

    async def in_turn(one: T) -> None:
        async with turns:
            await work(one)

    async with asyncio.TaskGroup() as group:
        for each in objects:
            group.create_task(in_turn(each))
