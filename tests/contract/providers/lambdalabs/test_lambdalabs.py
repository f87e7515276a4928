"""What is special to Lambda Cloud, beyond the contract of all providers."""

import asyncio
from datetime import datetime

import msgspec
import pytest

from forebay.model.sources import FailureScope, InstancePhase
from forebay.providers.base import (
    BadCredentials,
    BootKind,
    BootPayload,
    InstanceGone,
    NoCapacity,
    OutcomeUnknown,
    QuotaReached,
    Rejected,
    Unavailable,
)
from forebay.providers.lambdalabs.provider import CAPABILITIES
from forebay.simulate import market_faults
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.cloud_harness import CLUSTER
from tests.contract.providers.lambdalabs.harness import LambdaHarness, skus
from tests.contract.providers.lambdalabs.server import KEYS, LambdaCloud

SETTLED = CAPABILITIES.settle_time.total_seconds() + 1


def harness(**options):
    made = LambdaHarness()
    made.world = LambdaCloud(options.pop("skus", skus()), key=made.world.key, **options)
    return made


def keys(world):
    return [each["name"] for each in world.others[KEYS].values()]


async def test_offers_have_the_live_price_to_the_cent_in_every_region_with_capacity():
    lone = harness()
    lone.world.restock("gpu_8x_h100", 0)
    async with lone.open():
        offers = await lone.provider.offers()
    assert {(each.instance_type, each.region) for each in offers} == {
        (f"gpu_{count}x_h100", region) for count in (1, 4) for region in ("us-east-1", "us-west-1")
    }
    four = next(each for each in offers if each.gpu_count == 4)
    assert (four.price.exact(), four.gpu_type, four.gpu_memory_gib) == ("9.96", "H100", 80)
    assert four.labels["kubernetes.io/arch"] == "amd64"
    assert 100 < four.allocatable.amount("memory") // 2**30 < 128


@pytest.mark.parametrize(
    ("model", "memory", "found", "arch"),
    [
        ("GH200", 96, ("GH200", 96), "arm64"),
        ("A100", 40, ("A100-40GB", 40), "amd64"),
        ("A100", 80, ("A100-80GB", 80), "amd64"),
        ("Tesla V100", 16, ("V100", 16), "amd64"),
        ("RTX 6000", 24, ("RTX6000", 24), "amd64"),
        ("Z9000", None, ("Z9000", None), "amd64"),
    ],
)
async def test_models_have_the_names_that_pods_ask_for(model, memory, found, arch):
    sku = Sku(instance_type="x", gpus=1, hourly_price="1.00", gpu_type=model, gpu_memory_gib=memory, region="r")
    cpu_only = Sku(instance_type="cpu", gpus=0, hourly_price="0.10", region="r")
    lone = harness(skus=[sku, cpu_only])
    async with lone.open():
        (offer,) = await lone.provider.offers()
    assert ((offer.gpu_type, offer.gpu_memory_gib), offer.labels["kubernetes.io/arch"]) == (found, arch)


async def test_a_launch_names_its_cluster_and_record_in_tags_and_carries_the_user_data():
    lone = harness()
    async with lone.open():
        request = await lone.request("uid-7")
        await lone.provider.launch(msgspec.structs.replace(request, tags={"Team/Name": "vision", "7": "x" * 200}))
        (listed,) = (await lone.provider.instances()).instances
    (rented,) = lone.world.instances.values()
    assert listed.created == datetime.fromisoformat(rented.order.tags["forebay-launched"])
    assert {key: value for key, value in rented.order.tags.items() if key != "forebay-launched"} == {
        "forebay-cluster": CLUSTER,
        "forebay-uid": "uid-7",
        "team-name": "vision",
        "tag-7": "x" * 128,
    }
    assert rented.order.boot.startswith("#cloud-config")


async def test_machines_of_other_clusters_and_of_people_are_not_listed():
    lone = harness()
    async with lone.open():
        lone.world.leave_behind("gpu_1x_h100", "another-cluster")
        mine = lone.world.leave_behind("gpu_1x_h100", CLUSTER, "uid-9")
        (found,) = (await lone.provider.instances()).instances
    assert (found.id, found.owner) == (mine, "uid-9")


async def test_requests_keep_to_the_published_limit_of_one_in_a_second():
    lone = harness(enforces_limits=True)
    async with lone.open():
        launched = await lone.provider.launch(await lone.request())
        await asyncio.gather(*(lone.provider.instances() for _ in range(5)))
        await lone.provider.terminate(launched.id)
        assert (await lone.provider.check()).ok
    assert {each.status for each in lone.world.calls} == {200}
    assert CAPABILITIES.launch_interval.total_seconds() == 12


