"""Polling of providers: independent of each other, and a failed listing is unknown, never empty."""

import asyncio
import itertools
from datetime import timedelta

import msgspec
import pytest

from forebay.engine.sources.sources import CALL_TIMEOUT, SourceConfig, Sources, read_offers
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Check, Delivery, Found, Instance, InstancePhase, Offer, SourceKey
from forebay.net import clock
from forebay.providers.base import BadCredentials, Rejected, Unavailable
from forebay.providers.plugin import ProviderNotServed

BOX = Instance(id="box", phase=InstancePhase.RUNNING)


def offer(name="box"):
    return Offer(provider="webhook", instance_type=name, price=UsdPerHour(0), allocatable=Resources())


class Scripted:
    """A provider with scripted answers: a value, an error, or none at all."""

    def __init__(self, *, listings=None, offers=((),)):
        self.listings, self.offered = list(listings or [Found()]), list(offers)
        self.listed_at = []
        self.closed = False

    def capabilities(self):
        return Capabilities(deliveries=(Delivery.POWER,))

    async def instances(self):
        self.listed_at.append(asyncio.get_running_loop().time())
        return await self._next(self.listings)

    async def offers(self):
        return await self._next(self.offered)

    @staticmethod
    async def _next(answers):
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer == "never":
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def check(self):
        return Check(ok=True, sentence="All is well.")

    async def close(self):
        self.closed = True


def configured(provider, name="webhook", digest="1", **rest):
    return SourceConfig(
        key=SourceKey("", name), digest=digest, **{"priority": 0, "enabled": True, **rest}, build=lambda: provider
    )


class Woken:
    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1


async def test_a_listing_is_known_with_the_time_of_its_request():
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(Scripted(listings=[Found(instances=(BOX,))], offers=[(offer(),)]))])
    began = clock.now()
    assert sources.states()["", "webhook"].listing is None, "unknown before the first answer"
    await asyncio.sleep(1)
    state = sources.states()["", "webhook"]
    assert (state.listing.asked, state.listing.found.instances, state.offers) == (began, (BOX,), (offer(),))
    await sources.close()


async def test_a_listing_is_known_with_the_time_of_its_answer():
    class Slow(Scripted):
        async def instances(self):
            await asyncio.sleep(3)
            return await super().instances()

    sources = Sources(Woken(), clock.now)
    sources.configure([configured(Slow())])
    began = clock.now()
    await asyncio.sleep(4)
    listing = sources.states()["", "webhook"].listing
    assert (listing.asked, listing.answered) == (began, began + timedelta(seconds=3))
    await sources.close()


async def test_a_provider_is_checked_every_ten_minutes_and_every_minute_while_the_check_fails():
    class Checked(Scripted):
        checks = 0
        ok = True

        async def check(self):
            self.checks += 1
            return Check(ok=self.ok, sentence="Said.")

    provider = Checked()
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    await asyncio.sleep(599)
    assert provider.checks == 1
    provider.ok = False
    await asyncio.sleep(2)
    assert provider.checks == 2
    await asyncio.sleep(180)
    assert provider.checks == 5, "so that a corrected key is noticed soon"
    await sources.close()


async def test_after_a_failed_listing_the_last_one_keeps_its_time():
    provider = Scripted(listings=[Found(instances=(BOX,)), Unavailable("The power API is away.")])
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    began = clock.now()
    await asyncio.sleep(100)
    state = sources.states()["", "webhook"]
    assert (state.listing.asked, state.listing.found.instances) == (began, (BOX,))
    assert state.error == "The power API is away."
    await sources.close()


async def test_refused_credentials_are_told_apart_from_an_outage_until_the_call_is_answered():
    found, refused = Found(instances=(BOX,)), BadCredentials("The key is refused.")
    provider = Scripted(listings=[found, refused, Unavailable("The API is away."), refused, found])
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    seen = []
    for _ in range(5):
        await asyncio.sleep(1)
        state = sources.states()["", "webhook"]
        seen.append((state.error, state.error_reason))
        await asyncio.sleep(29)
    refusal = ("The key is refused.", Reason.BAD_CREDENTIALS)
    away = ("The API is away.", Reason.PROVIDER_UNAVAILABLE)
    assert seen == [(None, Reason.PROVIDER_UNAVAILABLE), refusal, away, refusal, (None, Reason.PROVIDER_UNAVAILABLE)]
    await sources.close()


