"""The contract of `forebay.providers.base`, promise by promise."""

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
from tests.contract.providers.stages import Trouble

MEANING = {
    Trouble.BAD_CREDENTIALS: BadCredentials,
    Trouble.RATE_LIMITED: RateLimited,
    Trouble.REFUSED: Rejected,
    Trouble.SERVER_ERROR: OutcomeUnknown,
    Trouble.FAILS_AFTER_ACTING: OutcomeUnknown,
    Trouble.UNREACHABLE: Unavailable,
    Trouble.LOST_REQUEST: OutcomeUnknown,
    Trouble.LOST_ANSWER: OutcomeUnknown,
    Trouble.SILENCE: OutcomeUnknown,
}
ACTED = {Trouble.FAILS_AFTER_ACTING, Trouble.LOST_ANSWER, Trouble.SILENCE}


async def gone(stage, instance_id):
    """Whether the listing shows it as gone, after a while if need be."""
    for _ in range(50):
        found = await stage.provider.instances()
        if instance_id not in {instance.id for instance in found.instances} | found.unknown:
            return True
        await asyncio.sleep(0.02)
    return False


async def test_capabilities_never_change(stage):
    async with stage.open():
        before = stage.provider.capabilities()
        await stage.provider.launch(await stage.request())
        assert stage.provider.capabilities() == before


async def test_offers_say_what_a_plan_needs(stage):
    async with stage.open():
        offers = await stage.provider.offers()
        assert offers
        assert len({offer.key for offer in offers}) == len(offers)
        for offer in offers:
            assert offer.gpu_count > 0
            assert offer.allocatable.amount(offer.gpu_resource) == offer.gpu_count
            assert offer.allocatable.amount("cpu") > 0
            assert offer.stock is None or offer.stock > 0


async def test_a_launch_starts_one_and_the_listing_shows_it(stage):
    async with stage.open():
        launched = await stage.provider.launch(await stage.request("uid-1"))
        assert launched.owner == "uid-1"
        assert stage.truth() == {launched.id}
        (listed,) = (await stage.provider.instances()).instances
        assert listed.id == launched.id
        assert listed.owner in {None, "uid-1"}


async def test_asked_twice_under_one_identity_it_delivers_one(stage):
    async with stage.open():
        if not stage.provider.capabilities().idempotent_launch:
            pytest.skip("it does not promise that; the lifecycle lists before it asks again")
        first = await stage.provider.launch(await stage.request("uid-1"))
        second = await stage.provider.launch(await stage.request("uid-1", attempt=2))
        assert first.id == second.id
        assert stage.truth() == {first.id}


@pytest.mark.parametrize("trouble", Trouble)
async def test_errors_say_what_the_caller_must_do_and_whether_anything_was_started(stage, trouble):
    async with stage.open():
        request = await stage.request()
        stage.trouble(trouble)
        with pytest.raises(ProviderError) as caught:
            await stage.provider.launch(request)
        assert type(caught.value) is MEANING[trouble]
        assert bool(stage.truth()) == (trouble in ACTED)
        failure = caught.value.failure()
        assert failure.kind is MEANING[trouble].kind
        assert (failure.retry_after is not None) == (failure.kind is FailureKind.RATE_LIMITED)


@pytest.mark.parametrize("trouble", Trouble)
async def test_no_error_shows_a_secret_and_each_is_a_sentence(stage, trouble):
    async with stage.open():
        request = await stage.request()
        stage.trouble(trouble)
        with pytest.raises(ProviderError) as caught:
            await stage.provider.launch(request)
        shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caught.value.failure()!r}"
        assert not [secret for secret in stage.secrets if secret in shown]
        assert str(caught.value).endswith(".")
        # What the redactor would blank out in a log is worded badly, not secret.
        assert stage.redactor.text(str(caught.value)) == str(caught.value)


@pytest.mark.parametrize("trouble", sorted(ACTED))
async def test_after_an_unknown_outcome_the_listing_tells_and_asking_again_gives_the_same(stage, trouble):
    async with stage.open():
        request = await stage.request("uid-1")
        stage.trouble(trouble)
        with pytest.raises(OutcomeUnknown):
            await stage.provider.launch(request)
        (listed,) = (await stage.provider.instances()).instances
        again = await stage.provider.launch(await stage.request("uid-1", attempt=2))
        assert again.id == listed.id
        assert stage.truth() == {listed.id}


async def test_what_was_terminated_disappears_from_the_listing_and_repeating_it_does_no_harm(stage):
    async with stage.open():
        launched = await stage.provider.launch(await stage.request())
        other = await stage.provider.launch(await stage.request("uid-2", machine="eight"))
        await stage.provider.terminate(launched.id)
        assert await gone(stage, launched.id)
        with suppress(InstanceGone):
            await stage.provider.terminate(launched.id)
        assert stage.truth() == {other.id}


async def test_the_end_of_something_unheard_of_is_not_reported_as_done(stage):
    async with stage.open():
        with pytest.raises(ProviderError):
            await stage.provider.terminate("unheard-of")


async def test_a_listing_that_fails_never_says_that_nothing_is_there(stage):
    async with stage.open():
        launched = await stage.provider.launch(await stage.request())
        stage.trouble_with_listing()
        try:
            found = await stage.provider.instances()
        except ProviderError:
            return
        assert launched.id in found.unknown


async def test_a_check_starts_nothing_and_reports_instead_of_raising(stage):
    async with stage.open():
        check = await stage.provider.check()
        assert check.ok, check.sentence
        stage.trouble(Trouble.BAD_CREDENTIALS)
        check = await stage.provider.check()
        assert not check.ok
        assert not [secret for secret in stage.secrets if secret in check.sentence]
        stage.recover()
        assert (await stage.provider.check()).ok
        assert stage.truth() == frozenset()
        assert stage.launch_calls() == []


async def test_a_stuck_launch_delays_no_other_call(stage):
    async with stage.open():
        request = await stage.request()
        stage.trouble(Trouble.SILENCE)
        stuck = asyncio.ensure_future(stage.provider.launch(request))
        await asyncio.sleep(0)
        other = await stage.provider.launch(await stage.request("uid-2", machine="eight"))
        assert other.id in stage.truth()
        assert not stuck.done()
        with pytest.raises(OutcomeUnknown):
            await stuck


async def test_once_closed_it_starts_nothing_more(stage):
    async with stage.open():
        request = await stage.request()
        await stage.provider.close()
        await stage.provider.close()
        with pytest.raises(Unavailable):
            await stage.provider.launch(request)
        assert stage.truth() == frozenset()