@pytest.mark.parametrize(
    ("status", "code", "error", "scope"),
    [
        (400, "instance-operations/launch/insufficient-capacity", NoCapacity, FailureScope.OFFER),
        (400, "global/quota-exceeded", QuotaReached, FailureScope.SOURCE),
        (400, "global/invalid-parameters", Rejected, FailureScope.OFFER),
        (401, "global/invalid-api-key", BadCredentials, FailureScope.SOURCE),
        (403, "global/account-inactive", Rejected, FailureScope.SOURCE),
        (403, "global/invalid-address", Rejected, FailureScope.SOURCE),
        (400, "provider/internal-unavailable", Unavailable, FailureScope.SOURCE),
    ],
)
async def test_what_an_error_code_of_a_launch_means(status, code, error, scope):
    lone = harness()
    # The published spec knows codes of Lambda's own services only.
    lone.world.published = None if code.startswith("provider/") else lone.world.published
    async with lone.open():
        request = await lone.request()
        lone.world.script("launch", lone.world.refusal(status, "so it is", code))
        with pytest.raises(error) as caught:
            await lone.provider.launch(request)
    assert type(caught.value) is error
    assert caught.value.scope is scope
    assert str(caught.value).startswith(f'Lambda answered {status} ("so it is")')


async def test_the_next_offer_can_be_tried_at_once_after_a_capacity_error():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        lone.world.script("launch", lone.world.no_capacity())
        with pytest.raises(NoCapacity):
            await lone.provider.launch(request)
        assert (await lone.provider.launch(await lone.request("uid-1", machine="eight"))).id in lone.running()


async def test_one_ssh_key_serves_all_machines_and_goes_with_the_last_of_them():
    lone = harness()
    async with lone.open():
        launched = [await lone.provider.launch(await lone.request(uid)) for uid in ("uid-1", "uid-2")]
        assert keys(lone.world) == [f"forebay-{CLUSTER}"]
        await lone.provider.terminate(launched[0].id)
        await asyncio.sleep(SETTLED)
        await lone.provider.instances()
        assert keys(lone.world) == [f"forebay-{CLUSTER}"]
        await lone.provider.terminate(launched[1].id)
        await asyncio.sleep(SETTLED)
        lone.world.script("delete_key", market_faults.server_error(500))
        await lone.provider.instances()
        assert keys(lone.world), "its deletion failed"
        await lone.provider.instances()
        assert keys(lone.world) == []


async def test_the_key_goes_with_a_machine_that_was_listed_and_waits_for_one_that_may_be_listed_late():
    lone = harness()
    async with lone.open():
        seen = await lone.provider.launch(await lone.request("uid-1"))
        await lone.provider.instances()
        await lone.provider.terminate(seen.id)
        await lone.provider.instances()
        assert keys(lone.world) == [], "nothing that was launched with it is unknown"
        lost = await lone.request("uid-2")
        lone.world.script("launch", market_faults.answer_lost())
        with pytest.raises(OutcomeUnknown):
            await lone.provider.launch(lost)
        await lone.provider.terminate(*lone.running())
        await lone.provider.instances()
        assert keys(lone.world) == [f"forebay-{CLUSTER}"], "a later listing may show it"
        await asyncio.sleep(SETTLED)
        await lone.provider.instances()
        assert keys(lone.world) == []


async def test_the_key_stays_for_a_machine_that_no_listing_has_shown_yet():
    lone = harness()
    async with lone.open():
        unseen = await lone.provider.launch(await lone.request("uid-1"))
        await lone.provider.terminate(unseen.id)
        await lone.provider.instances()
        assert keys(lone.world) == [f"forebay-{CLUSTER}"]
        await asyncio.sleep(SETTLED)
        await lone.provider.instances()
        assert keys(lone.world) == []


async def test_a_key_that_an_earlier_process_left_is_deleted():
    lone = harness()
    left = {"id": "key-0", "name": f"forebay-{CLUSTER}", "public_key": "ssh-ed25519 AAAA"}
    lone.world.others[KEYS] |= {"key-0": left, "key-x": {**left, "id": "key-x", "name": "somebody"}}
    async with lone.open():
        await lone.provider.instances()
        assert len(keys(lone.world)) == 2, "a launch of that process may still need it"
        await asyncio.sleep(SETTLED)
        await lone.provider.instances()
    assert keys(lone.world) == ["somebody"]


async def test_operators_that_live_for_seconds_only_still_delete_the_key():
    """Each would have to live for two minutes, were that counted from its own start."""
    lone = harness()
    async with lone.open():
        await lone.provider.launch(await lone.request("uid-1"))
        await lone.provider.terminate(*lone.running())
        await asyncio.sleep(10)
    for _ in range(30):
        async with lone.open():
            await lone.provider.instances()
            await asyncio.sleep(5)
    assert keys(lone.world) == []


