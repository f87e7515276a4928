"""Marked Jobs at RunPod, and a crash before and after every request: each pod runs once, and nothing is left."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import pytest

from forebay.simulate.virtual_time import run
from tests.crash.mortal import Ledger, Life, Moment
from tests.crash.places import places
from tests.deep import DEEP
from tests.engine.market_world import clouds
from tests.engine.offload_world import Offload, runpod

_RESTART = 2.0
_PATIENCE = 3600
_QUIET = 35.0
#: Parts in which the places are tried; the everyday suite tries every so many-th of each part.
_PARTS = 4
_STEP = 1 if DEEP else 5
#: Seconds that a death may add to what the ledger has beyond the bill: until another process leads and lists.
_UNSEEN = 24
#: Seconds that another process takes to lead and to go on.
_TAKEOVER = 60


class Outcome:
    def __init__(self, far, ledger):
        self.far = far
        self.ledger = ledger
        self.quiet_at = None

    @property
    def at_rest(self):
        far = self.far
        return (
            far.is_idle
            and far.the_job("deleted") is None
            and not far.pods("deleted")
            and far.ended("good") is not None
            and far.ended("bad") is not None
            and not far.credentials
        )

    def breaches(self):
        far = self.far
        if self.quiet_at is None:
            yield f"not at rest: {far.world.states()}, {[each['status'].get('phase') for each in far.pods()]}"
            return
        if (far.ended("good"), far.ended("bad")) != ("Complete", "Failed"):
            yield f"the Jobs ended as {far.ended('good')} and {far.ended('bad')}"
        (pod,) = far.pods("bad")
        code = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        if code != 3:
            yield f"exit code {code}"
        records = far.cloud.records
        pods = Counter(records[each.order.owner]["spec"]["pods"][0]["name"] for each in far.runpod.instances.values())
        yield from (f"{count} containers for pod {name}" for name, count in pods.items() if count > 1)
        over = far.overcharge() * len(far.runpod.instances)
        if not 0 <= over <= _UNSEEN * len(self.ledger.died):
            yield f"the ledger has {over:.0f} s more than the bill"
        if far.credentials:
            yield f"registry credentials are left: {far.credentials}"
        yield from far.runpod.violations


def happens(deaths=()):
    return run(_happens(deaths))


async def _happens(deaths):
    async with clouds(runpod(), seed=3, events=False) as cloud:
        far = Offload(cloud)
        far.pool()
        ledger = Ledger(deaths)
        outcome = Outcome(far, ledger)
        keeper = asyncio.create_task(_keep_alive(cloud, ledger))
        loop = asyncio.get_running_loop()
        try:
            await asyncio.sleep(5)
            far.pull_secret("registry")
            private = {"imagePullSecrets": [{"name": "registry"}]}
            far.job("good", runs="20s", pod=private)
            far.job("bad", runs="30s", exit_code=3)
            far.job("deleted", runs="10h", pod=private)
            await asyncio.sleep(25)
            far.delete_job("deleted")
            while not outcome.at_rest and loop.time() < _PATIENCE and not ledger.stormed:  # noqa: ASYNC110
                await asyncio.sleep(1)
            if outcome.at_rest:
                quiet_at = loop.time()
                await asyncio.sleep(_QUIET)
                outcome.quiet_at = quiet_at if outcome.at_rest else None
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        outcome.found = tuple(outcome.breaches())
        return outcome


async def _keep_alive(cloud, ledger):
    world = SimpleNamespace(cluster=cloud.world.cluster, power=SimpleNamespace(answer=cloud.answer))
    for incarnation in range(1_000):
        life = Life(world, f"replica-{incarnation}", ledger, machines=(), seed=incarnation)
        life.start()
        try:
            await life.over()
        finally:
            life.die()
        await asyncio.sleep(_RESTART)


def test_without_a_crash_each_pod_runs_once_and_nothing_is_left():
    outcome = happens()
    assert outcome.found == ()
    assert len(outcome.far.runpod.instances) == 3
    assert sum(sent.method == "POST" and sent.path.endswith("/v2/registries") for sent in outcome.ledger.requests) == 1
    paths = [(sent.method, sent.path) for sent in outcome.ledger.requests]
    assert sum(path.endswith("/binding") for _, path in paths) == 3
    assert any(method == "PATCH" and path.endswith("/status") and "/pods/" in path for method, path in paths)


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("moment", Moment)
def test_no_request_is_a_bad_one_to_die_at_with_remote_jobs(moment, part):
    whole = happens()
    assert whole.found == ()
    sent = [each for each in whole.ledger.requests if each.at <= whole.quiet_at]
    for place in places(sent, moment)[part :: _PARTS * _STEP]:
        outcome = happens({place.number: moment})
        killed = [f"{when} {sent}" for sent, when in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())


@pytest.mark.parametrize("what", ["/binding", "/v2/registries"])
def test_whoever_dies_while_a_container_is_prepared_leaves_no_call_to_find_out_about(what):
    whole = happens()
    sent = next(each for each in whole.ledger.requests if each.method == "POST" and each.path.endswith(what))

    outcome = happens({sent.number: Moment.BEFORE})
    assert (len(outcome.ledger.died), outcome.found) == (1, ())
    assert outcome.quiet_at < whole.quiet_at + _TAKEOVER, "sooner than a listing shows that nothing was ordered"
