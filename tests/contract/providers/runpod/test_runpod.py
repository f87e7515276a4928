"""RunPod: what its catalogue offers, what an order says, what its answers mean, and its logs."""

import asyncio
import shlex
from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.model.containers import ContainerPort, ContainerSpec
from forebay.model.quantities import UsdPerHour
from forebay.model.secret_text import SecretText
from forebay.model.sources import Delivery, FailureScope, InstancePhase
from forebay.net.clock import now
from forebay.providers.base import (
    InstanceGone,
    KeepsRegistryCredentials,
    NoCapacity,
    OutcomeUnknown,
    QuotaReached,
    Rejected,
    RunsContainers,
    Unavailable,
)
from forebay.simulate import market_faults
from forebay.simulate.market_goods import EXIT_CODE, RUN_TIME
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.cloud_harness import CLUSTER, JOIN_SECRET, KEY
from tests.contract.providers.runpod.harness import A40, AMD, CONTAINER, RTX, RunpodHarness
from tests.contract.providers.runpod.server import REGISTRIES
from tests.net.faults import LoseAnswer, When


async def launched(harness, container=CONTAINER, **fields):
    return await harness.provider.launch(await harness.request(container=container, **fields))


async def phase_of(harness, pod):
    return next(each for each in (await harness.provider.instances()).instances if each.id == pod)


async def test_offers_are_the_catalogue_with_prices_per_container():
    async with RunpodHarness().open() as harness:
        offers = {each.instance_type: each for each in await harness.provider.offers()}
        assert set(offers) == {RTX, *(f"{count}x {RTX}" for count in range(2, 9)), A40, f"2x {A40}", AMD}
        four = offers[f"4x {RTX}"]
        assert (four.price, four.gpu_count, four.gpu_memory_gib) == (UsdPerHour("1.76"), 4, 24)
        assert (four.gpu_type, four.gpu_resource, four.delivers) == ("RTX4090", "nvidia.com/gpu", Delivery.CONTAINER)
        assert four.allocatable.amount("pods") == 1
        assert offers[AMD].gpu_resource == "amd.com/gpu"


async def test_what_is_out_of_stock_is_not_offered():
    async with RunpodHarness().open() as harness:
        harness.world.restock(A40, 0)
        assert A40 not in {each.instance_type for each in await harness.provider.offers()}


async def test_with_regions_there_is_an_offer_for_each_data_center_and_the_order_names_it():
    harness = RunpodHarness()
    async with harness.open():
        harness.provider._regions = frozenset({"EU-RO-1"})
        offers = await harness.provider.offers()
        assert {(each.region, each.gpu_type) for each in offers} == {("EU-RO-1", "RTX4090")}
        await launched(harness)
        (order,) = harness.world.orders.values()
        assert order["dataCenterIds"] == ["EU-RO-1"]


async def test_an_order_says_everything_of_the_container_and_who_it_is_for():
    container = ContainerSpec(
        image="example.test/train:2",
        command=("sh", "-c", "echo it's $HOME"),
        args=("a b",),
        env={"MODE": "fast"},
        secret_env={"TOKEN": SecretText(JOIN_SECRET)},
        ports=(ContainerPort(port=8888), ContainerPort(port=22), ContainerPort(port=7860, protocol="HTTP")),
        disk_gib=50,
    )
    async with RunpodHarness().open() as harness:
        await launched(harness, container, uid="uid-7")
        (order,) = harness.world.orders.values()
        assert order["name"] == f"gpu-uid-7.runpod.forebay.{CLUSTER}.uid-7"
        assert order["gpu"] == {"id": RTX, "count": 4}
        assert shlex.split(order["args"]) == ["sh", "-c", "echo it's $HOME", "a b"]
        assert order["env"] == {
            "MODE": "fast",
            "TOKEN": JOIN_SECRET,
            "FOREBAY_CLUSTER": CLUSTER,
            "FOREBAY_INSTANCE": "uid-7",
        }
        assert order["ports"] == ["8888/http", "22/tcp", "7860/http"]
        assert (order["cloud"], order["disk"]) == ("SECURE", 54)


async def test_a_container_with_the_image_s_own_entry_point_sends_no_arguments():
    async with RunpodHarness().open() as harness:
        await launched(harness)
        (order,) = harness.world.orders.values()
        assert "args" not in order


@pytest.mark.parametrize(
    "change",
    [{"container": None}, {"container": replace(CONTAINER, ports=(ContainerPort(port=53, protocol="UDP"),))}],
)
async def test_what_runpod_cannot_run_is_refused_before_anything_is_sent(change):
    async with RunpodHarness().open() as harness:
        request = replace(await harness.request(), **change)
        with pytest.raises(Rejected):
            await harness.provider.launch(request)
        assert harness.launch_calls() == []


