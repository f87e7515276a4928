"""A NodeProvisioner at work: groups are adopted, grow for pods, shrink by taint and delay, and are billed exactly."""

import asyncio

from forebay.embedded.api.kinds import EVENT_KIND, NODE_KIND, POD_KIND
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.engine.group_world import all_three_go, change, condition, provision, remove, sizes, status, tainted
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import until

SKU = Sku(instance_type="a3.8x", gpus=8, gpu_type="H100", hourly_price="20.00", zone="z-a", boot=60, driver=10)


def group(cloud, members=0, name="group", of="a3.8x", at="alpha"):
    return cloud.markets[at].add_group(name, of, [f"{name}-{index}" for index in range(members)])


def purposes(cloud):
    return {record["spec"]["purpose"] for record in cloud.world.records().values()}


async def test_members_that_exist_are_adopted_and_billed_and_never_taken_for_leftovers():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud, 3)
        provision(cloud, minUnutilizedGPUNodes=3)
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"] * 3)
            assert purposes(cloud) == {"Group"}
            assert set(cloud.world.records()) == {"group-0", "group-1", "group-2"}
            await asyncio.sleep(1800)
            assert len(cloud.markets["alpha"].running) == 3
            assert sizes(cloud) == (3, 3, 0, 0)
            assert condition(cloud, "Ready") == ("True", "GroupsReady")
            label = cloud.world.node("group-0")["metadata"]["labels"]
            assert label["nodeprovisioner.compute.baseten.co/provisioner-name"] == "pool"


async def test_a_group_grows_for_pods_and_shrinks_again_after_the_delay_to_the_cent():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minGPUUtilizationPercent=80)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            for index in range(12):
                cloud.world.pod(f"train-{index}", 2, runs="600s")
            await until(lambda: all(cloud.world.phase(f"train-{index}") == "Running" for index in range(12)))
            alpha = cloud.markets["alpha"]
            assert len(alpha.running) == 3  # four pods of two GPUs on each
            assert len(alpha.calls_of(MarketCall.GROW)) == 1  # one request for three members
            await until(lambda: sizes(cloud)[2] == 3)
            assert sizes(cloud)[:2] == (3, 3)
            await all_three_go(cloud)
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_pod_that_the_scheduler_places_nowhere_adds_one_node_and_no_other():
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minGPUUtilizationPercent=80, scaleDownDelay="2m")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("train", 2, volumes=claim)
            alpha = cloud.markets["alpha"]
            await until(lambda: len(alpha.running) == 1)
            await until(lambda: not alpha.running, 900)
            await asyncio.sleep(3600)
            assert len(alpha.calls_of(MarketCall.GROW)) == 1
            (refused,) = (
                each
                for each in cloud.store.get(POD_KIND, "default", "train")["status"]["conditions"]
                if each["type"] == "forebay.dev/Refused"
            )
            assert "unbound immediate PersistentVolumeClaims" in refused["message"]


async def test_a_pod_that_comes_after_the_taint_saves_its_node():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud, 2)
        provision(cloud, minGPUUtilizationPercent=100)
        async with cloud_operator(cloud):
            await until(lambda: len(tainted(cloud)) == 2)
            await asyncio.sleep(300)
            cloud.world.pod("late", 8, runs=None)
            await until(lambda: cloud.world.phase("late") == "Running")
            await until(lambda: len(tainted(cloud)) == 1)
            await until(lambda: len(cloud.markets["alpha"].running) == 1)
            await asyncio.sleep(1800)
            assert cloud.world.phase("late") == "Running"
            assert cloud.world.where("late") in cloud.world.records()
            assert sizes(cloud) == (1, 1, 1, 0)


