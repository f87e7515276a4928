"""A NodeProvisioner whose provider has no instance groups: Forebay rents the nodes itself, by names of its own."""

import asyncio

import pytest

from forebay.embedded.api.kinds import EVENT_KIND, NODE_KIND
from forebay.simulate import market_faults as faults
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.conformance import JOIN_LINE
from tests.contract.providers.crusoe.server import CrusoeCloud
from tests.contract.providers.crusoe.server import goods as crusoe_goods
from tests.engine.group_world import all_three_go, change, condition, provisioner, remove, rent, sizes, status, tainted
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.serving_pool import replicas
from tests.engine.test_markets import until

NEAR = Sku(instance_type="a3.8x", gpus=8, gpu_type="H100", hourly_price="20.00", zone="z-a", boot=60, driver=10)
FAR = Sku(instance_type="a3.8x", gpus=8, gpu_type="H100", hourly_price="25.00", zone="z-b", boot=60, driver=10)
SMALL = Sku(instance_type="a3.1x", gpus=1, gpu_type="H100", hourly_price="2.00", zone="z-a", boot=60, driver=10)


def message(cloud, kind, name="pool"):
    return next(each["message"] for each in status(cloud, name)["conditions"] if each["type"] == kind)


async def test_nodes_are_rented_for_pods_and_go_after_the_delay_to_the_cent():
    async with clouds(market("alpha", NEAR, SMALL)) as cloud:
        taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
        rent(cloud, minGPUUtilizationPercent=80, labels={"team": "a"}, taints=[taint])
        alpha = cloud.markets["alpha"]
        async with cloud_operator(cloud):
            await until(lambda: condition(cloud, "Ready") == ("True", "GroupsReady"))
            for index in range(12):
                cloud.world.pod(f"train-{index}", 2, runs="600s", tolerations=[{"operator": "Exists"}])
            await until(lambda: all(cloud.world.phase(f"train-{index}") == "Running" for index in range(12)))
            assert len(alpha.running) == 3, "four pods of two GPUs on each"
            found = cloud.world.records()
            assert {each["spec"]["purpose"] for each in found.values()} == {"Group"}
            assert {each["spec"]["nodeClassName"] for each in found.values()} == {"alpha"}
            assert {each["spec"]["provisionerRef"]["name"] for each in found.values()} == {"pool"}
            assert all(name.startswith("pool-") for name in found)
            node = cloud.store.list(NODE_KIND)[0]
            labels = node["metadata"]["labels"]
            assert (labels["nodeprovisioner.compute.baseten.co/provisioner-name"], labels["team"]) == ("pool", "a")
            assert taint in [{k: v for k, v in each.items() if k != "timeAdded"} for each in node["spec"]["taints"]]
            await until(lambda: sizes(cloud)[:3] == (3, 3, 3))
            await all_three_go(cloud)
        assert cloud.ledger() == cloud.bill() > 0


async def test_nodes_are_kept_ready_and_a_lost_one_is_replaced():
    async with clouds(market("alpha", NEAR)) as cloud:
        rent(cloud, minUnutilizedGPUNodes=2)
        alpha = cloud.markets["alpha"]
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"] * 2)
            await asyncio.sleep(900)
            assert sizes(cloud) == (2, 2, 0, 0)
            alpha.vanish(min(alpha.running))
            await until(lambda: sorted(cloud.world.states().values()) == ["Gone", "Ready", "Ready"], seconds=3600)
            change(cloud, maxNodes=4, minUnutilizedGPUNodes=0, minGPUUtilizationPercent=100, scaleDownDelay="1m")
            await until(lambda: set(cloud.world.states().values()) <= {"Gone"})
            assert not alpha.running


async def test_a_zone_without_capacity_is_left_for_the_next_one():
    async with clouds(market("alpha", NEAR, FAR)) as cloud:
        rent(cloud, minGPUUtilizationPercent=80)
        cloud.markets["alpha"].script(MarketCall.LAUNCH, faults.no_capacity(zone=True))
        cloud.world.pod("train", 8, runs=None)
        async with cloud_operator(cloud):
            await until(lambda: cloud.world.phase("train") == "Running", 200)
            zones = [each["spec"]["offer"]["zone"] for each in cloud.world.records().values()]
            assert sorted(zones) == ["z-a", "z-b"]
            assert condition(cloud, "GrowthBlocked") == ("True", "CoolingDown")


async def test_the_one_location_to_rent_in_may_be_named():
    async with clouds(market("alpha", NEAR, FAR)) as cloud:
        far = {"name": "simulated", "instanceType": "a3.8x", "location": "z-b"}
        rent(cloud, provider=far, minUnutilizedGPUNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: sizes(cloud)[:2] == (1, 1))
            assert [each["spec"]["offer"]["zone"] for each in cloud.world.records().values()] == ["z-b"]


