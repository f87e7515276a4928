"""Managed instance groups of gcp: what the contract of all instance groups does not say."""

import asyncio
from urllib.parse import parse_qs, urlsplit

import pytest

from forebay.model.sources import FailureKind, FailureScope, InstancePhase
from forebay.net.transport import AnswerLost
from forebay.providers.base import OutcomeUnknown, QuotaReached, Rejected, Unavailable
from forebay.providers.gcp.group_place import GroupPlace
from forebay.providers.instance_groups import InstanceGroups
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.test_groups import RegionalGroups, ZonalGroups


class Spot(ZonalGroups):
    def add(self):
        self.world.add_group("group", self.kind, ["first", "second"], spot=True)


class Created(ZonalGroups):
    """A group that does not exist, and a template that does."""

    template = "gpu-nodes"

    def add(self):
        self.world.templates["gpu-nodes"] = self.kind


class CreatedInRegion(Created):
    location = "us-central1"


class Attached(ZonalGroups):
    kind = "n1-standard-8+1xT4"


@pytest.mark.parametrize(
    ("group", "path"),
    [
        ("pool", "zones/us-central1-a/instanceGroupManagers/pool"),
        ("us-east4-c/pool", "zones/us-east4-c/instanceGroupManagers/pool"),
        ("europe-west4/pool", "regions/europe-west4/instanceGroupManagers/pool"),
    ],
)
def test_a_group_is_in_the_location_of_the_provider_or_in_the_one_it_names(group, path):
    assert GroupPlace(group, "us-central1-a").path == path


async def test_a_stock_out_speaks_against_the_zone_and_a_quota_against_the_offer():
    async with ZonalGroups().open() as harness:
        harness.world.restock(harness.kind, 0)
        await harness.provider.grow("group", ["third"])
        await asyncio.sleep(1)
        failure = (await harness.listed())["third"].failure
        assert (failure.kind, failure.scope) == (FailureKind.NO_CAPACITY, FailureScope.ZONE)
        assert failure.sentence == (
            'Creation of third failed ("The zone does not have enough resources available to fulfill the request"): '
            "the zone has no capacity left."
        )
        harness.world.quota = 2
        harness.world.restock(harness.kind, None)
        await asyncio.sleep(30)
        failure = (await harness.listed())["third"].failure
        assert (failure.kind, failure.scope) == (FailureKind.QUOTA, FailureScope.OFFER)


async def test_a_failed_operation_is_the_error_of_the_request():
    async with ZonalGroups().open() as harness:
        harness.world.script(MarketCall.GROW, harness.world.quota_reached())
        with pytest.raises(QuotaReached, match="a quota of the project is used up"):
            await harness.provider.grow("group", ["third"])
        assert len(harness.world.running) == 2


async def test_every_request_that_acts_has_an_id_of_its_own():
    async with ZonalGroups().open() as harness:
        await harness.provider.grow("group", ["third"])
        await harness.provider.shrink("group", ["third"])
        await harness.provider.grow("group", ["fourth"])
        acting = [each for each in harness.sent if each.method == "POST" and "listManaged" not in each.url]
        ids = [parse_qs(urlsplit(each.url).query)["requestId"][0] for each in acting if "compute" in each.url]
        assert len(ids) == len(set(ids)) == 3


async def test_members_of_a_standby_pool_are_left_to_their_owner():
    async with ZonalGroups().open() as harness:
        harness.world.groups["group"].asked["second"].target_status = "SUSPENDED"
        assert list(await harness.listed()) == ["first"]
        await harness.provider.shrink("group", ["second"])


async def test_a_member_that_its_group_repairs_is_starting_and_never_failed():
    async with ZonalGroups().open() as harness:
        harness.world.restock(harness.kind, 0)
        harness.world.recreate("group", "first")
        await asyncio.sleep(5)
        harness.world.restock(harness.kind, 0)
        await asyncio.sleep(30)
        groups = InstanceGroups(harness.provider, ["group"])
        (first,) = [each for each in (await groups.instances()).instances if each.id == "group/first"]
        assert first.phase is InstancePhase.STARTING
        assert "no capacity left" in first.message


