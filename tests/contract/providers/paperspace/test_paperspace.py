"""What is special to Paperspace, beyond the contract of all providers."""

import asyncio
import random

import msgspec
import pytest

from forebay.model.secret_text import SecretText
from forebay.model.sources import FailureScope, InstancePhase
from forebay.net.clock import now
from forebay.providers.base import (
    BadCredentials,
    BootKind,
    BootPayload,
    InstanceGone,
    NoCapacity,
    OutcomeUnknown,
    Rejected,
    Unavailable,
)
from forebay.providers.paperspace.price_list import TYPES
from forebay.providers.paperspace.provider import CAPABILITIES
from forebay.simulate import market_faults
from forebay.simulate.power_faults import Boot
from tests.contract.providers.cloud_harness import JOIN_SECRET
from tests.contract.providers.paperspace.harness import PaperspaceHarness, skus
from tests.contract.providers.paperspace.server import SCRIPTS, Paperspace

LAUNCH_TAKES = (CAPABILITIES.call_timeout + CAPABILITIES.settle_time).total_seconds()
JOIN_TAKES = (CAPABILITIES.launch_deadline + CAPABILITIES.join_deadline).total_seconds()


def harness(**options):
    made = PaperspaceHarness()
    made.world = Paperspace(options.pop("skus", skus()), key=made.world.key, **options)
    return made


def scripts(world):
    return [each["name"] for each in world.others[SCRIPTS].values()]


async def test_offers_are_what_is_available_now_at_dated_list_prices():
    lone = harness()
    lone.world.restock("A4000x4", 0)
    async with lone.open():
        offers = await lone.provider.offers()
    assert {(each.instance_type, each.region) for each in offers} == {
        (name, region) for name in ("A4000", "A100-80Gx8") for region in ("ny2", "ams1")
    }
    large = next(each for each in offers if each.gpu_count == 8)
    assert (large.price.exact(), str(large.price_as_of), large.gpu_type) == ("25.44", "2024-09-25", "A100-80GB")


def test_the_price_list_names_each_type_once_with_models_that_pods_can_ask_for():
    from forebay.model.gpu_models import gpu_model

    assert len({each.name for each in TYPES}) == len(TYPES)
    for each in TYPES:
        model = gpu_model(each.gpu, each.gpu_memory_gib)
        assert model is not None
        assert each.gpu_memory_gib in model.memory_gib


async def test_a_refused_key_is_tried_once_and_not_for_every_type():
    lone = harness()
    lone.world.key = "another"
    async with lone.open():
        with pytest.raises(BadCredentials):
            await lone.provider.offers()
    assert len(lone.world.calls) == 1


async def test_a_failed_answer_about_one_type_is_asked_for_again():
    lone = harness()
    async with lone.open():
        whole = await lone.provider.offers()
        rng = random.Random(1)
        faults = [market_faults.server_error(503) if rng.random() < 0.2 else None for _ in range(60)]
        lone.world.script("availability", *faults)
        assert await lone.provider.offers() == whole


async def test_a_type_of_which_nothing_can_be_learned_makes_the_offers_an_error():
    lone = harness()
    lone.world.script("availability", *[market_faults.server_error(500)] * 400)
    async with lone.open():
        with pytest.raises(Unavailable):
            await lone.provider.offers()


async def test_a_launch_makes_its_script_first_and_states_what_costs_or_shuts_down():
    lone = harness()
    sent = []
    on_create = lone.world.on_create
    lone.world.on_create = lambda call: (sent.append(call.body), on_create(call))[1]
    async with lone.open():
        launched = await lone.provider.launch(await lone.request("uid-7"))
    (order,) = sent
    (rented,) = lone.world.instances.values()
    assert launched.owner == "uid-7"
    assert launched.created == rented.line.created
    assert rented.order.boot.startswith("#!/bin/sh")
    assert order["name"].endswith("-uid-7")
    assert order["publicIpType"] == "dynamic"
    assert order["startOnCreate"] is True
    wanted_off = ("emailPassword", "autoShutdownEnabled", "autoSnapshotEnabled", "takeInitialSnapshot")
    assert [order[name] for name in wanted_off] == [False] * 4
    assert (order["templateId"], order["diskSize"]) == ("t-ubuntu", 100)


async def test_a_listing_has_all_pages_and_only_machines_of_this_cluster():
    lone = harness(page_size=2)
    async with lone.open():
        mine = {(await lone.provider.launch(await lone.request(f"uid-{number}"))).id for number in range(5)}
        lone.world.leave_behind("A4000", "forebay-000000000000-uid-9")
        lone.world.leave_behind("A4000", "workstation")
        found = (await lone.provider.instances()).instances
        assert {each.id for each in found} == mine
        assert {each.owner for each in found} == {f"uid-{number}" for number in range(5)}
        lone.world.script("list_machines", None, *[market_faults.server_error(503)] * 2)
        with pytest.raises(Unavailable):
            await lone.provider.instances()


