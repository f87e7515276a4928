"""Nodes that are no longer heard of while pods are bound to them."""

import asyncio

from forebay.embedded.api import kinds
from forebay.embedded.api.conditions import with_status_condition
from forebay.model.sources import InstancePhase
from forebay.simulate.power import Powered
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.power_world import lab, operator
from tests.engine.test_markets import CHEAP, until

ONLY = Powered(name="only", gpus=1, boot=10)


def silence(world, name):
    """Its kubelet has died; the machine draws power all the same."""

    def dead(node):
        node["metadata"].setdefault("annotations", {})["embedded.forebay.dev/kubelet"] = "dead"

    world.change(kinds.NODE_KIND, name, dead)
    hear(world, name, "Unknown")


def hear(world, name, ready):
    said = {"type": "Ready", "status": ready, "reason": "Heartbeat", "message": ""}
    status = with_status_condition(world.node(name)["status"], said, world.store.timestamp())
    world.store.update(kinds.NODE_KIND, {**world.node(name), "status": status}, subresource="status")


async def test_a_machine_with_a_dead_kubelet_is_given_up_although_its_pods_never_end():
    async with lab(ONLY) as world, operator(world) as replica:
        world.pod("train", 1, runs=None)
        await asyncio.sleep(30)
        assert world.state("only") == "Ready"
        silence(world, "only")
        await asyncio.sleep(16 * 60)
        assert world.state("only") == "Draining", "the boot timeout is over"
        before = replica.counts.ticks
        await asyncio.sleep(25 * 60)
        assert world.asked("stop") == ["only"]
        assert world.state("only") == "Gone"
        assert replica.counts.ticks - before < 500


async def test_a_node_that_is_silent_for_a_moment_keeps_pods_that_a_budget_protects():
    async with lab(ONLY) as world, operator(world):
        world.pod("train", 1, runs=None, metadata={"labels": {"app": "train"}})
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
        named = {"name": "train", "namespace": "default"}
        world.store.create(kinds.DISRUPTION_BUDGET_KIND, {"metadata": named, "spec": budget})
        await asyncio.sleep(30)
        world.give_back("only")
        await asyncio.sleep(20 * 60)
        assert world.state("only") == "Draining"
        hear(world, "only", "Unknown")
        await asyncio.sleep(20)
        assert world.state("only") == "Draining"
        hear(world, "only", "True")
        await asyncio.sleep(60)
        assert world.phase("train") == "Running"
        assert world.asked("stop") == []


async def test_the_node_of_a_gpuinstance_that_a_person_deletes_goes_with_its_machine():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("train", 4, runs="300s")
            await until(lambda: cloud.world.phase("train") == "Running")
            (name,) = cloud.world.states()
            cloud.world.give_back(name)
            await until(lambda: not cloud.world.records())
            assert cloud.running == frozenset()
            assert cloud.store.list(kinds.NODE_KIND) == [], "nobody else knows whose Node it was"


async def test_machines_that_their_provider_calls_failed_serve_on_while_their_nodes_are_ready():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")
        (alpha,) = cloud.markets.values()
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            for each in ("one", "two"):
                cloud.world.pod(each, 4, runs="1200s")
            await until(lambda: {cloud.world.phase("one"), cloud.world.phase("two")} == {"Running"})
            for rented in alpha.instances.values():
                rented.phase = InstancePhase.FAILED
            await asyncio.sleep(300)
            assert {cloud.world.phase("one"), cloud.world.phase("two")} == {"Running"}, "a status page may be wrong"
            assert set(cloud.world.states().values()) == {"Ready"}
            name = cloud.world.where("one")
            silence(cloud.world, name)
            await until(lambda: cloud.world.state(name) == "Terminating", 60)
            ended = cloud.world.record(name)["status"]["transitions"][-1]
            assert ended["reason"] == "Unhealthy"
            assert "reports that l40s.4x in west at simulated failed" in ended["message"]