async def test_the_limits_of_the_class_hold_for_its_rented_groups_and_pools_together():
    async with clouds(market("alpha", NEAR)) as cloud:
        cloud.pool("alpha", limits={"maxNodes": 3})
        provisioner(cloud, "one", minUnutilizedGPUNodes=2)
        provisioner(cloud, "two", minUnutilizedGPUNodes=2)
        for index in range(4):
            cloud.world.pod(f"train-{index}", 8, runs=None)
        async with cloud_operator(cloud):
            for _ in range(60):
                await asyncio.sleep(10)
                assert len(cloud.markets["alpha"].running) <= 3
            assert len(cloud.markets["alpha"].running) == 3
            blocked = [each for each in ("one", "two") if condition(cloud, "GrowthBlocked", each)]
            assert blocked
            assert "limits.maxNodes of GPUNodeClass alpha leaves no room" in message(cloud, "GrowthBlocked", blocked[0])


async def test_a_deleted_provisioner_keeps_nodes_with_pods_and_gives_the_empty_ones_back():
    async with clouds(market("alpha", NEAR)) as cloud:
        rent(cloud, minUnutilizedGPUNodes=1)
        alpha = cloud.markets["alpha"]
        async with cloud_operator(cloud):
            cloud.world.pod("train", 8, runs="3600s")
            await until(lambda: list(cloud.world.states().values()) == ["Ready"] * 2)
            remove(cloud)
            await asyncio.sleep(240)
            assert len(alpha.running) == 2, "it may come back, as with kubectl replace --force"
            notes = [each["status"]["message"] for each in cloud.world.records().values()]
            assert any("terminated when no pod is left on it" in note for note in notes)
            await until(lambda: len(alpha.running) == 1)
            assert cloud.world.phase("train") == "Running"
            await until(lambda: cloud.world.phase("train") == "Succeeded", seconds=4000)
            await until(lambda: set(cloud.world.states().values()) <= {"Gone"})
            assert not alpha.running
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_provisioner_that_is_created_again_goes_on_with_its_nodes():
    async with clouds(market("alpha", NEAR)) as cloud:
        rent(cloud, minUnutilizedGPUNodes=2)
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"] * 2)
            before = set(cloud.world.records())
            remove(cloud)
            await asyncio.sleep(60)
            provisioner(cloud, minUnutilizedGPUNodes=2)
            await asyncio.sleep(1200)
            assert set(cloud.world.records()) == before
            assert sizes(cloud) == (2, 2, 0, 0)


def lose_record(cloud, name):
    kind = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
    cloud.world.change(kind, name, lambda found: found["metadata"].update(finalizers=[]))
    cloud.store.delete(kind, None, name)


async def test_a_machine_that_lost_its_record_is_a_member_again():
    async with clouds(market("alpha", NEAR)) as cloud:
        rent(cloud, minUnutilizedGPUNodes=1)
        alpha = cloud.markets["alpha"]
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"])
        (name,) = cloud.world.records()
        lose_record(cloud, name)
        async with cloud_operator(cloud, "b"):
            await until(lambda: name in cloud.world.records() and cloud.world.state(name) == "Ready", seconds=600)
            await asyncio.sleep(900)
            assert cloud.world.record(name)["spec"]["provisionerRef"]["name"] == "pool"
            # Another one was rented meanwhile: of the two, one too many goes after the delay.
            await until(lambda: len(alpha.running) == 1)
            assert sorted(cloud.world.states().values()) in (["Gone", "Ready"], ["Ready", "Terminating"])


