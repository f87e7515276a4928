"""The contract of `forebay.providers.base`, one test per clause."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from forebay.model.sources import FailureKind
from forebay.providers.base import (
    BadCredentials,
    InstanceGone,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
)
from forebay.simulate import market_faults
from tests.contract.providers.harness import LaunchFault

ERRORS = {
    LaunchFault.BAD_CREDENTIALS: BadCredentials,
    LaunchFault.RATE_LIMITED: RateLimited,
    LaunchFault.REFUSED: Rejected,
    LaunchFault.SERVER_ERROR: OutcomeUnknown,
    LaunchFault.FAILS_AFTER_ACTING: OutcomeUnknown,
    LaunchFault.UNREACHABLE: Unavailable,
    LaunchFault.LOST_REQUEST: OutcomeUnknown,
    LaunchFault.LOST_ANSWER: OutcomeUnknown,
    LaunchFault.SILENCE: OutcomeUnknown,
}
ACTED = {LaunchFault.FAILS_AFTER_ACTING, LaunchFault.LOST_ANSWER, LaunchFault.SILENCE}


async def disappears(harness, instance_id):
    """Whether the instance disappears from the listing within a second."""
    for _ in range(50):
        found = await harness.provider.instances()
        if instance_id not in {instance.id for instance in found.instances} | found.unknown:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_capabilities_never_change(harness):
    async with harness.open():
        before = harness.provider.capabilities()
        await harness.provider.launch(await harness.request())
        assert harness.provider.capabilities() == before


async def test_offers_have_what_a_plan_needs(harness):
    async with harness.open():
        offers = await harness.provider.offers()
        assert offers
        assert len({offer.key for offer in offers}) == len(offers)
        for offer in offers:
            assert offer.gpu_count > 0
            assert offer.allocatable.amount(offer.gpu_resource) == offer.gpu_count
            assert offer.allocatable.amount("cpu") > 0
            assert offer.stock is None or offer.stock > 0


async def test_a_launch_starts_one_instance_and_the_listing_has_it(harness):
    async with harness.open():
        launched = await harness.provider.launch(await harness.request("uid-1"))
        assert launched.owner == "uid-1"
        assert harness.running() == {launched.id}
        (listed,) = (await harness.provider.instances()).instances
        assert listed.id == launched.id
        assert listed.owner in {None, "uid-1"}


async def test_two_launches_with_one_uid_start_one_instance_or_both_are_listed_with_it(harness):
    async with harness.open():
        first = await harness.provider.launch(await harness.request("uid-1"))
        second = await harness.provider.launch(await harness.request("uid-1", attempt=2))
        assert first.id == second.id or not harness.provider.capabilities().idempotent_launch
        assert harness.running() == {first.id, second.id}
        # Where a launch is not idempotent, the lifecycle finds the second one, keeps one and terminates the other.
        found = (await harness.provider.instances()).instances
        assert {(each.id, each.owner or "uid-1") for each in found} == {(first.id, "uid-1"), (second.id, "uid-1")}


@pytest.mark.parametrize("fault", LaunchFault)
async def test_the_type_of_an_error_tells_whether_anything_was_launched(harness, fault):
    async with harness.open():
        request = await harness.request()
        harness.inject(fault)
        with pytest.raises(ProviderError) as caught:
            await harness.provider.launch(request)
        assert type(caught.value) is ERRORS[fault]
        assert bool(harness.running()) == (fault in ACTED)
        failure = caught.value.failure()
        assert failure.kind is ERRORS[fault].kind
        assert (failure.retry_after is not None) == (failure.kind is FailureKind.RATE_LIMITED)


@pytest.mark.parametrize("fault", LaunchFault)
async def test_no_error_shows_a_secret_and_each_is_a_sentence(harness, fault):
    async with harness.open():
        request = await harness.request()
        harness.inject(fault)
        with pytest.raises(ProviderError) as caught:
            await harness.provider.launch(request)
        shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caught.value.failure()!r}"
        assert not [secret for secret in harness.secrets if secret in shown]
        assert str(caught.value).endswith(".")
        # A sentence that the redactor would alter in a log is worded badly.
        assert harness.redactor.text(str(caught.value)) == str(caught.value)


@pytest.mark.parametrize("fault", sorted(ACTED))
async def test_after_an_unknown_outcome_the_listing_has_the_instance_and_no_retry_rents_a_second(harness, fault):
    async with harness.open():
        request = await harness.request("uid-1")
        harness.inject(fault)
        with pytest.raises(OutcomeUnknown):
            await harness.provider.launch(request)
        (listed,) = (await harness.provider.instances()).instances
        assert harness.running() == {listed.id}
        if harness.provider.capabilities().idempotent_launch:
            again = await harness.provider.launch(await harness.request("uid-1", attempt=2))
            assert again.id == listed.id
            assert harness.running() == {listed.id}
        else:
            assert listed.owner == "uid-1", "only by its owner can the lifecycle find it"


async def test_a_terminated_instance_disappears_from_the_listing_and_a_second_call_is_harmless(harness):
    async with harness.open():
        launched = await harness.provider.launch(await harness.request())
        other = await harness.provider.launch(await harness.request("uid-2", machine="eight"))
        await harness.provider.terminate(launched.id)
        assert await disappears(harness, launched.id)
        with suppress(InstanceGone):
            await harness.provider.terminate(launched.id)
        assert harness.running() == {other.id}


def billed_until(harness, instance):
    return harness.world.instances[instance.id].line.ended


async def test_the_end_of_a_terminated_instance_is_told_to_the_second_that_is_billed(telling):
    async with telling.open():
        launched = await telling.provider.launch(await telling.request())
        assert [each.id for each in (await telling.provider.instances()).instances] == [launched.id]
        await telling.provider.terminate(launched.id)
        if telling.end_operation is not None:
            telling.world.script(
                telling.end_operation, *[market_faults.server_error(500)] * (1 if telling.sockets else 2)
            )
        while (found := await telling.provider.instances()).instances:
            assert found.ended == {}, "it is being deleted"
            await asyncio.sleep(0.1)
        if telling.end_operation is not None:
            assert found.ended == {}, "nobody could say, and the instance is gone all the same"
        for _ in range(2):
            ended = (await telling.provider.instances()).ended
            assert ended.keys() == {launched.id}
            assert int(ended[launched.id].timestamp()) == int(billed_until(telling, launched).timestamp())
        if telling.end_operation is not None and not telling.sockets:
            await asyncio.sleep(7200)
            assert (await telling.provider.instances()).ended == {}, "what is remembered is forgotten after hours"


async def test_of_an_instance_that_somebody_else_ended_no_end_is_made_up(telling):
    async with telling.open():
        launched = await telling.provider.launch(await telling.request())
        assert len((await telling.provider.instances()).instances) == 1
        telling.world.vanish(launched.id)
        for _ in range(3):
            found = await telling.provider.instances()
            assert found.instances == ()
            assert not found.ended or found.ended[launched.id] - billed_until(telling, launched) < timedelta(seconds=1)
            await asyncio.sleep(0 if telling.sockets else 20)


async def test_an_instance_whose_disk_was_left_behind_is_billed_until_that_is_gone(with_disks):
    async with with_disks.open():
        with_disks.world.leaves_disks = True
        launched = await with_disks.provider.launch(await with_disks.request())
        await with_disks.provider.terminate(launched.id)
        await asyncio.sleep(0 if with_disks.sockets else 15)
        found = await with_disks.provider.instances()
        assert with_disks.running() == frozenset()
        assert ([each.id for each in found.instances], found.ended) == ([launched.id], {})
        await with_disks.provider.terminate(launched.id)
        found = await with_disks.provider.instances()
        assert (found.instances, found.ended) == ((), {})


async def test_terminating_an_unknown_instance_does_not_succeed(harness):
    async with harness.open():
        with pytest.raises(ProviderError):
            await harness.provider.terminate("unheard-of")


async def test_a_failed_listing_is_never_empty(harness):
    async with harness.open():
        launched = await harness.provider.launch(await harness.request())
        harness.fail_listing()
        try:
            found = await harness.provider.instances()
        except ProviderError:
            return
        assert launched.id in found.unknown


async def test_a_listing_names_the_same_account_each_time_and_no_secret(harness):
    async with harness.open():
        before = (await harness.provider.instances()).account
        await harness.provider.launch(await harness.request())
        assert (await harness.provider.instances()).account == before
        assert before is None or not any(secret in before for secret in harness.secrets)
        assert (before is None) is harness.provider.capabilities().lists_machines, "only owned machines have no account"


async def test_a_check_launches_nothing_and_returns_errors(harness):
    async with harness.open():
        check = await harness.provider.check()
        assert check.ok, check.sentence
        harness.inject(LaunchFault.BAD_CREDENTIALS)
        check = await harness.provider.check()
        assert not check.ok
        assert not [secret for secret in harness.secrets if secret in check.sentence]
        harness.recover()
        assert (await harness.provider.check()).ok
        assert harness.running() == frozenset()
        assert harness.launch_calls() == []


async def test_a_stuck_launch_delays_no_other_call(harness):
    async with harness.open():
        request = await harness.request()
        harness.inject(LaunchFault.SILENCE)
        stuck = asyncio.ensure_future(harness.provider.launch(request))
        await asyncio.sleep(0)
        other = await harness.provider.launch(await harness.request("uid-2", machine="eight"))
        assert other.id in harness.running()
        assert not stuck.done()
        with pytest.raises(OutcomeUnknown):
            await stuck


async def test_once_closed_it_starts_nothing_more(harness):
    async with harness.open():
        request = await harness.request()
        await harness.provider.close()
        await harness.provider.close()
        with pytest.raises(Unavailable):
            await harness.provider.launch(request)
        assert harness.running() == frozenset()
