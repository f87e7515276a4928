"""Machines that environment variables name are published as a class and a pool, which everybody can look at."""

import asyncio
import json
from datetime import timedelta

import msgspec
import pytest

from forebay.embedded.api import kinds
from forebay.reporting.what_if import dry_run
from forebay.simulate.power import Powered
from tests.engine.power_world import POWER, lab, operator
from tests.engine.test_refused_writes import Refusing
from tests.engine.test_survey import bought, seen

BOX = Powered(name="box", gpus=2, boot=20, hourly_price="0.50")
DEAR = Powered(name="dear", gpus=8, boot=20, hourly_price="25")
CLASS, POOL = "environment-kube-system", "environment"


def kind_of(world, name):
    return world.store.kinds.named("forebay.dev/v1alpha1", name)


def published(world):
    """Names of all classes and of all pools."""
    return tuple(
        sorted(each["metadata"]["name"] for each in world.store.list(kind_of(world, kind)))
        for kind in ("GPUNodeClass", "GPUNodePool")
    )


def the_class(world, name=CLASS):
    return world.store.get(kind_of(world, "GPUNodeClass"), None, name)


def the_pool(world):
    return world.store.get(kind_of(world, "GPUNodePool"), "kube-system", POOL)


async def test_the_machines_are_shown_and_what_may_be_secret_is_not():
    async with lab(BOX, DEAR) as world:
        secret = {
            "scale_up_endpoint": "http://admin:hunter2@power/up?key=s3cr3t-1",
            "scale_down_endpoint": "http://power/down/s3cr3t-2",
            "status_endpoint": "http://power/status#s3cr3t-3",
        }
        machines = tuple(msgspec.structs.replace(each, **secret, gpu_type="L40S") for each in world.configured())
        async with operator(world, machines=machines, idle_delay=timedelta(seconds=90)):
            await asyncio.sleep(5)
            entry = the_class(world)["spec"]["providers"][0]
            assert (entry["name"], entry["endpointsFrom"]) == ("webhook", "Environment")
            shown = {
                each["name"]: (each["gpuCount"], each["gpuType"], each["hourlyPrice"]) for each in entry["machines"]
            }
            assert shown == {"box": (2, "L40S", "0.50"), "dear": (8, "L40S", "25")}
            spec = the_pool(world)["spec"]
            assert spec["nodeClassRef"]["name"] == CLASS
            assert (spec["disruption"]["consolidateAfter"], spec["maxHourlyPrice"]) == ("90s", "25")
            everything = json.dumps([the_class(world), the_pool(world), *world.store.list(kinds.EVENT_KIND)])
            assert not [word for word in ("hunter2", "s3cr3t", "power/") if word in everything]
            ready = [each for each in the_class(world)["status"]["conditions"] if each["type"] == "Ready"]
            assert ready[0]["reason"] == "CheckFailed", "nobody answers there, and the sentence does not say where"


async def test_what_somebody_changes_or_deletes_there_is_set_back_and_a_running_machine_does_not_notice():
    async with lab(BOX) as world, operator(world) as replica:
        world.pod("train", 2, runs="900s")
        await asyncio.sleep(60)
        assert world.where("train") == "box"

        def cheaper(node_class):
            node_class["spec"]["limits"] = {"maxNodes": 1}
            node_class["spec"]["providers"][0]["machines"][0]["gpuCount"] = 4

        def never(pool):
            pool["spec"]["disruption"]["consolidationPolicy"] = "Never"
            pool["metadata"]["labels"] = {"theirs": "1", "forebay.dev/environment": "kube-system"}

        world.change(kind_of(world, "GPUNodeClass"), CLASS, cheaper)
        world.change(kind_of(world, "GPUNodePool"), POOL, never, "kube-system")
        await asyncio.sleep(5)
        assert "limits" not in the_class(world)["spec"]
        assert the_class(world)["spec"]["providers"][0]["machines"][0]["gpuCount"] == 2
        assert the_pool(world)["spec"]["disruption"]["consolidationPolicy"] == "WhenIdle"
        assert the_pool(world)["metadata"]["labels"]["theirs"] == "1"

        world.store.delete(kind_of(world, "GPUNodePool"), "kube-system", POOL)
        world.store.delete(kind_of(world, "GPUNodeClass"), None, CLASS)
        await asyncio.sleep(5)
        assert published(world) == ([CLASS], [POOL])
        assert world.state("box") == "Ready"
        before = replica.counts.decisions["Publish"]
        await asyncio.sleep(3600)
        assert replica.counts.decisions["Publish"] == before
        assert world.phase("train") == "Succeeded"
        assert world.state("box") == "Gone"


async def test_what_is_published_follows_the_variables_of_the_next_replica():
    async with lab(BOX, DEAR) as world:
        async with operator(world):
            await asyncio.sleep(5)
        assert published(world) == ([CLASS], [POOL]), "a replica that ends leaves it to the next"
        async with operator(world, "b", machines=world.configured()[:1]):
            await asyncio.sleep(5)
            assert [each["name"] for each in the_class(world)["spec"]["providers"][0]["machines"]] == ["box"]
        async with operator(world, "c", machines=()):
            await asyncio.sleep(5)
            assert published(world) == ([], [])


