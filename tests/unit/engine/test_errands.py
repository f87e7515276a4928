"""Calls to providers: one at a time for each record, beside the loop, and finished when the operator stops."""

import asyncio

from forebay.engine.apply.provider_calls import ProviderCalls


class Woken:
    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1


async def test_nobody_is_sent_twice_and_the_loop_hears_when_one_is_back():
    woken, done = Woken(), []

    async def errand(name):
        await asyncio.sleep(5)
        done.append(name)

    errands = ProviderCalls(woken)
    errands.send("a", errand("first"))
    errands.send("a", errand("second"))
    errands.send("b", errand("other"))
    assert errands.busy == {"a", "b"}
    await asyncio.sleep(6)
    assert (done, errands.busy, woken.times) == (["first", "other"], frozenset(), 2)


async def test_a_stuck_one_is_dropped_when_patience_ends_and_a_quick_one_is_waited_for():
    done = []

    async def quick():
        await asyncio.sleep(3)
        done.append("quick")

    errands = ProviderCalls(Woken())
    errands.send("quick", quick())
    errands.send("stuck", asyncio.Event().wait())
    await errands.finish(10)
    assert (done, errands.busy) == (["quick"], frozenset())


async def test_a_broken_one_is_logged_and_nobody_else_suffers(capsys):
    async def broken():
        raise ZeroDivisionError

    errands = ProviderCalls(Woken())
    errands.send("a", broken())
    await asyncio.sleep(1)
    assert errands.busy == frozenset()
    assert "an errand broke" in capsys.readouterr().out
