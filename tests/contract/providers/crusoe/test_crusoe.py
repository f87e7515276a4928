"""Provider crusoe: what the contract of all providers does not say."""

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.joining import CloudInit
from forebay.api.parts import SecretKeyRef
from forebay.model.secret_text import SecretText
from forebay.model.sources import FailureScope, InstancePhase
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.providers.base import (
    BadCredentials,
    BootKind,
    BootPayload,
    InstanceGone,
    LaunchRequest,
    NoCapacity,
    OutcomeUnknown,
    QuotaReached,
    Rejected,
    Unavailable,
)
from forebay.providers.crusoe.signing import canonical_query, signed_headers
from forebay.providers.plugin import ProviderContext
from forebay.providers.registry import build_provider
from forebay.simulate import market_faults
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.cloud_harness import CLUSTER, KEY
from tests.contract.providers.crusoe.server import LOCATIONS, TYPES, CrusoeCloud, account_file, goods
from tests.contract.providers.faults import FakeSecrets

SCRIPT = BootPayload(kind=BootKind.SCRIPT, text=SecretText("#!/bin/sh\ntrue\n"))

# The two vectors were computed with the algorithm of Crusoe's Terraform provider, not with our code.
VECTORS = [
    (
        "GET",
        "/v1/projects/ab4a6b00-aa5f-408e-a9fb-ac6de5eb45ab/compute/vms/instances?limit=20&names=gco-a%2Cgco-b",
        "Y03e0tlx2qfE_h5YUsK5UUWrC327kp8uK2XxZ8OySUI",
    ),
    ("POST", "/v1/projects/p/compute/vms/instances", "ixwdDlbzriiN0YFxCSIgyvF1sWMRme22_mzBiZgtfUk"),
]


@pytest.mark.parametrize(("method", "path", "signature"), VECTORS, ids=["GET", "POST"])
def test_signatures_are_crusoes(method, path, signature):
    secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert signed_headers("AKIDexample", secret, method, f"https://api.cloud.crusoe.ai{path}", at) == {
        "X-Crusoe-Timestamp": "2026-01-02T03:04:05Z",
        "Authorization": f"Bearer 1.0:AKIDexample:{signature}",
    }


def test_a_query_is_signed_with_sorted_keys_and_the_values_of_one_key_in_order():
    assert canonical_query("b=2&a=x%20y&b=1&c=") == "a=x+y&b=2&b=1&c="


class Crusoe:
    """A server with a provider on it."""

    def __init__(self, server, provider, held):
        self.server, self.provider, self.held = server, provider, held
        self.bodies = []

    async def request(self, uid="uid-1", kind="l40s-48gb.1x", **fields):
        offer = next(each for each in await self.provider.offers() if each.instance_type == kind)
        made = LaunchRequest(
            uid=uid, name=f"gpu-{uid}", cluster=CLUSTER, offer=offer, node_name=f"gpu-{uid}", boot=SCRIPT
        )
        return replace(made, **fields)

    async def launch(self, uid="uid-1", **fields):
        return await self.provider.launch(await self.request(uid, **fields))


@asynccontextmanager
async def crusoe(*, secret=None, regions=(), **options):
    server = CrusoeCloud(goods(boot=60, shutdown=10), key=KEY, **options)
    held = {"key": account_file(KEY).encode()} if secret is None else secret
    world = None

    async def answer(request):
        if request.method == "POST":
            world.bodies.append(msgspec.json.decode(request.body))
        return await server.answer(request)

    context = ProviderContext(
        make_transport=lambda _tls: InProcess(answer),
        secrets=FakeSecrets({("forebay", "crusoe"): held}),
        namespace="forebay",
        cluster=CLUSTER,
        redactor=Redactor(),
    )
    entry = Entry(
        name="crusoe",
        endpoint="http://crusoe/v1",
        credentials_ref=SecretKeyRef(name="crusoe", key="key"),
        regions=regions,
    )
    spec = GPUNodeClassSpec(providers=(entry,), cloud_init=CloudInit(template="#!/bin/sh\n"))
    provider = build_provider(entry, spec, context)
    world = Crusoe(server, provider, held)
    try:
        yield world
    finally:
        await provider.close()
        server.stop()
    assert server.violations == []


