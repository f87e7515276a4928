"""Owned machines and two simulated clouds: by price, past capacity errors and reclaims, and to the cent."""

import asyncio
import base64

from forebay.embedded.api.kinds import EVENT_KIND, POD_KIND, REPLICA_SET_KIND, SECRET_KIND, SIGNING_REQUEST_KIND
from forebay.simulate import market_faults
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power import Powered
from tests.engine.market_world import cloud_operator, clouds, market

CHEAP = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", region="west", boot=60, driver=10)
DEAR = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="3.96", region="east", boot=40, driver=10)
OWN = Powered(name="own", gpus=4, boot=30, shutdown=5, hourly_price="0.50")


async def until(true, seconds=900.0):
    for _ in range(int(seconds)):
        if true():
            return
        await asyncio.sleep(1)
    raise AssertionError("it did not happen in time")


async def test_owned_machines_first_then_clouds_by_price_and_all_is_terminated_and_billed_to_the_cent():
    async with clouds(market("alpha", CHEAP), market("beta", DEAR), machines=(OWN,)) as cloud:
        cloud.pool("alpha")
        cloud.pool("beta")
        alpha, beta = cloud.markets.values()
        alpha.restock("l40s.4x", 1)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("first", 4, runs="300s")
            await until(lambda: cloud.world.phase("first") == "Running")
            assert cloud.world.where("first") == "own"
            assert cloud.running == frozenset()

            cloud.world.pod("second", 4, runs="300s")
            await until(lambda: cloud.world.phase("second") == "Running")
            assert (len(alpha.running), len(beta.running)) == (1, 0)

            cloud.world.pod("third", 4, runs="300s")
            await until(lambda: cloud.world.phase("third") == "Running")
            assert (len(alpha.running), len(beta.running)) == (1, 1)

            for name in ("first", "second", "third"):
                await until(lambda name=name: cloud.world.phase(name) == "Succeeded")
            await until(lambda: not cloud.running and not cloud.world.power.on)
            await until(lambda: set(cloud.world.states().values()) <= {"Gone"})
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_capacity_error_goes_to_the_next_offer_at_once():
    async with clouds(market("alpha", CHEAP), market("beta", DEAR)) as cloud:
        cloud.pool("alpha")
        cloud.pool("beta")
        alpha, beta = cloud.markets.values()
        alpha.script(MarketCall.LAUNCH, market_faults.no_capacity())
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: cloud.world.phase("one") == "Running")
            (refused,), (accepted,) = alpha.calls_of(MarketCall.LAUNCH), beta.calls_of(MarketCall.LAUNCH)
            assert (refused.status, accepted.status) == (409, 201)
            assert (accepted.at - refused.at).total_seconds() < 1
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})
        assert cloud.ledger() == cloud.bill() > 0