async def test_no_script_outlives_its_machine():
    lone = harness()
    async with lone.open():
        launched = await lone.provider.launch(await lone.request())
        await lone.provider.instances()
        assert len(scripts(lone.world)) == 1
        await lone.provider.terminate(launched.id)
        lone.world.script("delete_script", market_faults.server_error(500))
        await lone.provider.instances()
        assert len(scripts(lone.world)) == 1, "its deletion failed"
        await lone.provider.instances()
    assert scripts(lone.world) == []


async def test_a_script_that_is_made_during_a_listing_does_not_outlive_its_machine():
    lone = harness()
    async with lone.open():
        first = await lone.provider.launch(await lone.request())
        await lone.provider.terminate(first.id)
        lone.world.script("delete_script", market_faults.slow_call(0.5))
        listing = asyncio.create_task(lone.provider.instances())
        await asyncio.sleep(0.2)
        second = await lone.provider.launch(await lone.request("uid-2"))
        await listing
        assert len(scripts(lone.world)) == 1, "that of the first machine is gone"
        await lone.provider.terminate(second.id)
        await lone.provider.instances()
    assert scripts(lone.world) == []


async def test_the_script_of_a_machine_that_vanished_or_that_an_earlier_process_ended_is_deleted():
    lone = harness()
    async with lone.open():
        launched = await lone.provider.launch(await lone.request())
        lone.world.vanish(launched.id)
        await lone.provider.instances()
        assert scripts(lone.world), "the listing may lag"
        await asyncio.sleep(LAUNCH_TAKES + 1)
        await lone.provider.instances()
    assert scripts(lone.world) == []


async def test_a_script_is_deleted_once_its_machine_has_had_the_time_to_join():
    lone = harness()
    async with lone.open():
        await lone.provider.launch(await lone.request())
        await asyncio.sleep(JOIN_TAKES - 1)
        await lone.provider.instances()
        assert scripts(lone.world)
        await asyncio.sleep(1)
        await lone.provider.instances()
        assert scripts(lone.world) == []
        listed = len(lone.world.calls)
        await lone.provider.instances()
        assert [each.asked for each in lone.world.calls[listed:]] == ["list"], "there are no scripts to look for"


async def test_a_refused_launch_takes_its_script_back():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        lone.world.script("create", lone.world.refusal(403, "H100 needs approval"))
        with pytest.raises(Rejected, match="approve") as caught:
            await lone.provider.launch(request)
        assert caught.value.scope is FailureScope.OFFER
    assert scripts(lone.world) == []


async def test_an_unanswered_launch_keeps_its_script_for_the_machine():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        lone.world.script("create", market_faults.answer_lost())
        with pytest.raises(OutcomeUnknown):
            await lone.provider.launch(request)
        await asyncio.sleep(LAUNCH_TAKES + 1)
        (found,) = (await lone.provider.instances()).instances
        assert found.owner == "uid-1"
        assert len(scripts(lone.world)) == 1


async def test_each_script_of_a_launch_that_was_repeated_is_swept_at_its_time():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        lone.world.script("create", *[market_faults.request_lost()] * 2)
        for pause in (LAUNCH_TAKES / 2, LAUNCH_TAKES / 2 + 1):
            with pytest.raises(OutcomeUnknown):
                await lone.provider.launch(request)
            await asyncio.sleep(pause)
        await lone.provider.instances()
        assert len(scripts(lone.world)) == 1, "the second launch may still be on its way"
        await asyncio.sleep(LAUNCH_TAKES / 2)
        await lone.provider.instances()
    assert scripts(lone.world) == []


async def test_scripts_without_a_machine_are_swept_and_those_of_others_are_not():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        lone.world.script("add_script", market_faults.answer_lost())
        with pytest.raises(Unavailable):
            await lone.provider.launch(request)
        assert len(scripts(lone.world)) == 1
        lone.world.others[SCRIPTS]["x"] = {"id": "x", "name": "dotfiles", "dtCreated": now().isoformat()}
        await lone.provider.instances()
        assert len(scripts(lone.world)) == 2, "the launch may still be on its way"
        await asyncio.sleep(LAUNCH_TAKES + 1)
        await lone.provider.instances()
    assert scripts(lone.world) == ["dotfiles"]


@pytest.mark.parametrize("odd", [None, "", "2026-01-02T03:04:05"], ids=["none", "empty", "no zone"])
async def test_a_script_that_does_not_say_when_it_was_made_is_kept_for_the_time_of_a_launch(odd):
    lone = harness()
    async with lone.open():
        lone.world.script("add_script", market_faults.answer_lost())
        with pytest.raises(Unavailable):
            await lone.provider.launch(await lone.request())
        (script,) = lone.world.others[SCRIPTS].values()
        script["dtCreated"] = odd
        for _ in range(2):
            await lone.provider.instances()
            assert len(scripts(lone.world)) == 1, "the launch may still be on its way"
            await asyncio.sleep(LAUNCH_TAKES / 2 + 1)
        await lone.provider.instances()
        # It is the server that was made to say what its contract does not allow.
        lone.world.violations.clear()
    assert scripts(lone.world) == []


