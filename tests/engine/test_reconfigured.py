"""Machines that are taken out of the configuration, or put into another, while something is done about them."""

import asyncio

import msgspec

from forebay.embedded.api import kinds
from forebay.engine.metrics import OperatorCollector
from forebay.simulate.power import PowerCall, Powered
from forebay.simulate.power_faults import Boot, refuses
from tests.engine.power_world import lab, operator

FIRST = Powered(name="first", gpus=1, boot=60)
SECOND = Powered(name="second", gpus=1, boot=60)


def only_second(world):
    return tuple(machine for machine in world.configured() if machine.name == "second")


async def test_a_machine_that_is_no_longer_configured_is_not_taken_for_gone():
    async with lab(FIRST, SECOND) as world:
        world.power.script_boots("first", Boot(joins=False))
        async with operator(world, machines=world.configured(every={"boot_timeout": "5m"})):
            world.pod("train", 1, runs=None)
            await asyncio.sleep(30)
            assert world.power.on == {"first"}
        async with operator(world, machines=only_second(world)):
            await asyncio.sleep(3600)
            assert world.power.on >= {"first"}, "nobody can switch it off"
            assert world.state("first") == "Launched", "so that its record is not let go"
            said = world.record("first")["status"]
            assert said["reason"] == "ProviderNotConfigured"
            assert "Configure the machine again" in said["message"]
        async with operator(world):
            await asyncio.sleep(600)
            assert world.state("first") == "Gone"
            assert "first" not in world.power.on


async def test_a_machine_that_works_and_is_no_longer_configured_is_left_as_it_is():
    async with lab(FIRST, SECOND) as world:
        async with operator(world):
            world.pod("train", 1, runs="300s")
            await asyncio.sleep(90)
            assert world.where("train") == "first"
        async with operator(world, machines=only_second(world)):
            await asyncio.sleep(3600)
            assert world.phase("train") == "Succeeded"
            assert world.state("first") == "Ready"
            assert not world.is_cordoned("first"), "it cannot be switched off, so that it stays of use"
            world.pod("next", 1, runs="30s")
            await asyncio.sleep(60)
            assert world.phase("next") == "Succeeded"
            assert world.asked("start") == ["first"]
        async with operator(world):
            await asyncio.sleep(300)
            assert world.state("first") == "Gone"
            assert world.power.on == frozenset()


async def test_a_machine_that_has_to_go_and_that_nobody_can_switch_off_counts_as_failing_to():
    async with lab(FIRST, SECOND) as world:
        async with operator(world):
            world.pod("train", 1, runs="300s")
            await asyncio.sleep(90)
        async with operator(world, machines=only_second(world)) as unable:
            await asyncio.sleep(60)
            assert failing(unable) == 0, "it may stay"
            world.give_back("first")
            await asyncio.sleep(60)
            assert failing(unable) == 1
            assert world.state("first") == "Ready"


def failing(replica):
    """What the alert looks at."""
    collector = OperatorCollector(lambda: replica.views, lambda: True, replica.counts)
    (metric,) = [each for each in collector.collect() if each.name == "forebay_terminations_failing"]
    return sum(sample.value for sample in metric.samples)


async def test_pods_do_not_wait_for_a_machine_that_was_taken_away_before_it_was_asked_for():
    async with lab(FIRST, SECOND) as world:
        world.power.script("first", PowerCall.ON, *[refuses(429, headers={"Retry-After": "60"})] * 9)
        async with operator(world):
            world.pod("train", 1, runs="30s")
            await asyncio.sleep(10)
            assert world.state("first") == "Requested"
        async with operator(world, machines=only_second(world)):
            await asyncio.sleep(180)
            assert world.state("first") == "Gone"
            assert world.phase("train") == "Succeeded"
            assert world.asked("start")[-1] == "second"


def create(world, kind, name, spec, **metadata):
    found = world.store.kinds.named("forebay.dev/v1alpha1", kind)
    return world.store.create(found, {"metadata": {"name": name, **metadata}, "spec": spec})


def create_class(world, name, machines):
    create(world, "GPUNodeClass", name, {"providers": [{"name": "webhook", "machines": msgspec.to_builtins(machines)}]})


def create_pool(world):
    spec = {"nodeClassRef": {"name": "owned"}, "disruption": {"consolidateAfter": "30s"}}
    create(world, "GPUNodePool", "gpus", spec, namespace="kube-system")


