"""A pod runs in a remote container: launched once, watched to its end, terminated, proven gone, billed to the cent."""

import asyncio
from functools import partial

import msgspec

from forebay.embedded.api.kinds import POD_KIND, SECRET_KIND
from forebay.engine.apply.container_specs import ContainerNotReady
from forebay.model.sources import Delivery
from forebay.simulate import market_faults
from forebay.simulate.market_responses import MarketCall
from tests.engine.container_world import PODS, VIRTUAL_NODE, BoundContainers, VirtualNode, container_sku
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import until

CHEAP = container_sku("0.60", region="west")
DEAR = container_sku("0.90", region="east")


def walk(cloud, name=None):
    """The states that a record went through, the first one by default."""
    records = cloud.world.records()
    record = records[name or next(iter(records))]
    return [each["state"] for each in record["status"]["transitions"]]


def gone(cloud):
    return not cloud.running and set(cloud.world.states().values()) == {"Gone"}


async def test_a_pod_is_bound_its_container_runs_to_its_end_and_nothing_is_left_of_it():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, CHEAP)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud, container_specs=BoundContainers):
            await asyncio.sleep(10)
            far.pod("train", runs="90s")
            await until(lambda: cloud.world.phase("train") == "Running")
            assert cloud.world.where("train") == VIRTUAL_NODE
            (launched,) = alpha.instances.values()
            assert (launched.order.container.image, launched.order.node) == ("work:1", None)
            await until(lambda: cloud.world.phase("train") == "Succeeded")
            await until(lambda: gone(cloud))
            assert walk(cloud) == [
                "Requested", "Launching", "Launched", "Running", "Finished", "Terminating", "Gone",
            ]  # fmt: skip
        assert len(alpha.calls_of(MarketCall.LAUNCH)) == 1
        assert cloud.ledger() == cloud.bill() > 0


async def test_its_exit_code_reaches_the_record():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, CHEAP)
        async with cloud_operator(cloud, container_specs=BoundContainers):
            await asyncio.sleep(10)
            far.pod("train", exit_code=3)
            await until(lambda: cloud.world.phase("train") == "Failed")
            (record,) = cloud.world.records().values()
            assert record["status"]["exitCode"] == 3
            await until(lambda: gone(cloud))


async def test_a_pod_that_waits_for_its_container_gets_no_machine_beside_it():
    async with clouds(
        market("alpha", CHEAP), market("beta", msgspec.structs.replace(DEAR, delivers=Delivery.NODE))
    ) as cloud:
        cloud.pool("alpha")
        cloud.pool("beta")
        far = VirtualNode(cloud, CHEAP)
        beta = cloud.markets["beta"]
        # The pod stays pending for long, and any machine would do for it.
        async with cloud_operator(cloud, container_specs=_Unbound):
            await asyncio.sleep(10)
            far.pod("train", anywhere=True)
            await asyncio.sleep(300)
            assert cloud.world.where("train") is None
            assert [each for each in beta.calls_of(MarketCall.OFFERS) if each.status == 200]
            assert beta.calls_of(MarketCall.LAUNCH) == []


class _Unbound:
    def __init__(self, _client, _views):
        """Like that of a virtual node, but nothing is ready yet."""

    async def resolve(self, _record):
        raise ContainerNotReady("The virtual node is not ready.")


