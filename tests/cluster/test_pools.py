"""A pool on three clouds, on a real control plane: the cheapest mix for a hundred pods, and nothing left of it.

Run by `make bars`. The clouds are conformance servers on sockets, whose machines become nodes of KWOK's. The operator
is a process of its own, with exactly its roles.
"""

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from decimal import Decimal

import pytest

from forebay.kube.informer import Informer
from forebay.kube.pods import PODS
from forebay.providers.paperspace.provider import CAPABILITIES as PAPERSPACE
from forebay.simulate.market_responses import MarketCall
from tests.cluster.operators import until, until_progress_ends
from tests.cluster.powered import Administrator, gpu_pod, rig_client
from tests.cluster.rented import Flaky, rented_clouds
from tests.cluster.worlds import FOREBAY, world
from tests.contract.providers.crusoe.server import CrusoeCloud
from tests.contract.providers.crusoe.server import goods as crusoe_goods
from tests.contract.providers.lambdalabs.harness import skus as lambda_skus
from tests.contract.providers.lambdalabs.server import LambdaCloud
from tests.contract.providers.paperspace.harness import skus as paperspace_skus
from tests.contract.providers.paperspace.server import Paperspace
from tests.rig.parts import PLAY

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(900)]

_TIMES = {"boot": 2.0, "driver": 0, "shutdown": 0.5}
CLOUDS = {
    "crusoe": lambda nodes: CrusoeCloud(crusoe_goods(**_TIMES), nodes, operation_seconds=0.5, key="dHJpYWwta2V5"),
    "lambda": lambda nodes: LambdaCloud([each for each in lambda_skus(**_TIMES) if each.gpus == 8], nodes, key="k-1"),
    "paper": lambda nodes: Paperspace(paperspace_skus(**_TIMES), nodes, key="k-1", shows_deleted=True),
}
#: The predecessor's example, with GPUs that these clouds have: how many pods ask for which.
DEMAND = {"A4000": 60, "A100-80GB": 32, "H100": 8}
#: By the clouds' price lists, the least that machines for these pods cost: 15 A4000x4 or 60 A4000 at Paperspace, 8
#: machines with four A100 at Crusoe, one with eight H100 at Lambda.
CHEAPEST = 60 * Decimal("0.76") + 8 * Decimal("6.60") + Decimal("19.92")
TAINT = {"key": "gpu-node", "value": "true", "effect": "NoSchedule"}
#: Seconds; the shortest that a Lease can say.
LEASE = 1.0
KILLED_EVERY = 3.0
FAULTS = 0.2
#: Seconds in which something must change until all is done. The startup script of a launch that a killed operator began
#: stays while that launch may still be on its way.
STUCK = (PAPERSPACE.call_timeout + PAPERSPACE.settle_time).total_seconds() + 60
#: Seconds by which the end of a machine may be noticed late at a cloud that does not tell it: two listings, of which
#: one fails or dies with its operator.
_SEEN_LATE = 30