async def test_a_pod_that_lands_between_the_cordon_and_the_deletion_saves_its_node_too():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud, 1)
        provision(cloud, minGPUUtilizationPercent=100, scaleDownDelay="1m")
        async with cloud_operator(cloud):
            await until(lambda: cloud.world.states() == {"group-0": "Draining"})
            # As by a scheduler that had chosen the node before it was cordoned.
            cloud.world.pod("late", 8, runs=None, nodeName="group-0")
            await until(lambda: cloud.world.states() == {"group-0": "Ready"})
            await until(lambda: not cloud.world.is_cordoned("group-0") and not tainted(cloud))
            await asyncio.sleep(600)
            assert cloud.markets["alpha"].calls_of(MarketCall.SHRINK) == []


async def test_a_node_with_any_pod_that_is_not_of_a_daemonset_is_kept():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud, 2)
        container = {"name": "main", "image": "agent:1"}
        meta = {"name": "cpu-only", "namespace": "default", "annotations": {"embedded.forebay.dev/run-time": "9999h"}}
        async with cloud_operator(cloud):
            await until(lambda: len(cloud.store.list(NODE_KIND)) == 2)
            cloud.store.create(POD_KIND, {"metadata": meta, "spec": {"containers": [container], "nodeName": "group-1"}})
            provision(cloud, minGPUUtilizationPercent=100, scaleDownDelay="1m")
            await until(lambda: cloud.world.state("group-0") == "Gone")
            await asyncio.sleep(1200)
            assert cloud.world.state("group-1") == "Ready"
            assert sizes(cloud) == (1, 0, 0, 0)


async def test_somebody_elses_resize_and_autohealing_are_followed():
    async with clouds(market("alpha", SKU)) as cloud:
        made = group(cloud, 2)
        provision(cloud, minUnutilizedGPUNodes=2)
        alpha = cloud.markets["alpha"]
        async with cloud_operator(cloud):
            await until(lambda: list(cloud.world.states().values()) == ["Ready"] * 2)
            alpha.vanish(made.members["group-0"].id)
            await until(lambda: cloud.world.state("group-0") == "Gone")
            await until(lambda: len(alpha.running) == 2)  # replaced, because two are to be kept ready
            await until(lambda: sorted(cloud.world.states().values()) == ["Gone", "Ready", "Ready"])
            before = cloud.world.record("group-1")["status"]["providerID"]
            alpha.recreate("group", "group-1")
            await until(lambda: cloud.world.record("group-1")["status"]["providerID"] != before)
            made.grow(["by-hand"])
            await until(lambda: cloud.world.state("by-hand") == "Ready")
            assert cloud.world.record("by-hand")["spec"]["purpose"] == "Group"
            # Three of two to be kept: one is tainted, and goes after the delay.
            await until(lambda: len(tainted(cloud)) == 1)


async def test_a_group_without_stock_backs_off_and_the_next_group_is_tried():
    dear = Sku(instance_type="a3.8x-z-b", gpus=8, hourly_price="25.00", zone="z-b", boot=60, driver=10)
    async with clouds(market("alpha", SKU, dear)) as cloud:
        alpha = cloud.markets["alpha"]
        group(cloud)
        group(cloud, name="other", of="a3.8x-z-b")
        alpha.restock("a3.8x", 0)
        provision(cloud, groups=("group", "other"), minGPUUtilizationPercent=80)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("train", 8, runs=None)
            await until(lambda: cloud.world.phase("train") == "Running", 300)
            assert cloud.world.record(cloud.world.where("train"))["spec"]["provisionerRef"]["group"] == "other"
            assert alpha.groups["group"].target == 0
            assert condition(cloud, "GrowthBlocked") == ("True", "CoolingDown")
            told = [
                each for each in cloud.store.list(EVENT_KIND) if each["involvedObject"]["kind"] == "NodeProvisioner"
            ]
            (blocked,) = [each for each in told if each["reason"] == "CoolingDown"]
            assert (blocked["type"], "no a3.8x left" in blocked["message"]) == ("Warning", True)
            assert [each["type"] for each in told if each["reason"] == "GroupsNotListed"] == ["Normal"]