class TestABadRequestIsARuleOrNoStock:
    async def test_no_stock_by_the_catalogue_is_no_capacity(self):
        async with RunpodHarness().open() as harness:
            request = await harness.request()
            harness.world.restock(RTX, 0)
            harness.world.script(MarketCall.LAUNCH, harness.world.refusal(400, "request could not be processed"))
            with pytest.raises(NoCapacity) as caught:
                await harness.provider.launch(request)
            assert caught.value.scope is FailureScope.OFFER

    async def test_words_about_stock_are_believed_although_the_catalogue_lags(self):
        async with RunpodHarness().open() as harness:
            request = await harness.request()
            harness.world.script(MarketCall.LAUNCH, harness.world.no_capacity())
            with pytest.raises(NoCapacity):
                await harness.provider.launch(request)

    async def test_with_stock_it_is_a_rule(self):
        async with RunpodHarness().open() as harness:
            request = await harness.request()
            harness.world.script(MarketCall.LAUNCH, harness.world.refusal(400, "env has a forbidden name"))
            with pytest.raises(Rejected, match="breaks a rule") as caught:
                await harness.provider.launch(request)
            assert caught.value.scope is FailureScope.ORDER, "another pod may have the GPU"

    async def test_a_catalogue_that_cannot_be_read_is_said(self):
        async with RunpodHarness().open() as harness:
            request = await harness.request()
            harness.world.script(MarketCall.LAUNCH, harness.world.refusal(400, "no such bay"))
            harness.world.script(MarketCall.OFFERS, *[market_faults.server_error(503)] * 2)
            with pytest.raises(Rejected, match="does not say why"):
                await harness.provider.launch(request)


@pytest.mark.parametrize(
    ("status", "error", "scope"),
    [
        (402, QuotaReached, FailureScope.SOURCE),
        (403, Rejected, FailureScope.OFFER),
        (404, Rejected, FailureScope.ORDER),
        (422, Rejected, FailureScope.ORDER),
    ],
)
async def test_other_refusals(status, error, scope):
    async with RunpodHarness().open() as harness:
        request = await harness.request()
        harness.world.script(MarketCall.LAUNCH, harness.world.refusal(status, "because"))
        with pytest.raises(error) as caught:
            await harness.provider.launch(request)
        assert caught.value.scope is scope
        assert harness.running() == frozenset()


async def test_pods_of_other_users_and_clusters_are_never_listed():
    async with RunpodHarness().open() as harness:
        harness.world.create(name="notebook")
        harness.world.create(name=f"x.runpod.forebay.{CLUSTER}.")
        harness.world.leave_behind(RTX, "another-cluster", "uid-1")
        assert (await harness.provider.instances()).instances == ()


async def test_a_pod_is_ours_by_its_environment_or_by_its_name():
    async with RunpodHarness().open() as harness:
        by_env = harness.world.leave_behind(RTX, CLUSTER, "uid-1")
        by_name = harness.world.create(name=f"x.runpod.forebay.{CLUSTER}.uid-2")
        found = (await harness.provider.instances()).instances
        assert {each.id: each.owner for each in found} == {by_env: "uid-1", by_name: "uid-2"}


async def test_phases_prices_and_ends():
    ends = replace(CONTAINER, env={RUN_TIME: "10s"})
    async with RunpodHarness().open() as harness:
        first = await launched(harness, ends)
        assert (first.phase, first.price) == (InstancePhase.STARTING, UsdPerHour("1.76"))
        await asyncio.sleep(1)
        assert (await phase_of(harness, first.id)).phase is InstancePhase.RUNNING
        await asyncio.sleep(10)
        ended = await phase_of(harness, first.id)
        assert (ended.phase, ended.exit_code, ended.price) == (InstancePhase.FINISHED, None, None)


async def test_a_pod_in_error_and_a_preempted_one():
    async with RunpodHarness().open() as harness:
        broken, lost = await launched(harness), await launched(harness, uid="uid-2")
        harness.world.fail(broken.id)
        harness.world.reclaim(lost.id)
        await asyncio.sleep(1)
        assert (await phase_of(harness, broken.id)).phase is InstancePhase.FAILED
        assert (await phase_of(harness, lost.id)).phase is InstancePhase.FINISHED


async def test_a_listing_that_lags_shows_the_launch_later():
    async with RunpodHarness(list_lag=30.0).open() as harness:
        made = await launched(harness)
        assert (await harness.provider.instances()).instances == ()
        await asyncio.sleep(31)
        assert [each.id for each in (await harness.provider.instances()).instances] == [made.id]