async def test_a_key_that_the_last_leader_adds_again_after_the_next_one_deleted_it_is_deleted_too():
    lone = harness()
    old = {"id": "key-0", "name": f"forebay-{CLUSTER}", "public_key": "ssh-ed25519 AAAA forebay-20200101T000000Z"}
    lone.world.others[KEYS] |= {"key-0": old}
    async with lone.open():
        await lone.provider.instances()
        assert keys(lone.world) == []
        lone.world.others[KEYS] |= {"key-1": {**old, "id": "key-1"}}
        calls = len(lone.world.calls)
        await lone.provider.instances()
        await asyncio.sleep(SETTLED)
        await lone.provider.instances()
        assert keys(lone.world) == []
        await lone.provider.instances()
        assert len(lone.world.calls) - calls == 5, "machines three times, keys and a deletion once"


async def test_a_key_that_somebody_deleted_is_added_again_and_the_launch_succeeds():
    lone = harness()
    async with lone.open():
        await lone.provider.launch(await lone.request("uid-1"))
        lone.world.others[KEYS].clear()
        await lone.provider.launch(await lone.request("uid-2"))
        assert len(lone.running()) == 2
        assert keys(lone.world) == [f"forebay-{CLUSTER}"]


async def test_a_lost_answer_to_the_key_launches_nothing_and_makes_no_second_key():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        lone.world.script("add_key", market_faults.answer_lost())
        with pytest.raises(Unavailable):
            await lone.provider.launch(request)
        assert lone.running() == frozenset()
        await lone.provider.launch(request)
        assert keys(lone.world) == [f"forebay-{CLUSTER}"]


async def test_a_machine_goes_through_the_phases_that_its_status_says():
    lone = harness(skus=skus(boot=60, shutdown=10), shows_terminated=True)
    async with lone.open():

        async def phase():
            return [each.phase for each in (await lone.provider.instances()).instances]

        launched = await lone.provider.launch(await lone.request())
        assert await phase() == [InstancePhase.STARTING]
        await asyncio.sleep(40)
        assert await phase() == [InstancePhase.RUNNING]
        lone.world.reclaim(launched.id)
        await asyncio.sleep(1)
        assert await phase() == [InstancePhase.STOPPED]
        await lone.provider.terminate(launched.id)
        assert await phase() == [InstancePhase.ENDING]
        await asyncio.sleep(11)
        assert await phase() == [], "terminated is gone"
        with pytest.raises(InstanceGone):
            await lone.provider.terminate(launched.id)


async def test_a_launch_that_the_listing_does_not_show_yet_is_there_within_the_settle_time():
    lone = harness(list_lag=60.0)
    async with lone.open():
        launched = await lone.provider.launch(await lone.request())
        assert (await lone.provider.instances()).instances == ()
        await asyncio.sleep(CAPABILITIES.settle_time.total_seconds())
        assert [each.id for each in (await lone.provider.instances()).instances] == [launched.id]
        assert keys(lone.world), "the key of a machine that exists"


async def test_a_key_that_expires_is_read_again_from_its_secret():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        lone.world.key = "rotated"
        with pytest.raises(BadCredentials, match="forebay/cloud"):
            await lone.provider.launch(request)
        lone.secret_store.held["forebay", "cloud"] = {"key": b"rotated\n"}
        assert (await lone.provider.launch(request)).id in lone.running()


async def test_a_check_names_a_region_that_does_not_exist():
    lone = harness()
    async with lone.open():
        lone.provider._regions = frozenset({"us-east-1", "mars-1"})
        check = await lone.provider.check()
    assert not check.ok
    assert check.sentence == (
        "Lambda has no region mars-1. Correct regions of the provider; there are: us-east-1, us-west-1."
    )


async def test_talos_is_refused_before_anything_is_sent():
    lone = harness()
    async with lone.open():
        request = await lone.request()
        boot = BootPayload(kind=BootKind.TALOS, text=request.boot.text)
        with pytest.raises(Rejected, match="no Talos"):
            await lone.provider.launch(msgspec.structs.replace(request, boot=boot))
    assert lone.world.calls_of(MarketCall.LAUNCH) == []


@pytest.mark.specs
async def test_all_that_is_said_is_valid_by_the_published_spec():
    lone = harness()
    assert lone.world.published is not None
    async with lone.open():
        launched = await lone.provider.launch(await lone.request())
        await lone.provider.instances()
        await lone.provider.check()
        for fault in (lone.world.no_capacity(), lone.world.quota_reached()):
            lone.world.script("launch", fault)
            with pytest.raises((NoCapacity, QuotaReached)):
                await lone.provider.launch(await lone.request("uid-2"))
        await lone.provider.terminate(launched.id)
        await asyncio.sleep(SETTLED)
        await lone.provider.instances()
    said = {each.asked for each in lone.world.calls}
    assert said == {each.asks or each.name for each in lone.world.operations}