class Scene:
    """A hundred pods, three clouds, and somebody who watches."""

    def __init__(self, made, clouds, pods, administrator):
        self.made = made
        self.clouds = clouds
        self.administrator = administrator
        self.bound = {}
        self.ended = set()
        self.tried = set()
        pods.subscribe(self._see)

    def _see(self, change):
        pod = getattr(change, "new", None)
        if pod is None or pod.namespace != self.made.name:
            return
        if pod.node is not None:
            self.bound[pod.name] = pod.node
        if pod.phase.ended:
            self.ended.add(pod.name)
        if pod.unschedulable_since is not None:
            self.tried.add(pod.name)

    def submit(self):
        for model, count in DEMAND.items():
            for number in range(count):
                pod = gpu_pod(f"{model.lower()}-{number:02}", 1, **{PLAY["RUN_FOR"]: "20s"})
                pod["spec"] |= {
                    "nodeSelector": {"tgp.io/gpu-type": model},
                    "tolerations": [{**TAINT, "operator": "Equal"}],
                }
                self.administrator.call("POST", f"/api/v1/namespaces/{self.made.name}/pods", pod)

    async def submitted(self):
        """Returns when the scheduler has tried all of them."""
        await asyncio.to_thread(self.submit)

        async def all_tried():
            return len(self.tried) == sum(DEMAND.values())

        await until(all_tried, "every pod is Unschedulable")

    def states(self):
        records = self.administrator.call("GET", f"{FOREBAY}/gpuinstances")["items"]
        return {each["metadata"]["name"]: each.get("status", {}).get("state") for each in records}

    def nodes(self):
        found = {each["metadata"]["name"] for each in self.administrator.call("GET", "/api/v1/nodes")["items"]}
        return found & set(self.bound.values())

    def progress(self):
        changes = {MarketCall.LAUNCH, MarketCall.TERMINATE}
        calls = sum(call.acted for each in self.clouds.servers.values() for call in each.calls if call.asked in changes)
        return len(self.bound), len(self.ended), calls, len(self.clouds.running)

    async def ended_well(self):
        async def all_ran():
            return len(self.ended) == sum(DEMAND.values())

        async def all_gone():
            left = self.clouds.running or self.clouds.left_behind
            return not left and set(self.states().values()) == {"Gone"} and not self.nodes()

        began = time.monotonic()
        await until_progress_ends(all_ran, self.progress, "every pod has run", STUCK)
        served = time.monotonic() - began
        await until_progress_ends(all_gone, self.progress, "nothing is left at any cloud", STUCK)
        took = time.monotonic() - began
        ours, theirs = self.clouds.ledger(), self.clouds.bill()
        sys.stderr.write(
            f"pools: pods served after {served:.0f} s, all gone after {took:.0f} s; {len(self.clouds.rented)} machines,"
            f" ledger {float(ours):.4f} $, bill {float(theirs):.4f} $\n"
        )
        sys.stderr.writelines(f"pools: {each}\n" for each in self.clouds.differences())
        assert len(self.bound) == sum(DEMAND.values())
        assert [each.violations for each in self.clouds.servers.values()] == [[], [], []]
        assert list(self.clouds.differences(late=_SEEN_LATE)) == []


@asynccontextmanager
async def scene(rig, wrap=lambda server: server):
    async with world(rig) as made, rented_clouds(rig, made.home, CLOUDS, wrap) as clouds:
        administrator, client = Administrator(rig), rig_client(rig)
        try:
            async with Informer(client.transport, rig.url, PODS) as pods:
                await pods.wait_synced()
                spec = clouds.class_spec(limits={"maxNodes": 120})
                await made._create(f"{FOREBAY}/gpunodeclasses", "GPUNodeClass", made.name, spec)
                pool = {
                    "nodeClassRef": {"name": made.name},
                    "template": {"spec": {"taints": [TAINT]}},
                    "disruption": {"consolidateAfter": "5s"},
                    "maxHourlyPrice": "40",
                }
                await made._create(made._pools(), "GPUNodePool", "rented", pool)
                yield Scene(made, clouds, pods, administrator)
        finally:
            await client.close()
            administrator.close()


async def test_a_hundred_pods_get_the_cheapest_machines_of_three_clouds_and_all_are_given_back(whole_rig):
    async with scene(whole_rig) as found:
        # Before anybody looks: what is cheapest for all of them together is not what is cheapest for each as it comes.
        await found.submitted()
        async with found.made.operator("a") as operator:
            await until(operator.is_ready, "the operator is ready")
            await found.ended_well()
            await operator.leave()

        assert sum((Decimal(each.line.tariff.hourly_price) for each in found.clouds.rented), Decimal(0)) == CHEAPEST


async def test_the_same_with_kill_9_every_three_seconds_while_a_fifth_of_the_calls_fail(whole_rig):
    flaky = []

    def wrap(server):
        flaky.append(Flaky(server, FAULTS, seed=len(flaky)))
        return flaky[-1]

    async with scene(whole_rig, wrap) as found, found.made.operator("a", lease=LEASE) as operator:
        killed = 0

        async def kill():
            nonlocal killed
            while True:
                before = found.progress()
                await asyncio.sleep(KILLED_EVERY)
                # On a busy machine three seconds are too few to do anything at all: such a story would never end.
                for _ in range(10):
                    if found.progress() == before:
                        await asyncio.sleep(1)
                operator.stop()
                operator.start()
                killed += 1

        await until(operator.is_ready, "the operator is ready")
        killing = asyncio.create_task(kill())
        try:
            await asyncio.to_thread(found.submit)
            await found.ended_well()
        finally:
            killing.cancel()
            await asyncio.wait({killing})
        failed = sum(each.failed for each in flaky)
        sys.stderr.write(f"pools: killed {killed} times, {failed} calls failed\n")
        assert killed > 5
        assert failed > 10
