"""Members for a stated time, from Google's queue: they are replaced before they end, and their pods move first."""

import asyncio
import base64
from contextlib import asynccontextmanager

from forebay.embedded.api.kinds import NODE_KIND, POD_KIND, SECRET_KIND
from tests.contract.providers.gcp.server import ComputeEngine, goods
from tests.contract.providers.gcp.tokens import key_file
from tests.engine.group_world import KIND, condition, status
from tests.engine.market_world import cloud_operator, clouds
from tests.engine.test_markets import until

KEY = "planted-api-key-9c1d"
MACHINE = "a3-highgpu-8g"
HOUR = 3600


def engine(nodes):
    return ComputeEngine(goods(boot=60, driver=10, shutdown=5), nodes, key=KEY)


@asynccontextmanager
async def queued(**spec):
    """A cluster with an empty group, whose members run for two hours."""
    async with clouds(engine) as cloud:
        key = base64.b64encode(key_file(KEY, "http://gcp")).decode()
        meta = {"name": "google", "namespace": "kube-system"}
        cloud.store.create(SECRET_KIND, {"metadata": meta, "data": {"key": key}})
        group = cloud.markets["gcp"].add_group("pool", MACHINE)
        provider = {
            "name": "gcp",
            "endpoint": "http://gcp",
            "location": "us-central1-a",
            "credentialsRef": {"name": "google", "key": "key"},
            "runDuration": "2h",
        }
        spec = {"existingInstanceGroupNames": ["pool"], "provider": provider, "minGPUUtilizationPercent": 50, **spec}
        cloud.store.create(cloud.store.kinds.named(*KIND), {"metadata": {"name": "pool"}, "spec": spec})
        async with cloud_operator(cloud):
            yield cloud, group
        assert cloud.markets["gcp"].violations == []


def serve(cloud, replicas):
    """A service whose pods take a node each, and run until somebody evicts them."""
    container = {"name": "main", "image": "serve:1", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    labels = {"app": "serve"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    kind = cloud.store.kinds.named("apps/v1", "ReplicaSet")
    cloud.store.create(kind, {"metadata": {"name": "serve", "namespace": "default"}, "spec": spec})


def running(cloud):
    return [each for each in cloud.store.list(POD_KIND) if each["status"].get("phase") == "Running"]


async def test_members_are_replaced_before_they_end_and_their_pods_move_first():
    async with queued() as (cloud, group):
        serve(cloud, 2)
        await until(lambda: len(running(cloud)) == 2)
        first = set(group.members)
        assert len(first) == 2
        # Half an hour before the end: two more, and only then the first two go.
        await asyncio.sleep(2 * HOUR - 35 * 60)
        assert set(group.members) == first
        await until(lambda: len(group.members) > 2)
        assert first <= set(group.members)
        assert "to replace" in status(cloud)["arithmetic"][1]
        await until(lambda: not first & set(group.members))
        await until(lambda: len(running(cloud)) == 2)
        assert group.ran_out == []
        # And so on.
        await asyncio.sleep(5 * HOUR)
        assert len(running(cloud)) == 2
        assert len(group.members) == 2
        assert group.ran_out == []
        assert len(group.requests) <= 4


async def test_a_node_that_ends_soon_takes_no_new_pods():
    async with queued(minUnutilizedGPUNodes=1, maxNodes=2) as (cloud, group):
        serve(cloud, 1)
        await until(lambda: len(running(cloud)) == 1 and len(group.members) == 2)
        await asyncio.sleep(2 * HOUR - 20 * 60)
        marked = [
            node["metadata"]["name"]
            for node in cloud.store.list(NODE_KIND)
            if any(
                taint["key"] == "forebay.dev/scale-down" and taint["effect"] == "NoSchedule"
                for taint in node["spec"].get("taints") or ()
            )
        ]
        assert set(marked) <= set(group.members) or not marked
        await asyncio.sleep(HOUR)
        await until(lambda: len(running(cloud)) == 1)
        assert len(group.members) <= 2


async def test_a_queue_without_capacity_is_said_so_and_costs_nothing():
    async with queued() as (cloud, group):
        server = cloud.markets["gcp"]
        server.restock(MACHINE, 0)
        serve(cloud, 1)
        await until(lambda: group.requests)
        await asyncio.sleep(3 * HOUR)
        (request,) = group.requests.values()
        assert request.state == "ACCEPTED"
        assert server.instances == {}
        assert condition(cloud, "GrowthBlocked")[0] == "True"
        assert cloud.bill() == 0
        server.restock(MACHINE, None)
        await until(lambda: len(running(cloud)) == 1)