async def test_more_machines_than_a_class_may_list_are_published_as_several_and_all_of_them_serve():
    async with lab(DEAR) as world:
        [dear] = world.configured()
        many = tuple(msgspec.structs.replace(dear, name=f"off-{number:03}", gpu_count=1) for number in range(256))
        async with operator(world, machines=(*many, dear)):
            await asyncio.sleep(5)
            assert published(world) == ([CLASS, f"{CLASS}-2"], [POOL, f"{POOL}-2"])
            second = the_class(world, f"{CLASS}-2")["spec"]["providers"][0]
            assert [each["name"] for each in second["machines"]] == ["dear"]
            world.pod("train", 8, runs="60s")
            await asyncio.sleep(60)
            assert world.where("train") == "dear"
        async with operator(world, "b", machines=(*many[:255], dear)):
            await asyncio.sleep(5)
            assert published(world) == ([CLASS], [POOL])
            assert world.state("dear") == "Ready", "it has moved to the first class"
            await asyncio.sleep(900)
            assert world.state("dear") == "Gone"


async def test_a_class_of_somebody_elses_keeps_its_name_and_its_spec():
    async with lab(BOX) as world:
        machine = {"name": "m", "gpuCount": 1, "scaleUpEndpoint": f"{POWER}/a", "scaleDownEndpoint": f"{POWER}/b"}
        spec = {"providers": [{"name": "webhook", "machines": [machine]}]}
        world.store.create(kind_of(world, "GPUNodeClass"), {"metadata": {"name": CLASS}, "spec": spec})
        for name in ("a", "b"):
            async with operator(world, name):
                await asyncio.sleep(5)
                assert published(world) == ([CLASS, f"{CLASS}-2"], [POOL])
        assert the_class(world)["spec"]["providers"][0]["machines"][0]["name"] == "m"
        async with operator(world, "c", machines=()):
            await asyncio.sleep(5)
            assert published(world) == ([CLASS], [])


async def test_a_copy_that_a_user_makes_is_the_users():
    async with lab(BOX) as world, operator(world):
        await asyncio.sleep(5)
        copy = the_class(world)
        metadata = {"name": "mine", "labels": copy["metadata"]["labels"]}
        world.store.create(kind_of(world, "GPUNodeClass"), {"metadata": metadata, "spec": copy["spec"]})
        await asyncio.sleep(5)
        conditions = {each["type"]: each for each in the_class(world, "mine")["status"]["conditions"]}
        assert conditions["Ready"]["status"] == "False"
        assert (
            "endpointsFrom" in conditions["WebhookReady"]["message"]
            or "claimed" in conditions["WebhookReady"]["message"]
        )
        world.pod("train", 1, runs="30s")
        await asyncio.sleep(120)
        assert world.phase("train") == "Succeeded"


async def test_what_the_operator_of_another_namespace_publishes_is_its_own_affair():
    async with lab(BOX) as world:
        async with operator(world):
            await asyncio.sleep(5)
        copy = the_class(world)
        other = {"name": "environment-lab", "labels": {**copy["metadata"]["labels"], "forebay.dev/environment": "lab"}}
        world.store.create(kind_of(world, "GPUNodeClass"), {"metadata": other, "spec": copy["spec"]})
        async with operator(world, "b"):
            await asyncio.sleep(30)
            assert "status" not in the_class(world, "environment-lab")
            snapshot = await seen(world)
            assert [key.node_class for key in snapshot.sources] == [CLASS]


@pytest.mark.parametrize("status", [403, 422, 500])
async def test_machines_are_used_even_where_they_cannot_be_published(status):
    rule = Refusing("/gpunode", status)
    async with lab(BOX) as world, operator(world, wrap=rule):
        world.pod("train", 1, runs="30s")
        await asyncio.sleep(120)
        assert world.phase("train") == "Succeeded"
        await asyncio.sleep(60)
        assert world.state("box") == "Gone"
        assert published(world) == ([], [])
        assert sum(rule.refused.values()) <= 12, "tried again now and then"
        rule.at_work = False
        await asyncio.sleep(120)
        assert published(world) == ([CLASS], [POOL])


async def test_a_plan_is_made_from_what_is_published_without_any_variable():
    async with lab(BOX, DEAR) as world:
        async with operator(world):
            await asyncio.sleep(5)
        world.pod("one", 1)
        await asyncio.sleep(1)
        assert bought(dry_run(await seen(world))) == {"box": ["one"]}
        assert world.power.calls == []


async def test_a_machine_that_moves_from_the_environment_to_a_class_is_powered_off_by_the_class():
    async with lab(BOX) as world:
        async with operator(world):
            world.pod("train", 1, runs="300s")
            await asyncio.sleep(60)
            assert world.where("train") == "box"
        machines = [json.loads(msgspec.json.encode(each)) for each in world.configured()]
        world.store.create(
            kind_of(world, "GPUNodeClass"),
            {"metadata": {"name": "lab"}, "spec": {"providers": [{"name": "webhook", "machines": machines}]}},
        )
        pool = {"nodeClassRef": {"name": "lab"}, "disruption": {"consolidateAfter": "60s"}}
        world.store.create(
            kind_of(world, "GPUNodePool"), {"metadata": {"name": "lab", "namespace": "kube-system"}, "spec": pool}
        )
        async with operator(world, "b", machines=()):
            await asyncio.sleep(200)
            assert world.phase("train") == "Running", "it is not disturbed"
            assert world.state("box") == "Ready"
            await asyncio.sleep(300)
            assert world.phase("train") == "Succeeded"
            assert world.state("box") == "Gone"
            assert world.power.on == frozenset()