async def test_pods_go_to_another_provider_after_two_answers_were_lost_and_nothing_is_bought_twice():
    async with clouds(market("alpha", CHEAP), market("beta", DEAR)) as cloud:
        for name in ("alpha", "beta"):
            cloud.pool(
                name, cloudInit={"template": "#cloud-config\n# join as {{.NodeName}} with {{.BootstrapToken}}\n"}
            )
        cloud.markets["alpha"].script(MarketCall.LAUNCH, *[market_faults.request_lost()] * 2)
        cloud.world.pod("train", 4, runs="60s")
        async with cloud_operator(cloud):
            # A minute for each: so long a call may be under way.
            await until(lambda: len(cloud.markets["beta"].running) == 1, seconds=150)
            assert not cloud.markets["alpha"].instances
            await until(lambda: cloud.world.phase("train") == "Succeeded")
            await until(lambda: set(cloud.world.states().values()) == {"Gone"})
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_class_whose_machines_never_get_usable_is_not_paid_for_around_the_clock():
    """Every offer fails in the same way; without a pause for all of them, one machine or another is always paid."""
    broken = [
        Sku(instance_type=f"kind-{number}", gpus=4, hourly_price=f"2.4{number}", boot=60, driver=10**7)
        for number in range(8)
    ]
    async with clouds(market("alpha", *broken)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("train", 4)
            await asyncio.sleep(6 * 3600)
            # Six minutes each: three in a row, then pauses of 10, 20 and 40 minutes, then of an hour each.
            assert len(cloud.markets["alpha"].instances) == 9
            pod = cloud.store.get(POD_KIND, "default", "train")
            (told,) = (each for each in pod["status"]["conditions"] if each["type"] == "forebay.dev/Capacity")
            assert "is cooling down until" in told["message"]


async def test_a_reclaimed_machine_is_replaced():
    spot = Sku(instance_type="a100.8x", gpus=8, hourly_price="6.10", spot=True, boot=60, driver=10)
    async with clouds(market("alpha", spot), market("beta", DEAR)) as cloud:
        cloud.pool("alpha", instanceRequirements={"spotAllowed": True})
        (alpha, _) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.job("train", 8, runs="600s")
            await until(lambda: len(alpha.running) == 1)
            await asyncio.sleep(200)
            (first,) = alpha.running
            alpha.reclaim(first, notice=30)
            await until(lambda: alpha.running - {first})
            await until(lambda: first not in alpha.running)
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"}, 3600)
        assert len(alpha.instances) == 2
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_machine_joins_with_its_own_token_and_the_token_is_deleted():
    async with clouds(market("alpha", CHEAP)) as cloud:
        template = "#cloud-config\nruncmd: [join {{.NodeName}} {{ .BootstrapToken }} '{{.NodeTaints}}']\n"
        cloud.pool("alpha", cloudInit={"template": template})
        (alpha,) = cloud.markets.values()

        def tokens():
            found = cloud.store.list(SECRET_KIND, "kube-system")
            return [each for each in found if each["metadata"]["name"].startswith("bootstrap-token-")]

        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("one", 4)
            await until(lambda: alpha.running)
            (token,) = tokens()
            (machine,) = alpha.instances.values()
            assert base64.b64decode(token["data"]["token-secret"]).decode() in machine.order.boot
            assert f"join {machine.node_name} " in machine.order.boot
            assert "forebay.dev/startup=" in machine.order.boot
            await until(lambda: cloud.world.phase("one") == "Running")
            (request,) = cloud.store.list(SIGNING_REQUEST_KIND)
            assert [each["type"] for each in request["status"]["conditions"]] == ["Approved"]
            assert tokens() == []
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})
        assert cloud.ledger() == cloud.bill() > 0


async def test_pods_that_come_back_to_a_cordoned_node_do_not_keep_a_rented_machine():
    async with clouds(market("alpha", CHEAP)) as cloud, cloud_operator(cloud):
        cloud.pool("alpha")
        (alpha,) = cloud.markets.values()
        cloud.world.pod("train", 4, runs="120s")
        await until(lambda: cloud.world.phase("train") == "Running")
        pod = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "web", "image": "web:1"}],
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 1,
            },
        }
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
        cloud.store.create(REPLICA_SET_KIND, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        await until(lambda: cloud.world.phase("train") == "Succeeded")
        ended = asyncio.get_running_loop().time()

        await until(lambda: not cloud.running)

        assert 300 < asyncio.get_running_loop().time() - ended < 480, "their evictions come first"
        await until(lambda: set(cloud.world.states().values()) == {"Gone"})
        told = [each["message"] for each in cloud.store.list(EVENT_KIND) if each["reason"] == "Idle"]
        assert any("came to it although it is cordoned" in each for each in told)

        def where():
            pods = (each for each in cloud.store.list(POD_KIND) if each["metadata"]["name"].startswith("web-"))
            return [each["spec"].get("nodeName") for each in pods]

        await until(lambda: where() == [None])
        assert len(alpha.calls_of(MarketCall.LAUNCH)) == 1
    assert cloud.ledger() == cloud.bill() > 0


async def test_a_machine_that_is_stopped_while_its_pods_cannot_leave_is_terminated_and_not_waited_for():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            held = {"embedded.forebay.dev/stop-delay": "600s"}
            cloud.world.pod("train", 4, runs="3000s", metadata={"annotations": held}, terminationGracePeriodSeconds=600)
            await until(lambda: cloud.world.phase("train") == "Running")
            ((name, _),) = cloud.world.states().items()
            alpha.reclaim(*alpha.running, notice=60)
            await until(lambda: cloud.world.state(name) == "Draining", 120)
            await until(lambda: cloud.world.state(name) == "Gone", 240)
            assert alpha.running == frozenset()
