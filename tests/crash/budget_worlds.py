"""Crash tests with budgets: pods and Jobs are created, run, restart and are deleted, also while no operator runs.

The rules of the embedded store play the API server's admission policies, because the store runs none.
"""

import asyncio
import random
from contextlib import asynccontextmanager

import msgspec

from forebay.api.names import BUDGET_GATE, USAGE_FINALIZER
from forebay.embedded.api.kinds import JOB_KIND, POD_KIND
from forebay.embedded.api.pods import PodRules
from forebay.embedded.controllers import register_node
from forebay.install.admission_policies import admission_policies
from forebay.kube.lease import Terms
from forebay.simulate.power import Powered
from tests.crash.budget_outcome import Outcome
from tests.crash.budget_witness import Auditor, labels_of
from tests.crash.mortal import TERMS, Ledger, Life
from tests.crash.people import People
from tests.crash.rest import run_world
from tests.crash.witness import Witness
from tests.crash.worlds import Weather
from tests.engine.power_world import POWER, lab

_CHECK_INTERVAL = 5.0
#: Consecutive checks at rest before the end: what has just ended must still be stored.
_CHECKS_AT_REST = 2
#: Seconds with a new operator process after that: longer than a resync, so that any further change shows.
_AFTER_REST = 70.0


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """Budget with a quota in seconds of one GPU."""

    name: str = "team-a"
    seconds: int = 10**6
    window: int = 24
    action: str = "Evict"
    accounting: str = "Exact"
    grace: int = 0
    team: str = "a"

    @property
    def holds(self):
        return self.action != "AlertOnly"

    def manifest(self):
        spec = {
            "selector": {"matchLabels": {"team": self.team}},
            "quota": {"gpuHours": f"{self.seconds * 10**9 // 3600}n", "windowHours": self.window},
            "enforcement": {"action": self.action, "gracePeriodSeconds": self.grace},
            "accounting": self.accounting,
        }
        return {"metadata": {"name": self.name, "namespace": "default"}, "spec": spec}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    gpus: int = 1
    at: float = 0.0
    runs: float = 20.0
    team: str = "a"
    #: When it is deleted, if it still exists; without a grace period with `force`.
    deleted: float | None = None
    force: bool = False
    #: One exit code per start, until it is 0.
    exits: str = "0"
    job: bool = False


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    budgets: tuple[Limit, ...]
    work: tuple[Work, ...]
    #: GPUs of a permanent node; 0: there is none.
    gpus: int = 8
    machines: tuple[Powered, ...] = ()
    #: When the operator is killed and for how long there is none; and for how long after any other death.
    outages: tuple[tuple[float, float], ...] = ()
    away: float = 2.0
    #: Whether the API server runs the admission policies.
    policies: bool = True
    plan: Weather | None = None
    replicas: int = 1
    #: Lease terms; longer ones for tests that last hours.
    terms: Terms = TERMS
    seed: int = 7


class _Policed(PodRules):
    """Admission policies as in `install.admission_policies`: they read only budgets that are labelled for them."""

    def __init__(self, budgets):
        self._budgets = budgets

    def create(self, store, kind, obj):
        for budget in store.list(self._budgets):
            wanted = budget["spec"]["selector"]["matchLabels"].items()
            if not wanted <= (obj["metadata"].get("labels") or {}).items():
                continue
            labels = labels_of(budget)
            if labels.get("forebay.dev/accounting") == "Exact":
                _add(obj["metadata"].setdefault("finalizers", []), USAGE_FINALIZER)
            if labels.get("forebay.dev/exceeded") == "true" and not obj["spec"].get("nodeName"):
                _add(obj["spec"].setdefault("schedulingGates", []), {"name": BUDGET_GATE})
        return super().create(store, kind, obj)


def _add(items, item):
    if item not in items:
        items.append(item)


def happens(scenario, deaths=()):
    """Outcome of a scenario after it came to rest; `found` should be empty."""
    return run_world(_happens(scenario, deaths))


