"""Pools with minNodes: nodes that are there whatever pods there are."""

import asyncio

from forebay.simulate.market import MarketCall
from forebay.simulate.market_faults import no_capacity
from forebay.simulate.market_goods import Sku
from forebay.simulate.power import Powered
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.power_world import lab, operator
from tests.engine.test_markets import until
from tests.engine.test_reconfigured import create_class, create_pool

SMALL = Sku(instance_type="l4.1x", gpus=1, gpu_type="L4", hourly_price="0.60", boot=60, driver=10)
LARGE = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", boot=60, driver=10)


def ready(cloud):
    return sorted(name for name, state in cloud.world.states().items() if state == "Ready")


def pool_kind(cloud):
    return cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")


def told(cloud, name="alpha", condition="MinNodes"):
    found = cloud.store.get(pool_kind(cloud), "kube-system", name)["status"]["conditions"]
    (one,) = [each for each in found if each["type"] == condition]
    return one["status"], one["reason"], one["message"]


def change(cloud, **spec):
    cloud.world.change(pool_kind(cloud), "alpha", lambda each: each["spec"].update(spec), "kube-system")


async def test_a_pool_with_min_nodes_buys_the_cheapest_and_keeps_them_without_pods():
    async with clouds(market("alpha", SMALL, LARGE)) as cloud:
        cloud.pool("alpha")
        change(cloud, minNodes=2)
        async with cloud_operator(cloud):
            await until(cloud.world.states, 60)
            await asyncio.sleep(30)
            status, reason, message = told(cloud)
            assert (status, reason) == ("False", "CapacityLaunching")
            assert "0 of 2 nodes are Ready." in message
            assert "Launched. l4.1x at simulated is running" in message or "Launch of l4.1x" in message
            await until(lambda: len(ready(cloud)) == 2)
            before = ready(cloud)
            for name in before:
                spec = cloud.world.record(name)["spec"]
                assert (spec["purpose"], spec["offer"]["instanceType"]) == ("Static", "l4.1x")
                assert "minNodes of GPUNodePool kube-system/alpha is 2" in spec["why"]
            await asyncio.sleep(3600)
            assert ready(cloud) == before
            assert len(cloud.world.states()) == 2, "no more, and none in place of another"
            assert told(cloud)[:2] == ("True", "NodeReady")
            change(cloud, minNodes=0)
            await until(lambda: not cloud.running)
            await until(lambda: told(cloud)[1] == "NotNeeded")
            await until(lambda: set(cloud.world.states().values()) == {"Gone"})
        assert cloud.ledger() == cloud.bill() > 0


async def test_pods_use_static_nodes_and_nodes_for_pods_count():
    async with clouds(market("alpha", SMALL)) as cloud:
        cloud.pool("alpha")
        change(cloud, minNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: ready(cloud))
            (static,) = ready(cloud)
            cloud.world.pod("first", 1, runs="300s")
            await until(lambda: cloud.world.phase("first") == "Running", 30)
            assert cloud.world.where("first") == static
            cloud.world.pod("second", 1, runs="3000s")
            await until(lambda: cloud.world.phase("second") == "Running")
            await until(lambda: len(ready(cloud)) == 1)
            assert ready(cloud) == [cloud.world.where("second")], "the idle one goes: one node is enough"


