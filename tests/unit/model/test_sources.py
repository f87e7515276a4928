"""What a source can do, and what a single offer of it changes."""

from datetime import timedelta

from msgspec.structs import replace

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer


def test_a_machine_may_have_a_boot_deadline_of_its_own():
    usual = Capabilities(deliveries=(Delivery.POWER,), join_deadline=timedelta(minutes=15))
    offer = Offer(provider="webhook", instance_type="own", gpu_count=1, price=UsdPerHour("0"), allocatable=Resources())

    def deadline(boot):
        return usual.of(replace(offer, boot_deadline=boot)).join_deadline

    assert deadline(None) == timedelta(minutes=15)
    assert deadline(timedelta(minutes=40)) == timedelta(minutes=40)
