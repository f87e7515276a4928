"""Many pods that wait: the API server gets few writes, and every pod says why it waits for as long as it waits."""

import asyncio
from collections import Counter

from forebay.api.names import CAPACITY_CONDITION
from forebay.embedded.api import kinds
from forebay.net.transport import Response
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

#: Writes a second, as `engine.apply.capacity_conditions` has it, and those that may come sooner than that.
PACE, AHEAD = 50, 5


class Writes:
    """Counts the operator's writes to pods' statuses and to events, with the time of each."""

    def __init__(self):
        self.times = []
        self.by_kind = Counter()

    def __call__(self, transport):
        return _Counted(transport, self)

    async def answer(self, _request):
        """An answer in place of the server's, if any."""


class _Counted:
    def __init__(self, inner, writes):
        self.inner, self.writes = inner, writes

    async def request(self, request):
        path = request.url.partition("?")[0]
        if request.method != "GET" and "/pods/" in path:
            self.writes.by_kind["pod"] += 1
            self.writes.times.append(asyncio.get_running_loop().time())
        elif request.method != "GET" and "/events" in path:
            self.writes.by_kind["event"] += 1
        return await self.writes.answer(request) or await self.inner.request(request)

    async def close(self):
        await self.inner.close()


def capacity(pod):
    """Status, reason and message of the pod's condition; None where it has none."""
    found = [each for each in pod["status"].get("conditions", ()) if each["type"] == CAPACITY_CONDITION]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None


def job(world, name, pods, gpus):
    container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    world.store.create(kinds.JOB_KIND, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


async def test_every_pod_says_why_it_waits_in_one_write_each_and_events_are_few():
    pods, writes = 3_000, Writes()
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world, wrap=writes):
        job(world, "sweep", pods - 500, 16)
        for number in range(500):
            world.pod(f"giant-{number}", 16)
        await asyncio.sleep(120)
        told = Counter(capacity(pod)[:2] for pod in world.store.list(kinds.POD_KIND, "default"))
        assert told == {("False", "NoOfferFits"): pods}
        # Nothing changes any more, and nothing is written but the few events, which are repeated before they expire.
        await asyncio.sleep(70 * 60)
        assert writes.by_kind["pod"] == pods
        assert writes.by_kind["event"] < 100
        for first, later in zip(writes.times, writes.times[PACE + AHEAD :], strict=False):
            assert later - first >= 1
        assert "2500 pods of this Job wait for capacity. None of 1 offers" in world.told("sweep", "NoOfferFits")[-1]


async def test_a_pod_is_told_that_its_machine_is_launching_and_then_that_it_has_a_node():
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world):
        world.pod("p", 1, runs="300s")
        await asyncio.sleep(30)
        waiting = capacity(world.store.get(kinds.POD_KIND, "default", "p"))
        assert waiting == ("False", "CapacityLaunching", "GPUInstance box is launching for the pod.")
        await asyncio.sleep(120)
        assert capacity(world.store.get(kinds.POD_KIND, "default", "p")) == (
            "True",
            "Bound",
            "The pod is bound to node box.",
        )


async def test_a_new_operator_does_not_write_again_what_pods_say_already():
    again = Writes()
    async with lab(Powered(name="box", gpus=2, boot=60)) as world:
        async with operator(world):
            for number in range(50):
                world.pod(f"giant-{number}", 16)
            await asyncio.sleep(30)
        async with operator(world, "b", wrap=again):
            await asyncio.sleep(60)
    assert again.by_kind["pod"] == 0
    assert 0 < again.by_kind["event"] < 20


async def test_a_pod_whose_condition_is_refused_delays_nobody():
    class Policy(Writes):
        async def answer(self, request):
            if request.method == "PATCH" and "/pods/giant-0/status" in request.url:
                self.by_kind["refused"] += 1
                return Response(403, body=b'{"kind":"Status","code":403,"reason":"Forbidden","message":"policy"}')
            return None

    policy = Policy()
    async with lab(Powered(name="box", gpus=2, boot=60)) as world, operator(world, wrap=policy):
        for number in range(20):
            world.pod(f"giant-{number}", 16)
        await asyncio.sleep(300)
        told = [capacity(pod) for pod in world.store.list(kinds.POD_KIND, "default")]
    assert sum(each is not None for each in told) == 19
    assert policy.by_kind["refused"] == 1
