"""A lab for a long time: people come and go, one call in a hundred goes wrong, replicas are restarted. Nothing leaks.

`FOREBAY_SOAK_DAYS=30` makes it a month.
"""

import asyncio
import gc
import os
import random
from collections import Counter

import msgspec
import pytest

from forebay.embedded.api.kinds import POD_KIND
from forebay.kube.lease import Terms
from forebay.simulate.power import Powered
from forebay.simulate.power_faults import Boot
from forebay.simulate.virtual_time import run
from tests.crash.mortal import Late, Life, Sent
from tests.crash.people import People
from tests.crash.witness import Witness
from tests.engine.power_world import POWER, lab
from tests.net.faults import Answer, CutAfter, Delay, LoseAnswer, LoseRequest, Reset

DAYS = float(os.environ.get("FOREBAY_SOAK_DAYS", "3"))
_DAY = 86400.0
#: A renewal every 20 seconds instead of two: the lease has tests of its own, and most of a month would go into it.
_TERMS = Terms(duration=60.0, renew_deadline=40.0, retry=20.0)
_RATE = 0.01
_ANYWHERE = (Answer(503), Answer(500), LoseAnswer(), LoseRequest(), Reset(), Delay(3.0))
_KUBE = (*_ANYWHERE, CutAfter(500), CutAfter(5000))
_POWER = (*_ANYWHERE, Late(8.0), Answer(404), Answer(429, retry_after="15"))
_MACHINES = (
    Powered(name="desk", gpus=1, boot=60, shutdown=5),
    Powered(name="tower", gpus=2, boot=90, driver=20, shutdown=10),
    Powered(name="shelf", gpus=2, boot=120, shutdown=10),
    Powered(name="rack", gpus=4, boot=240, driver=60, shutdown=20),
)
#: Watches that end by themselves and are begun again are most of it; work and faults come on top.
_REQUESTS_PER_HOUR = 1000


class _Hours:
    """Requests of each hour, instead of a list of millions."""

    def __init__(self):
        self.died = []
        self.count = 0
        self.by_hour = Counter()

    def sent(self, life, request):
        self.count += 1
        now = asyncio.get_running_loop().time()
        sent = Sent(self.count, now, life.name, request.method, request.url)
        if not sent.is_lease:
            self.by_hour[int(now // 3600)] += 1
        return sent

    def storms(self):
        return False

    def dies(self, _sent, _moment):
        return False


def _one_in_a_hundred(chance):
    def plan(request):
        if chance.random() >= _RATE:
            return ()
        return (chance.choice(_POWER if request.url.startswith(POWER) else _KUBE),)

    return plan


async def _people(world, chance, end):
    """Somebody submits a pod every half an hour or so, and tidies up a day later."""
    loop, number = asyncio.get_running_loop(), 0
    while loop.time() < end:
        await asyncio.sleep(chance.expovariate(1 / 1800))
        number += 1
        world.pod(f"p{number}", chance.choice([1, 1, 1, 2, 2, 4]), runs=f"{chance.randint(60, 5400)}s")
        for pod in world.store.list(POD_KIND):
            ended = pod["status"]["phase"] == "Succeeded"
            if ended and number - int(pod["metadata"]["name"][1:]) > 48:
                world.store.delete(POD_KIND, "default", pod["metadata"]["name"])
    return number


async def _replica(world, hours, chance, lives):
    machines = tuple(
        msgspec.structs.replace(each, boot_timeout="10m") for each in world.power.configured(POWER, status=False)
    )
    for number in range(1_000_000):
        life = Life(
            world,
            f"replica-{number}",
            hours,
            machines=machines,
            plan=_one_in_a_hundred(chance),
            seed=number,
            terms=_TERMS,
        )
        life.start()
        lives.append(number)
        try:
            async with asyncio.timeout(chance.expovariate(1 / (_DAY / 2))):
                await life.over()
        except TimeoutError:
            pass
        finally:
            life.die()
        await asyncio.sleep(10)


async def _soak(days, seed):
    chance = random.Random(seed)
    async with lab(*_MACHINES, seed=seed, events=False) as world:
        for machine in _MACHINES:
            world.power.script_boots(machine.name, *(Boot(joins=chance.random() >= _RATE) for _ in range(10_000)))
        hours, witness, lives = _Hours(), Witness(world, People(world, ()), honest=True), []
        replica = asyncio.create_task(_replica(world, hours, chance, lives))
        people = asyncio.create_task(_people(world, random.Random(seed + 1), days * _DAY))
        await asyncio.sleep(min(0.5, days / 3) * _DAY)
        early = (len(asyncio.all_tasks()), _objects(world))
        pods = await people
        # What failed last may have to wait for an hour before it is tried again.
        await asyncio.sleep(4 * 3600)
        late = (len(asyncio.all_tasks()), _objects(world))
        waiting = [
            pod["metadata"]["name"] for pod in world.store.list(POD_KIND) if pod["status"]["phase"] != "Succeeded"
        ]
        found = (waiting, sorted(world.power.on), set(world.states().values()) - {"Gone"}, witness.breaches)
        replica.cancel()
        await asyncio.wait({replica})
        if not replica.cancelled():
            replica.result()
        world.power.stop()
        return pods, found, (early, late), hours, lives, world


def _objects(world):
    # What the API server remembers for watches grows until it is full, and is none of the operator's.
    world.store.compact()
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.timeout(7200)
def test_nothing_leaks_in_a_lab_that_runs_for_long():
    pods, found, (early, late), hours, lives, world = run(_soak(DAYS, seed=11))
    assert found == ([], [], set(), [])
    assert pods > 30 * DAYS
    assert len(lives) > DAYS
    assert max(hours.by_hour.values()) <= _REQUESTS_PER_HOUR
    assert world.power.powered_on_twice() == ()
    # Tasks and objects follow what there is, not how long it has been. Tables of bounded size (shapes of pods, of which
    # the startup taint makes one a pod, and the embedded scheduler's rankings of them) and the simulated machines' list
    # of calls are still filling: some 11 objects a pod. What leaked with each request would be thousands.
    assert late[0] <= early[0] + 10
    assert late[1] - early[1] <= 15 * pods
