"""DaemonSets take their part of each machine that is rented: once."""

import asyncio

from forebay.embedded.api import kinds
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import CHEAP, until


def needs(cpu, gpus=0):
    resources = {"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": gpus} if gpus else {}}
    return [{"name": "main", "image": "work:1", "resources": resources}]


def run_daemonset(cloud, cpu):
    """A DaemonSet with a pod on a node without GPUs."""
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
    cloud.store.create(kinds.NODE_KIND, {"metadata": {"name": "web"}, "status": status})
    everywhere = {"containers": needs(cpu), "tolerations": [{"operator": "Exists"}]}
    labels = {"app": "exporter"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": everywhere}}
    kind = cloud.store.kinds.named("apps/v1", "DaemonSet")
    made = cloud.store.create(kind, {"metadata": {"name": "exporter", "namespace": "default"}, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "controller": True}
    meta = {"ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}]}
    cloud.world.pod("exporter", 0, runs=None, nodeName="web", metadata=meta, **everywhere)


async def test_a_pod_that_comes_while_a_machine_boots_has_the_room_that_daemonsets_leave_there():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        run_daemonset(cloud, "12")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            for name in ("first", "second"):
                cloud.world.pod(name, runs="300s", containers=needs("9", 1))
            await asyncio.sleep(20)
            assert set(cloud.world.states().values()) == {"Launched"}
            cloud.world.pod("third", runs="300s", containers=needs("2", 1))
            for name in ("first", "second", "third"):
                await until(lambda name=name: cloud.world.phase(name) == "Running")
            assert len(cloud.running) == 1
