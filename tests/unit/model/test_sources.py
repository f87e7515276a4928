"""What a source can do, and what a single offer of it changes."""

from datetime import timedelta

from msgspec.structs import replace

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Billing, Capabilities, Delivery, ListedGroup, Offer, SourceKey, cooldown_keys


def test_a_machine_may_have_a_boot_deadline_of_its_own():
    usual = Capabilities(deliveries=(Delivery.POWER,), join_deadline=timedelta(minutes=15))
    offer = Offer(provider="webhook", instance_type="own", gpu_count=1, price=UsdPerHour("0"), allocatable=Resources())

    def deadline(boot):
        return usual.of(replace(offer, boot_deadline=boot)).join_deadline

    assert deadline(None) == timedelta(minutes=15)
    assert deadline(timedelta(minutes=40)) == timedelta(minutes=40)


def test_a_provider_that_says_nothing_of_itself_can_do_nothing_special_and_gets_the_usual_time():
    plain = Capabilities(deliveries=(Delivery.NODE,))

    can = {name for name in plain.__struct_fields__ if getattr(plain, name) is True}
    assert can == set()
    assert (plain.settle_time, plain.launch_deadline, plain.join_deadline, plain.gpu_deadline) == tuple(
        timedelta(minutes=each) for each in (2, 10, 15, 10)
    )
    assert (plain.call_timeout, plain.launch_interval, plain.max_calls) == (timedelta(minutes=1), timedelta(0), 16)
    assert [each.total_seconds() for each in (plain.poll, plain.fast_poll, plain.offers_poll)] == [30, 2, 60]


def test_an_offer_that_says_no_more_is_never_reclaimed_and_of_unknown_stock():
    plain = Offer(provider="cloud", instance_type="a", price=UsdPerHour("1"), allocatable=Resources())

    assert (plain.reclaims_per_million_hours, plain.stock, plain.spot, plain.gpu_count) == (0, None, False, 0)


def test_time_is_billed_by_the_second_and_without_a_least_time_where_a_provider_says_nothing():
    assert (Billing().minimum, Billing().increment) == (timedelta(0), timedelta(seconds=1))


def test_a_place_cools_down_by_its_zone_or_its_region_where_it_has_no_zones():
    plain = Offer(provider="cloud", instance_type="a", price=UsdPerHour("1"), allocatable=Resources())
    source = SourceKey("class", "cloud")

    def cooling(**place):
        offer, zone, *_ = cooldown_keys(source, replace(plain, **place).key)
        return (offer.region, offer.zone), zone.place

    assert cooling() == (("", ""), "")
    assert cooling(region="us-east") == (("us-east", ""), "us-east")
    assert cooling(region="us-east", zone="us-east-1a") == (("us-east", "us-east-1a"), "us-east-1a")


def test_forebay_names_the_members_of_a_group_unless_the_group_does():
    assert not ListedGroup(name="g", target=1).chooses_names