async def test_an_outage_that_several_calls_meet_is_told_once():
    away, lost = Unavailable("The API is away."), Unavailable("The list is lost.")
    for listing, told in ((away, "The API is away."), (lost, "The list is lost; The API is away.")):
        sources = Sources(Woken(), clock.now)
        sources.configure([configured(Scripted(listings=[listing], offers=[away]))])
        await asyncio.sleep(1)
        assert sources.states()["", "webhook"].error == told
        await sources.close()


async def test_a_provider_that_never_answers_delays_no_other_and_is_polled_again():
    stuck = Scripted(listings=["never"], offers=["never"])
    well = Scripted(listings=[Found(instances=(BOX,))])
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(stuck, "aws"), configured(well)])
    await asyncio.sleep(1)
    assert sources.states()["", "webhook"].listing is not None
    await asyncio.sleep(2 * CALL_TIMEOUT + 60)
    assert len(stuck.listed_at) > 1
    assert "did not answer" in sources.states()["", "aws"].error
    await sources.close()


async def test_a_source_is_listed_more_often_while_a_record_waits_for_it():
    provider = Scripted()
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    await asyncio.sleep(1)
    sources.poll_faster([SourceKey("", "webhook")])
    await asyncio.sleep(10)
    assert len(provider.listed_at) >= 10 / provider.capabilities().fast_poll.total_seconds()
    sources.poll_faster([])
    before = len(provider.listed_at)
    await asyncio.sleep(20)
    assert len(provider.listed_at) <= before + 1
    await sources.close()


async def test_only_changes_wake_the_loop():
    woken = Woken()
    sources = Sources(woken, clock.now)
    sources.configure([configured(Scripted(listings=[Found(instances=(BOX,))], offers=[(offer(),)]))])
    await asyncio.sleep(1)
    before = woken.times
    await asyncio.sleep(10 * Scripted().capabilities().offers_poll.total_seconds())
    assert woken.times == before


async def test_a_changed_entry_gets_a_new_provider_and_a_changed_priority_does_not():
    first, second = Scripted(), Scripted()
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(first)])
    sources.configure([configured(second, priority=5)])
    assert sources.provider(SourceKey("", "webhook")) is first
    assert sources.states()["", "webhook"].priority == 5
    sources.configure([configured(second, digest="2")])
    await asyncio.sleep(1)
    assert sources.provider(SourceKey("", "webhook")) is second
    assert first.closed
    sources.configure([])
    await asyncio.sleep(1)
    assert (sources.states(), second.closed) == ({}, True)
    await sources.close()


async def test_a_provider_that_cannot_be_listed_offers_nothing_until_it_can():
    """Nobody could find a machine there whose launch call got no answer."""
    lost = Unavailable("The list is lost.")
    provider = Scripted(listings=[lost, lost, Found(), lost], offers=[(offer(),)])
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    await asyncio.sleep(1)
    state = sources.states()["", "webhook"]
    assert (state.offers, state.error) == (None, "The list is lost.")
    # 2 and 4 seconds between them, where both would be a minute otherwise.
    await asyncio.sleep(5.5)
    state = sources.states()["", "webhook"]
    assert (state.offers, state.error) == ((offer(),), None)
    await asyncio.sleep(100)
    state = sources.states()["", "webhook"]
    assert (state.offers, state.error) == ((offer(),), "The list is lost."), "what was known before stays so"
    await sources.close()


async def test_an_entry_that_changes_before_it_is_answered_is_not_waited_for_anew():
    sources, began = Sources(Woken(), clock.now), clock.now()
    for digest in "12":
        sources.configure([configured(Scripted(offers=["never"]), digest=digest)])
        await asyncio.sleep(3)
        assert sources.states()["", "webhook"].since == began
    sources.configure([configured(Scripted(offers=[(offer(),)]), digest="3")])
    await asyncio.sleep(3)
    sources.configure([configured(Scripted(), digest="4")])
    assert sources.states()["", "webhook"].since == began + timedelta(seconds=9), "this one was answered before"
    await sources.close()