async def test_a_delete_that_does_not_find_a_fresh_pod_proves_nothing():
    async with RunpodHarness(fresh_unknown=20.0).open() as harness:
        made = await launched(harness)
        with pytest.raises(Unavailable):
            await harness.provider.terminate(made.id)
        assert harness.running() == {made.id}
        await asyncio.sleep(21)
        await harness.provider.terminate(made.id)
        await asyncio.sleep(1)
        assert harness.running() == frozenset()
        with pytest.raises(InstanceGone):
            await harness.provider.terminate(made.id)


async def test_after_a_restart_a_pod_that_is_listed_is_not_gone_either():
    async with RunpodHarness(fresh_unknown=20.0).open() as harness:
        made = harness.world.leave_behind(RTX, CLUSTER, "uid-1")
        with pytest.raises(Unavailable):
            await harness.provider.terminate(made)


async def test_the_bill_ends_with_the_pod():
    async with RunpodHarness().open() as harness:
        made = await launched(harness, machine="one")
        await asyncio.sleep(3600)
        await harness.provider.terminate(made.id)
        await asyncio.sleep(3600)
        assert harness.world.bill() == pytest.approx(0.44, abs=0.001)


async def test_a_termination_whose_answer_is_lost_is_asked_again_at_once():
    async with RunpodHarness().open() as harness:
        made = await launched(harness)
        await harness.provider.instances()
        harness.world.script(MarketCall.TERMINATE, market_faults.answer_lost())
        await harness.provider.terminate(made.id)
        assert sum(each.asked is MarketCall.TERMINATE for each in harness.world.calls) == 2
        await asyncio.sleep(1)
        assert harness.running() == frozenset()


async def test_a_pod_that_was_listed_is_not_a_fresh_one():
    async with RunpodHarness().open() as harness:
        first, second = [(await launched(harness)).id for _ in range(2)]
        await asyncio.sleep(1)
        await harness.provider.instances()
        third = (await launched(harness)).id
        for each in (first, second, third):
            harness.world.vanish(each)
        await asyncio.sleep(1)
        for each in (first, second):
            with pytest.raises(InstanceGone):
                await harness.provider.terminate(each)
        with pytest.raises(Unavailable):
            await harness.provider.terminate(third)


async def test_an_unknown_region_is_named_by_the_check():
    async with RunpodHarness().open() as harness:
        harness.provider._regions = frozenset({"MARS-1"})
        check = await harness.provider.check()
        assert not check.ok
        assert "MARS-1" in check.sentence
        assert "EU-RO-1" in check.sentence


async def test_the_check_counts_gpu_types_once_wherever_they_are():
    async with RunpodHarness().open() as harness:
        harness.provider._regions = frozenset({"US-TX-3", "EU-RO-1"})
        assert "offers 3 GPU types." in (await harness.provider.check()).sentence


async def test_the_published_limits_are_kept_by_a_hundred_requests_at_once():
    async with RunpodHarness(enforces_limits=True).open() as harness:
        for _ in range(100):
            await harness.provider.instances()
        assert all(each.status == 200 for each in harness.world.calls)
        assert len(harness.world.calls) == 100


class TestRegistryCredentials:
    async def test_they_are_made_listed_and_deleted(self):
        async with RunpodHarness().open() as harness:
            assert isinstance(harness.provider, KeepsRegistryCredentials)
            made = await harness.provider.create_registry_credential("forebay-uid-1", "robot", SecretText(JOIN_SECRET))
            assert await harness.provider.registry_credentials() == {"forebay-uid-1": [made]}
            running = await launched(harness, replace(CONTAINER, registry_auth=made))
            with pytest.raises(Rejected, match="in use by a pod"):
                await harness.provider.delete_registry_credential(made)
            await harness.provider.terminate(running.id)
            await asyncio.sleep(60)
            await harness.provider.delete_registry_credential(made)
            await harness.provider.delete_registry_credential(made)
            assert harness.world.others[REGISTRIES] == {}

    async def test_a_lost_answer_is_found_again_by_name(self):
        async with RunpodHarness().open() as harness:
            harness.plan = When(harness.is_launch, LoseAnswer())
            with pytest.raises(OutcomeUnknown) as caught:
                await harness.provider.create_registry_credential("forebay-uid-1", "robot", SecretText(JOIN_SECRET))
            assert JOIN_SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"
            assert set(await harness.provider.registry_credentials()) == {"forebay-uid-1"}