def delete_pool(world):
    world.store.delete(world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool"), "kube-system", "gpus")


async def test_a_machine_that_moves_from_the_environment_into_a_class_is_powered_off_all_the_same():
    async with lab(FIRST) as world:
        async with operator(world):
            world.pod("train", 1, runs="300s")
            await asyncio.sleep(90)
            assert world.where("train") == "first"
        create_class(world, "owned", world.configured())
        create_pool(world)
        async with operator(world, machines=()):
            await asyncio.sleep(600)
            assert world.phase("train") == "Succeeded"
            assert world.state("first") == "Gone"
            assert world.power.on == frozenset()


async def test_a_machine_that_moves_to_another_class_outlives_its_old_class():
    async with lab(FIRST) as world, operator(world, machines=()):
        create_class(world, "owned", world.configured())
        create_pool(world)
        world.pod("train", 1, runs="600s")
        await asyncio.sleep(90)
        assert world.where("train") == "first"
        create_class(world, "newer", world.configured())
        world.store.delete(world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass"), None, "owned")
        await asyncio.sleep(300)
        assert world.phase("train") == "Running"
        assert world.asked("stop") == []


async def test_a_pool_that_is_replaced_keeps_its_machines_and_their_pods():
    """kubectl replace --force deletes the pool, and creates it again."""
    async with lab(FIRST) as world, operator(world, machines=()):
        create_class(world, "owned", world.configured())
        create_pool(world)
        world.pod("train", 1, runs=None)
        await asyncio.sleep(90)
        delete_pool(world)
        await asyncio.sleep(60)
        assert "Unless it is created again within 5m" in world.record("first")["status"]["message"]
        create_pool(world)
        await asyncio.sleep(3600)
        assert world.phase("train") == "Running"
        assert world.state("first") == "Ready"
        assert "was deleted" not in world.record("first")["status"]["message"]


def deleted_pools(world):
    """What the class tells of machines whose pool was deleted."""
    node_class = world.store.get(world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass"), None, "owned")
    (found,) = [each for each in node_class["status"]["conditions"] if each["type"] == "PoolsDeleted"]
    return f"{found['status']}: {found['message']}"


async def test_machines_of_a_deleted_pool_go_after_a_while_and_come_back_with_it():
    async with lab(FIRST) as world, operator(world, machines=()):
        create_class(world, "owned", world.configured())
        create_pool(world)
        world.pod("train", 1, runs=None, metadata={"labels": {"app": "train"}})
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "train"}}}
        named = {"name": "train", "namespace": "default"}
        world.store.create(kinds.DISRUPTION_BUDGET_KIND, {"metadata": named, "spec": budget})
        await asyncio.sleep(90)
        delete_pool(world)
        await asyncio.sleep(60)
        assert "default/train; drained and powered off from" in deleted_pools(world)
        await asyncio.sleep(340)
        assert world.state("first") == "Draining"
        blocked = "blocked: PodDisruptionBudget default/train lets 0 of its pods be evicted now"
        assert blocked in deleted_pools(world), "the class says what keeps the machine of a deleted pool"
        create_pool(world)
        await asyncio.sleep(60)
        assert world.state("first") == "Ready"
        assert not world.is_cordoned("first")
        assert deleted_pools(world) == "False: No machine of a deleted GPUNodePool is left."
        delete_pool(world)
        world.store.delete(kinds.DISRUPTION_BUDGET_KIND, "default", "train")
        await asyncio.sleep(600)
        assert world.asked("stop") == ["first"]


async def test_a_first_status_that_somebody_has_spoilt_stops_nobody_else():
    async with lab(FIRST, SECOND) as world:
        world.power.power_on_by_hand("first")
        await asyncio.sleep(70)
        kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        spec = {"provider": "webhook", "delivers": "Power"}
        spoilt = {"name": "spoilt", "annotations": {"forebay.dev/first-status": "{"}}
        world.store.create(kind, {"metadata": spoilt, "spec": spec})
        async with operator(world):
            world.pod("train", 1, runs="30s", nodeSelector={"kubernetes.io/hostname": "second"})
            await asyncio.sleep(150)
            assert world.store.get(kinds.POD_KIND, "default", "train")["status"]["phase"] == "Succeeded"


def with_another_state(definition):
    """The CRD of a later release than this operator's."""
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["status"]["properties"]["state"]["enum"].append("Hibernating")


async def test_a_gpuinstance_that_cannot_be_read_stops_nobody_else_and_keeps_its_machine():
    async with lab(FIRST, SECOND) as world:
        world.change(kinds.CRD_KIND, "gpuinstances.forebay.dev", with_another_state)
        kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        made = world.store.create(
            kind, {"metadata": {"name": "first"}, "spec": {"provider": "webhook", "delivers": "Power"}}
        )
        world.store.update(kind, {**made, "status": {"state": "Hibernating"}}, subresource="status")
        world.power.power_on_by_hand("first")
        async with operator(world, status=True):
            await asyncio.sleep(600)
            assert "first" in world.power.on
            world.pod("train", 1, runs="30s", nodeSelector={"kubernetes.io/hostname": "second"})
            await asyncio.sleep(150)
            assert world.phase("train") == "Succeeded", "the others go on"
            assert "cannot read this GPUInstance" in world.told("first", "Unreadable")[-1]
            world.power.lose_power("first")
            world.pod("there", 1, runs="30s", nodeSelector={"kubernetes.io/hostname": "first"})
            await asyncio.sleep(150)
            assert "first" not in world.asked("start"), "its GPUInstance may have powered it on already"
            assert "first" not in world.asked("stop")
            world.store.delete(kind, None, "first")
            await asyncio.sleep(150)
            assert world.phase("there") == "Succeeded"
