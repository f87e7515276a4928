"""Offers for `forebay offers`: filtered, sorted by the price of one GPU, and as a JSON document."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from forebay.model.gpu_models import canonical
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Source, SourceKey
from forebay.planning.offer_table import Row


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


def live_rows(sources: Mapping[SourceKey, Source]) -> tuple[list[Row], list[str]]:
    """Offers of the sources, with notes: whose offers are unknown, and whose prices are not live."""
    notes: list[str] = []
    # Classes that share a provider have the same offers.
    rows: dict[tuple[object, ...], Row] = {}
    for key, source in sorted(sources.items()):
        if source.offers is None:
            notes.append(f"Offers of {key.provider} in GPUNodeClass {key.node_class} are unknown: {source.error}")
        for offer in source.offers or ():
            as_of = offer.price_as_of.isoformat() if offer.price_as_of is not None else ""
            rows[offer.key, offer.price] = Row(offer=offer, gpus=Fraction(offer.gpu_count), as_of=as_of)
    dated = sorted({(row.offer.provider, row.as_of) for row in rows.values() if row.as_of})
    notes += [f"Prices of {provider} are list prices of {as_of}: its API has none." for provider, as_of in dated]
    return list(rows.values()), notes


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
