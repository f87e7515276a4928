"""Machines you own, on a real control plane: switched on for pods that wait, off when nothing needs them.

The operator is a process of its own, with exactly its roles. Who is asked what is what the machines themselves saw.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from forebay.kube.informer import Informer
from forebay.kube.pods import PODS
from forebay.simulate.power import Powered
from tests.cluster import audit
from tests.cluster.operators import leaders_killed, until, until_progress_ends
from tests.cluster.powered import Administrator, gpu_pod, power_api, rig_client
from tests.cluster.worlds import FOREBAY, world
from tests.rig.parts import PLAY

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(900)]

#: GPUs of twenty machines, and of two hundred pods: more than twice what fits at once.
MACHINES = [1] * 4 + [2] * 6 + [4] * 6 + [8] * 4
PODS_ASKING = [1] * 140 + [2] * 40 + [4] * 14 + [8] * 6
#: Seconds; the shortest that a Lease can say.
LEASE = 1.0
KILLED_EVERY = 2.0
#: Seconds more that a leader is given to get anything done, before it is killed all the same.
MERCY = 10
#: Seconds in which something must change until all is done.
STUCK = 90.0


class Lab:
    """Two hundred pods, twenty machines that are off, and somebody who watches."""

    def __init__(self, made, power, environment, pods, administrator):
        self.made = made
        self.power = power
        self.environment = environment
        self.administrator = administrator
        #: By name, where each pod has been.
        self.bound = {}
        self.ended = set()
        pods.subscribe(self._see)

    def _see(self, change):
        pod = getattr(change, "new", None)
        if pod is None or pod.namespace != self.made.name:
            return
        if pod.node is not None:
            self.bound[pod.name] = pod.node
        if pod.phase.ended:
            self.ended.add(pod.name)

    def submit(self):
        for number, gpus in enumerate(PODS_ASKING):
            pod = gpu_pod(f"pod-{number:03}", gpus, **{PLAY["RUN_FOR"]: f"{2 + number % 3}s"})
            self.administrator.call("POST", f"/api/v1/namespaces/{self.made.name}/pods", pod)

    def states(self):
        records = self.administrator.call("GET", f"{FOREBAY}/gpuinstances")["items"]
        return {each["metadata"]["name"]: each.get("status", {}).get("state") for each in records}

    def progress(self):
        """What changes while anything goes on: who is bound, what has ended, and what machines were asked."""
        return len(self.bound), len(self.ended), len(self.power.calls), len(self.power.on)

    async def ended_well(self, *users):
        """All that was promised, told from outside."""

        async def all_bound():
            return len(self.ended) == len(PODS_ASKING)

        async def all_off():
            return not self.power.on and set(self.states().values()) == {"Gone"}

        began = time.monotonic()
        await until_progress_ends(all_bound, self.progress, "every pod has run", STUCK)
        served = time.monotonic() - began
        await until_progress_ends(all_off, self.progress, "every machine is off", STUCK)
        sys.stderr.write(f"power: pods served after {served:.0f} s, all off after {time.monotonic() - began:.0f} s\n")
        assert len(self.bound) == len(PODS_ASKING)
        assert set(self.bound.values()) <= set(self.power.machines)
        assert self.power.powered_on_twice() == ()
        assert self.power.powered_off_in_use() == ()
        requests = audit.entries(self.made.rig.audit_log, *users)
        assert requests
        assert [each for each in requests if each.refused] == []


@asynccontextmanager
async def lab(rig):
    # Names of their own: what an earlier story left behind must not look like this one's.
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(world(rig))
        machines = [
            Powered(name=f"{made.name}-{number:02}", gpus=gpus, boot=1 + number % 3, shutdown=0.5)
            for number, gpus in enumerate(MACHINES)
        ]
        power, base = await stack.enter_async_context(power_api(rig, machines))
        administrator = Administrator(rig)
        stack.callback(administrator.close)
        client = rig_client(rig)
        stack.push_async_callback(client.close)
        pods = await stack.enter_async_context(Informer(client.transport, rig.url, PODS))
        await pods.wait_synced()
        environment = {**power.environment(base), "FOREBAY_SCALE_DOWN_INTERVAL": "1s", "FOREBAY_IDLE_DELAY": "0s"}
        yield Lab(made, power, environment, pods, administrator)


async def test_two_hundred_pods_get_their_machines_and_all_go_off_again(whole_rig):
    async with lab(whole_rig) as scene, scene.made.operator("a", environment=scene.environment) as operator:
        await until(operator.is_ready, "the operator is ready")
        await asyncio.to_thread(scene.submit)

        await scene.ended_well(operator.user)
        await operator.leave()


async def test_the_same_although_whoever_leads_is_killed_every_two_seconds(whole_rig):
    async with lab(whole_rig) as scene, AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(scene.made.operator(name, environment=scene.environment, lease=LEASE))
            for name in "ab"
        ]
        for each in replicas:
            await until(each.is_ready, f"{each.user} is ready")
        async with leaders_killed(
            replicas, scene.made.leader, scene.progress, every=KILLED_EVERY, mercy=MERCY
        ) as fallen:
            await asyncio.to_thread(scene.submit)
            await scene.ended_well(*(each.user for each in replicas))
        sys.stderr.write(f"power: {len(fallen)} leaders were killed\n")
        assert len(fallen) > 5
