"""A good answer at once: fill every shelf's node as well as can be, buy what gives most for its price, repeat.

What a pod is worth is what it costs where it is cheapest: its share of a node full of its like. The best filling of a
node is bought as often as it stays useful, so the work follows the kinds of pods and not their number.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from forebay.planning.market import CandidateGroup, Inventory, Item, Market

Pattern = tuple[tuple[int, int], ...]
"""A filling of one node: (kind, how many), by kind."""


class Buying(NamedTuple):
    shelf: int
    item: Item
    pattern: Pattern
    times: int


class Solution(NamedTuple):
    buyings: tuple[Buying, ...]
    #: By kind: how many have no place.
    left: tuple[int, ...]


#: What a node counts as when fillings are compared, given the score of its item.
Price = Callable[[int], int]


class Packer:
    """Fillings of the shelves of one market."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.needs = [[(d, amount) for d, amount in enumerate(need) if amount > 0] for need in market.needs]

    def worth(self, kinds: Iterable[int], price: Price) -> dict[int, float]:
        """What one pod of each kind costs where it is cheapest."""
        found: dict[int, float] = {}
        shelves = [(float(price(shelf.items[0].score)), shelf) for shelf in self.market.shelves]
        for kind in kinds:
            each = [cost / shelf.most[kind] + shelf.dislike[kind] for cost, shelf in shelves if shelf.most[kind]]
            found[kind] = min(each, default=0.0)
        return found

    def orders(self, number: int, worth: dict[int, float]) -> tuple[list[int], ...]:
        """Kinds in the orders in which a node of this shelf is filled: large ones first; dear ones for their size."""
        shelf = self.market.shelves[number]
        share = {
            kind: max(amount / shelf.capacity[d] for d, amount in self.needs[kind]) if self.needs[kind] else 0.0
            for kind in worth
            if shelf.most[kind]
        }
        by_size = sorted(share, key=lambda kind: (-share[kind], -worth[kind], kind))
        by_worth = sorted(share, key=lambda kind: (-worth[kind] / (share[kind] or 1.0), kind))
        return (by_size, by_worth) if by_size != by_worth else (by_size,)

    def at_most(self, kinds: Sequence[int], worth: dict[int, float]) -> Callable[[CandidateGroup], float]:
        """What pods in one node of a shelf are worth at most: by each resource that all of them need."""
        needed = [d for d in range(len(self.market.resources)) if all(self.market.needs[kind][d] for kind in kinds)]
        rates = [(d, max(worth[kind] / self.market.needs[kind][d] for kind in kinds)) for d in needed]
        return lambda shelf: min((shelf.capacity[d] * rate for d, rate in rates), default=math.inf)

    def fill(self, shelf: CandidateGroup, remaining: Sequence[int], order: Iterable[int]) -> Pattern:
        free = list(shelf.capacity)
        most = shelf.most
        pattern = []
        for kind in order:
            count = min(remaining[kind], most[kind])
            if count <= 0:
                continue
            need = self.needs[kind]
            for d, amount in need:
                room = free[d] // amount
                count = min(count, room)
            if count > 0:
                pattern.append((kind, count))
                for d, amount in need:
                    free[d] -= amount * count
        pattern.sort()
        return tuple(pattern)

    def takes(self, shelf: CandidateGroup, pattern: Pattern) -> bool:
        free = list(shelf.capacity)
        for kind, count in pattern:
            if shelf.most[kind] < count:
                return False
            for d, amount in self.needs[kind]:
                free[d] -= amount * count
                if free[d] < 0:
                    return False
        return True

    def disliked(self, shelf: CandidateGroup, pattern: Pattern) -> int:
        return sum(shelf.dislike[kind] * count for kind, count in pattern)

    def score(self, solution: Solution) -> int:
        return sum(
            (b.item.score + self.disliked(self.market.shelves[b.shelf], b.pattern)) * b.times for b in solution.buyings
        )

    def expected(self, solution: Solution) -> int:
        return sum(
            (b.item.expected + self.disliked(self.market.shelves[b.shelf], b.pattern)) * b.times
            for b in solution.buyings
        )


