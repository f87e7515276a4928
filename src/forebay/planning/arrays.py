"""A market in numpy arrays, for the loops that go over all kinds and shelves many times.

Floats here only guide the search: what is bought is reckoned again in exact units, and the bound is rounded down.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from forebay.planning.greedy import Packer
from forebay.planning.market import NO_END, Inventory, Item, limit_amounts

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Units of `UsdPerHour` in a dollar.
DOLLAR: Final = 10.0**24


class Offered:
    """One item that can still be bought."""

    __slots__ = ("at", "item", "score", "shelf", "stock")

    def __init__(self, shelf: int, at: int, item: Item, stock: int) -> None:
        self.shelf = shelf
        self.at = at
        self.item = item
        self.stock = stock
        self.score = item.score / DOLLAR


class Numbers:
    """The part of a market that this demand can use. Kinds and shelves are numbered anew; `kinds` and `shelves` say
    which of the market's they are.
    """

    def __init__(self, packer: Packer, counts: Sequence[int], shop: Inventory) -> None:
        market = packer.market
        self.packer = packer
        self.shop = shop
        self.groups = [kind for kind, count in enumerate(counts) if count > 0]
        self.demand: Ints = np.array([counts[kind] for kind in self.groups], dtype=np.int64)
        pods = int(self.demand.sum())
        shelves: list[tuple[int, list[Offered]]] = []
        self.offered: list[Offered] = []
        for number, shelf in enumerate(market.shelves):
            if not any(shelf.most[kind] for kind in self.groups):
                continue
            enough = pods
            here = []
            for at, item in enumerate(shelf.items):
                stock = min(shop.can_buy(item), pods)
                if stock > 0:
                    here.append(Offered(len(shelves), at, item, stock))
                    # Of items under limits the cheapest score need not be the best buy.
                    enough -= stock if not item.caps else 0
                    if enough <= 0:
                        break
            if here:
                shelves.append((number, here))
        self.shelves = [number for number, _ in shelves]
        self.offered_on = [here for _, here in shelves]
        self._arrays(pods)
        self._keep(self._undominated())

    def _arrays(self, pods: int) -> None:
        market = self.packer.market
        used = [d for d in range(len(market.resources)) if any(market.needs[kind][d] for kind in self.groups)]
        self.need: Floats = np.array([[market.needs[kind][d] for d in used] for kind in self.groups], dtype=np.float64)
        self.need = self.need.reshape(len(self.groups), len(used))
        shelves = [market.shelves[number] for number in self.shelves]
        self.capacity: Floats = np.array([[s.capacity[d] for d in used] for s in shelves], dtype=np.float64)
        self.capacity = self.capacity.reshape(len(shelves), len(used))
        most = np.array([[min(s.most[kind], NO_END) for kind in self.groups] for s in shelves], dtype=np.int64)
        self.most: Ints = np.minimum(most.reshape(len(shelves), len(self.groups)), self.demand)
        self.dislike: Floats = np.array(
            [[s.dislike[kind] / DOLLAR for kind in self.groups] for s in shelves], dtype=np.float64
        ).reshape(len(shelves), len(self.groups))
        self.price: Floats = np.array([here[0].score for here in self.offered_on])
        #: Without end and without limits: its nodes simply cost their price.
        self.plain = np.array(
            [here[0].stock >= pods and not here[0].item.caps for here in self.offered_on], dtype=np.bool_
        )

    def _undominated(self) -> list[int]:
        """Shelves of which none other takes all the same for no more, without end. The first of equals stays."""
        dominated = np.zeros(len(self.shelves), dtype=np.bool_)
        for other in np.lexsort((-self.capacity.sum(axis=1), self.price)):
            if not self.plain[other] or dominated[other]:
                continue
            worse = ~dominated & (self.price >= self.price[other])
            worse[other] = False
            rows = np.flatnonzero(worse)
            less = (
                (self.capacity[rows] <= self.capacity[other]).all(axis=1)
                & (self.most[rows] <= self.most[other]).all(axis=1)
                & (self.dislike[rows] >= self.dislike[other]).all(axis=1)
            )
            dominated[rows[less]] = True
        return [int(n) for n in np.flatnonzero(~dominated)]

    def _keep(self, numbers: list[int]) -> None:
        self.shelves = [self.shelves[n] for n in numbers]
        self.offered_on = [self.offered_on[n] for n in numbers]
        for at, here in enumerate(self.offered_on):
            for each in here:
                each.shelf = at
        self.offered = [each for here in self.offered_on for each in here]
        self.capacity, self.most = self.capacity[numbers], self.most[numbers]
        self.dislike, self.price, self.plain = self.dislike[numbers], self.price[numbers], self.plain[numbers]


def cap_amounts(shop: Inventory, number: int, item: Item) -> list[tuple[float, float]]:
    """By limit of the cap, in a fixed order: how much one of the item takes of it, and how much is left."""
    amounts = []
    nodes, money, resources = shop.cap_left(number)
    if nodes is not None:
        amounts.append((1.0, float(nodes)))
    if money is not None:
        amounts.append((item.candidate.offer.price.units / DOLLAR, money / DOLLAR))
    for name, left in sorted(resources.items()):
        amounts.append((float(limit_amounts(item.candidate, name)), float(left)))
    return amounts
