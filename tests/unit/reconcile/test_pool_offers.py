"""How many offers a pool's class has: what a provider has not said since the operator's start is not zero."""

from datetime import UTC, datetime

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.reconcile.pool_figures import offers_of
from forebay.reconcile.snapshot import Snapshot

OFFER = Offer(provider="a", instance_type="gpu-1", price=UsdPerHour("1"), allocatable=Resources())


def snapshot(**offers):
    keys = {SourceKey("lab", provider): found for provider, found in offers.items()}
    return Snapshot(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        sources={
            key: Source(key=key, capabilities=Capabilities(deliveries=(Delivery.NODE,)), offers=found)
            for key, found in keys.items()
        },
    )


def test_the_offers_of_all_providers_are_added():
    assert offers_of(snapshot(a=(OFFER, OFFER), b=(OFFER,)), "lab", 7) == 3


def test_while_one_provider_has_not_answered_the_number_stays_what_it_was():
    assert offers_of(snapshot(a=(OFFER,), b=None), "lab", 7) == 7
    assert offers_of(snapshot(a=None), "lab", None) is None


def test_a_class_without_providers_has_none():
    assert offers_of(snapshot(), "lab", 7) == 0
    assert offers_of(snapshot(a=(OFFER,)), "another", None) == 0
