"""Small worlds: machines, pods that come over time, what goes wrong, when the operator dies; run until all is quiet."""

import asyncio
import random
from contextlib import asynccontextmanager

import msgspec

from forebay.api.names import CORDONED_ANNOTATION
from forebay.embedded.api.kinds import JOB_KIND, NODE_KIND, POD_KIND
from forebay.simulate.power import PowerCall, Powered
from tests.crash.mortal import Ledger, Life
from tests.crash.people import Event, People
from tests.crash.rest import WorldOutcome, run_world
from tests.crash.witness import Witness
from tests.engine.power_world import POWER, lab

_LOOK = 5.0
#: After the end: longer than a resync and a poll, so that whatever would stir does.
_AFTERWARDS = 130.0
_RESTART = 2.0


class Work(msgspec.Struct, frozen=True):
    name: str
    gpus: int
    at: float = 0.0
    runs: float = 20.0


class Weather(msgspec.Struct, frozen=True):
    """Faults of the network, each as often as its rate says, until it clears up."""

    kube: tuple = ()
    power: tuple = ()
    until: float = 600.0

    def over(self, chance, ledger):
        loop = asyncio.get_running_loop()

        def plan(request):
            drawn = [(fault, chance.random() < rate) for fault, rate in self._of(request)]
            if loop.time() >= self.until:
                return ()
            faults = tuple(fault for fault, strikes in drawn if strikes)
            ledger.faults += len(faults)
            return faults

        return plan

    def _of(self, request):
        return self.power if request.url.startswith(POWER) else self.kube


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    machines: tuple[Powered, ...]
    work: tuple[Work, ...]
    boots: dict[str, tuple] = {}
    faults: dict[tuple[str, PowerCall], tuple] = {}
    #: What people do.
    events: tuple[Event, ...] = ()
    #: Of the network of each replica.
    plan: Weather | None = None
    #: The work is done by Jobs, which begin again what a machine takes down with it.
    jobs: bool = False
    replicas: int = 1
    #: The machines have status endpoints.
    status: bool = False
    boot_timeout: str = "60s"
    seed: int = 7

    @property
    def honest(self):
        told = (fault for (_, asked), faults in self.faults.items() if asked is PowerCall.OFF for fault in faults)
        return not any(fault is not None and not fault.acts and fault.status == 200 for fault in told)


class Outcome(WorldOutcome):
    """What has come of it, and the laws that only the end can show."""

    def at_rest(self):
        return (
            all(self._served(work) for work in self.scenario.work)
            and not self.world.power.on
            and all(state == "Gone" for state in self.world.states().values())
        )

    def _served(self, work):
        if not self._can_be_served(work):
            return True
        found = self.world.store.find(JOB_KIND if self.scenario.jobs else POD_KIND, "default", work.name)
        if found is None:
            return False
        status = found.get("status") or {}
        return status.get("succeeded", 0) > 0 if self.scenario.jobs else status["phase"] == "Succeeded"

    def _can_be_served(self, work):
        return any(machine.gpus - machine.failed_gpus >= work.gpus for machine in self.scenario.machines)

    def breaches(self):
        yield from self.witness.breaches
        if self.quiet_at is None:
            waiting = [work.name for work in self.scenario.work if not self._served(work)]
            yield f"no rest: {waiting} not served, {sorted(self.world.power.on)} on, records {self.world.states()}"
        for call in self.world.power.powered_on_twice():
            # Nothing tells of a machine that somebody has powered on meanwhile.
            if call.machine not in self.witness.people.powered_on_by_hand:
                yield f"switched on twice: {call}"
        for node in self.world.store.list(NODE_KIND):
            if CORDONED_ANNOTATION in (node["metadata"].get("annotations") or {}) or node["spec"].get("unschedulable"):
                yield f"node {node['metadata']['name']} is left cordoned"
        yield from self.too_many_requests(self.allowed_requests())

    def allowed_requests(self):
        # Every two seconds at the most, while a launch or an end waits for what they say.
        polls = self.scenario.status * len(self.scenario.machines) * 310
        starts = self.scenario.replicas + len(self.ledger.died)
        return self.allowed_for_machines(starts) + polls + 40 * (len(self.scenario.work) + len(self.scenario.events))


def happens(scenario, deaths=()):
    """Runs the world to its rest. The outcome, whose breaches should be none."""
    return run_world(_happens(scenario, deaths))


async def _happens(scenario, deaths):
    async with _world(scenario) as world:
        ledger = Ledger(deaths)
        crowd = People(world, scenario.events)
        outcome = Outcome(scenario, world, ledger, Witness(world, crowd, honest=scenario.honest))
        keepers = [asyncio.create_task(_keep_alive(scenario, world, ledger, n)) for n in range(scenario.replicas)]
        people = asyncio.create_task(_all_deeds(scenario, world, crowd))
        try:
            loop = asyncio.get_running_loop()
            while outcome.quiet_at is None and not outcome.over:
                await asyncio.sleep(_LOOK)
                if people.done() and outcome.at_rest():
                    # Between two launches, nothing is on either: it is a rest when it lasts.
                    calls = sum(outcome.witness.starts.values())
                    await asyncio.sleep(_AFTERWARDS)
                    if outcome.at_rest() and sum(outcome.witness.starts.values()) == calls:
                        outcome.quiet_at = loop.time() - _AFTERWARDS
        finally:
            for task in (*keepers, people):
                task.cancel()
            ended = await asyncio.gather(*keepers, people, return_exceptions=True)
            world.power.stop()
        faults = [each for each in ended if isinstance(each, Exception)]
        outcome.witness.breaches += [f"the operator ended by itself: {fault!r}" for fault in faults]
        outcome.found = tuple(outcome.breaches())
        return outcome


@asynccontextmanager
async def _world(scenario):
    async with lab(*scenario.machines, seed=scenario.seed, events=False) as world:
        for machine, boots in scenario.boots.items():
            world.power.script_boots(machine, *boots)
        for (machine, asked), faults in scenario.faults.items():
            world.power.script(machine, asked, *faults)
        yield world


async def _all_deeds(scenario, world, crowd):
    await asyncio.gather(_submit(scenario, world), crowd.act())


async def _submit(scenario, world):
    loop = asyncio.get_running_loop()
    for work in sorted(scenario.work, key=lambda each: each.at):
        await asyncio.sleep(max(0.0, work.at - loop.time()))
        if scenario.jobs:
            world.job(work.name, work.gpus, runs=f"{work.runs:g}s")
        else:
            world.pod(work.name, work.gpus, runs=f"{work.runs:g}s")


async def _keep_alive(scenario, world, ledger, number):
    """As a Deployment does: one after the other, each under a new name."""
    machines = tuple(
        msgspec.structs.replace(each, boot_timeout=scenario.boot_timeout)
        for each in world.power.configured(POWER, status=scenario.status)
    )
    plan = scenario.plan.over(random.Random(scenario.seed * 100 + number), ledger) if scenario.plan else None
    for incarnation in range(1_000):
        life = Life(
            world,
            f"replica-{number}-{incarnation}",
            ledger,
            machines=machines,
            plan=plan,
            seed=scenario.seed + number * 1000 + incarnation,
        )
        life.start()
        try:
            await life.over()
        finally:
            life.die()
        await asyncio.sleep(_RESTART)