async def test_a_static_node_that_vanishes_is_replaced():
    async with clouds(market("alpha", SMALL)) as cloud:
        cloud.pool("alpha")
        change(cloud, minNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: ready(cloud))
            (first,) = ready(cloud)
            cloud.store.delete(cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance"), None, first)
            await until(lambda: ready(cloud) and ready(cloud) != [first])
            assert len(cloud.running) == 1


async def test_limits_hold_for_static_nodes_and_the_pool_says_what_they_wait_for():
    async with clouds(market("alpha", SMALL)) as cloud:
        cloud.pool("alpha")
        change(cloud, minNodes=3, limits={"maxNodes": 2})
        async with cloud_operator(cloud):
            await until(lambda: len(ready(cloud)) == 2)
            await asyncio.sleep(600)
            assert len(cloud.world.states()) == 2
            status, reason, message = told(cloud)
            assert (status, reason) == ("False", "NoCapacity")
            assert "2 of 3 nodes are Ready." in message
            assert "limits.maxNodes of GPUNodePool kube-system/alpha leaves no room for one more" in message


async def test_a_static_node_that_is_sold_out_waits_with_its_reason_and_is_bought_when_the_cooldown_ends():
    async with clouds(market("alpha", SMALL)) as cloud:
        cloud.pool("alpha")
        change(cloud, minNodes=1)
        cloud.markets["alpha"].script(MarketCall.LAUNCH, no_capacity())
        async with cloud_operator(cloud):
            await until(lambda: "Gone" in cloud.world.states().values(), 60)
            await asyncio.sleep(5)
            assert "is cooling down until" in told(cloud)[2]
            await until(lambda: ready(cloud))


async def test_a_pool_shows_its_gpus_offers_cost_and_last_decisions_and_metrics_count_them():
    async with clouds(market("alpha", SMALL, LARGE)) as cloud:
        cloud.pool("alpha")
        change(cloud, minNodes=2)
        async with cloud_operator(cloud) as operator:
            await until(lambda: len(ready(cloud)) == 2)
            await asyncio.sleep(5)
            status = cloud.store.get(pool_kind(cloud), "kube-system", "alpha")["status"]
            shown = {key: status[key] for key in ("nodeCount", "resources", "hourlyCost", "offers")}
            assert shown == {"nodeCount": 2, "resources": {"nvidia.com/gpu": "2"}, "hourlyCost": "1.2", "offers": 2}
            assert [each["reason"] for each in status["lastDecisions"]] == ["MinNodes", "MinNodes"]
            assert operator.counts.ready == {"simulated": 2}
            assert operator.counts.ready_seconds["simulated"] >= 140
            change(cloud, minNodes=0)
            await until(lambda: not cloud.running)
            await asyncio.sleep(60)
            status = cloud.store.get(pool_kind(cloud), "kube-system", "alpha")["status"]
            assert (status["nodeCount"], status["resources"], status["hourlyCost"]) == (0, {}, "0")
            assert len(status["lastDecisions"]) == 5
            assert {each["state"] for each in status["lastDecisions"]} == {"Requested", "Draining", "Terminating"}
            assert operator.counts.terminations == {"Idle": 2}


async def test_min_nodes_of_a_pool_of_owned_machines_keeps_so_many_powered_on():
    async with lab(Powered(name="first", gpus=1, boot=60), Powered(name="second", gpus=1, boot=60)) as world:
        create_class(world, "owned", world.configured())
        create_pool(world)
        pool = world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        world.change(pool, "gpus", lambda each: each["spec"].update(minNodes=1), "kube-system")
        async with operator(world, machines=()):
            await until(lambda: "Ready" in world.states().values())
            (up,) = world.states()
            (other,) = {"first", "second"} - {up}
            assert world.record(up)["spec"]["purpose"] == "Static"
            await asyncio.sleep(3600)
            assert world.power.on == {up}, "it stays on without any pod, and the other stays off"
            world.pod("train", 1, runs="300s")
            await until(lambda: world.phase("train") == "Running", 30)
            assert world.where("train") == up, "pods use it"
            world.pod("more", 1, runs="300s")
            await until(lambda: world.where("more") == other)
            await until(lambda: len(world.power.on) == 1, 1200)
            await asyncio.sleep(600)
            assert len(world.power.on) == 1, "one is enough again"
            world.change(pool, "gpus", lambda each: each["spec"].update(minNodes=3), "kube-system")
            await until(lambda: world.power.on == {"first", "second"})
            await asyncio.sleep(120)
            conditions = world.store.get(pool, "kube-system", "gpus")["status"]["conditions"]
            (told_of,) = [each for each in conditions if each["type"] == "MinNodes"]
            assert (told_of["status"], told_of["reason"]) == ("False", "NoCapacity")
            assert "2 of 3 nodes are Ready. Not launched: 1" in told_of["message"]
            world.change(pool, "gpus", lambda each: each["spec"].update(minNodes=0), "kube-system")
            await until(lambda: not world.power.on)
            await until(lambda: set(world.states().values()) == {"Gone"})


async def test_a_static_node_that_expires_where_limits_leave_no_room_for_two_is_followed_by_one_that_joins_at_once():
    """The Node of the machine that is gone is still there, and even Ready for a while: its name is not used again."""
    async with clouds(market("alpha", SMALL)) as cloud:
        cloud.pool("alpha")
        change(cloud, minNodes=1, limits={"maxNodes": 1}, disruption={"consolidateAfter": "30s", "expireAfter": "1h"})
        async with cloud_operator(cloud):
            await until(lambda: ready(cloud))
            (first,) = ready(cloud)
            await until(lambda: cloud.world.state(first) == "Gone", 3700)
            await until(lambda: ready(cloud), 90)
            assert ready(cloud) != [first]
            assert len(cloud.markets["alpha"].instances) == 2
