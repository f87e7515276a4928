"""Credentials of a class that are replaced, by those of another account or by a new key, while machines are billed."""

import asyncio
import base64

from forebay.embedded.api.kinds import EVENT_KIND, SECRET_KIND
from forebay.simulate import market_faults
from forebay.simulate.market import by_host
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.offload_world import KEY, offload, runpod

OTHER_KEY = "planted-key-of-another-account"


def two_accounts(made):
    """One address of RunPod, which answers each key with the account that it is of. Returns the second account."""
    first, second = made.runpod, made.cloud.markets["second"]
    second.key = OTHER_KEY

    async def answer(request):
        account = second if OTHER_KEY in request.headers.get("Authorization", "") else first
        return await account.answer(request)

    made.cloud.answer = by_host({"runpod": answer})
    return second


def write_key(made, key):
    data = {"key": base64.b64encode(key.encode()).decode()}
    made.world.change(SECRET_KIND, "runpod", lambda secret: secret.update(data=data), "kube-system")


def records(made):
    return {each["status"]["instanceID"]: each["status"] for each in made.cloud.records.values()}


async def test_a_container_in_another_account_is_not_taken_for_gone_and_its_pod_does_not_run_twice():
    async with offload(runpod(name="second")) as made:
        second = two_accounts(made)
        made.pool()
        async with cloud_operator(made.cloud):
            made.job("train", runs="1h", backoff=3)
            await asyncio.sleep(60)
            assert made.runpod.running == {"runpod-1"}
        write_key(made, OTHER_KEY)
        async with cloud_operator(made.cloud):
            await asyncio.sleep(600)
            assert made.runpod.running == {"runpod-1"}
            assert second.running == frozenset(), "the pod has a container"
            assert made.phase("train") == "Running"
            status = records(made)["runpod-1"]
            assert (status["state"], status["reason"]) == ("Running", "ProviderNotConfigured")
            assert "seem to be of another account" in status["message"]
            assert "Put the former credentials back" in status["message"]
            told = [each for each in made.store.list(EVENT_KIND) if each["reason"] == "ProviderNotConfigured"]
            assert {(each["type"], each["involvedObject"]["kind"]) for each in told} >= {("Warning", "GPUInstance")}
            made.delete_job("train")
            await asyncio.sleep(600)
            assert made.runpod.running == {"runpod-1"}
            assert records(made)["runpod-1"]["state"] == "Running", "nobody can end it, and somebody has to know of it"
        write_key(made, KEY)
        async with cloud_operator(made.cloud):
            await asyncio.sleep(120)
            assert made.is_idle
            assert made.pods("train") == []


async def test_a_pod_whose_gpuinstance_is_removed_as_the_message_says_has_had_its_run():
    async with offload(runpod(name="second")) as made:
        second = two_accounts(made)
        made.pool()
        async with cloud_operator(made.cloud):
            made.job("train", runs="1h", backoff=0)
            await asyncio.sleep(60)
        write_key(made, OTHER_KEY)
        async with cloud_operator(made.cloud):
            await asyncio.sleep(100)
            kind = made.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
            (name,) = made.world.states()
            made.world.change(kind, name, lambda each: each["metadata"].update(finalizers=[]))
            made.store.delete(kind, None, name)
            await asyncio.sleep(60)
            assert second.running == frozenset(), "a pod runs once"
            assert made.phase("train") == "Failed"
            assert "removed by hand" in made.the_pod("train")["status"]["message"]
            assert made.ended("train") == "Failed"


async def test_a_new_key_of_the_same_account_is_known_by_what_it_lists():
    async with offload() as made:
        made.pool()
        async with cloud_operator(made.cloud):
            for name in ("first", "second"):
                made.job(name, runs="10m")
            await asyncio.sleep(60)
            assert len(made.runpod.running) == 2
            (account,) = {status["account"] for status in records(made).values()}
        made.runpod.key = "planted-new-key-of-the-same-account"
        write_key(made, made.runpod.key)
        # While nobody looks, one of the two ends.
        made.runpod.end("runpod-2")
        async with cloud_operator(made.cloud):
            await asyncio.sleep(180)
            assert records(made)["runpod-2"]["state"] == "Gone"
            assert records(made)["runpod-1"]["account"] != account
            await asyncio.sleep(900)
            assert {made.ended(name) for name in ("first", "second")} == {"Complete", "Failed"}
            assert made.is_idle