async def test_spot_members_that_google_takes_are_created_again_by_their_group():
    async with Spot().open() as harness:
        offer = (await harness.provider.members("group")).offer
        assert offer.spot
        harness.world.reclaim(harness.world.groups["group"].asked["first"].rented.id)
        await asyncio.sleep(2)
        assert (await harness.listed())["first"].instance.phase in {InstancePhase.STARTING, InstancePhase.ENDING}
        await asyncio.sleep(60)
        assert (await harness.listed())["first"].instance.phase is InstancePhase.RUNNING


async def test_a_stopped_member_of_a_group_that_repairs_nothing_is_stopped():
    async with ZonalGroups().open() as harness:
        group = harness.world.groups["group"]
        group.fields["instanceLifecyclePolicy"] = {"defaultActionOnFailure": "DO_NOTHING"}
        await harness.listed()
        group.asked["first"].rented.enters(InstancePhase.STOPPED)
        assert (await harness.listed())["first"].instance.phase is InstancePhase.STOPPED
        del group.fields["instanceLifecyclePolicy"]
        assert (await harness.listed())["first"].instance.phase is InstancePhase.STARTING


async def test_attached_gpus_are_part_of_the_offer():
    async with Attached().open() as harness:
        offer = (await harness.provider.members("group")).offer
        assert (offer.instance_type, offer.gpu_count, offer.zone) == ("n1-standard-8+1xT4", 1, "us-central1-a")


async def test_members_of_a_regional_group_are_in_its_zones_and_its_offer_in_none():
    async with RegionalGroups().open() as harness:
        found = await harness.provider.members("group")
        assert {each.instance.provider_id for each in found.members} == {
            "gce://trial-project/us-central1-a/first",
            "gce://trial-project/us-central1-b/second",
        }
        assert (found.offer.region, found.offer.zone) == ("us-central1", None)


async def test_a_group_that_names_its_members_itself_is_resized_up_and_tells_the_names():
    async with ZonalGroups().open() as harness:
        group = harness.world.groups["group"]
        group.fields["targetSizePolicy"] = {"mode": "BULK"}
        assert (await harness.provider.members("group")).chooses_names
        named = await harness.provider.grow("group", ["ours-1", "ours-2"])
        assert sorted(named) == ["ours-1", "ours-2"]
        assert sorted(named.values()) == ["group-0001", "group-0002"]
        assert (group.target, group.resized_down) == (4, 0)


async def test_a_group_that_refuses_names_is_resized_from_then_on():
    async with ZonalGroups().open() as harness:
        harness.world.groups["group"].refuses_names = True
        assert await harness.provider.grow("group", ["ours"]) == {"ours": "group-0001"}
        assert (await harness.provider.members("group")).chooses_names


async def test_a_name_that_is_still_being_deleted_is_tried_again_later():
    async with ZonalGroups().open() as harness:
        await harness.provider.shrink("group", ["first"])
        with pytest.raises(Unavailable, match="still being deleted: first"):
            await harness.provider.grow("group", ["first"])


async def test_a_name_that_is_taken_without_being_listed_leaves_the_outcome_unknown():
    async with ZonalGroups(list_lag=60.0).open() as harness:
        await harness.provider.grow("group", ["third"])
        await asyncio.sleep(1)
        with pytest.raises(OutcomeUnknown, match="is taken already"):
            await harness.provider.grow("group", ["third"])


async def test_an_autoscaler_that_resizes_the_group_too_fails_the_check():
    async with ZonalGroups().open() as harness:
        groups = InstanceGroups(harness.provider, ["group"])
        assert (await groups.check()).sentence == "Instance groups and their members: group (2)."
        harness.world.groups["group"].fields["status"] = {"autoscaler": ".../autoscalers/busy"}
        found = await groups.check()
        assert not found.ok
        assert "has an autoscaler (busy), which resizes it too" in found.sentence


class Queued(ZonalGroups):
    """New members come from Google's Dynamic Workload Scheduler, and run for an hour."""

    run_duration = "1h"