async def test_no_more_than_max_nodes_and_the_pod_is_told_why():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud, 1)
        provision(cloud, minGPUUtilizationPercent=80, maxNodes=1)
        async with cloud_operator(cloud):
            await asyncio.sleep(100)
            for name in ("one", "two"):
                cloud.world.pod(name, 8, runs=None)
            await until(lambda: "Running" in (cloud.world.phase("one"), cloud.world.phase("two")))
            await asyncio.sleep(300)
            assert len(cloud.markets["alpha"].running) == 1
            waiting = "one" if cloud.world.phase("two") == "Running" else "two"
            said = cloud.world.store.get(POD_KIND, "default", waiting)["status"]["conditions"]
            (why,) = [each["message"] for each in said if each["type"] == "forebay.dev/Capacity"]
            assert "NodeProvisioner pool has reached its maxNodes of 1" in why


async def test_a_gang_gets_all_its_nodes_or_none():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minGPUUtilizationPercent=80, maxNodes=2)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            for index in range(3):
                gang = {"annotations": {"forebay.dev/pod-group": "train"}}
                cloud.world.pod(f"train-{index}", 8, runs=None, metadata=gang)
            await asyncio.sleep(300)
            assert not cloud.markets["alpha"].running
            said = cloud.world.store.get(POD_KIND, "default", "train-0")["status"]["conditions"]
            (why,) = [each["message"] for each in said if each["type"] == "forebay.dev/Capacity"]
            assert "NodeProvisioner pool has no room for the whole gang" in why
            change(cloud, maxNodes=3)
            await until(lambda: all(cloud.world.phase(f"train-{index}") == "Running" for index in range(3)))
            assert len(cloud.markets["alpha"].running) == 3


async def test_deleting_a_nodeprovisioner_leaves_the_group_as_it_is_and_says_so():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud, 2)
        provision(cloud, minGPUUtilizationPercent=80)
        async with cloud_operator(cloud):
            await until(lambda: len(tainted(cloud)) == 2)
            remove(cloud)
            await until(lambda: set(cloud.world.states().values()) == {"Gone"})
            await until(lambda: not tainted(cloud))
            await asyncio.sleep(3 * 3600)
            assert len(cloud.markets["alpha"].running) == 2
            assert len(cloud.store.list(NODE_KIND)) == 2
            assert cloud.world.records() == {}
            (said,) = cloud.world.told("group-0", "LeftInGroup")[:1]
            assert "stays as it is" in said


async def test_two_nodeprovisioners_do_not_size_the_same_group():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud, 2)
        provision(cloud, minUnutilizedGPUNodes=2)
        async with cloud_operator(cloud):
            await until(lambda: sizes(cloud) == (2, 2, 0, 0))
            provision(cloud, "second", minUnutilizedGPUNodes=5)
            await until(lambda: condition(cloud, "Ready", "second") == ("False", "ClaimedTwice"))
            await asyncio.sleep(300)
            assert len(cloud.markets["alpha"].running) == 2


async def test_a_larger_minimum_grows_the_group_and_the_arithmetic_is_in_its_status():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minUnutilizedGPUNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: sizes(cloud) == (1, 1, 0, 0))
            change(cloud, minUnutilizedGPUNodes=3)
            await until(lambda: sizes(cloud) == (3, 3, 0, 0))
            await until(lambda: list(cloud.world.states().values()) == ["Ready"] * 3)
            assert status(cloud)["arithmetic"] == [
                "0 of 3 nodes are in use (0 %).",
                "At least 3 nodes: 0 in use, 3 with minUnutilizedGPUNodes 3.",
                "Target 3: no change (AtTarget).",
            ]


async def test_a_group_that_cannot_be_found_is_said_so_and_nothing_is_done():
    async with clouds(market("alpha", SKU)) as cloud:
        provision(cloud, minUnutilizedGPUNodes=1)
        async with cloud_operator(cloud):
            await until(lambda: (condition(cloud, "Ready") or ("",))[0] == "False")
            await asyncio.sleep(120)
            assert "no such instance group" in status(cloud)["conditions"][0]["message"]
            assert cloud.world.records() == {}
