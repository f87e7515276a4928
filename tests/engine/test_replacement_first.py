"""A node that has to go is replaced before its pods leave it."""

import asyncio

from forebay.embedded.api import kinds
from forebay.simulate.market_goods import Sku
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.serving_pool import SKU, change_labels, drained, replacing, replicas, served, serving
from tests.engine.test_markets import until
from tests.engine.test_startup_taint import startup_taints
from tests.engine.test_static_capacity import change, ready
from tests.engine.test_underutilized import replica_set, running


async def watch(cloud, seconds):
    """Adds each second in which no pod of the ReplicaSet runs."""
    while True:
        seconds += [1] if not serving(cloud) else []
        await asyncio.sleep(1)


async def test_a_drifted_node_is_drained_when_its_replacement_is_ready():
    async with served() as (cloud, old):
        change_labels(cloud, tier="new")
        await until(lambda: len(cloud.running) == 2, 30)
        (new,) = set(cloud.world.states()) - {old}
        assert cloud.world.record(new)["spec"]["replaces"][0]["name"] == old
        assert f"It replaces {old}" in cloud.world.record(new)["spec"]["why"]
        await asyncio.sleep(5)
        assert serving(cloud) == {old}, "its pods run on while the replacement boots"
        assert cloud.world.state(old) == "Ready"
        status, reason, message = replacing(cloud, old)
        assert (status, reason) == ("True", "ReplacementNeeded")
        assert f"Waiting until its replacement {new} is Ready" in message
        gaps = []
        watching = asyncio.create_task(watch(cloud, gaps))
        await until(lambda: serving(cloud) == {new})
        watching.cancel()
        assert len(gaps) < 20, "the time of an eviction, not of a boot"
        await until(lambda: cloud.world.state(old) == "Gone")
        ended = drained(cloud, old)
        assert ended["reason"] == "Drifted"
        assert f"Its replacement {new} is Ready." in ended["message"]
        await asyncio.sleep(1200)
        assert serving(cloud) == {new}
        assert len(cloud.running) == 1


async def test_nothing_is_ordered_for_pods_that_move_to_the_replacement_while_those_before_them_end_slowly():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replicas(cloud, 2, 2, **{"embedded.forebay.dev/stop-delay": "25s"})
            await until(lambda: serving(cloud))
            (old,) = serving(cloud)
            change_labels(cloud, tier="new")
            await until(lambda: serving(cloud) and old not in serving(cloud))
            await until(lambda: cloud.world.state(old) == "Gone")
            (new,) = serving(cloud)
            ordered = {each["metadata"]["name"] for each in cloud.records.values()}
            assert ordered == {old, new}


async def test_an_expired_node_is_replaced_first():
    async with served(disruption={"consolidateAfter": "30s", "expireAfter": "1h"}) as (cloud, old):
        await until(lambda: len(cloud.running) == 2, 3700)
        assert serving(cloud) == {old}
        await until(lambda: serving(cloud) and old not in serving(cloud), 300)
        await until(lambda: cloud.world.state(old) == "Gone")
        assert ("GPUInstance", old, "Expired") in cloud.world.events()


async def test_machines_that_boot_for_longer_than_their_pool_lets_them_live_are_not_replaced_without_end():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha", disruption={"consolidateAfter": "30s", "expireAfter": "1m"})
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("train", 4, runs="500s")
            await until(lambda: cloud.world.phase("train") == "Succeeded")
        assert len(cloud.records) == 1


async def test_where_limits_leave_no_room_for_two_the_node_is_drained_first():
    async with served(spec={"limits": {"maxNodes": 1}}) as (cloud, old):
        change_labels(cloud, tier="new")
        await until(lambda: serving(cloud) and old not in serving(cloud))
        ended = drained(cloud, old)
        assert "Limits leave no room for a replacement beside it" in ended["message"]


async def test_a_drifted_node_without_a_possible_replacement_keeps_its_pods_and_says_why():
    async with served() as (cloud, old):
        cloud.markets["alpha"].restock("l40s.4x", 0)
        await asyncio.sleep(120)
        change_labels(cloud, tier="new")
        await asyncio.sleep(600)
        assert serving(cloud) == {old}
        status, reason, message = replacing(cloud, old)
        assert (status, reason) == ("False", "ReplacementUnavailable")
        assert "Its pods run on, because nothing can take its place" in message
        cloud.markets["alpha"].restock("l40s.4x", 1)
        await until(lambda: serving(cloud) and old not in serving(cloud))


