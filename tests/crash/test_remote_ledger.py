"""Remote Jobs while leaders die every few seconds and a fifth of the requests to RunPod fail: the ledger is the bill.

In virtual time what `bench/same_as_local.py` does on a real control plane.
"""

import asyncio
import random
from fractions import Fraction
from types import SimpleNamespace

import pytest

from forebay.kube.lease import Terms
from forebay.simulate.virtual_time import run
from tests.crash.mortal import Ledger, Life
from tests.engine.market_world import clouds
from tests.engine.offload_world import Offload, runpod
from tests.net.faults import Answer, LoseAnswer

_TERMS = Terms(duration=2.0, renew_deadline=1.5, retry=0.5)
_FAULTS = 0.2
_CENT = Fraction(1, 100)
#: Seconds of a container, on average, between its end and the first request of another leader that shows it.
_UNSEEN = 4
_PATIENCE = 3600.0


def _a_fifth_fails(chance):
    """Half of those that fail have acted."""

    def plan(request):
        if not request.url.startswith("http://runpod") or request.url.partition("?")[0].endswith("/logs"):
            return ()
        drawn = chance.random()
        if drawn >= _FAULTS:
            return ()
        return (Answer(503),) if drawn < _FAULTS / 2 else (LoseAnswer(),)

    return plan


def happens(seed, **options):
    return run(_happens(seed, options))


async def _happens(seed, options):
    chance = random.Random(seed)
    async with clouds(runpod(**options), seed=seed, events=False) as cloud:
        far = Offload(cloud)
        far.pool()
        ledger = Ledger()
        keeper = asyncio.create_task(_keep_killing(cloud, ledger, chance))
        try:
            await asyncio.sleep(10)
            for number in range(4):
                far.job(f"good-{number}", runs="20s")
                far.job(f"bad-{number}", runs="10s", exit_code=3)
                far.job(f"deleted-{number}", runs="10h")
            for number in range(4):
                await asyncio.sleep(chance.uniform(1, 20))
                far.delete_job(f"deleted-{number}")
            async with asyncio.timeout(_PATIENCE):
                while not (far.is_idle and _ended(far)):  # noqa: ASYNC110
                    await asyncio.sleep(1)
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        assert not ledger.stormed
        assert far.runpod.violations == []
        return far, cloud.ledger() - far.runpod.bill()


def _ended(far):
    jobs = [f"{kind}-{number}" for kind in ("good", "bad") for number in range(4)]
    return all(far.ended(name) is not None for name in jobs) and not any(
        far.pods(f"deleted-{number}") for number in range(4)
    )


async def _keep_killing(cloud, ledger, chance):
    world = SimpleNamespace(cluster=cloud.world.cluster, power=SimpleNamespace(answer=cloud.answer))
    plan = _a_fifth_fails(chance)
    for number in range(10_000):
        life = Life(world, f"replica-{number}", ledger, machines=(), plan=plan, seed=number, terms=_TERMS)
        life.start()
        try:
            await asyncio.sleep(chance.uniform(3, 12))
        finally:
            life.die()
        await asyncio.sleep(0.5)


@pytest.mark.parametrize("seed", range(3))
def test_the_ledger_is_the_bill_to_the_cent_although_leaders_die_and_answers_are_lost(seed):
    far, over = happens(seed)
    longest = Fraction("0.39") * _UNSEEN * len(far.runpod.instances) / 3600
    assert 0 <= over <= min(longest, _CENT)
    assert {far.ended(f"good-{number}") for number in range(4)} == {"Complete"}