async def test_an_unsupported_provider_is_built_once_and_the_others_run():
    tries = []

    def refuse():
        tries.append(1)
        raise ProviderNotServed("Not supported.")

    sources = Sources(Woken(), clock.now)
    entry = SourceConfig(key=SourceKey("c", "vast"), digest="1", priority=0, enabled=True, build=refuse)
    for _ in range(3):
        sources.configure([entry, configured(Scripted())])
    assert sources.unusable == {SourceKey("c", "vast"): "Not supported."}
    assert (len(tries), set(sources.states())) == (1, {("", "webhook")})
    await sources.close()


async def test_a_bug_is_reported_and_the_provider_is_polled_again(capsys):
    provider = Scripted(
        listings=[ZeroDivisionError("secret"), Found(instances=(BOX,))], offers=[KeyError("x"), (offer(),)]
    )
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    await asyncio.sleep(1)
    state = sources.states()["", "webhook"]
    assert (state.listing, state.offers) == (None, None)
    assert "Forebay failed with a bug while it called webhook (ZeroDivisionError)" in state.error
    assert "provider call failed" in capsys.readouterr().out
    await asyncio.sleep(100)
    state = sources.states()["", "webhook"]
    assert (state.listing.found.instances, state.offers, state.error) == ((BOX,), (offer(),), None)
    await sources.close()


async def test_equal_listings_are_one_object():
    provider = Scripted(listings=[Found(instances=(BOX,)), Found(instances=(BOX,))])
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    await asyncio.sleep(1)
    first = sources.states()["", "webhook"].listing
    await asyncio.sleep(100)
    later = sources.states()["", "webhook"].listing
    assert later.asked > first.asked
    assert later.found is first.found
    await sources.close()


async def test_offers_that_are_not_known_yet_are_asked_for_again_soon_and_ever_more_rarely():
    away = Unavailable("The cloud is away.")
    provider = Scripted(offers=[*[away] * 4, (offer(),), away])
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    await asyncio.sleep(1)
    assert sources.states()["", "webhook"].offers is None
    # 2, 4, 8 and 16 seconds between them, where all would be four minutes otherwise.
    await asyncio.sleep(29.5)
    assert sources.states()["", "webhook"].offers == (offer(),)
    await asyncio.sleep(600)
    assert sources.states()["", "webhook"].offers == (offer(),), "what was known before stays so"
    await sources.close()


async def test_a_refused_key_is_not_tried_more_often():
    provider = Scripted(offers=[BadCredentials("The key is refused."), (offer(),)])
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    await asyncio.sleep(provider.capabilities().offers_poll.total_seconds() - 1)
    assert sources.states()["", "webhook"].offers is None
    await asyncio.sleep(2)
    assert sources.states()["", "webhook"].offers == (offer(),)
    await sources.close()


async def test_an_outage_is_one_line_of_the_log_however_long_it_lasts(capsys):
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(Scripted(listings=[Unavailable("The API is away.")] * 50))])
    await asyncio.sleep(300)
    assert capsys.readouterr().out.count("The API is away.") == 1
    await sources.close()


async def test_a_provider_that_is_served_after_its_entry_was_mended_is_told_of_no_longer():
    def refuse():
        raise ProviderNotServed("Not supported.")

    key = SourceKey("", "webhook")
    sources = Sources(Woken(), clock.now)
    sources.configure([SourceConfig(key=key, digest="1", priority=0, enabled=True, build=refuse)])
    assert sources.unusable == {key: "Not supported."}
    assert sources.provider(key) is None
    sources.configure([configured(Scripted(), digest="2")])
    assert (sources.unusable, set(sources.states())) == ({}, {key})
    sources.configure([SourceConfig(key=key, digest="3", priority=0, enabled=True, build=refuse)])
    sources.configure([])
    assert sources.unusable == {}
    await sources.close()


async def test_a_source_whose_new_entry_cannot_be_built_goes_on_without_launches():
    def refuse():
        raise ProviderNotServed("Not supported.")

    key, provider = SourceKey("", "webhook"), Scripted(listings=[Found(instances=(BOX,))])
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    sources.configure([SourceConfig(key=key, digest="2", priority=0, enabled=True, build=refuse)])
    await asyncio.sleep(100)
    assert sources.unusable == {key: "Not supported."}
    assert (sources.provider(key), provider.closed) == (provider, False), "somebody must end its machines"
    state = sources.states()[key]
    assert (state.problem, state.listing.found.instances) == ("Not supported.", (BOX,))
    assert len(provider.listed_at) > 1
    sources.configure([configured(provider)])
    assert (sources.unusable, sources.states()[key].problem) == ({}, None)
    await sources.close()