async def test_a_key_that_is_replaced_while_the_operator_runs_is_told_apart_as_well():
    async with offload(runpod(name="second")) as made:
        second = two_accounts(made)
        made.pool()
        async with cloud_operator(made.cloud):
            made.job("train", runs="1h")
            await asyncio.sleep(60)
            # The old key is revoked at the same time, so that the Secret is read again.
            made.runpod.key = "revoked"
            write_key(made, OTHER_KEY)
            await asyncio.sleep(600)
            assert records(made)["runpod-1"]["state"] == "Running"
            assert second.running == frozenset()
            made.runpod.key = KEY
            second.key = "revoked"
            write_key(made, KEY)
            made.delete_job("train")
            await asyncio.sleep(300)
            assert made.is_idle


MACHINE = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", region="west", boot=60, driver=10)


def rent_at(cloud, market):
    """Another address in the class, with other machines behind it."""
    kind = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")
    endpoint = {"endpoint": f"http://{market}"}
    cloud.world.change(kind, "alpha", lambda each: each["spec"]["providers"][0].update(endpoint))


async def test_a_rented_node_in_another_account_serves_on_and_is_terminated_when_the_class_is_set_right():
    async with clouds(market("alpha", MACHINE), market("beta", MACHINE)) as cloud:
        alpha, beta = cloud.markets.values()
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("first", 4, runs="300s")
            await asyncio.sleep(120)
            assert cloud.world.phase("first") == "Running"
            rent_at(cloud, "beta")
            await asyncio.sleep(900)
            assert cloud.world.phase("first") == "Succeeded"
            ((name, state),) = cloud.world.states().items()
            assert state == "Ready", "it is idle, and nobody can terminate it"
            assert "Put the former credentials back" in cloud.world.record(name)["status"]["message"]
            node = cloud.world.record(name)["status"]["nodeName"]
            assert not cloud.world.is_cordoned(node)

            cloud.world.pod("second", 4, runs="60s")
            await asyncio.sleep(120)
            assert cloud.world.where("second") == node, "it is paid for"
            assert beta.running == frozenset()
            rent_at(cloud, "alpha")
            await asyncio.sleep(300)
            assert cloud.running == frozenset()
            assert set(cloud.world.states().values()) <= {"Gone"}
        assert cloud.ledger() == cloud.bill() > 0
        assert alpha.bill() > 0


async def test_what_another_account_answers_to_a_termination_does_not_delay_it():
    async with clouds(market("alpha", MACHINE), market("beta", MACHINE)) as cloud:
        alpha, beta = cloud.markets.values()
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("first", 4, runs="60s")
            await asyncio.sleep(100)
            ((name, state),) = cloud.world.states().items()
            assert state == "Ready"
            rent_at(cloud, "beta")
            await asyncio.sleep(60)
            kind = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
            cloud.store.delete(kind, None, name)
        # A new leader acts before it knows what the provider lists.
        beta.script(MarketCall.LIST, market_faults.slow_call(20))
        async with cloud_operator(cloud, "b"):
            await asyncio.sleep(60)
            assert len(alpha.running) == 1
            rent_at(cloud, "alpha")
            await asyncio.sleep(40)
            assert alpha.running == frozenset()
            await asyncio.sleep(120)
        assert cloud.ledger() == cloud.bill() > 0


async def test_a_machine_that_boots_in_another_account_is_neither_forgotten_nor_launched_again():
    async with clouds(market("alpha", MACHINE), market("beta", MACHINE)) as cloud:
        beta = cloud.markets["beta"]
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("first", 4, runs="300s")
            await asyncio.sleep(20)
            assert list(cloud.world.states().values()) == ["Launched"]
            rent_at(cloud, "beta")
            await asyncio.sleep(1800)
            assert beta.running == frozenset()
            assert "Gone" not in cloud.world.states().values()
            rent_at(cloud, "alpha")
            await asyncio.sleep(600)
            assert cloud.running == frozenset()
        assert cloud.ledger() == cloud.bill() > 0
