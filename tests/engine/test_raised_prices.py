"""Prices that change between the offer and the launch of a rented machine."""

import asyncio

from forebay.simulate.market_goods import Sku
from tests.contract.providers.conformance import JOIN_LINE
from tests.contract.providers.lambdalabs.harness import skus
from tests.contract.providers.lambdalabs.server import LambdaCloud
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import until

CHEAP = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", region="west", boot=60, driver=10)
DEAR = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="3.96", region="east", boot=60, driver=10)


def lambda_cloud(nodes):
    goods = skus(boot=90, driver=5, shutdown=5, minimum=60, increment=60)
    return LambdaCloud(goods, nodes, name="lambda", key="k-1")


async def ended(cloud):
    await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"}, 3600)


async def test_a_machine_that_is_billed_for_more_than_its_pool_allows_goes_before_it_joins_and_another_is_taken():
    async with clouds(market("alpha", CHEAP), market("beta", DEAR)) as cloud:
        cloud.pool("alpha")
        cloud.pool("beta")
        alpha, beta = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            alpha.reprice("l40s.4x", "12.00")
            cloud.world.pod("one", 4, runs="300s")
            await until(lambda: cloud.world.phase("one") == "Running", 120)
            assert not alpha.running
            assert len(beta.running) == 1
            (dear,) = (each for each in cloud.world.states() if each.startswith("alpha"))
            (told,) = (
                each for each in cloud.world.record(dear)["status"]["transitions"] if each["reason"] == "PriceRaised"
            )
            assert "bills $12.00/h for l40s.4x in west at simulated, which was offered at $2.40/h" in told["message"]
            assert "GPUNodePool kube-system/alpha allows $10.00/h" in told["message"]
            await ended(cloud)
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_machine_that_costs_more_than_offered_and_no_more_than_allowed_runs_and_its_message_says_so():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.markets["alpha"].reprice("l40s.4x", "5.00")
            cloud.world.pod("one", 4, runs="300s")
            await until(lambda: cloud.world.phase("one") == "Running", 120)
            (name,) = cloud.world.states()
            (launched,) = (
                each for each in cloud.world.record(name)["status"]["transitions"] if each["state"] == "Launched"
            )
            assert "accepted as alpha-1 at $5.00/h, which was offered at $2.40/h." in launched["message"]
            await ended(cloud)
        assert cloud.ledger() == cloud.bill() > 0


async def test_the_bill_has_the_price_of_the_listing_where_the_answer_to_the_launch_tells_none():
    async with clouds(lambda_cloud) as cloud:
        cloud.pool("lambda", cloudInit={"template": f"#cloud-config\n# {JOIN_LINE}\n"})
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.markets["lambda"].reprice("gpu_1x_h100", "5.00")
            cloud.world.pod("one", 1, runs="300s")
            await until(lambda: cloud.world.phase("one") == "Running", 300)
            (name,) = cloud.world.states()
            record = cloud.world.record(name)
            assert (record["spec"]["hourlyPrice"], record["status"]["hourlyPrice"]) == ("2.49", "5")
            await ended(cloud)
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_listed_price_above_what_the_pool_allows_ends_the_machine_while_it_boots():
    async with clouds(lambda_cloud) as cloud:
        cloud.pool("lambda", cloudInit={"template": f"#cloud-config\n# {JOIN_LINE}\n"})
        (server,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            server.reprice("gpu_1x_h100", "12.00")
            cloud.world.pod("one", 1, runs="300s")
            await until(lambda: cloud.world.phase("one") == "Running", 300)
            (served,) = (each for each in server.instances.values() if each.id in server.running)
            assert served.sku.instance_type == "gpu_4x_h100"
            await ended(cloud)
        assert cloud.ledger() == cloud.bill() > 0
