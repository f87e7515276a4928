import asyncio

import pytest

from forebay.engine.loop import run_tick
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, pod


@pytest.mark.real_time
async def test_a_tick_with_a_waiting_pod_does_not_block_the_event_loop():
    ticking = asyncio.ensure_future(run_tick(Snapshot(now=NOW, pending=(pod(),))))
    await asyncio.sleep(0)

    assert not ticking.done()
    assert (await ticking).decisions is not None