async def test_a_queued_member_waits_runs_for_its_time_and_is_deleted_by_google():
    async with Queued().open() as harness:
        harness.world.restock(harness.kind, 0)
        await harness.provider.grow("group", ["third"])
        await harness.provider.grow("group", ["third"])
        await asyncio.sleep(30)
        third = (await harness.listed())["third"]
        assert (third.instance, third.failure.kind) == (None, FailureKind.UNAVAILABLE)
        assert "stays in Google's queue, at no cost" in third.failure.sentence
        assert len(harness.world.running) == 2
        harness.world.restock(harness.kind, None)
        await asyncio.sleep(60)
        third = (await harness.listed())["third"].instance
        assert (third.ends_at - third.created).total_seconds() == pytest.approx(3600, abs=1)
        assert len(harness.world.groups["group"].requests) == 1
        await asyncio.sleep(3600)
        assert sorted(await harness.listed()) == ["first", "second"]


async def test_a_member_in_the_queue_is_cancelled_and_one_that_runs_is_deleted_with_its_request():
    async with Queued().open() as harness:
        group = harness.world.groups["group"]
        await harness.provider.grow("group", ["runs"])
        await asyncio.sleep(20)
        harness.world.restock(harness.kind, 0)
        await harness.provider.grow("group", ["waits"])
        await asyncio.sleep(20)
        await harness.provider.shrink("group", ["waits", "runs"])
        await asyncio.sleep(20)
        assert sorted(await harness.listed()) == ["first", "second"]
        assert {each.state for each in group.requests.values()} <= {"CANCELLED"}
        await harness.provider.shrink("group", ["waits"])
        assert group.requests == {}


async def test_a_request_that_has_failed_is_a_failed_member_until_it_is_withdrawn():
    async with Queued().open() as harness:
        harness.world.restock(harness.kind, 0)
        await harness.provider.grow("group", ["third"])
        harness.world.groups["group"].requests["third"].fail("QUOTA_EXCEEDED", "Quota 'GPUS' exceeded.")
        groups = InstanceGroups(harness.provider, ["group"])
        (third,) = [each for each in (await groups.instances()).instances if each.id == "group/third"]
        assert third.phase is InstancePhase.FAILED
        await harness.provider.shrink("group", ["third"])
        assert sorted(await harness.listed()) == ["first", "second"]


async def test_requests_of_other_people_stay():
    async with Queued().open() as harness:
        group = harness.world.groups["group"]
        group.queue({"name": "theirs", "instances": [{"name": "theirs"}]}, 600)
        await asyncio.sleep(20)
        await harness.provider.shrink("group", ["theirs"])
        assert "theirs" in group.requests


@pytest.mark.parametrize("harness", [Created, CreatedInRegion])
async def test_a_group_that_does_not_exist_is_created_from_the_template_with_its_first_members(harness):
    async with harness().open() as made:
        found = await made.provider.members("group")
        assert (found.members, found.target) == ((), 0)
        assert found.offer.instance_type == made.kind
        assert not made.world.groups, "listing creates nothing"
        await made.provider.shrink("group", ["nobody"])
        await made.provider.grow("group", ["first", "second"])
        await asyncio.sleep(30)
        assert sorted(await made.listed()) == ["first", "second"]
        assert made.world.groups["group"].created_with["targetSize"] == 0
        assert made.world.groups["group"].regional is (made.location == "us-central1")
        await made.provider.grow("group", ["third"])
        inserts = [each for each in made.sent if each.method == "POST" and "instanceGroupManagers?" in each.url]
        assert len(inserts) == 1


async def test_a_group_whose_creation_was_not_answered_is_not_created_twice():
    async with Created().open() as made:
        answer, lost = made.world.answer, []

        async def once_without_an_answer(request):
            found = await answer(request)
            if "instanceGroupManagers?" in request.url and not lost:
                lost.append(request)
                raise AnswerLost(f"{request}: sent, but the connection broke", request)
            return found

        made.world.answer = once_without_an_answer
        with pytest.raises(OutcomeUnknown):
            await made.provider.grow("group", ["first"])
        await made.provider.grow("group", ["first"])
        assert list(await made.listed()) == ["first"]


async def test_a_template_that_does_not_exist_has_no_offer_and_creates_no_group():
    async with Created().open() as made:
        del made.world.templates["gpu-nodes"]
        assert (await made.provider.members("group")).offer is None
        with pytest.raises(Rejected):
            await made.provider.grow("group", ["first"])
        assert not made.world.groups