async def test_a_missing_secret_is_waited_for_without_a_cent_and_its_value_is_seen_by_the_container_alone():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, CHEAP)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud, container_specs=partial(BoundContainers, secret="key")):
            await asyncio.sleep(10)
            far.pod("train")
            await asyncio.sleep(120)
            (record,) = cloud.world.records().values()
            assert record["status"]["state"] == "Requested"
            assert record["status"]["reason"] == "ContainerConfigError"
            assert "Secret default/key does not exist" in record["status"]["message"]
            assert (alpha.calls_of(MarketCall.LAUNCH), cloud.ledger(), cloud.bill()) == ([], 0, 0)
            assert cloud.world.told("train", "ContainerConfigError")

            secret = {"metadata": {"name": "key", "namespace": "default"}, "data": {"token": "aHVudGVyMmh1bnRlcjI="}}
            cloud.store.create(SECRET_KIND, secret)
            await until(lambda: alpha.instances, 330)
            (launched,) = alpha.instances.values()
            assert launched.order.container.env["TOKEN"] == "hunter2hunter2"
            assert "hunter2" not in str(cloud.world.records())
            await until(lambda: gone(cloud))
            assert cloud.world.phase("train") == "Succeeded"
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_pod_that_the_scheduler_bound_first_gets_no_container():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, CHEAP)
        (alpha,) = cloud.markets.values()
        far.pod("train")
        bind = {"metadata": {"name": "train", "namespace": "default"}, "target": {"kind": "Node", "name": "own"}}
        await cloud.world.user.post_subresource(PODS, "train", "default", "binding", bind)
        async with cloud_operator(cloud, container_specs=BoundContainers):
            await until(lambda: gone(cloud))
            (record,) = cloud.world.records().values()
            assert record["status"]["reason"] == "NotNeeded"
        assert alpha.calls_of(MarketCall.LAUNCH) == []
        assert cloud.ledger() == 0


async def test_a_deleted_pod_ends_its_container_and_goes_only_after_it():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, CHEAP)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud, container_specs=BoundContainers):
            await asyncio.sleep(10)
            far.pod("train", runs=None)
            await until(lambda: cloud.world.phase("train") == "Running")
            cloud.store.delete(POD_KIND, "default", "train")
            await until(lambda: not alpha.running)
            assert cloud.store.find(POD_KIND, "default", "train") is not None
            await until(lambda: cloud.store.find(POD_KIND, "default", "train") is None)
            assert gone(cloud)
        assert cloud.ledger() == cloud.bill() > 0


async def test_nothing_is_launched_for_a_pod_that_does_not_exist_any_more():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, CHEAP)
        (alpha,) = cloud.markets.values()
        far.pod("train")
        cloud.store.delete(POD_KIND, "default", "train")
        async with cloud_operator(cloud, container_specs=BoundContainers):
            await until(lambda: gone(cloud))
        assert alpha.calls_of(MarketCall.LAUNCH) == []


async def test_one_that_never_runs_is_given_up_at_its_deadline_and_another_offer_is_tried():
    never = msgspec.structs.replace(CHEAP, boot=100_000.0)
    async with clouds(market("alpha", never, DEAR)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, never, DEAR)
        async with cloud_operator(cloud, container_specs=BoundContainers):
            await asyncio.sleep(10)
            far.pod("train")
            await until(lambda: cloud.world.phase("train") == "Succeeded")
            await until(lambda: gone(cloud))
            assert sorted(walk(cloud, name)[-3] for name in cloud.world.records()) == ["Finished", "Launched"]
        assert cloud.ledger() == cloud.bill() > 0


async def test_no_capacity_leaves_the_pod_bound_and_the_next_offer_runs_it():
    async with clouds(market("alpha", CHEAP, DEAR)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, CHEAP, DEAR)
        (alpha,) = cloud.markets.values()
        alpha.script(MarketCall.LAUNCH, market_faults.no_capacity())
        async with cloud_operator(cloud, container_specs=BoundContainers):
            await asyncio.sleep(10)
            far.pod("train")
            await until(lambda: cloud.world.phase("train") == "Succeeded")
            await until(lambda: gone(cloud))
        refused, accepted = alpha.calls_of(MarketCall.LAUNCH)
        assert (refused.status, accepted.status) == (409, 201)
        assert (accepted.at - refused.at).total_seconds() < 1
        assert cloud.ledger() == cloud.bill() > 0


async def test_one_that_vanished_is_gone_and_its_pod_has_failed():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        far = VirtualNode(cloud, CHEAP)
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud, container_specs=BoundContainers):
            await asyncio.sleep(10)
            far.pod("train", runs=None)
            await until(lambda: cloud.world.phase("train") == "Running")
            alpha.vanish(*alpha.running)
            await until(lambda: cloud.world.phase("train") == "Failed")
            (record,) = cloud.world.records().values()
            assert (record["status"]["state"], record["status"]["reason"]) == ("Gone", "Vanished")
        assert len(alpha.instances) == 1