async def test_offers_have_live_stock_and_dated_list_prices():
    async with crusoe() as world:
        world.server.restock("mi300x-192gb-ib.8x", 0)
        offers = {(each.instance_type, each.zone): each for each in await world.provider.offers()}
        assert len(offers) == (len(TYPES) - 1) * len(LOCATIONS), "what is out of stock is not offered"
        h100 = offers["h100-80gb-sxm-ib.8x", "us-east1-a"]
        assert (h100.price.exact(), h100.stock, h100.gpu_type, h100.region) == ("31.2", 20, "H100", "us-east1")
        check = await world.provider.check()
        assert check.sentence == (
            "Crusoe accepts the key and has 6 offers. Its API has no prices: Forebay uses list prices of 2026-11-16."
        )


@pytest.mark.parametrize("named", ["us-east1", "us-east1-a"])
async def test_a_region_is_named_with_or_without_the_letter_of_a_location(named):
    async with crusoe(regions=(named,)) as world:
        assert {each.zone for each in await world.provider.offers()} == {"us-east1-a"}


async def test_a_region_that_crusoe_does_not_have_is_named_with_those_there_are():
    async with crusoe(regions=("us-esat1",)) as world:
        check = await world.provider.check()
        assert (check.ok, check.sentence) == (
            False,
            f"Crusoe lists no machine in us-esat1. Correct regions of the provider; there are: {', '.join(LOCATIONS)}.",
        )


async def test_an_amd_gpu_has_the_resource_and_the_image_of_amd():
    async with crusoe(regions=("us-east1",)) as world:
        request = await world.request(kind="mi300x-192gb-ib.8x")
        assert request.offer.allocatable.amount("amd.com/gpu") == 8
        await world.provider.launch(request)
        assert world.bodies[-1]["image"] == "ubuntu-rocm:latest"


async def test_an_order_has_the_identity_in_its_name_and_no_reservation():
    async with crusoe() as world:
        await world.launch(kind="h100-80gb-sxm-ib.8x")
        body = world.bodies[-1]
        assert body["name"].startswith("forebay-")
        assert body["name"].endswith("-uid-1")
        assert body["image"] == "ubuntu22.04-nvidia-sxm-docker:latest"
        assert body["startup_script"] == "#!/bin/sh\ntrue\n"
        assert body["reservation_specification"] == {"selection_strategy": "on_demand"}
        assert body["ssh_public_key"].startswith("ssh-ed25519 ")
        await world.launch("uid-2", image="0b1c2d3e-0000-4000-8000-000000000000")
        assert world.bodies[-1]["custom_image"] == "0b1c2d3e-0000-4000-8000-000000000000"


async def test_a_cloud_init_config_is_rejected_before_anything_is_sent():
    async with crusoe() as world:
        boot = BootPayload(kind=BootKind.CLOUD_INIT, text=SecretText("#cloud-config"))
        request = await world.request(boot=boot)
        with pytest.raises(Rejected, match="reads no cloud-init"):
            await world.provider.launch(request)
        assert world.server.calls_of(MarketCall.LAUNCH) == []


CODES = [
    ("out_of_stock", "no such machine", NoCapacity, FailureScope.OFFER),
    ("quota_exceeded", "too many", QuotaReached, FailureScope.SOURCE),
    ("invalid_image", "no such image", Rejected, FailureScope.OFFER),
]


@pytest.mark.parametrize(("code", "message", "error", "scope"), CODES, ids=[each[0] for each in CODES])
async def test_what_a_failed_operation_means(code, message, error, scope):
    async with crusoe(operation_seconds=0) as world:
        request = await world.request()
        world.server.script("create", world.server.failed_operation(code, message))
        with pytest.raises(error, match=message) as caught:
            await world.provider.launch(request)
        assert caught.value.scope is scope


async def test_a_location_without_stock_is_told_seconds_after_the_request_was_accepted():
    async with crusoe() as world:
        request = await world.request()
        world.server.restock("l40s-48gb.1x", 0)
        with pytest.raises(NoCapacity):
            await world.provider.launch(request)
        world.server.restock("l40s-48gb.1x", 1)
        assert (await world.provider.launch(replace(request, attempt=2))).owner == "uid-1"


