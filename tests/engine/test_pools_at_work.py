"""Pools of rented machines over time: what is paid, and what has changed since the launch."""

import asyncio
from fractions import Fraction

from forebay.embedded.api import kinds
from forebay.simulate.market_goods import Sku
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.serving_pool import SKU, change_labels, served, serving
from tests.engine.test_markets import until

HOURLY = Sku(
    instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", boot=60, driver=10, minimum=0, increment=3600
)


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


async def test_the_next_pod_goes_where_others_run_and_the_idle_node_goes():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha", disruption={"consolidateAfter": "5m"})
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("long", 2, runs="3000s")
            cloud.world.pod("short", 4, runs="120s")
            await until(lambda: cloud.world.phase("short") == "Succeeded")
            busy, idle = cloud.world.where("long"), cloud.world.where("short")
            await asyncio.sleep(10)
            assert _scale_down_taints(cloud, idle) == [("idle", "PreferNoSchedule")]
            assert _scale_down_taints(cloud, busy) == []
            cloud.world.pod("next", 1, runs="60s")
            await until(lambda: cloud.world.phase("next") == "Succeeded", 100)
            assert cloud.world.where("next") == busy, "by default the scheduler takes the empty one"
            await until(lambda: cloud.world.state(idle) in {None, "Gone"}, 400)


async def test_an_idle_node_takes_what_fits_nowhere_else_and_is_a_node_like_others_again():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha", disruption={"consolidateAfter": "5m"})
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("long", 2, runs="3000s")
            cloud.world.pod("short", 4, runs="120s")
            await until(lambda: cloud.world.phase("short") == "Succeeded")
            idle = cloud.world.where("short")
            await asyncio.sleep(10)
            cloud.world.pod("large", 4, runs="600s")
            await until(lambda: cloud.world.phase("large") == "Running", 5)
            assert cloud.world.where("large") == idle
            await asyncio.sleep(2)
            assert _scale_down_taints(cloud, idle) == []


def _scale_down_taints(cloud, name):
    taints = cloud.world.node(name)["spec"].get("taints", ())
    return [(each["value"], each["effect"]) for each in taints if each["key"] == "forebay.dev/scale-down"]


async def test_a_changed_template_replaces_its_nodes_and_their_pods_move():
    async with served() as (cloud, old):
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
    async with served(disruption={"consolidateAfter": "30s", "budgets": budgets}) as (cloud, old):
        change_labels(cloud, tier="new")
        await asyncio.sleep(1200)
        assert serving(cloud) == {old}


async def test_pods_that_must_not_be_disrupted_keep_a_drifted_node():
    async with served(**{"karpenter.sh/do-not-disrupt": "true"}) as (cloud, old):
        change_labels(cloud, tier="new")
        await asyncio.sleep(1200)
        assert serving(cloud) == {old}


async def test_nodes_get_the_annotations_of_their_pool_once_and_people_may_change_them():
    notes = {"example.com/team": "vision", "example.com/rack": "7"}
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha")
        pool = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        template = {"metadata": {"annotations": notes}}
        cloud.world.change(pool, "alpha", lambda each: each["spec"].update(template=template), "kube-system")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("train", 4, runs="600s")
            await until(lambda: cloud.world.phase("train") == "Running")
            name = cloud.world.where("train")
            found = cloud.world.node(name)["metadata"]["annotations"]
            assert {key: found.get(key) for key in notes} == notes
            cloud.world.change(
                kinds.NODE_KIND, name, lambda each: each["metadata"]["annotations"].update({"example.com/rack": "8"})
            )
            await asyncio.sleep(120)
            assert cloud.world.node(name)["metadata"]["annotations"]["example.com/rack"] == "8"