async def _happens(scenario, deaths):
    async with _world(scenario) as world:
        ledger = Ledger(deaths)
        auditor = Auditor(scenario, world)
        outcome = Outcome(scenario, world, ledger, Witness(world, People(world, ()), honest=True), auditor)
        operators = [
            asyncio.create_task(_keep_alive(scenario, world, ledger, auditor, number))
            for number in range(scenario.replicas)
        ]
        people = asyncio.create_task(_act(scenario, world))
        try:
            checks = 0
            while not outcome.over and checks < _CHECKS_AT_REST:
                await asyncio.sleep(_CHECK_INTERVAL)
                checks = checks + 1 if people.done() and auditor.someone_works and outcome.at_rest() else 0
            if checks:
                outcome.quiet_at = asyncio.get_running_loop().time()
                outcome.remember()
                for life in auditor.alive:
                    life.die()
                await asyncio.sleep(_AFTER_REST)
        finally:
            for task in (*operators, people):
                task.cancel()
            ended = await asyncio.gather(*operators, people, return_exceptions=True)
            world.power.stop()
        faults = [each for each in ended if isinstance(each, Exception)]
        auditor.breaches += [f"the operator ended by itself: {fault!r}" for fault in faults]
        outcome.found = tuple(outcome.breaches())
        return outcome


@asynccontextmanager
async def _world(scenario):
    async with lab(*scenario.machines, seed=scenario.seed, events=False) as world:
        kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        if scenario.policies:
            world.store.rules[POD_KIND.storage] = _Policed(kind)
            for each in admission_policies():
                world.store.create(world.store.kinds.named(each["apiVersion"], each["kind"]), each)
        if scenario.gpus:
            amounts = {"cpu": "64", "memory": "64Gi", "pods": 110, "nvidia.com/gpu": scenario.gpus}
            register_node(world.store, "n1", allocatable=amounts)
        for budget in scenario.budgets:
            world.store.create(kind, budget.manifest())
        yield world


async def _act(scenario, world):
    """Create and delete the work of the scenario, in order of time."""
    loop = asyncio.get_running_loop()
    acts = [(work.at, number, _submit, work) for number, work in enumerate(scenario.work)]
    acts += [(work.deleted, -1, _delete, work) for work in scenario.work if work.deleted is not None]
    for at, _, act, work in sorted(acts, key=lambda each: each[:2]):
        await asyncio.sleep(max(0.0, at - loop.time()))
        act(world, work)


def _submit(world, work):
    annotations = {"embedded.forebay.dev/run-time": f"{work.runs:g}s", "embedded.forebay.dev/exit-code": work.exits}
    container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": work.gpus}}}
    spec = {"restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 5, "containers": [container]}
    about = {"labels": {"team": work.team}, "annotations": annotations}
    if work.job:
        template = {"template": {"metadata": about, "spec": spec}, "backoffLimit": 1000}
        world.store.create(JOB_KIND, {"metadata": {"name": work.name, "namespace": "default"}, "spec": template})
    else:
        world.store.create(POD_KIND, {"metadata": {"name": work.name, "namespace": "default", **about}, "spec": spec})


def _delete(world, work):
    kind = JOB_KIND if work.job else POD_KIND
    if world.store.find(kind, "default", work.name) is not None:
        world.store.delete(kind, "default", work.name, grace=0 if work.force else None)


async def _keep_alive(scenario, world, ledger, auditor, number):
    """Restart the operator as a Deployment does, except during an outage, which hits all replicas."""
    loop = asyncio.get_running_loop()
    outages = sorted(scenario.outages)
    plan = scenario.plan.over(random.Random(scenario.seed * 100 + number), ledger) if scenario.plan else None
    for incarnation in range(1_000):
        life = Life(
            world,
            f"life-{number}-{incarnation}",
            ledger,
            machines=world.power.configured(POWER),
            plan=plan,
            seed=scenario.seed + number * 1000 + incarnation,
            terms=scenario.terms,
        )
        auditor.born(life)
        life.start()
        away = scenario.away
        try:
            if outages:
                begin, length = outages[0]
                async with asyncio.timeout(max(0.0, begin - loop.time())):
                    await life.over()
            else:
                await life.over()
        except TimeoutError:
            outages.pop(0)
            away = length
        finally:
            life.die()
            auditor.died(life)
        await asyncio.sleep(away)