async def test_a_launch_that_is_repeated_finds_its_machine_by_name():
    async with crusoe() as world:
        request = await world.request()
        first = await world.provider.launch(request)
        again = await world.provider.launch(replace(request, attempt=2))
        assert (again.id, again.owner) == (first.id, "uid-1")
        assert world.server.running == {first.id}


async def test_an_operation_that_takes_too_long_leaves_the_outcome_unknown():
    async with crusoe(operation_seconds=900) as world:
        request = await world.request()
        with pytest.raises(OutcomeUnknown, match="not done within 60 s"):
            await world.provider.launch(request)
        (listed,) = (await world.provider.instances()).instances
        assert listed.owner == "uid-1"


async def test_an_operation_is_seen_again_after_a_failed_look():
    async with crusoe() as world:
        request = await world.request()
        world.server.script("get_operation", market_faults.server_error(500), market_faults.request_lost())
        assert (await world.provider.launch(request)).owner == "uid-1"


async def test_a_listing_has_all_pages_and_no_strangers():
    async with crusoe(page_size=2) as world:
        ids = {(await world.launch(f"uid-{number}")).id for number in range(5)}
        stranger = world.server.leave_behind("l40s-48gb.1x", "")
        assert {each.id for each in (await world.provider.instances()).instances} == ids
        with pytest.raises(InstanceGone, match="no machine of this cluster"):
            await world.provider.terminate(stranger)
        assert stranger in world.server.running


async def test_a_lagging_list_shows_a_launch_later():
    async with crusoe(list_lag=20) as world:
        launched = await world.launch()
        assert (await world.provider.instances()).instances == ()
        await asyncio.sleep(20)
        assert [each.id for each in (await world.provider.instances()).instances] == [launched.id]


async def test_a_machine_that_vanished_is_gone():
    async with crusoe() as world:
        launched = await world.launch()
        world.server.vanish(launched.id)
        with pytest.raises(InstanceGone):
            await world.provider.terminate(launched.id)
        assert world.server.others["disks"] == {}


async def test_a_stopped_machine_shows_as_stopped():
    async with crusoe() as world:
        launched = await world.launch()
        world.server.reclaim(launched.id)
        await asyncio.sleep(1)
        (listed,) = (await world.provider.instances()).instances
        assert listed.phase is InstancePhase.STOPPED


async def test_a_disk_that_is_left_behind_belongs_to_its_machine_until_it_is_deleted():
    async with crusoe() as world:
        world.server.leaves_disks = True
        launched = await world.launch()
        await world.provider.terminate(launched.id)
        await asyncio.sleep(15)
        assert world.server.running == frozenset()
        (left,) = (await world.provider.instances()).instances
        assert (left.id, left.phase) == (launched.id, InstancePhase.ENDING)
        await world.provider.terminate(launched.id)
        assert world.server.others["disks"] == {}
        with pytest.raises(InstanceGone):
            await world.provider.terminate(launched.id)


async def test_a_project_that_crusoe_does_not_find_is_no_proof_that_a_machine_is_gone():
    async with crusoe() as world:
        launched = await world.launch()
        request = await world.request("uid-2")
        said = "Correct endpoint of the provider, or project_id in its account file"
        for call, ask in (
            ("list_instances", world.provider.instances),
            ("list_instances", lambda: world.provider.terminate(launched.id)),
            ("list_disks", world.provider.instances),
            ("create", lambda: world.provider.launch(request)),
        ):
            world.server.script(call, world.server.refusal(404, "project not found"))
            with pytest.raises(Rejected, match=said):
                await ask()
        assert world.server.running == {launched.id}


async def test_a_volume_of_pods_that_is_attached_to_a_machine_outlives_it():
    async with crusoe() as world:
        launched = await world.launch()
        disks = world.server.others["disks"]
        (boot,) = disks.values()
        attached = [{**boot["attached_to"][0], "attachment_type": "data"}]
        disks["pvc-1"] = {**boot, "id": "pvc-1", "name": "pvc-1", "attached_to": attached}
        await world.provider.terminate(launched.id)
        await asyncio.sleep(15)
        assert (await world.provider.instances()).instances == ()
        with pytest.raises(InstanceGone):
            await world.provider.terminate(launched.id)
        assert list(disks) == ["pvc-1"]
        assert disks["pvc-1"]["attached_to"] == []


