"""The contract of `forebay.providers.base`, one test per clause."""

import asyncio
from contextlib import suppress

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