class TestLogs:
    async def lines(self, harness, pod, **options):
        return [each.text async for each in harness.provider.logs(pod, **options)]

    async def written(self, harness, *texts):
        made = await launched(harness)
        await asyncio.sleep(1)
        for each in texts:
            harness.world.write(made.id, each)
            await asyncio.sleep(10)
        return made.id

    async def test_what_was_written_comes_in_order_with_its_time(self):
        async with RunpodHarness().open() as harness:
            assert isinstance(harness.provider, RunsContainers)
            pod = await self.written(harness, "one", "two")
            found = [each async for each in harness.provider.logs(pod)]
            assert [each.text for each in found] == ["started", "one", "two"]
            assert found[2].at - found[1].at == timedelta(seconds=10)

    async def test_the_last_lines_and_those_since_a_moment(self):
        async with RunpodHarness().open() as harness:
            pod = await self.written(harness, "one", "two", "three")
            assert await self.lines(harness, pod, tail=2) == ["two", "three"]
            assert await self.lines(harness, pod, tail=0) == []
            since = now() - timedelta(seconds=25)
            assert await self.lines(harness, pod, since=since) == ["two", "three"]
            assert await self.lines(harness, pod, since=since, tail=1) == ["three"]

    async def test_a_followed_log_goes_on_until_the_container_has_ended(self):
        async with RunpodHarness().open() as harness:
            made = await launched(harness, replace(CONTAINER, env={RUN_TIME: "60s"}))
            following = asyncio.ensure_future(self.lines(harness, made.id, follow=True))
            await asyncio.sleep(5)
            harness.world.write(made.id, "later")
            await asyncio.sleep(1)
            assert not following.done()
            assert await following == ["started", "later"]

    async def test_a_log_that_breaks_off_raises_and_never_just_ends(self):
        async with RunpodHarness().open() as harness:
            pod = await self.written(harness, "one")
            harness.world.cut_logs = 1
            with pytest.raises(Unavailable):
                await self.lines(harness, pod, follow=True)

    async def test_a_followed_log_that_is_closed_early_goes_on_where_it_ended(self):
        async with RunpodHarness().open() as harness:
            made = await launched(harness, replace(CONTAINER, env={RUN_TIME: "60s"}))
            await asyncio.sleep(1)
            harness.world.closed_logs = 2
            following = asyncio.ensure_future(self.lines(harness, made.id, follow=True))
            await asyncio.sleep(1)
            harness.world.write(made.id, "meanwhile")
            assert await following == ["started", "meanwhile"]

    async def test_lines_of_the_second_in_which_it_was_closed_are_neither_lost_nor_repeated(self):
        async with RunpodHarness().open() as harness:
            harness.world.coarse_ids = True
            made = await launched(harness, replace(CONTAINER, env={RUN_TIME: "60s"}))
            await asyncio.sleep(1)
            following = asyncio.ensure_future(self.lines(harness, made.id, follow=True))
            await asyncio.sleep(1)
            harness.world.write(made.id, "same")
            await asyncio.sleep(0.01)
            harness.world.close_logs()
            await asyncio.sleep(0.01)
            for text in ("same", "other"):
                harness.world.write(made.id, text)
            assert await following == ["started", "same", "same", "other"]

    async def test_a_line_that_cannot_be_read_is_said_and_hides_no_other(self):
        async with RunpodHarness().open() as harness:
            endless = [b"data: " + b"x" * 65536, *[b"x" * 65536] * 100, b"\n\n"]
            pod = await self.written(harness, "one")
            harness.world.log_garbage = [b"data: {\n\n", *endless]
            assert await self.lines(harness, pod) == [
                "(Forebay cannot read this line of RunPod's log)",
                "(Forebay left out a line of more than 1 MiB)",
                "started",
                "one",
            ]

    async def test_there_is_no_log_of_a_pod_that_is_gone(self):
        async with RunpodHarness().open() as harness:
            with pytest.raises(InstanceGone):
                await self.lines(harness, "unheard-of")

    async def test_the_exit_code_of_a_wrapped_command_is_in_the_log_and_the_container_goes_on(self):
        wrapped = ("/bin/sh", "-c", "script", "forebay", "0" * 32, "Never", "", "0", "train")
        container = replace(CONTAINER, command=wrapped, env={RUN_TIME: "5s", EXIT_CODE: "3"})
        async with RunpodHarness().open() as harness:
            made = await launched(harness, container)
            await asyncio.sleep(10)
            assert (await self.lines(harness, made.id))[-1] == f"forebay-exit {'0' * 32} 3"
            assert (await phase_of(harness, made.id)).phase is InstancePhase.RUNNING


async def test_no_secret_is_in_what_the_provider_returns():
    async with RunpodHarness().open() as harness:
        made = await launched(harness)
        shown = f"{made!r} {await harness.provider.instances()!r}"
        assert KEY not in shown
        assert JOIN_SECRET not in shown
