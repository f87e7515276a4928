"""Providers are checked at the start, after a change, and now and then; the class says what was found."""

import asyncio

import msgspec

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.embedded.api import kinds
from forebay.reporting.provider_checks import provider_checks
from forebay.simulate.power import Powered
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.power_world import POWER, lab, operator
from tests.engine.test_markets import CHEAP, until

BOX = Powered(name="box", gpus=1, boot=20)


def class_kind(world):
    return world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")


def create(world, **fields):
    machine = {
        "name": "box",
        "gpuCount": 1,
        "scaleUpEndpoint": f"{POWER}/box/start",
        "scaleDownEndpoint": f"{POWER}/box/stop",
        **fields,
    }
    spec = {"providers": [{"name": "webhook", "machines": [machine]}]}
    world.store.create(class_kind(world), {"metadata": {"name": "lab"}, "spec": spec})


def condition(world, name):
    conditions = world.store.get(class_kind(world), None, "lab")["status"]["conditions"]
    return next((each["status"], each["reason"], each["message"]) for each in conditions if each["type"] == name)


def checks(world):
    classes = [msgspec.convert(each, GPUNodeClass) for each in world.store.list(class_kind(world))]
    return [
        (each.node_class, each.provider, str(each.ready), each.reason, each.passed) for each in provider_checks(classes)
    ]


async def test_a_secret_that_is_missing_is_told_by_the_class_until_it_is_there():
    async with lab(BOX) as world:
        create(world, headersSecretRef={"name": "power-api"})
        assert checks(world) == [("lab", "webhook", "Unknown", "", False)]
        async with operator(world, machines=()):
            await asyncio.sleep(10)
            status, reason, message = condition(world, "WebhookReady")
            assert (status, reason) == ("False", "CheckFailed")
            assert "Secret kube-system/power-api does not exist: create it" in message
            assert condition(world, "ProviderValidation")[:2] == ("False", "CheckFailed")
            assert checks(world) == [("lab", "webhook", "False", "CheckFailed", False)]
            secret = {"metadata": {"name": "power-api", "namespace": "kube-system"}, "data": {"Authorization": "YQ=="}}
            world.store.create(world.store.kinds.named("v1", "Secret"), secret)
            await asyncio.sleep(70)
            assert condition(world, "WebhookReady")[0] == "True"
            assert condition(world, "ProviderValidation")[0] == "True"
            assert checks(world) == [("lab", "webhook", "True", "ProvidersReady", True)]


async def test_a_class_that_is_changed_is_checked_at_once():
    async with lab(BOX) as world:
        create(world, headersSecretRef={"name": "power-api"})
        async with operator(world, machines=()):
            await asyncio.sleep(10)
            assert condition(world, "WebhookReady")[1] == "CheckFailed"

            def without_secret(node_class):
                del node_class["spec"]["providers"][0]["machines"][0]["headersSecretRef"]

            world.change(class_kind(world), "lab", without_secret)
            assert checks(world) == [("lab", "webhook", "Unknown", "", False)], "of another generation"
            await asyncio.sleep(5)
            status, _, message = condition(world, "WebhookReady")
            assert status == "True"
            assert "1 without statusEndpoint could not be checked" in message


async def test_what_breaks_later_is_found_now_and_then_and_the_checks_are_few():
    async with lab(BOX) as world:
        create(world, headersSecretRef={"name": "power-api"})
        secret = {"metadata": {"name": "power-api", "namespace": "kube-system"}, "data": {"Authorization": "YQ=="}}
        world.store.create(world.store.kinds.named("v1", "Secret"), secret)
        async with operator(world, machines=()) as replica:
            await asyncio.sleep(10)
            assert condition(world, "WebhookReady")[0] == "True"
            before = replica.counts.decisions["ReportClass"]
            await asyncio.sleep(3600)
            assert replica.counts.decisions["ReportClass"] == before, "a check that finds the same is not written again"
            assert world.power.calls == [], "no check powers a machine on or off"
        assert world.store.list(kinds.NODE_KIND) == []


async def test_a_key_that_is_refused_at_the_next_listing_is_told_as_that_and_not_as_an_outage():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.pool("alpha")

        def told(kind):
            conditions = cloud.store.get(class_kind(cloud), None, "alpha").get("status", {}).get("conditions", ())
            return next(((each["status"], each["reason"]) for each in conditions if each["type"] == kind), None)

        async with cloud_operator(cloud):
            await until(lambda: told("SimulatedReady") == ("True", "ProvidersReady"))
            cloud.markets["alpha"].refuse_credentials(120)
            await asyncio.sleep(90)
            assert told("SimulatedReady") == told("ProviderValidation") == told("Ready") == ("False", "BadCredentials")
            await until(lambda: told("SimulatedReady") == ("True", "ProvidersReady"))


async def test_pools_that_come_while_nobody_leads_get_one_status_each():
    async with clouds(market("alpha", CHEAP)) as cloud:
        cloud.node_class("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(30)
        kind = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        for index in range(10):
            metadata = {"name": f"pool-{index}", "namespace": "kube-system"}
            cloud.store.create(kind, {"metadata": metadata, "spec": {"nodeClassRef": {"name": "alpha"}}})
        async with cloud_operator(cloud) as replica:
            await asyncio.sleep(60)
            assert replica.counts.decisions["ReportPool"] == 10, "what the class shows holds until it is asked again"