async def test_a_refusal_is_a_capacity_error_where_the_type_is_not_available_any_more():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        lone.world.restock("A4000x4", 0)
        with pytest.raises(NoCapacity, match="A4000x4 is not available there now"):
            await lone.provider.launch(request)
        lone.world.restock("A4000x4", 1)
        lone.world.script("create", lone.world.quota_reached())
        with pytest.raises(Rejected):
            await lone.provider.launch(request)
    assert scripts(lone.world) == []


async def test_a_machine_that_could_not_be_made_has_failed_with_the_reason_of_its_event():
    lone = harness(skus=skus(boot=60))
    lone.world.script_boots(Boot(joins=False, loses_power_after=10))
    async with lone.open():
        await lone.provider.launch(await lone.request())
        (starting,) = (await lone.provider.instances()).instances
        assert starting.phase is InstancePhase.STARTING
        await asyncio.sleep(11)
        (failed,) = (await lone.provider.instances()).instances
        assert (failed.phase, failed.message) == (InstancePhase.FAILED, "Paperspace: the machine has failed")


async def test_a_machine_that_was_stopped_or_deleted_is_told_with_the_time():
    lone = harness(shows_deleted=True, skus=skus(shutdown=7))
    async with lone.open():
        launched = await lone.provider.launch(await lone.request())
        await asyncio.sleep(1)
        assert [each.phase for each in (await lone.provider.instances()).instances] == [InstancePhase.RUNNING]
        lone.world.reclaim(launched.id)
        await asyncio.sleep(1)
        assert [each.phase for each in (await lone.provider.instances()).instances] == [InstancePhase.STOPPED]
        await lone.provider.terminate(launched.id)
        await asyncio.sleep(8)
        found = await lone.provider.instances()
        assert found.instances == ()
        assert found.ended == {launched.id: lone.world.instances[launched.id].gone_at}
        with pytest.raises(InstanceGone):
            await lone.provider.terminate(launched.id)


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (BootKind.TALOS, "version: v1alpha1", "no Talos"),
        (BootKind.CLOUD_INIT, "#cloud-config\n", "begin with #!/bin/sh"),
    ],
)
async def test_what_it_cannot_run_is_refused_before_anything_is_made(kind, text, why):
    lone = harness()
    async with lone.open():
        request = await lone.request()
        boot = BootPayload(kind=kind, text=SecretText(text))
        with pytest.raises(Rejected, match=why):
            await lone.provider.launch(msgspec.structs.replace(request, boot=boot))
    assert scripts(lone.world) == []


async def test_an_image_is_a_template_by_name_or_id():
    lone = harness()
    async with lone.open():
        request = msgspec.structs.replace(await lone.request(), image="ML-in-a-Box 22.04")
        assert (await lone.provider.launch(request)).id in lone.running()
        with pytest.raises(Rejected, match="no OS template t-none"):
            await lone.provider.launch(msgspec.structs.replace(request, image="t-none"))


async def test_a_check_names_a_region_that_does_not_exist_and_says_that_prices_are_old():
    lone = harness()
    async with lone.open():
        assert (await lone.provider.check()).sentence == (
            "Paperspace accepts the API key; machines boot ML-in-a-Box 22.04. "
            "Its API has no prices: those of the price list of 2024-09-25 are used."
        )
        lone.provider._regions = ("ny2", "mars1")
        check = await lone.provider.check()
    assert check.sentence.startswith("Paperspace has no region mars1. Correct regions")


async def test_requests_keep_to_the_limit_that_is_assumed():
    lone = harness(enforces_limits=True)
    async with lone.open():
        for _ in range(4):
            await lone.provider.offers()
    assert {each.status for each in lone.world.calls} == {200}


@pytest.mark.specs
async def test_all_that_is_said_is_valid_by_the_published_spec():
    lone = harness()
    assert lone.world.published is not None
    async with lone.open():
        launched = await lone.provider.launch(await lone.request())
        await lone.provider.instances()
        lone.world.script("create", lone.world.refusal(409, "no"))
        with pytest.raises(Rejected):
            await lone.provider.launch(await lone.request("uid-2"))
        await lone.provider.terminate(launched.id)
        await lone.provider.instances()
    said = {each.asked for each in lone.world.calls}
    assert said == {each.asks or each.name for each in lone.world.operations}


def test_a_script_is_not_shown_with_its_secret():
    from forebay.providers.paperspace.wire import PaperspaceNewScript

    assert JOIN_SECRET not in repr(PaperspaceNewScript(name="x", script=f"#!/bin/sh\n{JOIN_SECRET}"))
