"""The end of the operator: in time, whatever hangs, and with everything stored that can be."""

import asyncio

from forebay.embedded.api import kinds
from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import silent
from tests.engine.power_world import POWER, lab, operator

BOX = Powered(name="box", gpus=2, boot=10)
BUDGET = {
    "metadata": {"name": "lab", "namespace": "default"},
    "spec": {
        "selector": {"matchLabels": {"team": "lab"}},
        "quota": {"gpuHours": "5", "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
    },
}


class Hanging:
    """A transport to an API server that stops answering when told to."""

    def __init__(self, inner, hangs):
        self._inner = inner
        self._hangs = hangs

    async def request(self, request):
        if self._hangs.is_set() and not request.url.startswith(POWER):
            await asyncio.get_running_loop().create_future()
        return await self._inner.request(request)

    async def close(self):
        await self._inner.close()


async def test_a_shutdown_takes_fifteen_seconds_at_most_while_the_api_server_hangs():
    hangs = asyncio.Event()
    async with lab(BOX) as world:
        budgets = world.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        world.store.create(budgets, BUDGET)
        world.power.script("box", PowerCall.ON, silent(acts=True))
        async with operator(world, wrap=lambda inner: Hanging(inner, hangs)):
            world.pod("train", 1, runs=None, metadata={"labels": {"team": "lab"}})
            await asyncio.sleep(3)
            assert world.asked("start") == ["box"], "a call is under way"
            hangs.set()
            world.pod("large", 64)
            await asyncio.sleep(1)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began <= 15


async def test_usage_is_stored_at_the_end_and_also_what_somebody_deleted():
    async with lab(BOX) as world:
        budgets = world.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        world.store.create(budgets, BUDGET)

        def ledgers():
            named = (each["metadata"]["name"] for each in world.store.list(kinds.CONFIG_MAP_KIND, "kube-system"))
            return {name for name in named if "ledger" in name}

        async with operator(world):
            world.pod("train", 1, runs="30s", metadata={"labels": {"team": "lab"}})
            await asyncio.sleep(120)
            before = ledgers()
            assert before
            for name in before:
                world.store.delete(kinds.CONFIG_MAP_KIND, "kube-system", name)
            began = asyncio.get_running_loop().time()
        assert ledgers() == before
        assert asyncio.get_running_loop().time() - began < 1
