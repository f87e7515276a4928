"""Pools that consolidate WhenUnderutilized: pods move to other nodes, or to one cheaper machine."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

from forebay.embedded.api import kinds
from forebay.simulate.market_goods import Sku
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import until

BIG = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", boot=60, driver=10)
SMALL = Sku(instance_type="l40s.1x", gpus=1, gpu_type="L40S", hourly_price="0.70", boot=60, driver=10)
DISRUPTION = {"consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "60s", "budgets": [{"nodes": 1}]}


def replica_set(cloud, name, replicas=1, gpus=1, **annotations):
    labels = {"app": name}
    container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    notes = {"embedded.forebay.dev/run-time": "10000h", **annotations}
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    cloud.store.create(kinds.REPLICA_SET_KIND, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def scale(cloud, name, replicas):
    cloud.world.change(kinds.REPLICA_SET_KIND, name, lambda each: each["spec"].update(replicas=replicas), "default")


def running(cloud, app):
    """Nodes of the pods of a ReplicaSet that run."""
    pods = [each for each in cloud.store.list(kinds.POD_KIND) if each["metadata"].get("labels", {}).get("app") == app]
    return sorted(pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running")


def told(cloud, name):
    conditions = cloud.world.record(name)["status"]["conditions"]
    found = [each for each in conditions if each["type"] == "Underutilized"]
    return (found[0]["status"], found[0]["message"]) if found else None


def drained(cloud, name):
    return [each for each in cloud.world.record(name)["status"]["transitions"] if each["state"] == "Draining"]


async def two_nodes(cloud):
    """Two nodes with 4 GPUs each: `stays` uses 3 of one, `moves` 1 of the other."""
    await asyncio.sleep(10)
    replica_set(cloud, "stays", gpus=3)
    replica_set(cloud, "fills", gpus=1)
    await until(lambda: running(cloud, "stays") and running(cloud, "fills"))
    replica_set(cloud, "moves", gpus=1)
    await until(lambda: running(cloud, "moves"))
    (first,), (second,) = running(cloud, "stays"), running(cloud, "moves")
    assert first != second
    return first, second


async def test_pods_move_to_the_free_room_of_another_node_and_their_node_goes():
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud):
            first, second = await two_nodes(cloud)
            await asyncio.sleep(300)
            assert len(cloud.running) == 2, "there is no room on the first"
            scale(cloud, "fills", 0)
            await until(lambda: told(cloud, second) is not None, 60)
            assert told(cloud, second) == ("True", f"Its pods fit on {first}, which saves $2.40/h.")
            assert cloud.world.state(second) == "Ready", "consolidateAfter has not passed"
            await until(lambda: running(cloud, "moves") == [first], 200)
            await until(lambda: len(cloud.running) == 1, 120)
            (step,) = drained(cloud, second)
            assert step["reason"] == "Underutilized"
            assert "is under-utilized. Its pods fit on" in step["message"]
            await asyncio.sleep(1200)
            assert running(cloud, "stays") == running(cloud, "moves") == [first]


async def test_a_pod_that_no_scheduler_reports_on_does_not_keep_nodes_as_they_are_for_ever():
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud):
            first, second = await two_nodes(cloud)
            cloud.world.pod("unseen", gpus=8, schedulerName="nobody")
            scale(cloud, "fills", 0)
            await asyncio.sleep(500)
            assert running(cloud, "moves") == [second], "the pod may still be placed anywhere"
            await until(lambda: running(cloud, "moves") == [first], 400)


async def test_pods_move_to_a_cheaper_machine_when_that_is_ready():
    async with clouds(market("alpha", BIG, SMALL)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replica_set(cloud, "serve", replicas=4)
            await until(lambda: len(running(cloud, "serve")) == 4)
            (old,) = set(running(cloud, "serve"))
            assert cloud.world.record(old)["spec"]["offer"]["instanceType"] == "l40s.4x"
            scale(cloud, "serve", 1)
            await until(lambda: len(cloud.running) == 2, 200)
            assert running(cloud, "serve") == [old], "the cheaper machine is Ready first"
            await until(lambda: running(cloud, "serve") and running(cloud, "serve") != [old], 300)
            (new,) = running(cloud, "serve")
            record = cloud.world.record(new)
            assert record["spec"]["offer"]["instanceType"] == "l40s.1x"
            assert record["spec"]["replaces"][0]["name"] == old
            await until(lambda: len(cloud.running) == 1, 120)
            await asyncio.sleep(1800)
            assert running(cloud, "serve") == [new], "once, and no more"
        assert cloud.bill() > 0


@asynccontextmanager
async def serving_on_pairs(replicas):
    """Each replica on a node of its own with 2 GPUs, when a machine with 4 is offered: the cloud, and these nodes."""
    pair = Sku(instance_type="l40s.2x", gpus=2, gpu_type="L40S", hourly_price="2.00", boot=60, driver=10)
    async with clouds(market("alpha", pair, BIG)) as cloud:
        cloud.pool("alpha", disruption={**DISRUPTION, "budgets": [{"nodes": 2}]})
        cloud.markets["alpha"].restock("l40s.4x", 0)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replica_set(cloud, "serve", replicas=replicas, gpus=2)
            await until(lambda: len(running(cloud, "serve")) == replicas)
            before = set(running(cloud, "serve"))
            assert len(before) == replicas
            cloud.markets["alpha"].restock("l40s.4x", 5)
            yield cloud, before


async def test_two_nodes_go_for_one_cheaper_machine():
    async with serving_on_pairs(2) as (cloud, before):
        await until(lambda: len(set(running(cloud, "serve"))) == 1 and len(running(cloud, "serve")) == 2, 1200)
        (new,) = set(running(cloud, "serve"))
        record = cloud.world.record(new)
        assert record["spec"]["offer"]["instanceType"] == "l40s.4x"
        assert {each["name"] for each in record["spec"]["replaces"]} == before
        await until(lambda: len(cloud.running) == 1, 120)


async def test_of_three_nodes_two_go_where_the_cheaper_machine_takes_no_more():
    async with serving_on_pairs(3) as (cloud, before):
        await until(lambda: len(set(running(cloud, "serve"))) == 2 and len(running(cloud, "serve")) == 3, 1200)
        (new,) = set(running(cloud, "serve")) - before
        assert {each["name"] for each in cloud.world.record(new)["spec"]["replaces"]} < before


async def test_a_machine_that_is_hardly_cheaper_is_not_worth_the_move():
    nearly = Sku(instance_type="l40s.1x", gpus=1, gpu_type="L40S", hourly_price="2.20", boot=60, driver=10)
    async with clouds(market("alpha", BIG, nearly)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replica_set(cloud, "serve", replicas=4)
            await until(lambda: len(running(cloud, "serve")) == 4)
            before = running(cloud, "serve")[:1]
            scale(cloud, "serve", 1)
            await asyncio.sleep(1800)
            assert running(cloud, "serve") == before
            assert len(cloud.running) == 1


async def stays(cloud, second):
    await asyncio.sleep(1800)
    assert running(cloud, "moves") == [second]
    assert not drained(cloud, second)
    assert len(cloud.running) == 2


async def test_jobs_bare_pods_and_pods_not_to_be_disrupted_are_not_moved():
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud):
            first, second = await two_nodes(cloud)
            cloud.world.job("train", 1, runs="2000s")
            await until(lambda: any(each.startswith("train") for each in names_on(cloud, second)), 60)
            scale(cloud, "fills", 0)
            await stays(cloud, second)
            await until(lambda: running(cloud, "moves") == [first], 1200)


async def test_each_annotation_that_keeps_a_pod_keeps_its_node():
    notes = (
        {"forebay.dev/do-not-disrupt": "true"},
        {"karpenter.sh/do-not-disrupt": "true"},
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    )
    for note in notes:
        async with clouds(market("alpha", BIG)) as cloud:
            cloud.pool("alpha", disruption=DISRUPTION)
            async with cloud_operator(cloud):
                await asyncio.sleep(10)
                replica_set(cloud, "stays", gpus=3)
                replica_set(cloud, "fills", gpus=1)
                await until(lambda cloud=cloud: running(cloud, "stays") and running(cloud, "fills"))
                replica_set(cloud, "moves", gpus=1, **note)
                await until(lambda cloud=cloud: running(cloud, "moves"))
                (second,) = running(cloud, "moves")
                scale(cloud, "fills", 0)
                await asyncio.sleep(1200)
                assert running(cloud, "moves") == [second]
                assert not drained(cloud, second)
                assert running(cloud, "stays") == [second], "which moves instead"


def keep_available(cloud, app):
    """A PodDisruptionBudget that lets no pod of the ReplicaSet be evicted."""
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
    manifest = {"metadata": {"name": f"keep-{app}", "namespace": "default"}, "spec": budget}
    cloud.store.create(kinds.DISRUPTION_BUDGET_KIND, manifest)


async def test_pods_that_a_pod_disruption_budget_keeps_are_not_moved_before_it_lets_them_go():
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud):
            first, second = await two_nodes(cloud)
            keep_available(cloud, "moves")
            keep_available(cloud, "stays")
            scale(cloud, "fills", 0)
            await stays(cloud, second)
            truth, message = told(cloud, second)
            assert truth == "True"
            assert f"Its pods fit on {first}, which saves $2.40/h. Not now: PodDisruptionBudget default/" in message
            assert f"and default/{names_on(cloud, second)[0]} would have to move" in message
            cloud.store.delete(kinds.DISRUPTION_BUDGET_KIND, "default", "keep-moves")
            await until(lambda: running(cloud, "moves") == [first], 200)


async def test_a_pod_disruption_budget_that_blocks_during_the_drain_keeps_the_node_in_service():
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud, drain_delay=timedelta(seconds=30)):
            _, second = await two_nodes(cloud)
            scale(cloud, "fills", 0)
            await until(lambda: cloud.world.state(second) == "Draining", 300)
            keep_available(cloud, "moves")
            await until(lambda: cloud.world.state(second) == "Ready", 900)
            back = cloud.world.record(second)["status"]["transitions"][-1]
            assert back["reason"] == "BackInUse"
            assert "could not be evicted within 10m" in back["message"]
            assert not cloud.store.get(kinds.NODE_KIND, None, second)["spec"].get("unschedulable")
            await asyncio.sleep(1800)
            assert len(drained(cloud, second)) == 1, "not again within an hour"
            assert running(cloud, "moves") == [second]


async def test_a_disruption_budget_with_a_window_holds():
    closed = [{"nodes": 0, "reasons": ["Underutilized"], "schedule": "0 0 * * *", "duration": "1h"}]
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha", disruption={**DISRUPTION, "budgets": closed})
        async with cloud_operator(cloud):
            first, second = await two_nodes(cloud)
            scale(cloud, "fills", 0)
            await stays(cloud, second)
            await until(lambda: running(cloud, "moves") == [first], 3600)


async def test_pods_that_come_before_the_eviction_keep_the_node():
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud, drain_delay=timedelta(seconds=30)):
            first, second = await two_nodes(cloud)
            scale(cloud, "fills", 0)
            await until(lambda: cloud.world.state(second) == "Draining", 300)
            scale(cloud, "fills", 1)
            await until(lambda: running(cloud, "fills") == [first], 20)
            await until(lambda: cloud.world.state(second) == "Ready", 60)
            back = cloud.world.record(second)["status"]["transitions"][-1]
            assert "its pods have no room on other nodes any more" in back["message"]
            assert running(cloud, "moves") == [second]


async def test_a_machine_paid_by_the_hour_is_not_emptied_before_its_time_ends():
    hourly = Sku(
        instance_type="l40s.4x",
        gpus=4,
        gpu_type="L40S",
        hourly_price="2.40",
        boot=60,
        driver=10,
        minimum=0,
        increment=3600,
    )
    async with clouds(market("alpha", hourly)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        async with cloud_operator(cloud):
            _, second = await two_nodes(cloud)
            scale(cloud, "fills", 0)
            await asyncio.sleep(1200)
            assert running(cloud, "moves") == [second]
            assert told(cloud, second)[0] == "True"
            await until(lambda: len(cloud.running) == 1, 2700)


def names_on(cloud, node):
    pods = cloud.store.list(kinds.POD_KIND)
    return [each["metadata"]["name"] for each in pods if each["spec"].get("nodeName") == node]


async def test_pods_do_not_move_off_nodes_that_the_pool_keeps_whatever_pods_there_are():
    """minNodes would launch another machine for each that goes, and its pods would move on to that, without an end."""
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        pools = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        async with cloud_operator(cloud):
            first, second = await two_nodes(cloud)
            cloud.world.change(pools, "alpha", lambda each: each["spec"].update(minNodes=2), "kube-system")
            scale(cloud, "fills", 0)
            await asyncio.sleep(3600)
            assert len(cloud.markets["alpha"].instances) == 2
            assert (running(cloud, "stays"), running(cloud, "moves")) == ([first], [second])
            cloud.world.change(pools, "alpha", lambda each: each["spec"].update(minNodes=1), "kube-system")
            await until(lambda: running(cloud, "moves") == [first], 300)
            await until(lambda: len(cloud.running) == 1, 120)


async def test_the_last_node_of_min_nodes_is_replaced_by_a_cheaper_one():
    async with clouds(market("alpha", BIG, SMALL)) as cloud:
        cloud.pool("alpha", disruption=DISRUPTION)
        pools = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replica_set(cloud, "serve", replicas=4)
            await until(lambda: len(running(cloud, "serve")) == 4)
            (old,) = set(running(cloud, "serve"))
            cloud.world.change(pools, "alpha", lambda each: each["spec"].update(minNodes=1), "kube-system")
            scale(cloud, "serve", 1)
            await until(lambda: running(cloud, "serve") and running(cloud, "serve") != [old], 600)
            await until(lambda: len(cloud.running) == 1, 120)
            await asyncio.sleep(1800)
            assert len(cloud.markets["alpha"].instances) == 2, "once, and no more"
