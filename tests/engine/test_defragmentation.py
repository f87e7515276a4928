"""NodeProvisioners that defragment: pods move together, whole nodes are freed, and only then."""

import asyncio
from datetime import datetime, timedelta

from forebay.demand.reservation import Reservations
from forebay.embedded.api import kinds
from forebay.reconcile.saved_snapshot import load_snapshot, save_snapshot
from forebay.reconcile.unmet_demand import assess_demand, reserve_existing
from forebay.reporting.defragmentation import planned_moves, unmoved_notes
from tests.engine.group_world import change, provision, sizes, tainted
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_instance_groups import SKU, group
from tests.engine.test_markets import until
from tests.engine.test_survey import seen
from tests.engine.test_underutilized import keep_available, replica_set, running, scale


async def half_used_nodes(cloud, count):
    """So many nodes of 8 GPUs, on each of which a pod of its own ReplicaSet uses 4."""
    for index in range(count):
        replica_set(cloud, f"app-{index}", replicas=2, gpus=4)
        await until(lambda index=index: len(running(cloud, f"app-{index}")) == 2)
        assert len(set(running(cloud, f"app-{index}"))) == 1
    for index in range(count):
        scale(cloud, f"app-{index}", 1)
    await until(lambda: all(len(running(cloud, f"app-{index}")) == 1 for index in range(count)))
    return [running(cloud, f"app-{index}")[0] for index in range(count)]


def used(cloud, count):
    return {node for index in range(count) for node in running(cloud, f"app-{index}")}


def moves(cloud):
    """Drains of all members that there have been."""
    steps = (step for each in cloud.records.values() for step in each["status"]["transitions"])
    return sorted((step for step in steps if step["state"] == "Draining"), key=lambda step: step["at"])


async def test_pods_move_together_and_whole_nodes_are_deleted():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minGPUUtilizationPercent=50, scaleDownDelay="5m", defragment=True)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            await half_used_nodes(cloud, 4)
            await until(lambda: sizes(cloud)[0] == 2, 3600)
            assert len(used(cloud, 4)) == 2
            await asyncio.sleep(3600)
            assert sizes(cloud) == (2, 2, 2, 0), "no further move frees a node"
            assert not tainted(cloud)
            first, second = moves(cloud)
            assert first["reason"] == second["reason"] == "Underutilized"
            assert "NodeProvisioner pool is defragmented: default/app-" in first["message"]
            assert datetime.fromisoformat(second["at"]) - datetime.fromisoformat(first["at"]) >= timedelta(minutes=5)


async def test_without_the_field_no_pod_is_moved_and_a_plan_shows_what_could_be():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minGPUUtilizationPercent=50)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            before = await half_used_nodes(cloud, 5)
            await asyncio.sleep(3600)
            assert [running(cloud, f"app-{index}")[0] for index in range(5)] == before
            assert sizes(cloud) == (5, 5, 5, 0)
        snapshot = await seen(cloud.world)
        assert planned_moves(snapshot, reserve_existing(snapshot, assess_demand(snapshot))) == planned_moves(
            load_snapshot(save_snapshot(snapshot)), Reservations()
        )
        first, second = planned_moves(snapshot, Reservations())
        assert len({first.node, second.node, *first.to, *second.to}) == 4, "no node takes two"
        told = f"{first.pods[0]} fits on {first.to[0]}. With defragment: true the pods move, and the node is deleted."
        assert first.sentence == told


async def test_pods_stay_while_a_pod_disruption_budget_keeps_them_or_no_node_would_be_saved():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minGPUUtilizationPercent=50, defragment=True)
        keep_available(cloud, "app-0")
        keep_available(cloud, "app-1")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            before = await half_used_nodes(cloud, 2)
            await asyncio.sleep(1800)
            assert [running(cloud, f"app-{index}")[0] for index in range(2)] == before
            (note,) = unmoved_notes(await seen(cloud.world), ())
            assert note.startswith("NodeProvisioner pool is to be defragmented, and no node can be freed: pool-")
            assert note.count("PodDisruptionBudget default/keep-app-") == 2
            # The freed node would be kept ready, and nothing be won.
            change(cloud, minUnutilizedGPUNodes=1, maxNodes=2)
            cloud.store.delete(kinds.DISRUPTION_BUDGET_KIND, "default", "keep-app-0")
            await asyncio.sleep(1800)
            assert [running(cloud, f"app-{index}")[0] for index in range(2)] == before
            (note,) = unmoved_notes(await seen(cloud.world), ())
            assert note.endswith("no node can be freed: its groups would not need fewer nodes.")
            change(cloud, minUnutilizedGPUNodes=0, maxNodes=2)
            await until(lambda: len(used(cloud, 2)) == 1 and sizes(cloud)[0] == 1, 1200)


async def test_pods_of_jobs_are_not_moved():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minGPUUtilizationPercent=50, defragment=True)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            for index in range(2):
                cloud.world.job(f"train-{index}", 5, runs="3000s")
                await until(lambda index=index: sizes(cloud)[2] == index + 1)
            await asyncio.sleep(2000)
            assert sizes(cloud) == (2, 2, 2, 0)
            assert not moves(cloud)
            (note,) = unmoved_notes(await seen(cloud.world), ())
            assert "must not be moved: of a Job, without a controller, or annotated" in note


async def test_empty_nodes_that_are_kept_ready_are_avoided_while_pods_move():
    async with clouds(market("alpha", SKU)) as cloud:
        group(cloud)
        provision(cloud, minUnutilizedGPUNodes=1, scaleDownDelay="5m", defragment=True)
        async with cloud_operator(cloud):
            await until(lambda: sizes(cloud)[0] == 1)
            await half_used_nodes(cloud, 2)
            await until(lambda: len(used(cloud, 2)) == 1, 1200)
            await until(lambda: sizes(cloud) == (2, 2, 1, 0) and not tainted(cloud), 1200)
            await asyncio.sleep(3600)
            assert sizes(cloud) == (2, 2, 1, 0)
            assert len(moves(cloud)) == 1
