"""Provider gcp: what the contract of all providers does not say."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.joining import CloudInit
from forebay.api.parts import SecretKeyRef
from forebay.model.quantities import UsdPerHour
from forebay.model.secret_text import SecretText
from forebay.model.sources import FailureScope, InstancePhase
from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.net.transport import Headers, Request
from forebay.providers.base import (
    BadCredentials,
    BootKind,
    BootPayload,
    InstanceGone,
    LaunchRequest,
    NoCapacity,
    OutcomeUnknown,
    QuotaReached,
    RateLimited,
    Rejected,
    Unavailable,
)
from forebay.providers.gcp.provider import CAPABILITIES
from forebay.providers.plugin import ProviderContext
from forebay.providers.registry import build_provider
from forebay.simulate import market_faults
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.cloud_harness import CLUSTER, KEY
from tests.contract.providers.faults import FakeSecrets
from tests.contract.providers.gcp.server import ComputeEngine, goods, hourly_price
from tests.contract.providers.gcp.tokens import PROJECT, federation_config, key_file

BASE = "http://google"


class Wire:
    """A transport that keeps the requests."""

    def __init__(self, handler):
        self._inner = InProcess(handler)
        self.requests = []

    async def request(self, request):
        self.requests.append(request)
        return await self._inner.request(request)

    async def close(self):
        await self._inner.close()


class Google:
    """A server with a provider on it."""

    def __init__(self, server, provider, wire, held, redactor):
        self.server, self.provider, self.wire, self.held, self.redactor = server, provider, wire, held, redactor

    async def request(self, uid="uid-1", kind="g2-standard-8", zone="us-central1-a", *, spot=False, **fields):
        offers = await self.provider.offers()
        offer = next(each for each in offers if each.key[1::2] == (kind, zone) and each.spot == spot)
        boot = BootPayload(kind=BootKind.CLOUD_INIT, text=SecretText("#cloud-config"))
        made = LaunchRequest(
            uid=uid, name=f"gpu-{uid}", cluster=CLUSTER, offer=offer, node_name=f"gpu-{uid}", boot=boot
        )
        return replace(made, **fields)

    async def launch(self, uid="uid-1", **fields):
        return await self.provider.launch(await self.request(uid, **fields))

    def inserted(self):
        """The body of the last insert."""
        sent = [each for each in self.wire.requests if each.method == "POST" and "/instances?" in each.url]
        return msgspec.json.decode(sent[-1].body)


@asynccontextmanager
async def google(*, secret=None, ref=True, regions=(), **options):
    server = ComputeEngine(goods(boot=60, shutdown=10), key=KEY, **options)
    wire = Wire(server.answer)
    held = {"key": key_file(KEY, BASE)} if secret is None else secret
    redactor = Redactor()
    context = ProviderContext(
        make_transport=lambda _tls: wire,
        secrets=FakeSecrets({("forebay", "google"): held}),
        namespace="forebay",
        cluster=CLUSTER,
        redactor=redactor,
    )
    entry = Entry(
        name="gcp",
        endpoint=BASE,
        credentials_ref=SecretKeyRef(name="google", key="key") if ref else None,
        regions=regions,
    )
    spec = GPUNodeClassSpec(providers=(entry,), cloud_init=CloudInit(template="#cloud-config"))
    provider = build_provider(entry, spec, context)
    try:
        yield Google(server, provider, wire, held, redactor)
    finally:
        await provider.close()
        server.stop()
    assert server.violations == []


async def test_offers_are_the_sum_of_the_catalogs_prices_on_demand_and_spot():
    async with google() as world:
        offers = {(each.instance_type, each.zone, each.spot): each for each in await world.provider.offers()}
        assert len(offers) == 5 * 3 * 2 + 3 * 2, "five kinds, and n1-standard-16 with two T4s, in three zones"
        for kind in ("g2-standard-8", "g2-standard-96", "a3-highgpu-8g", "n1-standard-8+1xT4"):
            for spot in (False, True):
                offer = offers[kind, "europe-west4-a", spot]
                assert offer.price == UsdPerHour(hourly_price(kind, spot=spot))
        l4 = offers["g2-standard-8", "us-central1-a", False]
        assert l4.price.exact() == "0.853609"
        assert (l4.gpu_type, l4.gpu_memory_gib, l4.region) == ("L4", 24, "us-central1")
        assert l4.billing.minimum == timedelta(minutes=1)
        assert offers["n1-standard-8+1xT4", "us-central1-a", True].reclaims_per_million_hours > 0


async def test_only_the_zones_of_the_class_are_offered():
    async with google(regions=("us-central1-a",)) as world:
        assert {each.zone for each in await world.provider.offers()} == {"us-central1-a"}


async def test_only_the_regions_of_the_class_are_offered():
    async with google(regions=("europe-west4",)) as world:
        assert {each.region for each in await world.provider.offers()} == {"europe-west4"}


async def test_the_catalog_is_read_every_six_hours_and_machine_types_every_ten_minutes():
    async with google() as world:
        for minutes in (0, 5, 10, 349):
            await asyncio.sleep(minutes * 60)
            await world.provider.offers()
        pages = [each.url for each in world.wire.requests if "/skus" in each.url]
        types = [
            each.url for each in world.wire.requests if "/machineTypes" in each.url and "pageToken" not in each.url
        ]
        assert (len([url for url in pages if "pageToken" not in url]), len(types)) == (2, 3)
        assert len(pages) > 2, "there are several pages"


async def test_a_machine_whose_parts_are_not_all_priced_is_not_offered(monkeypatch):
    monkeypatch.setattr("tests.contract.providers.gcp.server._PRICED", [("Nvidia L4 GPU", "GPU", 1)])
    async with google() as world:
        assert await world.provider.offers() == ()
        check = await world.provider.check()
        assert (check.ok, check.sentence) == (
            False,
            f"Project {PROJECT} has no machine type with GPUs in the regions named.",
        )


async def test_an_order_says_who_it_is_for_how_it_boots_and_that_nothing_may_be_left():
    async with google() as world:
        await world.launch(tags={"Team": "ML / vision", "4cost": "a"})
        body = world.inserted()
        labels = {"t-4cost": "a", "team": "ml---vision", "forebay-cluster": CLUSTER, "forebay-instance": "uid-1"}
        assert body["labels"] == labels
        (disk,) = body["disks"]
        assert disk["autoDelete"] is True
        assert disk["initializeParams"]["labels"] == labels
        assert disk["initializeParams"]["sourceImage"].endswith("family/ubuntu-2404-lts-amd64")
        assert body["metadata"] == {"items": [{"key": "user-data", "value": "#cloud-config"}]}
        assert body["scheduling"] == {
            "provisioningModel": "STANDARD",
            "onHostMaintenance": "TERMINATE",
            "automaticRestart": False,
        }


async def test_a_script_goes_where_google_runs_scripts():
    async with google() as world:
        await world.launch(boot=BootPayload(kind=BootKind.SCRIPT, text=SecretText("#!/bin/sh")))
        assert world.inserted()["metadata"]["items"][0]["key"] == "startup-script"


async def test_gpus_are_attached_to_an_n1_machine():
    async with google() as world:
        launched = await world.launch(kind="n1-standard-8+1xT4")
        assert world.inserted()["guestAccelerators"] == [
            {"acceleratorType": "zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}
        ]
        assert world.server.running == {launched.id}


async def test_google_deletes_a_machine_by_itself_after_its_longest_run_time():
    async with google() as world:
        launched = await world.launch(max_run_time=timedelta(hours=2))
        assert world.inserted()["scheduling"]["maxRunDuration"] == {"seconds": "7200"}
        assert world.inserted()["scheduling"]["instanceTerminationAction"] == "DELETE"
        (listed,) = (await world.provider.instances()).instances
        assert listed.ends_at == listed.created + timedelta(hours=2)
        await asyncio.sleep(7190)
        assert world.server.running == {launched.id}
        await asyncio.sleep(20)
        assert world.server.running == frozenset()
        assert world.server.others["disks"] == {}
        assert (await world.provider.instances()).instances == ()


async def test_a_reclaimed_spot_machine_shows_as_stopped_and_then_is_gone():
    async with google() as world:
        launched = await world.launch(spot=True)
        assert world.inserted()["scheduling"]["provisioningModel"] == "SPOT"
        world.server.reclaim(launched.id)
        await asyncio.sleep(1)
        (listed,) = (await world.provider.instances()).instances
        assert (listed.phase, listed.message) == (InstancePhase.STOPPED, "preempted")
        await asyncio.sleep(60)
        assert (await world.provider.instances()).instances == ()


async def test_phases_and_ids_are_those_of_the_instance():
    async with google() as world:
        launched = await world.launch()
        assert launched.id == "us-central1-a/gpu-uid-1"
        assert launched.provider_id == f"gce://{PROJECT}/us-central1-a/gpu-uid-1"
        await asyncio.sleep(60)
        (listed,) = (await world.provider.instances()).instances
        assert (listed.id, listed.provider_id) == (launched.id, launched.provider_id)
        assert (listed.phase, listed.node_name, listed.owner) == (InstancePhase.RUNNING, "gpu-uid-1", "uid-1")
        assert listed.created is not None


CODES = [
    ("ZONE_RESOURCE_POOL_EXHAUSTED", "no resources", NoCapacity, FailureScope.ZONE),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "no g2-standard-8", NoCapacity, FailureScope.OFFER),
    ("QUOTA_EXCEEDED", "Quota 'NVIDIA_L4_GPUS' exceeded in region us-central1.", QuotaReached, FailureScope.OFFER),
    ("QUOTA_EXCEEDED", "Quota 'GPUS_ALL_REGIONS' exceeded globally.", QuotaReached, FailureScope.SOURCE),
    ("RATE_LIMIT_EXCEEDED", "slow down", RateLimited, FailureScope.SOURCE),
    ("PERMISSIONS_ERROR", "no compute.disks.create", BadCredentials, FailureScope.SOURCE),
    ("INVALID_FIELD_VALUE", "no such image", Rejected, FailureScope.OFFER),
    ("INTERNAL_ERROR", "try again", OutcomeUnknown, FailureScope.OFFER),
]


@pytest.mark.parametrize(("code", "message", "error", "scope"), CODES, ids=[f"{each[0]}-{each[3]}" for each in CODES])
async def test_what_a_failed_operation_means(code, message, error, scope):
    async with google() as world:
        request = await world.request()
        world.server.script("insert", world.server.failed_operation(code, message))
        with pytest.raises(error) as caught:
            await world.provider.launch(request)
        assert caught.value.scope is scope
        assert message.rstrip(".") in str(caught.value)


async def test_a_zone_without_capacity_is_told_seconds_after_the_request_was_accepted():
    async with google() as world:
        world.server.restock("g2-standard-8", 0)
        request = await world.request()
        with pytest.raises(NoCapacity) as caught:
            await world.provider.launch(request)
        assert str(caught.value) == (
            'Launch of gpu-uid-1 in us-central1-a failed ("The zone does not have enough resources available to '
            'fulfill the request"): the zone has no capacity left.'
        )
        world.server.restock("g2-standard-8", None)
        again = await world.provider.launch(replace(request, attempt=2))
        assert world.server.running == {again.id}, "the failed attempt's request id is not used again"


ANSWERS = [
    (403, "rateLimitExceeded", RateLimited),
    (403, "quotaExceeded", QuotaReached),
    (403, "forbidden", BadCredentials),
    (403, "accessNotConfigured", BadCredentials),
    (404, "notFound", Rejected),
    (400, "invalid", Rejected),
    (503, "backendError", OutcomeUnknown),
    (429, "tooMany", RateLimited),
]


@pytest.mark.parametrize(("status", "reason", "error"), ANSWERS, ids=[f"{each[0]}-{each[1]}" for each in ANSWERS])
async def test_what_a_refused_insert_means(status, reason, error):
    async with google() as world:
        request = await world.request()
        world.server.script("insert", world.server.refusal(status, "because", reason))
        with pytest.raises(error) as caught:
            await world.provider.launch(request)
        if error is RateLimited:
            assert caught.value.retry_after == timedelta(minutes=1)
        assert world.server.running == frozenset()


INFO = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED", "metadata": {"service": "x"}}
NOT_ENABLED = [
    {"errors": [{"message": "because", "domain": "usageLimits", "reason": "accessNotConfigured"}]},
    {"details": [{"@type": "type.googleapis.com/google.rpc.Help", "links": []}, INFO]},
]


@pytest.mark.parametrize("fields", NOT_ENABLED, ids=["compute", "billing"])
async def test_an_api_that_is_not_enabled_is_told_as_that_and_not_as_a_missing_role(fields):
    error = {"code": 403, "message": "The API is disabled", "status": "PERMISSION_DENIED", **fields}
    async with google() as world:
        body = msgspec.json.encode({"error": error})
        found = world.provider.calls.errors.of_response(403, Headers(), body, acts=False, identity="Secret a/b")
    assert isinstance(found, BadCredentials)
    assert str(found) == (
        'Google answered 403 ("The API is disabled"): an API is not enabled in the project. Enable it.'
    )


async def test_an_operation_is_seen_again_after_a_failed_look():
    async with google() as world:
        request = await world.request()
        world.server.script("get_operation", market_faults.server_error(503), market_faults.request_lost())
        assert (await world.provider.launch(request)).owner == "uid-1"


async def test_an_operation_that_takes_too_long_leaves_the_outcome_unknown():
    async with google(operation_seconds=600) as world:
        request = await world.request()
        with pytest.raises(OutcomeUnknown, match="not done within 90 s"):
            await asyncio.wait_for(world.provider.launch(request), CAPABILITIES.call_timeout.total_seconds())
        (listed,) = (await world.provider.instances()).instances
        assert listed.owner == "uid-1"


async def test_the_same_attempt_sent_twice_is_one_request_for_google():
    async with google() as world:
        request = await world.request()
        first = await world.provider.launch(request)
        second = await world.provider.launch(request)
        assert first.id == second.id
        assert world.server.running == {first.id}
        inserts = [each.url for each in world.wire.requests if "/instances?requestId" in each.url]
        assert inserts[0] == inserts[1]


async def test_a_name_that_a_stranger_has_is_not_taken_for_ours():
    async with google() as world:
        request = await world.request()
        await world.provider.launch(request)
        for other in (replace(request, uid="uid-2"), replace(request, uid="uid-3", cluster="another")):
            with pytest.raises(Rejected, match="not of this record"):
                await world.provider.launch(other)


async def test_while_the_earlier_machine_is_deleted_its_name_is_not_launched_again():
    async with google() as world:
        request = await world.request()
        launched = await world.provider.launch(request)
        await world.provider.terminate(launched.id)
        with pytest.raises(Unavailable, match="still being deleted"):
            await world.provider.launch(replace(request, attempt=2))


async def test_a_listing_has_all_pages():
    async with google(page_size=2) as world:
        ids = {(await world.launch(f"uid-{number}")).id for number in range(7)}
        assert {each.id for each in (await world.provider.instances()).instances} == ids


async def test_a_zone_that_cannot_be_listed_makes_the_listing_an_error_and_costs_only_its_own_offers():
    async with google() as world:
        await world.launch()
        world.server.unreachable = {"europe-west4-a"}
        with pytest.raises(Unavailable, match="europe-west4-a"):
            await world.provider.instances()
        await asyncio.sleep(600)
        assert {each.zone for each in await world.provider.offers()} == {"us-central1-a", "us-central1-b"}


async def test_instances_of_another_cluster_are_not_listed_and_never_deleted():
    async with google() as world:
        other = world.server.leave_behind("g2-standard-8", "another-cluster")
        ours = world.server.leave_behind("g2-standard-48", CLUSTER)
        assert [each.id for each in (await world.provider.instances()).instances] == [ours]
        with pytest.raises(InstanceGone, match="another machine"):
            await world.provider.terminate(other)
        assert other in world.server.running


async def test_a_lagging_list_shows_a_launch_later():
    async with google(list_lag=20) as world:
        launched = await world.launch()
        assert (await world.provider.instances()).instances == ()
        await asyncio.sleep(20)
        assert [each.id for each in (await world.provider.instances()).instances] == [launched.id]
        assert CAPABILITIES.settle_time > timedelta(seconds=20)


async def test_an_instance_that_vanished_is_gone():
    async with google() as world:
        launched = await world.launch()
        world.server.vanish(launched.id)
        assert (await world.provider.instances()).instances == ()
        with pytest.raises(InstanceGone):
            await world.provider.terminate(launched.id)


async def test_the_end_of_an_instance_that_an_earlier_process_deleted_is_found():
    async with google() as world:
        launched = await world.launch()
        world.server.end(launched.id)
        await asyncio.sleep(15)
        assert (await world.provider.instances()).ended == {}, "nobody has said that it existed"
        with pytest.raises(InstanceGone):
            await world.provider.terminate(launched.id)
        ended = world.server.instances[launched.id].line.ended
        assert (await world.provider.instances()).ended == {launched.id: ended}


async def test_an_end_that_no_operation_tells_is_looked_for_during_ten_minutes():
    async with google() as world:
        launched = await world.launch()
        assert len((await world.provider.instances()).instances) == 1
        world.server.vanish(launched.id)
        for _ in range(12):
            assert (await world.provider.instances()).ended == {}
            await asyncio.sleep(60)
        assert sum("/operations?" in each.url for each in world.wire.requests) == 11


async def test_a_disk_that_is_left_behind_is_listed_as_its_instance_and_deleted_by_terminating():
    async with google() as world:
        world.server.leaves_disks = True
        launched = await world.launch()
        await world.provider.terminate(launched.id)
        await asyncio.sleep(15)
        assert world.server.running == frozenset()
        (left,) = (await world.provider.instances()).instances
        assert (left.id, left.owner, left.phase) == (launched.id, "uid-1", InstancePhase.ENDING)
        assert left.message == "The instance is gone, and its disk is left."
        await world.provider.terminate(launched.id)
        assert world.server.others["disks"] == {}
        assert (await world.provider.instances()).instances == ()
        with pytest.raises(InstanceGone):
            await world.provider.terminate(launched.id)


async def test_a_new_disk_without_an_instance_is_no_leftover_yet():
    async with google() as world:
        launched = await world.launch()
        world.server.vanish(launched.id)
        world.server.others["disks"][launched.id] = {
            "name": "gpu-uid-1",
            "zone": "zones/us-central1-a",
            "labels": {"forebay-cluster": CLUSTER},
            "users": [],
            "creationTimestamp": world.server.instances[launched.id].line.created.isoformat(),
        }
        assert (await world.provider.instances()).instances == ()
        await asyncio.sleep(600)
        assert len((await world.provider.instances()).instances) == 1


@pytest.mark.parametrize("call", ["list_instances", "list_disks"])
async def test_a_list_that_is_not_found_says_that_project_or_address_are_wrong_and_not_that_something_is_gone(call):
    async with google() as world:
        await world.launch()
        world.server.script(call, world.server.refusal(404, "The project was not found"))
        with pytest.raises(Rejected, match=r"Correct the project of Secret .*, or endpoint of the provider"):
            await world.provider.instances()


async def test_prices_that_are_not_found_say_that_project_or_address_are_wrong():
    async with google() as world:
        world.server.script("list_skus", world.server.refusal(404, "Not found"))
        with pytest.raises(Rejected, match="or endpoint of the provider"):
            await world.provider.offers()


async def test_a_disk_that_cannot_be_listed_makes_the_listing_an_error():
    async with google() as world:
        world.server.script("list_disks", *[market_faults.server_error(503)] * 2)
        with pytest.raises(Unavailable):
            await world.provider.instances()


async def test_a_token_that_ends_early_is_renewed_in_the_middle_of_a_launch():
    async with google() as world:
        request = await world.request()
        world.server.desk.expire()
        launched = await world.provider.launch(request)
        assert world.server.running == {launched.id}
        assert len(world.server.calls_of(MarketCall.LAUNCH)) == 2
        assert [each.acted for each in world.server.calls_of(MarketCall.LAUNCH)] == [False, True]


async def test_a_token_is_renewed_before_it_ends():
    async with google() as world:
        await world.provider.instances()
        await asyncio.sleep(3590)
        await world.provider.instances()
        assert world.server.desk.requests == ["/token", "/token"]
        assert not [each for each in world.server.calls if each.status == 401]


async def test_many_calls_at_once_ask_for_one_token():
    async with google() as world:
        await asyncio.gather(*(world.provider.instances() for _ in range(5)))
        assert world.server.desk.requests == ["/token"]


async def test_a_new_key_in_the_secret_is_used_without_a_restart():
    async with google() as world:
        await world.provider.instances()
        world.server.key = "rotated-key-id-1"
        with pytest.raises(BadCredentials, match="no such key"):
            await world.provider.instances()
        world.held["key"] = key_file("rotated-key-id-1", BASE)
        await world.provider.instances()


@pytest.mark.parametrize(("status", "error"), [(503, Unavailable), (429, RateLimited)])
async def test_a_token_endpoint_that_fails_is_no_bad_key(status, error):
    async with google() as world:
        world.server.desk.refuses = [status]
        with pytest.raises(error, match="access token"):
            await world.provider.instances()
        await world.provider.instances()
        assert world.server.desk.requests == ["/token", "/token"], "Forebay decides when to try again"


BAD_SECRETS = [
    ({"key": b"not json"}, "is not JSON"),
    ({"key": b'{"type": "authorized_user"}'}, 'has the type "authorized_user"'),
    ({"key": b'{"type": "service_account", "project_id": "p"}'}, "cannot be used"),
    ({"other": b"{}"}, "has no key key"),
]


@pytest.mark.parametrize(("held", "said"), BAD_SECRETS, ids=[each[1] for each in BAD_SECRETS])
async def test_what_is_wrong_with_a_secret_is_said(held, said):
    async with google(secret=held) as world:
        check = await world.provider.check()
        assert not check.ok
        assert said in check.sentence


async def test_workload_identity_federation_exchanges_the_clusters_own_token():
    secret = {"key": federation_config(BASE), "project": PROJECT.encode()}
    async with google(secret=secret) as world:
        launched = await world.launch()
        assert world.server.running == {launched.id}
        assert world.server.desk.requests == ["/subject-token", "/sts"]


async def test_federation_without_a_project_says_what_to_add():
    async with google(secret={"key": federation_config(BASE)}) as world:
        check = await world.provider.check()
        assert check.sentence == (
            "Secret forebay/google does not name a project. Add the key project with the project's id."
        )


async def test_without_a_secret_the_metadata_server_gives_project_and_token():
    async with google(ref=False) as world:
        check = await world.provider.check()
        assert check.ok, check.sentence
        assert "the metadata server" in check.sentence
        assert {each.url.partition("?")[0] for each in world.wire.requests[:2]} == {
            "http://metadata.google.internal/computeMetadata/v1/project/project-id",
            "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token",
        }


IMAGES = [
    ("talos-v1-13", f"projects/{PROJECT}/global/images/talos-v1-13"),
    ("family/talos", f"projects/{PROJECT}/global/images/family/talos"),
    ("projects/other/global/images/x", "projects/other/global/images/x"),
]


@pytest.mark.parametrize(("image", "source"), IMAGES, ids=[each[0] for each in IMAGES])
async def test_an_image_is_one_of_the_project_or_named_in_full(image, source):
    async with google() as world:
        await world.launch(image=image)
        assert world.inserted()["disks"][0]["initializeParams"]["sourceImage"] == source


async def test_what_google_cannot_boot_is_rejected_before_anything_is_sent():
    async with google() as world:
        request = await world.request()
        talos = BootPayload(kind=BootKind.TALOS, text=SecretText("machine: {}"))
        for refused, said in (
            (replace(request, image="ghcr.io/siderolabs/talos:v1.13.9"), "is none of Google's"),
            (replace(request, boot=talos), "no public Talos image"),
        ):
            with pytest.raises(Rejected, match=said):
                await world.provider.launch(refused)
        assert world.server.calls_of(MarketCall.LAUNCH) == []


async def test_a_machine_that_never_joins_is_billed_until_it_is_terminated():
    async with google() as world:
        launched = await world.launch()
        await asyncio.sleep(1800)
        await world.provider.terminate(launched.id)
        await asyncio.sleep(20)
        (line,) = world.server.billed
        assert line.billed_seconds(line.ended) in {1812, 1813}
        assert world.server.others["disks"] == {}


async def test_no_request_names_a_secret_in_its_url():
    async with google() as world:
        await world.launch()
        assert all(isinstance(each, Request) and KEY not in each.url for each in world.wire.requests)
