"""Demand small enough to try everything: the cheapest plan, by dynamic programming over what is still to serve."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from forebay.planning.greedy import Buying, Packer, Pattern, Solution
from forebay.planning.market import Inventory, Item

#: So many steps are taken before anything else would be ready.
_MOST_STEPS = 20_000

_State = tuple[int, ...]


def is_small(counts: Sequence[int]) -> bool:
    """Each step takes one part of one whole of the demand."""
    return prod((n + 1) * (n + 2) // 2 for n in counts) <= _MOST_STEPS


def cheapest(packer: Packer, counts: Sequence[int], shop: Inventory) -> tuple[Solution | None, int] | None:
    """The cheapest plan that serves all, and its score: none can cost less. The plan is None where it would take more
    than stock and limits allow; all is None where some pod fits nowhere.
    """
    kinds = [kind for kind, count in enumerate(counts) if count]
    offers = _Offers(packer, kinds, shop)
    whole = tuple(counts[kind] for kind in kinds)
    best: dict[_State, tuple[int, _State]] = {(0,) * len(kinds): (0, ())}
    # In this order every smaller state comes before the larger ones that build on it.
    for state in product(*(range(n + 1) for n in whole)):
        if state in best:
            continue
        found: tuple[int, _State] | None = None
        for part in _parts(state):
            offer = offers[part]
            rest = best.get(tuple(a - b for a, b in zip(state, part, strict=True)))
            if offer is not None and rest is not None and (found is None or offer[0] + rest[0] < found[0]):
                found = (offer[0] + rest[0], part)
        if found is not None:
            best[state] = found
    if whole not in best:
        return None
    return _plan(packer, best, whole, offers, shop.copy()), best[whole][0]


def _parts(state: _State) -> Iterator[_State]:
    """What one node may take: some of the first kind that waits, so that no set of nodes is tried twice."""
    first = next(n for n, count in enumerate(state) if count)
    ranges = [range(n == first, count + 1) for n, count in enumerate(state)]
    return iter(product(*ranges))


class _Offers(dict[_State, "tuple[int, int, Item, Pattern] | None"]):
    """By filling: the cheapest item that takes it, with its cost there and its shelf."""

    def __init__(self, packer: Packer, kinds: Sequence[int], shop: Inventory) -> None:
        super().__init__()
        self._packer = packer
        self._kinds = kinds
        self._items = sorted(
            (item.score, number, at)
            for number, shelf in enumerate(packer.market.shelves)
            for at, item in enumerate(shelf.items)
            if shop.can_buy(item)
        )

    def __missing__(self, part: _State) -> "tuple[int, int, Item, Pattern] | None":
        pattern = tuple((kind, count) for kind, count in zip(self._kinds, part, strict=True) if count)
        best: tuple[int, int, Item, Pattern] | None = None
        takes: dict[int, bool] = {}
        for score, number, at in self._items:
            if best is not None and score >= best[0]:
                break
            shelf = self._packer.market.shelves[number]
            if number not in takes:
                takes[number] = self._packer.takes(shelf, pattern)
            if takes[number]:
                cost = score + self._packer.disliked(shelf, pattern)
                if best is None or cost < best[0]:
                    best = (cost, number, shelf.items[at], pattern)
        self[part] = best
        return best


def _plan(
    packer: Packer, best: dict[_State, tuple[int, _State]], whole: _State, offers: _Offers, shop: Inventory
) -> Solution | None:
    buyings: list[Buying] = []
    state = whole
    while any(state):
        part = best[state][1]
        offer = offers[part]
        assert offer is not None
        _, number, item, pattern = offer
        if not shop.can_buy(item):
            return None
        shop.buy(item, 1)
        buyings.append(Buying(number, item, pattern, 1))
        state = tuple(a - b for a, b in zip(state, part, strict=True))
    return Solution(tuple(buyings), (0,) * len(packer.market.needs))
