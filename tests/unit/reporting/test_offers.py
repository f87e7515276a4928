"""Offers of sources: which notes go with them."""

from datetime import date

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.reporting.offers import live_rows

_CAPABILITIES = Capabilities(deliveries=(Delivery.NODE,))


def source(node_class, provider, *offers, **fields):
    key = SourceKey(node_class, provider)
    return key, Source(key=key, capabilities=_CAPABILITIES, **{"offers": offers, **fields})


def offer(provider, **fields):
    return Offer(
        provider=provider,
        instance_type="a",
        gpu_count=1,
        price=UsdPerHour("1.00"),
        allocatable=Resources({"nvidia.com/gpu": 1}),
        **fields,
    )


def test_prices_that_are_not_live_have_their_date_and_a_note_for_each_provider():
    dated = offer("old", price_as_of=date(2024, 9, 25))
    rows, notes = live_rows(
        dict([source("x", "old", dated), source("y", "old", dated), source("x", "new", offer("new"))])
    )

    assert [(row.offer.provider, row.as_of) for row in rows] == [("new", ""), ("old", "2024-09-25")]
    assert notes == ["Prices of old are list prices of 2024-09-25: its API has none."]


def test_offers_that_are_not_known_are_said_to_be_so():
    assert live_rows(dict([source("x", "new", offers=None, error="No answer.")])) == (
        [],
        ["Offers of new in GPUNodeClass x are unknown: No answer."],
    )


def test_notes_are_in_the_order_of_providers():
    some = [offer(name, price_as_of=date(2024, 9, day)) for day, name in enumerate("fbdace", start=1)]

    _, notes = live_rows(dict([source("x", "all", *some)]))

    assert [note.split()[2] for note in notes] == list("abcdef")