def greedy(packer: Packer, counts: Sequence[int], shop: Inventory, price: Price = lambda score: score) -> Solution:
    """Buys from `shop`. `price`: what nodes count as instead of their score, where nodes are what is scarce."""
    remaining = list(counts)
    wanted = [kind for kind, count in enumerate(remaining) if count > 0]
    if not wanted:
        return Solution((), tuple(remaining))
    worth = packer.worth(wanted, price)
    shelves = packer.market.shelves
    orders: dict[int, tuple[list[int], ...]] = {}
    front = [0] * len(shelves)
    heap: list[tuple[float, int, Pattern, int]] = []

    def offer(number: int) -> None:
        """Puts the best filling of the shelf's cheapest item that can still be bought into the heap."""
        shelf = shelves[number]
        while front[number] < len(shelf.items) and not shop.can_buy(shelf.items[front[number]]):
            front[number] += 1
        if front[number] == len(shelf.items):
            return
        if number not in orders:
            orders[number] = packer.orders(number, worth)
        cost = price(shelf.items[front[number]].score)
        best: tuple[float, int, Pattern, int] | None = None
        for order in orders[number]:
            pattern = packer.fill(shelf, remaining, order)
            if pattern:
                value = sum(worth[kind] * count for kind, count in pattern)
                entry = (-value / (cost + packer.disliked(shelf, pattern)), number, pattern, front[number])
                best = entry if best is None else min(best, entry)
        if best is not None:
            heapq.heappush(heap, best)

    # At first each shelf stands for the most it could give; most are never looked at more closely.
    at_most = packer.at_most(wanted, worth)
    for number, shelf in enumerate(shelves):
        if any(shelf.most[kind] for kind in wanted):
            heap.append((-at_most(shelf) / price(shelf.items[0].score), number, (), 0))
    heapq.heapify(heap)
    buyings = []
    while heap:
        _, number, pattern, at = heapq.heappop(heap)
        if not pattern:
            offer(number)
            continue
        item = shelves[number].items[at]
        times = shop.can_buy(item)
        if times:
            times = min(times, *(remaining[kind] // count for kind, count in pattern))
        # Fillings only become worse as pods and stock go, so an old entry that still holds is the best there is.
        if times:
            shop.buy(item, times)
            for kind, count in pattern:
                remaining[kind] -= count * times
            buyings.append(Buying(number, item, pattern, times))
        offer(number)
    return cheaper(packer, Solution(tuple(buyings), tuple(remaining)), shop)


def cheaper(packer: Packer, solution: Solution, shop: Inventory) -> Solution:
    """The same fillings, each on the cheapest item that takes it."""
    shelves = packer.market.shelves
    by_score = sorted((item.score, number, at) for number, s in enumerate(shelves) for at, item in enumerate(s.items))
    made = []
    for buying in solution.buyings:
        left = buying.times
        now = buying.item.score + packer.disliked(shelves[buying.shelf], buying.pattern)
        seen: dict[int, bool] = {}
        for score, number, at in by_score:
            if not left or score >= now:
                break
            shelf = shelves[number]
            if number not in seen:
                seen[number] = packer.takes(shelf, buying.pattern)
            if not seen[number] or score + packer.disliked(shelf, buying.pattern) >= now:
                continue
            item = shelf.items[at]
            # What it replaces goes back first: both may be under the same limit.
            shop.give_back(buying.item, left)
            times = min(shop.can_buy(item), left)
            shop.buy(item, times)
            shop.buy(buying.item, left - times)
            if times:
                made.append(Buying(number, item, buying.pattern, times))
                left -= times
        if left:
            made.append(buying._replace(times=left))
    return solution._replace(buyings=tuple(made))