async def test_a_machine_of_a_cloud_that_lists_no_names_is_a_member_again_by_its_provider_id():
    def crusoe(nodes):
        return CrusoeCloud(crusoe_goods(boot=20, driver=5, shutdown=5), nodes, name="crusoe", key="dHJpYWwta2V5")

    async with clouds(crusoe) as cloud:
        joins = {"cloudInit": {"template": f"#!/bin/sh\n# {JOIN_LINE} --provider-id={{{{.ProviderID}}}}\n"}}
        rented = {"name": "crusoe", "instanceType": "l40s-48gb.1x"}
        rent(cloud, of="crusoe", node_class=joins, provider=rented, minUnutilizedGPUNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"])
        (name,) = cloud.world.records()
        lose_record(cloud, name)
        async with cloud_operator(cloud, "b"):
            await until(lambda: name in cloud.world.records() and cloud.world.state(name) == "Ready", seconds=300)
            assert cloud.world.record(name)["spec"]["provisionerRef"]["name"] == "pool"


@pytest.mark.parametrize(
    ("fields", "reason", "told"),
    [
        ({"of": "beta"}, "NodeClassNotFound", 'GPUNodeClass "beta" does not exist'),
        ({"provider": {"name": "gcp", "instanceType": "a3.8x"}}, "ProviderNotServed", "has no provider gcp"),
        ({"provider": {"name": "simulated", "instanceType": "dear"}}, "NotAllowed", "does not allow spot"),
    ],
)
async def test_what_cannot_be_rented_is_said(fields, reason, told):
    spot = Sku(instance_type="dear", gpus=8, hourly_price="25.00", zone="z-b", spot=True)
    async with clouds(market("alpha", NEAR, spot)) as cloud:
        cloud._create(
            "GPUNodeClass", {"name": "alpha"}, {"providers": [{"name": "simulated", "endpoint": "http://alpha"}]}
        )
        provisioner(cloud, minUnutilizedGPUNodes=1, **fields)
        async with cloud_operator(cloud):
            await until(lambda: condition(cloud, "Ready") == ("False", reason))
            assert told in message(cloud, "Ready")
            assert not cloud.running


async def test_a_class_that_is_deleted_is_why_its_group_does_not_grow_and_not_its_cloud():
    async with clouds(market("alpha", NEAR)) as cloud:
        rent(cloud, minUnutilizedGPUNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"])
            cloud.store.delete(cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass"), None, "alpha")
            await until(lambda: condition(cloud, "Ready") == ("False", "NodeClassDeleting"))
            await until(lambda: set(cloud.world.states().values()) == {"Gone"})
            assert condition(cloud, "GrowthBlocked") is None


async def test_a_type_that_nobody_offers_blocks_the_growth_and_says_so():
    async with clouds(market("alpha", NEAR)) as cloud:
        rent(cloud, provider={"name": "simulated", "instanceType": "a9.8x"}, minUnutilizedGPUNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: condition(cloud, "GrowthBlocked") is not None)
            assert "simulated offers no a9.8x now" in message(cloud, "GrowthBlocked")


async def test_machines_of_a_cloud_without_groups_join_as_the_class_says():
    def crusoe(nodes):
        return CrusoeCloud(crusoe_goods(boot=20, driver=5, shutdown=5), nodes, name="crusoe", key="dHJpYWwta2V5")

    async with clouds(crusoe) as cloud:
        rent(
            cloud,
            of="crusoe",
            node_class={"cloudInit": {"template": f"#!/bin/sh\n# {JOIN_LINE}\n"}},
            provider={"name": "crusoe", "instanceType": "l40s-48gb.1x"},
            minUnutilizedGPUNodes=2,
        )
        async with cloud_operator(cloud):
            await until(lambda: sorted(cloud.world.states().values()) == ["Ready", "Ready"], seconds=1200)
            assert sizes(cloud) == (2, 2, 0, 0)
            events = [
                each for each in cloud.store.list(EVENT_KIND) if each["involvedObject"]["kind"] == "NodeProvisioner"
            ]
            assert any("one more machine of crusoe in" in each["message"] for each in events)


def relabel(cloud):
    change(cloud, labels={"tier": "new"})


def marks(cloud):
    return [taint["value"] for node in cloud.store.list(NODE_KIND) for taint in node["spec"].get("taints") or ()]


def tiers(cloud):
    return sorted(each["metadata"]["labels"].get("tier", "old") for each in cloud.store.list(NODE_KIND))


async def test_machines_of_an_earlier_class_or_of_earlier_labels_are_replaced_one_after_the_other_and_first():
    async with clouds(market("alpha", NEAR)) as cloud:
        rent(cloud, minGPUUtilizationPercent=50, minUnutilizedGPUNodes=1)
        replicas(cloud, 2, gpus=8)
        alpha = cloud.markets["alpha"]
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"] * 3)
            relabel(cloud)
            least = most = 3
            for _ in range(300):
                await asyncio.sleep(5)
                ready = [each for each in cloud.world.states().values() if each == "Ready"]
                least, most = min(least, len(ready)), max(most, len(alpha.running))
            assert tiers(cloud) == ["new"] * 3
            assert (least, most) == (3, 4), "one more at a time, and never fewer that serve"
            await until(lambda: sizes(cloud)[:3] == (3, 3, 2))
            reasons = {
                each["reason"] for each in cloud.world.records().values() for each in each["status"]["transitions"]
            }
            assert "Drifted" in reasons
            assert not tainted(cloud)


async def test_a_job_is_not_moved_from_a_drifted_machine_and_a_class_that_is_changed_back_replaces_nothing():
    async with clouds(market("alpha", NEAR)) as cloud:
        rent(cloud, minGPUUtilizationPercent=50)
        cloud.world.job("train", 8, runs="900s")
        alpha = cloud.markets["alpha"]
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"])
            relabel(cloud)
            await asyncio.sleep(300)
            assert (tiers(cloud), len(alpha.instances)) == (["old"], 1)
            replicas(cloud, 1, gpus=8)
            await until(lambda: tiers(cloud) == ["new", "old"])
            change(cloud, labels={"tier": "newest"})
            await until(lambda: "replacing" in marks(cloud))
            relabel(cloud)
            await until(lambda: not marks(cloud))
            await asyncio.sleep(300)
            assert tiers(cloud) == ["new", "old"], "the one that was rented for the replacement was not needed"