@pytest.mark.parametrize("answer", ["not a time", "", "2026-01-02T03:04:05"], ids=["garbled", "empty", "no zone"])
async def test_an_operation_that_does_not_say_when_it_was_done_tells_no_end(answer):
    async with crusoe() as world:
        launched = await world.launch()
        await world.provider.terminate(launched.id)
        await asyncio.sleep(15)
        done = {"operation_id": "operation-2", "state": "SUCCEEDED", "metadata": {}, "started_at": "", "result": None}
        body = msgspec.json.encode(done | {"completed_at": answer})
        world.server.script("get_operation", market_faults.MarketFault(status=200, body=body))
        for _ in range(2):
            assert (await world.provider.instances()).ended == {}


@pytest.mark.parametrize("odd", ["", "not a time", "2026-01-02T03:04:05"], ids=["empty", "garbled", "no zone"])
async def test_a_disk_of_somebody_else_with_an_odd_time_hides_no_listing(odd):
    async with crusoe() as world:
        launched = await world.launch()
        (disk,) = world.server.others["disks"].values()
        world.server.others["disks"]["x"] = {**disk, "id": "x", "name": "scratch", "attached_to": [], "created_at": odd}
        assert [each.id for each in (await world.provider.instances()).instances] == [launched.id]


async def test_a_disk_that_was_left_behind_before_a_restart_is_found_by_its_name():
    async with crusoe() as world:
        world.server.leaves_disks = True
        launched = await world.launch()
        world.server.vanish(launched.id)
        await asyncio.sleep(600)
        (left,) = (await world.provider.instances()).instances
        assert left.id.startswith("disk:")
        await world.provider.terminate(left.id)
        assert world.server.others["disks"] == {}
        with pytest.raises(InstanceGone):
            await world.provider.terminate(left.id)


async def test_a_new_disk_without_a_machine_is_no_leftover_yet():
    async with crusoe() as world:
        await world.launch()
        disks = world.server.others["disks"]
        (boot,) = disks.values()
        fresh = clock.now() - timedelta(minutes=9)
        disks["x"] = {**boot, "id": "x", "attached_to": [], "created_at": fresh.isoformat()}
        assert len((await world.provider.instances()).instances) == 1, "its machine may be about to appear"
        await asyncio.sleep(60)
        assert {each.id for each in (await world.provider.instances()).instances} >= {"disk:x"}


async def test_a_failed_list_of_disks_makes_the_listing_an_error():
    async with crusoe() as world:
        world.server.script("list_disks", *[market_faults.server_error(500)] * 2)
        with pytest.raises(Unavailable):
            await world.provider.instances()


BAD_SECRETS = [
    (b"= nothing", "is not TOML"),
    (b'access_key_id = "a"\n', "lacks secret_key and project_id"),
    (b'access_key_id = "a"\nsecret_key = "\xc3\xa4"\nproject_id = "p"\n', "is not base64"),
    (b"\xff", "is not text"),
]


@pytest.mark.parametrize(("held", "said"), BAD_SECRETS, ids=[each[1] for each in BAD_SECRETS])
async def test_what_is_wrong_with_the_account_file_is_said(held, said):
    async with crusoe(secret={"key": held}) as world:
        check = await world.provider.check()
        assert not check.ok
        assert said in check.sentence


async def test_a_new_key_in_the_secret_is_used_without_a_restart():
    async with crusoe() as world:
        await world.provider.instances()
        world.server.key = "cm90YXRlZC1rZXk"
        with pytest.raises(BadCredentials, match="bad_credential"):
            await world.provider.instances()
        world.held["key"] = account_file("cm90YXRlZC1rZXk").encode()
        await world.provider.instances()


async def test_a_machine_that_never_joins_is_billed_until_it_is_terminated():
    async with crusoe() as world:
        launched = await world.launch()
        await asyncio.sleep(1800)
        await world.provider.terminate(launched.id)
        await asyncio.sleep(20)
        (line,) = world.server.billed
        assert timedelta(seconds=line.billed_seconds(line.ended)) == timedelta(minutes=31)