async def test_a_node_that_nothing_can_replace_does_not_keep_the_others_from_being_replaced():
    """The budget allows one at a time, and the one whose machine is out of stock is the oldest."""
    small = Sku(instance_type="l40s.1x", gpus=1, gpu_type="L40S", hourly_price="0.70", boot=60, driver=10)
    async with clouds(market("alpha", SKU, small)) as cloud, cloud_operator(cloud):
        cloud.pool("alpha", disruption={"consolidateAfter": "30s", "budgets": [{"nodes": 1}]})
        replica_set(cloud, "large", gpus=4)
        await until(lambda: running(cloud, "large"))
        replica_set(cloud, "little", gpus=1)
        await until(lambda: running(cloud, "little"))
        (large,), (little,) = running(cloud, "large"), running(cloud, "little")
        cloud.markets["alpha"].restock("l40s.4x", 0)
        await asyncio.sleep(120)
        change_labels(cloud, tier="new")
        await until(lambda: running(cloud, "little") not in ([], [little]), 400)
        assert running(cloud, "large") == [large]
        assert replacing(cloud, large)[:2] == ("False", "ReplacementUnavailable")
        cloud.markets["alpha"].restock("l40s.4x", 1)
        await until(lambda: running(cloud, "large") not in ([], [large]), 400)


async def test_a_template_that_is_changed_back_needs_no_replacement():
    async with served() as (cloud, old):
        change_labels(cloud, tier="new")
        await until(lambda: len(cloud.running) == 2, 30)
        pool = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        cloud.world.change(pool, "alpha", lambda each: each["spec"].update(template={}), "kube-system")
        await until(lambda: len(cloud.running) == 1, 300)
        assert serving(cloud) == {old}
        assert replacing(cloud, old)[:2] == ("False", "NotNeeded")


async def test_a_static_node_without_pods_is_replaced_first_when_it_drifts():
    async with clouds(market("alpha", SKU)) as cloud:
        cloud.pool("alpha")
        change(cloud, minNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: ready(cloud))
            (old,) = ready(cloud)
            change_labels(cloud, tier="new")
            for _ in range(300):
                assert ready(cloud), "there is always one"
                await asyncio.sleep(1)
            assert len(ready(cloud)) == len(cloud.running) == 1
            assert ready(cloud) != [old]


async def test_a_machine_that_is_taken_back_in_ten_minutes_is_replaced_first():
    async with served() as (cloud, old):
        (instance,) = cloud.running
        cloud.markets["alpha"].reclaim(instance, notice=600)
        await until(lambda: len(cloud.running) == 2, 60)
        assert serving(cloud) == {old}
        assert replacing(cloud, old)[:2] == ("True", "Reclaimed")
        await until(lambda: serving(cloud) and old not in serving(cloud), 300)
        ended = drained(cloud, old)
        assert ended["reason"] == "Reclaimed"


async def test_a_machine_that_is_taken_back_before_a_replacement_is_ready_is_drained_in_time():
    slow = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", boot=280, driver=10)
    async with served(slow) as (cloud, old):
        (instance,) = cloud.running
        cloud.markets["alpha"].reclaim(instance, notice=240)
        await until(lambda: cloud.world.state(old) in {"Draining", "Terminating"}, 200)
        await until(lambda: serving(cloud) and old not in serving(cloud), 600)


async def test_a_replacement_is_kept_for_the_pods_that_move_to_it_and_others_get_a_machine_of_their_own():
    async with served() as (cloud, old):
        change_labels(cloud, tier="new")
        await until(lambda: len(cloud.running) == 2, 30)
        (new,) = set(cloud.world.states()) - {old}
        await asyncio.sleep(30)
        # As large as the replacement, which is Ready half a minute before the machine that is bought for this one.
        cloud.world.pod("other", 4, runs=None)
        gaps = []
        watching = asyncio.create_task(watch(cloud, gaps))
        await until(lambda: serving(cloud) == {new})
        watching.cancel()
        assert len(gaps) < 20, "the time of an eviction, not of a boot"
        await until(lambda: cloud.world.phase("other") == "Running")
        assert cloud.world.where("other") not in {old, new}
        await until(lambda: not startup_taints(cloud.world, new))
        await until(lambda: cloud.world.state(old) == "Gone")
        await asyncio.sleep(600)
        assert len(cloud.running) == 2


async def test_a_replacement_is_kept_while_a_disruption_budget_holds_its_pods_back_and_opened_when_they_have_come():
    async with served() as (cloud, old):
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "serve"}}}
        named = {"name": "serve", "namespace": "default"}
        cloud.store.create(kinds.DISRUPTION_BUDGET_KIND, {"metadata": named, "spec": budget})
        change_labels(cloud, tier="new")
        await until(lambda: len(cloud.running) == 2, 30)
        (new,) = set(cloud.world.states()) - {old}
        await until(lambda: cloud.world.state(old) == "Draining")
        cloud.world.pod("other", 1, runs=None)
        await asyncio.sleep(900)
        assert (serving(cloud), cloud.world.phase("other")) == ({old}, "Running")
        assert cloud.world.where("other") not in {old, new}
        assert startup_taints(cloud.world, new), "fifteen minutes later it is still kept for them"
        cloud.store.delete(kinds.DISRUPTION_BUDGET_KIND, "default", "serve")
        await until(lambda: serving(cloud) == {new})
        await until(lambda: not startup_taints(cloud.world, new))
