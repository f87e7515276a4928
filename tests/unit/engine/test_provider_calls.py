"""Provider calls: at most one per record, each in a task of its own, finished when the operator stops."""

import asyncio

from forebay.engine.apply.provider_calls import ProviderCalls


class Woken:
    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1


async def test_a_record_has_one_call_at_a_time_and_its_end_wakes_the_loop():
    woken, done = Woken(), []

    async def call(name):
        await asyncio.sleep(5)
        done.append(name)

    calls = ProviderCalls(woken)
    calls.start("a", call("first"))
    calls.start("a", call("second"))
    calls.start("b", call("other"))
    assert calls.busy == {"a", "b"}
    await asyncio.sleep(6)
    assert (done, calls.busy, woken.times) == (["first", "other"], frozenset(), 2)


async def test_at_shutdown_quick_calls_are_awaited_and_stuck_ones_cancelled():
    done = []

    async def quick():
        await asyncio.sleep(3)
        done.append("quick")

    calls = ProviderCalls(Woken())
    calls.start("quick", quick())
    calls.start("stuck", asyncio.Event().wait())
    await calls.finish(10)
    assert (done, calls.busy) == (["quick"], frozenset())


async def test_a_bug_in_a_call_is_logged(capsys):
    async def crashes():
        raise ZeroDivisionError

    calls = ProviderCalls(Woken())
    calls.start("a", crashes())
    await asyncio.sleep(1)
    assert calls.busy == frozenset()
    assert "provider call failed" in capsys.readouterr().out
