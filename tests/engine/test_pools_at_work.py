"""Pools of rented machines over time: what is paid, and what has changed since the launch."""

import asyncio
from fractions import Fraction

from forebay.embedded.api import kinds
from forebay.simulate.market_goods import Sku
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import until

SKU = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", region="west", boot=60, driver=10)
HOURLY = Sku(
    instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", boot=60, driver=10, minimum=0, increment=3600
)


def replicas(cloud, number=1, gpus=4, **annotations):
    """A ReplicaSet whose pods run until they are ended."""
    labels = {"app": "serve"}
    container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    notes = {"embedded.forebay.dev/run-time": "10000h", **annotations}
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": {"containers": [container]}}
    spec = {"replicas": number, "selector": {"matchLabels": labels}, "template": template}
    cloud.store.create(kinds.REPLICA_SET_KIND, {"metadata": {"name": "serve", "namespace": "default"}, "spec": spec})


def serving(cloud):
    """Nodes on which pods of the ReplicaSet run."""
    pods = [each for each in cloud.store.list(kinds.POD_KIND) if each["metadata"].get("ownerReferences")]
    return {pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"}


def change_labels(cloud, **labels):
    pool = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
    template = {"metadata": {"labels": labels}}
    cloud.world.change(pool, "alpha", lambda each: each["spec"].update(template=template), "kube-system")


async def test_a_machine_paid_by_the_hour_takes_the_next_pod_of_that_hour_and_then_goes():
    async with clouds(market("alpha", HOURLY)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("first", 4, runs="300s")
            await until(lambda: cloud.world.phase("first") == "Succeeded")
            await asyncio.sleep(1200)
            (name,) = cloud.world.states()
            assert cloud.world.states() == {name: "Ready"}
            (idle,) = [each for each in cloud.world.record(name)["status"]["conditions"] if each["type"] == "Idle"]
            assert "It is paid until" in idle["message"]
            cloud.world.pod("second", 4, runs="300s")
            await until(lambda: cloud.world.phase("second") == "Succeeded", 400)
            assert cloud.world.where("second") == name
            await until(lambda: not cloud.running, 3000)
            await until(lambda: set(cloud.world.states().values()) <= {"Gone"})
        # One hour, not two.
        assert cloud.ledger() == cloud.bill() == Fraction("2.40")


async def test_a_changed_template_replaces_its_nodes_and_their_pods_move():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replicas(cloud)
            await until(lambda: serving(cloud))
            (old,) = serving(cloud)
            await asyncio.sleep(600)
            assert serving(cloud) == {old}
            change_labels(cloud, tier="new")
            await until(lambda: serving(cloud) - {old})
            (new,) = serving(cloud)
            assert cloud.store.get(kinds.NODE_KIND, None, new)["metadata"]["labels"]["tier"] == "new"
            await until(lambda: cloud.world.state(old) in {None, "Gone"})
            assert ("GPUInstance", old, "Drifted") in cloud.world.events()
            await asyncio.sleep(1200)
            assert serving(cloud) == {new}, "once, and no more"


async def test_no_drift_ends_a_job_or_a_pod_that_nobody_creates_again():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.job("train", 4, runs="3000s")
            cloud.world.pod("bare", 4, runs="3000s")
            await until(lambda: len([each for each in cloud.world.states().values() if each == "Ready"]) == 2)
            change_labels(cloud, tier="new")
            await asyncio.sleep(2000)
            assert set(cloud.world.states().values()) == {"Ready"}
            await until(lambda: cloud.world.phase("bare") == "Succeeded", 2000)
            await until(lambda: not cloud.running)
            (job,) = cloud.store.list(kinds.JOB_KIND)
            assert job["status"]["succeeded"] == 1
            assert not job["status"].get("failed")


async def test_a_pool_that_allows_no_disruption_keeps_its_drifted_nodes():
    budgets = [{"nodes": 0, "reasons": ["Drifted"]}]
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha", disruption={"consolidateAfter": "30s", "budgets": budgets})
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replicas(cloud)
            await until(lambda: serving(cloud))
            before = serving(cloud)
            change_labels(cloud, tier="new")
            await asyncio.sleep(1200)
            assert serving(cloud) == before


async def test_pods_that_must_not_be_disrupted_keep_a_drifted_node():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replicas(cloud, **{"karpenter.sh/do-not-disrupt": "true"})
            await until(lambda: serving(cloud))
            before = serving(cloud)
            change_labels(cloud, tier="new")
            await asyncio.sleep(1200)
            assert serving(cloud) == before
