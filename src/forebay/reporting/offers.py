"""Offers for `forebay offers`: filtered, sorted by the price of one GPU, and as a JSON document."""

import fnmatch
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState
from forebay.model.gpu_models import canonical
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Offer
from forebay.planning.offer_table import Row
from forebay.reconcile.snapshot import Snapshot

#: What to do where no class has a provider.
NO_PROVIDERS: Final = (
    "No GPUNodeClass names a provider: create one (docs/providers/README.md), or name machines of your own in the "
    "operator's environment (docs/providers/webhook.md)."
)


class OfferFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter for offers. None and empty values match everything."""

    #: Canonical names of GPU models.
    models: frozenset[str] = frozenset()
    #: Least memory of one GPU, in GiB.
    min_vram: Fraction | None = None
    #: Patterns (`us-*`) for the region or the zone.
    places: tuple[str, ...] = ()
    max_price: UsdPerHour | None = None
    spot: bool | None = None

    def admits(self, row: Row) -> bool:
        offer = row.offer
        names = [place.casefold() for place in (offer.region, offer.zone) if place]
        patterns = [each.casefold() for each in self.places]
        return not (
            (self.models and canonical(offer.gpu_type or "", offer.gpu_memory_gib) not in self.models)
            or (self.min_vram is not None and (offer.gpu_memory_gib or 0) < self.min_vram)
            or (patterns and not any(fnmatch.fnmatchcase(name, each) for name in names for each in patterns))
            or (self.max_price is not None and offer.price > self.max_price)
            or (self.spot is not None and offer.spot is not self.spot)
        )


def matching(rows: Iterable[Row], wanted: OfferFilter) -> list[Row]:
    """The rows that the filter admits, cheapest GPU first; machines without a GPU last."""
    return sorted((row for row in rows if wanted.admits(row)), key=_order)


def _order(row: Row) -> tuple[object, ...]:
    offer = row.offer
    return (not row.gpus, _units_per_gpu(row), offer.price.units, offer.key)


def _units_per_gpu(row: Row) -> Fraction:
    return row.offer.price.units / row.gpus if row.gpus else Fraction(0)


def live_rows(snapshot: Snapshot) -> tuple[list[Row], list[str]]:
    """Offers of the sources, with notes: that nobody has any, whose are unknown, and whose prices are not live.

    A machine of one's own that is on is listed, with a stock of 0.
    """
    notes = [] if snapshot.sources or snapshot.unusable else [NO_PROVIDERS]
    on = {each.node_name for each in snapshot.records if each.state is not InstanceState.GONE}
    on |= {name for name, node in snapshot.nodes.items() if node.ready}
    # Classes that share a provider have the same offers.
    rows: dict[tuple[object, ...], Row] = {}
    for key, source in sorted(snapshot.sources.items()):
        if source.offers is None:
            notes.append(f"Offers of {key.provider} in GPUNodeClass {key.node_class} are unknown: {source.error}")
        for offer in source.offers or ():
            as_of = offer.price_as_of.isoformat() if offer.price_as_of is not None else ""
            left = replace(offer, stock=0) if offer.node_name is not None and offer.node_name in on else offer
            rows[offer.key, offer.price] = Row(offer=left, gpus=Fraction(offer.gpu_count), as_of=as_of)
    dated = sorted({(row.offer.provider, row.as_of) for row in rows.values() if row.as_of})
    notes += [f"Prices of {provider} are list prices of {as_of}: its API has none." for provider, as_of in dated]
    return list(rows.values()), notes


def capacity(offer: Offer) -> str:
    """Whose machine it is, or for how long one has it: `own`, `own, on`, `spot` or `on-demand`."""
    if offer.node_name is not None:
        return "own, on" if offer.stock == 0 else "own"
    return "spot" if offer.spot else "on-demand"


def place(offer: Offer) -> str:
    return offer.zone or offer.region or "-"


def price_per_gpu(row: Row) -> UsdPerHour:
    """Price of one whole GPU, rounded to the decimals of a price: a third of a dollar has infinitely many."""
    return UsdPerHour.from_units(round(_units_per_gpu(row)))


def document(rows: Iterable[Row], notes: Sequence[str]) -> dict[str, object]:
    return {
        "offers": [
            {
                "provider": row.offer.provider,
                "instance_type": row.offer.instance_type,
                "region": row.offer.region,
                "zone": row.offer.zone,
                "spot": row.offer.spot,
                "capacity": capacity(row.offer),
                "gpu_type": row.offer.gpu_type,
                "gpu_count": float(row.gpus),
                "gpu_memory_gib": row.offer.gpu_memory_gib,
                "price": row.offer.price.exact(),
                "price_per_gpu": price_per_gpu(row).exact() if row.gpus else None,
                "stock": row.offer.stock,
                "machine": row.offer.node_name,
                "as_of": row.as_of or None,
            }
            for row in rows
        ],
        "notes": list(notes),
    }
