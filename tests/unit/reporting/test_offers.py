"""Offers of sources: which notes go with them."""

from datetime import date
from fractions import Fraction

import pytest

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.planning.offer_table import Row
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.offers import OfferFilter, capacity, document, live_rows, matching
from tests.unit.reporting.objects import NOW, S, node, record

_CAPABILITIES = Capabilities(deliveries=(Delivery.NODE,))


def source(node_class, provider, *offers, **fields):
    key = SourceKey(node_class, provider)
    return key, Source(key=key, capabilities=_CAPABILITIES, **{"offers": offers, **fields})


def offer(provider, **fields):
    known = {"instance_type": "a", "gpu_count": 1, "price": UsdPerHour("1.00")}
    return Offer(provider=provider, allocatable=Resources({"nvidia.com/gpu": 1}), **{**known, **fields})


def live(*sources, **fields):
    return live_rows(Snapshot(now=NOW, sources=dict(sources), **fields))


def test_a_machine_of_ones_own_that_is_on_cannot_be_had_again():
    names = ("busy", "by-hand", "off", "was-on")
    owned = [offer("webhook", instance_type=name, node_name=name, stock=1) for name in names]
    records = (record("busy"), record("was-on", S.GONE))
    nodes = {"by-hand": node("by-hand")}

    rows, _ = live(source("x", "webhook", *owned), records=records, nodes=nodes)

    told = {each.offer.instance_type: (capacity(each.offer), each.offer.stock) for each in rows}
    assert told == {"busy": ("own, on", 0), "by-hand": ("own, on", 0), "off": ("own", 1), "was-on": ("own", 1)}


def test_prices_that_are_not_live_have_their_date_and_a_note_for_each_provider():
    dated = offer("old", price_as_of=date(2024, 9, 25))
    rows, notes = live(source("x", "old", dated), source("y", "old", dated), source("x", "new", offer("new")))

    assert [(row.offer.provider, row.as_of) for row in rows] == [("new", ""), ("old", "2024-09-25")]
    assert notes == ["Prices of old are list prices of 2024-09-25: its API has none."]


def test_offers_that_are_not_known_are_said_to_be_so():
    assert live(source("x", "new", offers=None, error="No answer.")) == (
        [],
        ["Offers of new in GPUNodeClass x are unknown: No answer."],
    )


def test_notes_are_in_the_order_of_providers():
    some = [offer(name, price_as_of=date(2024, 9, day)) for day, name in enumerate("fbdace", start=1)]

    _, notes = live(source("x", "all", *some))

    assert [note.split()[2] for note in notes] == list("abcdef")


def row(kind, price, gpus=1, **fields):
    return Row(offer=offer("x", instance_type=kind, price=UsdPerHour(price), **fields), gpus=Fraction(gpus))


def test_the_cheapest_gpu_comes_first_and_machines_without_one_last():
    rows = [row("bare", "0.10", 0), row("one", "1.00"), row("four", "3.20", 4), row("half", "0.45", "1/2")]

    assert [each.offer.instance_type for each in matching(rows, OfferFilter())] == ["four", "half", "one", "bare"]


L4 = row("l4", "0.80", gpu_type="L4", gpu_memory_gib=24, region="us-east-1", zone="use1-az1")
H100 = row("h100", "2.00", gpu_type="H100", gpu_memory_gib=80, region="eu-north1", spot=True)
BARE = row("bare", "0.10", 0)


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        ({"models": frozenset({"H100"})}, ["h100"]),
        ({"min_vram": Fraction(24)}, ["l4", "h100"]),
        ({"min_vram": Fraction(25)}, ["h100"]),
        ({"places": ("US-*",)}, ["l4"]),
        ({"places": ("*-az1", "eu-*")}, ["l4", "h100"]),
        ({"max_price": UsdPerHour("0.80")}, ["l4", "bare"]),
        ({"spot": True}, ["h100"]),
        ({"spot": False}, ["l4", "bare"]),
    ],
)
def test_a_filter_admits_what_it_names(wanted, kinds):
    assert [each.offer.instance_type for each in matching([BARE, H100, L4], OfferFilter(**wanted))] == kinds


def test_scripts_see_exact_prices_and_none_for_what_is_not_there():
    shown = document([row("third", "1.00", 3), BARE], ["A note."])

    third, bare = shown["offers"]
    assert (third["price_per_gpu"], third["gpu_count"], third["as_of"]) == ("0.333333333333333333333333", 3.0, None)
    assert (bare["price_per_gpu"], bare["gpu_count"]) == (None, 0.0)
    assert shown["notes"] == ["A note."]
