"""What listings tell about one record: when absence is counted, what was seen last, and until when it was billed."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import ProvisionerRef, ResourceLifetime, SecondaryResource
from forebay.lifecycle.facts import machine_sources, may_take_effect_late, serving_source, source_of
from forebay.lifecycle.presence import (
    Presence,
    billing_ended,
    confirmed_present,
    count_absences,
    counted_from,
    presence_of,
    settle_time,
    with_sighting,
)
from forebay.lifecycle.secondary_resources import deleted, due, join_credentials, next_due, noted
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Found, InstancePhase, Listing, Offer, Source, SourceKey
from tests.unit.lifecycle.builders import (
    IDEMPOTENT,
    NOW,
    OWNED,
    RENTED,
    S,
    condition_of,
    facts,
    instance,
    listed,
    minutes,
    record,
    rented_spec,
    seconds,
)

MEMBER = rented_spec(node_class_name=None, provisioner_ref=ProvisionerRef(name="gpus", group="near"))


def sighted(status, listing, late=0):
    """Looked at so many seconds after the listing was requested."""
    return with_sighting(status, listing, (listing.asked or NOW) + seconds(late))


def seen(*instances, asked=NOW):
    return Presence(asked, instances)


def test_only_a_listing_that_was_requested_a_second_after_the_moment_shows_absence():
    assert not seen(asked=NOW + seconds(0.9)).absent_after(NOW), "times in a record are cut to whole seconds"
    assert seen(asked=NOW + seconds(1)).absent_after(NOW)
    assert not seen(instance(), asked=NOW + minutes(1)).absent_after(NOW)
    assert not Presence(None).absent_after(NOW)


def test_instances_of_a_record_are_known_by_its_id_or_else_by_its_tag_the_oldest_first():
    named, unnamed = record(S.READY), record(S.LAUNCHING)
    two = (instance("i-b", created=NOW), instance("i-a", created=NOW - minutes(1)), instance("i-c"))

    def ids(of, *there, unknown=()):
        return [each.id for each in presence_of(facts(of, listing=listed(*there, unknown=unknown))).instances]

    assert ids(unnamed, *two) == ["i-a", "i-b", "i-c"], "of unknown age: the last"
    assert ids(unnamed, instance("i-b"), instance("i-a")) == ["i-a", "i-b"]
    assert ids(unnamed, instance("i-1", owner=None)) == []
    assert ids(named, instance("i-1", owner=None), instance("i-2")) == ["i-1"]
    assert ids(named, instance("i-2")) == []
    assert ids(record(S.READY, owned=True), instance("gpu-1", InstancePhase.STOPPED)) == [], "off is absent"


def test_an_instance_that_the_listing_is_not_sure_about_is_neither_there_nor_absent():
    ready = record(S.READY)

    assert presence_of(facts(ready, listing=listed(unknown=["i-1"]))) == Presence(None)
    assert presence_of(facts(ready, listing=listed(unknown=["i-2"]))) == Presence(NOW)
    sure = presence_of(facts(ready, listing=listed(instance(), unknown=["i-1"])))
    assert sure.present


@pytest.mark.parametrize(("age", "holds"), [(minutes(2), True), (minutes(2) + seconds(1), False)])
def test_a_sighting_of_an_owned_machine_holds_for_two_minutes_and_of_a_rented_one_for_good(age, holds):
    assert confirmed_present(facts(record(owned=True)), seen(instance(), asked=NOW - age), NOW) is holds
    assert confirmed_present(facts(record()), seen(instance(), asked=NOW - age), NOW)
    assert not confirmed_present(facts(record()), seen(), NOW)


def test_each_later_listing_without_the_instance_counts_once_up_to_two():
    status = record(S.READY).status
    once = count_absences(status, seen(asked=NOW + seconds(5.5)), NOW)
    assert (once.absences, once.absent_since, once.absent_at) == (1, NOW + seconds(5), NOW + seconds(5))
    assert count_absences(once, seen(asked=NOW + seconds(5.9)), NOW) is once, "the same second"
    twice = count_absences(once, seen(asked=NOW + seconds(7)), NOW)
    assert (twice.absences, twice.absent_since, twice.absent_at) == (2, NOW + seconds(5), NOW + seconds(7))
    assert count_absences(twice, seen(asked=NOW + seconds(9)), NOW) is twice
    assert count_absences(status, seen(asked=NOW), NOW) is status
    assert count_absences(status, Presence(None), NOW) is status


def test_what_ends_while_a_listing_is_made_is_billed_until_its_answer():
    slow = Presence(NOW + seconds(5), (), NOW + seconds(8.5))
    once = count_absences(record(S.READY).status, slow, NOW)
    assert (once.absent_since, once.absent_at) == (NOW + seconds(8), NOW + seconds(5))
    twice = count_absences(once, Presence(NOW + seconds(9), (), NOW + seconds(12)), NOW)
    assert billing_ended(facts(record(S.READY)), twice, LATE) == NOW + seconds(8)


def test_a_sighting_ends_the_count_unless_its_listing_is_older_than_the_absence():
    missing = replace(record(S.READY).status, absences=1, absent_since=NOW, absent_at=NOW)

    assert count_absences(missing, seen(instance(), asked=NOW), NOW) is missing
    again = count_absences(missing, seen(instance(), asked=NOW + seconds(1)), NOW)
    assert (again.absences, again.absent_since, again.absent_at) == (None, None, None)
    there = record(S.READY).status
    assert count_absences(there, seen(instance()), NOW) is there


def test_absence_of_one_that_was_listed_counts_from_then_on():
    status = record(S.READY).status
    assert counted_from(status, NOW, None) == NOW
    assert counted_from(replace(status, listed_at=NOW - minutes(1)), NOW, None) == NOW - minutes(1)
    assert counted_from(replace(status, listed_at=NOW + minutes(1)), NOW, None) == NOW


def test_absence_of_one_whose_node_registered_counts_from_when_it_may_have_ended():
    stopped = NOW - minutes(1)
    assert counted_from(record(S.READY).status, NOW, stopped) == stopped
    assert counted_from(record(S.READY).status, NOW, NOW + minutes(1)) == NOW
    assert counted_from(record(S.LAUNCHED).status, NOW, stopped) == NOW, "its listing may only lag"


def test_the_first_sighting_is_noted_and_the_first_after_an_accepted_termination():
    ready, going = record(S.READY).status, record(S.TERMINATING).status

    assert sighted(ready, seen(instance(), asked=NOW + seconds(2.5))).listed_at == NOW + seconds(2)
    known = replace(ready, listed_at=NOW)
    assert sighted(known, seen(instance(), asked=NOW + minutes(1))) is known
    accepted = replace(going, listed_at=NOW, termination_accepted_at=NOW + seconds(5))
    assert sighted(accepted, seen(instance(), asked=NOW + seconds(5.9))) is accepted, "may be from before it"
    later = sighted(accepted, seen(instance(), asked=NOW + seconds(6)))
    assert later.listed_at == NOW + seconds(6)
    assert sighted(later, seen(instance(), asked=NOW + seconds(60))) is later
    same = replace(accepted, listed_at=NOW + seconds(5))
    assert sighted(same, seen(instance(), asked=NOW + seconds(8))).listed_at == NOW + seconds(8)


def test_nothing_is_noted_about_what_is_not_there_or_gone():
    for status, there in [
        (record(S.READY).status, ()),
        (record(S.GONE).status, (instance(),)),
        (record(S.LAUNCHING).status, (instance(),)),
    ]:
        assert sighted(status, seen(*there)) is status
    assert sighted(record(S.READY).status, Presence(None)).listed_at is None


def test_a_bill_that_the_provider_ends_and_takes_up_again_is_followed():
    ready, paused = record(S.READY, listed_at=NOW).status, instance(billed=False)

    ended = sighted(ready, seen(paused, asked=NOW + minutes(3)))
    assert ended.billed_until == NOW + minutes(3)
    assert sighted(ended, seen(paused, asked=NOW + minutes(4))) is ended
    slow = sighted(ready, seen(paused, asked=NOW + minutes(3)), late=2.5)
    assert slow.billed_until == NOW + minutes(3) + seconds(2), "it may have ended after the listing was requested"
    assert sighted(ended, seen(instance(), asked=NOW + minutes(5))).billed_until is None
    assert sighted(ready, seen(paused, instance("i-2"))) is ready, "one of them costs money"


LATE = NOW + minutes(10)


@pytest.mark.parametrize(
    ("status", "ended", "expected"),
    [
        ({}, {}, LATE),
        ({}, {"i-1": NOW + minutes(2)}, NOW + minutes(2)),
        ({}, {"i-1": LATE + minutes(5)}, LATE),
        ({}, {"i-other": NOW}, LATE),
        ({"billed_until": NOW + minutes(4)}, {}, NOW + minutes(4)),
        ({"billed_until": NOW + minutes(4)}, {"i-1": NOW + minutes(6)}, NOW + minutes(6)),
        ({"absences": 2, "absent_since": NOW + minutes(5)}, {}, NOW + minutes(5)),
        ({"absences": 1, "absent_since": NOW + minutes(5)}, {}, LATE),
        ({"absences": 2, "absent_since": NOW + minutes(5)}, {"i-1": NOW + minutes(7)}, NOW + minutes(7)),
    ],
    ids=[
        "nobody tells",
        "the provider tells",
        "the provider's clock is ahead",
        "of another",
        "no longer billed while listed",
        "the provider's own time before all",
        "two absences",
        "one absence",
        "absences and the provider's time",
    ],
)
def test_the_bill_ends_when_the_provider_says_or_else_at_the_latest_that_it_can_be(status, ended, expected):
    of = record(S.TERMINATING, **status)
    known = facts(of, listing=Listing(asked=LATE, found=Found(ended=ended)))
    assert billing_ended(known, of.status, LATE) == expected
    if not ended:
        assert billing_ended(facts(of), of.status, LATE) == expected


@pytest.mark.parametrize(
    ("billed_until_accepted", "listed_at", "expected"),
    [(True, None, NOW), (True, NOW, NOW), (True, NOW + seconds(1), LATE), (False, None, LATE)],
    ids=["accepted", "listed before", "listed since", "billed until it is gone"],
)
def test_a_provider_that_bills_until_the_call_is_believed_unless_it_lists_the_instance_later(
    billed_until_accepted, listed_at, expected
):
    terms = Capabilities(deliveries=(Delivery.NODE,), billed_until_accepted=billed_until_accepted)
    of = record(S.TERMINATING, termination_accepted_at=NOW, listed_at=listed_at)
    assert billing_ended(facts(of, terms), of.status, LATE) == expected
    told = Listing(asked=LATE, found=Found(ended={"i-1": NOW + minutes(1)}))
    assert billing_ended(facts(of, terms, listing=told), of.status, LATE) == NOW + minutes(1)


def test_the_call_of_a_crashed_process_may_take_a_minute_unless_it_can_be_repeated():
    quick = Capabilities(deliveries=(Delivery.NODE,), settle_time=seconds(10))
    assert settle_time(quick) == minutes(1)
    assert settle_time(replace(quick, idempotent_launch=True)) == seconds(10)
    assert settle_time(RENTED) == RENTED.settle_time
    assert settle_time(IDEMPOTENT) == IDEMPOTENT.settle_time


def test_a_record_comes_from_its_class_or_from_its_instance_group():
    assert source_of(record()) == SourceKey("cheap", "simulated")
    assert source_of(record(owned=True)) == SourceKey("", "webhook"), "configured in the environment"
    assert source_of(record(spec=MEMBER)) == SourceKey.of_provisioner("gpus", "simulated")
    bought = replace(MEMBER, node_class_name="cheap", provisioner_ref=ProvisionerRef(name="gpus"))
    assert source_of(record(spec=bought)) == SourceKey("cheap", "simulated"), "a machine that Forebay rents for it"


def test_an_owned_machine_is_served_by_whoever_names_it_now():
    offer = Offer(provider="webhook", instance_type="gpu-1", price=UsdPerHour("1"), allocatable=Resources())
    first, second = SourceKey("", "webhook"), SourceKey("rack", "webhook")

    def source(key, capabilities=OWNED, offers=(offer,)):
        return Source(key=key, capabilities=capabilities, listing=None, offers=offers)

    machines = machine_sources({first: source(first, offers=None), second: source(second)})
    assert machines == {"gpu-1": second}
    assert machine_sources({first: source(first), second: source(second)}) == {"gpu-1": first}
    assert machine_sources({second: source(second, RENTED)}) == {}
    assert serving_source(record(S.READY, owned=True), machines) == second
    assert serving_source(record(S.READY, owned=True), {}) == first
    assert serving_source(record(S.READY, instance_id="gpu-1"), machines) == SourceKey("cheap", "simulated")


@pytest.mark.parametrize(
    ("attempt", "known", "late"),
    [(None, None, False), (1, None, True), (1, "gpu-1", False), (2, "gpu-1", True)],
)
def test_a_call_may_take_effect_late_while_nobody_has_seen_its_effect(attempt, known, late):
    assert may_take_effect_late(record(S.TERMINATING, owned=True, attempt=attempt, instance_id=known)) is late


def credential(attempt=1, **fields):
    return SecondaryResource(kind="Token", name="t", until=ResourceLifetime.JOINED, attempt=attempt, **fields)


@pytest.mark.parametrize(
    ("state", "attempt", "needed"),
    [
        (S.LAUNCHING, 1, True),
        (S.LAUNCHED, 1, True),
        (S.LAUNCHED, None, True),
        (S.LAUNCHING, 2, False),
        (S.REQUESTED, 1, False),
        (S.JOINED, 1, False),
    ],
)
def test_credentials_are_needed_from_their_own_call_until_the_machine_has_joined(state, attempt, needed):
    held = credential(attempt)
    disk = SecondaryResource(kind="Disk", name="d")
    of = record(state, secondary_resources=(held, disk), attempt=1)

    assert join_credentials(of) == ((held,) if needed else ())
    assert due(of, NOW) == (() if needed else (held,)), "the disk stays until the machine is gone"
    assert join_credentials(replace(of, status=None)) == ()


def test_a_disk_goes_with_its_machine_and_what_could_not_be_deleted_is_tried_again_when_due():
    first, second = (SecondaryResource(kind="Disk", name=name) for name in "ab")
    gone = record(S.GONE, secondary_resources=(first, second))
    assert due(gone, NOW) == (first, second)

    status = deleted(gone, (first,), {second: "it is in use."}, NOW)
    (left,) = status.secondary_resources
    assert (left.name, left.failures, left.retry_at) == ("b", 1, NOW + seconds(5))
    assert condition_of(status, "SecondaryResourcesDeleted").message == (
        "Disk b of pool-abc could not be deleted: it is in use. Trying again."
    )
    later = replace(gone, status=status)
    assert (due(later, NOW + seconds(4)), next_due(later)) == ((), NOW + seconds(5))
    assert due(later, NOW + seconds(5)) == (left,)
    again = deleted(later, (), {left: "it is in use."}, NOW)
    assert again.secondary_resources[0].retry_at == NOW + seconds(10)
    often = deleted(
        replace(gone, status=replace(status, secondary_resources=(replace(left, failures=99),))), (), {}, NOW
    )
    assert often.secondary_resources[0].failures == 99, "what was not tried is as it was"
    tried = replace(gone, status=often)
    limited = deleted(tried, (), {often.secondary_resources[0]: "no."}, NOW)
    assert limited.secondary_resources[0].retry_at == NOW + minutes(5)
    done = deleted(later, (left,), {}, NOW)
    assert done.secondary_resources == ()
    assert condition_of(done, "SecondaryResourcesDeleted").message == "Disk b of pool-abc deleted."
    assert deleted(gone, (first, second), {}, NOW).conditions == gone.status.conditions, "nothing failed, nothing told"


def test_a_resource_is_noted_once_under_its_name():
    old = credential(1, failures=3)
    other = SecondaryResource(kind="Disk", name="t")
    status = noted(record(S.LAUNCHING, secondary_resources=(old, other)).status, (credential(2),))
    assert status.secondary_resources == (other, credential(2))
