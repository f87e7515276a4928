"""What a GPU of each model usually costs, and offers so far below it that their price is likely a mistake.

Some price lists hold prices that nobody can buy at: a reserve price of an auction, a promotion that has ended, a slip
of the decimal point. The cheapest plan would be made of those.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from statistics import median_low
from typing import Final

from forebay.model.gpu_models import canonical
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Offer

#: Cheaper than this share of the usual price is unusual. Old models and spot go down to 4 % of the list price of a
#: large cloud, so that less than that would exclude good offers.
_UNUSUAL: Final = Fraction(3, 100)
#: With fewer offers of a model, nothing is known of what is usual.
_FEWEST: Final = 5

_Model = tuple[str, bool]


class UsualPrices:
    """Median price of one GPU by model, on demand and spot apart, in units of `UsdPerHour`."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        prices: defaultdict[_Model, list[Fraction]] = defaultdict(list)
        for offer in offers:
            if (model := _model(offer)) is not None:
                prices[model].append(Fraction(offer.price.units, offer.gpu_count))
        self._median: Mapping[_Model, Fraction] = {
            model: median_low(some) for model, some in prices.items() if len(some) >= _FEWEST
        }

    def unusual(self, offer: Offer) -> str | None:
        """What is unusual about the price: `its price is 1 % of the usual $1.59/h for a A100-80GB`. None: nothing."""
        model = _model(offer)
        usual = None if model is None else self._median.get(model)
        if model is None or not usual:
            return None
        share = Fraction(offer.price.units, offer.gpu_count) / usual
        if share >= _UNUSUAL:
            return None
        spot = "spot " if offer.spot else ""
        return (
            f"its price is {float(share):.1%} of what {spot}{model[0]} usually costs "
            f"({UsdPerHour.from_units(round(usual))} for each GPU)"
        ).replace("%", " %")


def _model(offer: Offer) -> _Model | None:
    """What offers are compared by; None for owned machines, and where the model is not known."""
    if offer.node_name is not None or offer.gpu_count <= 0 or not offer.gpu_type:
        return None
    return canonical(offer.gpu_type, offer.gpu_memory_gib), offer.spot


class RememberedPrices:
    """`UsualPrices` of the last offers: these change once a minute, and plans are made several times a second."""

    def __init__(self) -> None:
        self._last: tuple[Sequence[Sequence[Offer]], UsualPrices] = ((), UsualPrices(()))

    def of(self, offers: Sequence[Sequence[Offer]]) -> UsualPrices:
        known, prices = self._last
        if len(known) != len(offers) or any(a is not b for a, b in zip(known, offers, strict=True)):
            prices = UsualPrices(offer for some in offers for offer in some)
            self._last = (tuple(offers), prices)
        return prices