async def test_a_bug_in_the_configuration_of_one_source_does_not_stop_the_others(capsys):
    def crash():
        raise AttributeError("'str' object has no attribute 'get'")

    key = SourceKey("c", "mine")
    sources = Sources(Woken(), clock.now)
    sources.configure(
        [SourceConfig(key=key, digest="1", priority=0, enabled=True, build=crash), configured(Scripted())]
    )
    assert set(sources.states()) == {("", "webhook")}
    assert "Forebay failed with a bug while it configured mine (AttributeError)" in sources.unusable[key]
    assert "source not configured" in capsys.readouterr().out
    await sources.close()


async def test_a_problem_of_the_class_ends_and_begins_launches_while_the_source_runs():
    key, provider = SourceKey("", "webhook"), Scripted()
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider, problem="The template is wrong.")])
    assert sources.unusable == {key: "The template is wrong."}
    assert sources.states()[key].problem == "The template is wrong."
    sources.configure([configured(provider)])
    assert (sources.unusable, sources.states()[key].problem) == ({}, None)
    assert sources.provider(key) is provider
    await sources.close()


async def test_a_source_that_is_waited_for_in_every_tick_is_listed_at_the_fast_interval_and_no_faster():
    provider, key = Scripted(), SourceKey("", "webhook")
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    usual, fast = (getattr(provider.capabilities(), each).total_seconds() for each in ("poll", "fast_poll"))

    async def ticks(keys, seconds):
        del provider.listed_at[:]
        for _ in range(int(seconds)):
            sources.poll_faster(keys)
            await asyncio.sleep(1)
        return [later - earlier for earlier, later in itertools.pairwise(provider.listed_at)]

    assert set(await ticks([], 5 * usual)) == {usual}
    assert set(await ticks([key], 20 * fast)) == {fast}
    assert set((await ticks([], 5 * usual))[1:]) == {usual}
    await sources.close()


async def test_a_source_that_begins_to_be_waited_for_is_listed_at_once():
    provider, key = Scripted(), SourceKey("", "webhook")
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(provider)])
    await asyncio.sleep(1)
    sources.poll_faster([key])
    await asyncio.sleep(0.5)
    assert provider.listed_at == [0, 1]
    await sources.close()


async def test_after_the_end_nothing_is_asked_any_more_and_every_provider_is_closed():
    providers = {name: Scripted() for name in ("one", "two")}
    sources = Sources(Woken(), clock.now)
    sources.configure([configured(each, name) for name, each in providers.items()])
    await asyncio.sleep(1)
    await sources.close()
    for each in providers.values():
        asked = len(each.listed_at)
        assert each.closed
        await asyncio.sleep(600)
        assert len(each.listed_at) == asked
    assert sources.states() == {}


async def test_of_providers_that_do_not_answer_the_first_by_name_is_named_with_why():
    sources = Sources(Woken(), clock.now)
    assert sources.unanswered(["beta", "alpha"]) == "alpha does not answer: no answer yet"
    silent = Scripted(listings=[Unavailable("Outage.")], offers=[Unavailable("Outage.")])
    sources.configure([configured(Scripted(), "alpha"), configured(silent, "beta"), configured(silent, "gamma")])
    await asyncio.sleep(1)
    assert sources.unanswered(["alpha"]) is None
    assert sources.unanswered(["gamma", "alpha", "beta"]) == "beta does not answer: Outage."
    await sources.close()


async def test_a_provider_with_offers_of_others_is_refused_and_they_are_named():
    provider = Scripted(
        offers=[tuple(msgspec.structs.replace(offer(), provider=name) for name in ("webhook", "zeta", "eta", "beta"))]
    )
    with pytest.raises(Rejected, match="Provider webhook has offers of beta, eta, zeta, and none of them counts"):
        await read_offers(provider, "webhook")


async def test_what_is_configured_and_what_cannot_be_is_in_the_log(capsys):
    def broken():
        raise ProviderNotServed("No such provider.")

    sources = Sources(Woken(), clock.now)
    sources.configure([configured(Scripted()), msgspec.structs.replace(configured(None, "odd"), build=broken)])
    said = capsys.readouterr().out
    assert "source configured" in said
    assert "provider not available" in said
    await sources.close()
