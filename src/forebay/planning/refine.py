"""Column generation: the best mix of fillings as a linear program, whole numbers from it, and the proof of how good.

The linear program says what each pod is worth; pricing looks for fillings worth more than their node costs; when there
are none, what the pods are worth together is less than any plan costs.
"""

from collections.abc import Callable, Sequence

import numpy as np

from forebay.planning.greedy import Buying, Packer, Pattern, Solution, cheaper, greedy
from forebay.planning.linear import Column, Duals, Master
from forebay.planning.market import LARGEST_TIE, NO_END, Shop
from forebay.planning.numbers import DOLLAR, Floats, Ints, Numbers
from forebay.planning.pricing import Filler, exact, relaxed

#: Work is bounded by these counts, so that the same input gives the same plan whatever the clock says.
_ROUNDS = 200
_COLUMNS_A_ROUND = 100
_STEPS = 5_000
_GOOD_ENOUGH = 2e-4

#: Seconds that are left.
Clock = Callable[[], float]


class Refined:
    """What came of it."""

    def __init__(self, solution: Solution, bound: int) -> None:
        self.solution = solution
        #: In units.
        self.bound = bound


def refine(
    packer: Packer, counts: Sequence[int], shop: Shop, first: Solution, rank: Callable[[Solution], object], left: Clock
) -> Refined:
    """A solution for the pods that `first` serves which is no worse, and the bound."""
    served = [count - left for count, left in zip(counts, first.left, strict=True)]
    numbers = Numbers(packer, served, shop)
    master = Master(numbers, _penalty(numbers))
    master.add(_columns_of(numbers, first))
    duals, proven = _generate(numbers, master, left)
    bound = _bound(numbers, master, duals, proven)
    best = first
    goal = bound * (1 + _GOOD_ENOUGH)
    for share in (1.0, 0.8, 0.0):
        if packer.score(best) <= goal or left() <= 0:
            break
        floor = np.floor(np.floor(master.used + 1e-9) * share).astype(np.int64)
        times = master.whole(floor, left())
        if times is not None:
            found = _realise(numbers, master.columns, times, served, first.left)
            best = min(best, found, key=rank)  # type: ignore[type-var]
    pods = sum(served)
    return Refined(best, max(int(bound) - LARGEST_TIE * pods, 0))


def _penalty(numbers: Numbers) -> Floats:
    """More than any way of serving a pod costs, so that none goes without if it can be helped."""
    alone = np.where(numbers.most > 0, numbers.price[:, None] + numbers.dislike, np.inf).min(axis=0)
    return np.where(np.isfinite(alone), alone, 1.0) * 100.0 + 1e-6


def _columns_of(numbers: Numbers, solution: Solution) -> list[Column]:
    """The fillings of a solution, each on every shelf that takes it at its price or less."""
    kinds = {kind: n for n, kind in enumerate(numbers.kinds)}
    shelves = {shelf: n for n, shelf in enumerate(numbers.shelves)}
    made = []
    for buying in solution.buyings:
        counts = np.zeros(len(kinds), dtype=np.int64)
        for kind, count in buying.pattern:
            counts[kinds[kind]] = count
        if buying.shelf in shelves:
            made.append(Column(shelves[buying.shelf], counts))
            continue
        # Its shelf is dominated: another takes the same for no more.
        room = (numbers.capacity >= counts @ numbers.need).all(axis=1) & (numbers.most >= counts).all(axis=1)
        made += [Column(int(shelf), counts) for shelf in np.flatnonzero(room & numbers.plain)[:4]]
    return made


def _generate(numbers: Numbers, master: Master, left: Clock) -> tuple[Duals, Floats]:
    """Until no filling is worth more than its node. Also by shelf: what a filling is worth at most, by the last duals."""
    filler = Filler(numbers)
    everything = np.arange(len(numbers.shelves))
    duals = master.solve()
    for _ in range(_ROUNDS):
        if left() <= 0:
            break
        if not master.add(filler.columns(duals, everything)[:_COLUMNS_A_ROUND]):
            columns, proven = price_exactly(numbers, duals, left)
            if not master.add(columns):
                return duals, proven
        duals = master.solve()
    return duals, price_exactly(numbers, duals, left)[1]


def price_exactly(numbers: Numbers, duals: Duals, left: Clock) -> tuple[list[Column], Floats]:
    """Fillings that gain, and by shelf what one is worth at most."""
    found = []
    proven = np.zeros(len(numbers.shelves))
    known: list[Floats] = []
    for shelf in range(len(numbers.shelves)):
        value = duals.worth - numbers.dislike[shelf]
        capacity, most = numbers.capacity[shelf], numbers.most[shelf]
        target = float(duals.node[shelf]) * (1 + 1e-9)
        loose = min((relaxed(value, numbers.need, capacity, most, each) for each in known), default=np.inf)
        if loose <= target:
            proven[shelf] = loose
            continue
        best = exact(value, numbers.need, capacity, most, above=target, steps=_STEPS if left() > 0 else 0)
        known.append(best.multipliers)
        proven[shelf] = min(best.most, loose)
        if best.counts.any():
            found.append((best.value / target, Column(shelf, best.counts)))
    found.sort(key=lambda pair: -pair[0])
    return [column for _, column in found[:_COLUMNS_A_ROUND]], proven


def _bound(numbers: Numbers, master: Master, duals: Duals, proven: Floats) -> float:
    """In units. What the pods are worth less what nodes bring in at most: the Lagrangian bound, true for any duals."""
    scale = 1.0
    for shelf in np.flatnonzero(numbers.plain):
        if proven[shelf] > numbers.price[shelf]:
            scale = min(scale, float(numbers.price[shelf] / proven[shelf]))
    value = float(duals.worth @ numbers.demand) * scale - master.rent(proven * scale, scale)
    # Sums of doubles: their error is far less than this.
    return max(value * (1 - 1e-9), 0.0) * DOLLAR


def _realise(
    numbers: Numbers, columns: Sequence[Column], times: Ints, served: Sequence[int], without: Sequence[int]
) -> Solution:
    """Bought item by item and pod by pod, in exact numbers; what does not work out is left to the greedy."""
    packer, shop = numbers.packer, numbers.shop.copy()
    remaining = list(served)
    buyings: list[Buying] = []
    use = [(int(times[n]), n) for n in np.flatnonzero(times)]
    # The most used first: what is too much is then taken from the others.
    for count, n in sorted(use, key=lambda pair: (-pair[0], pair[1])):
        column = columns[n]
        shelf = numbers.shelves[column.shelf]
        full = tuple((numbers.kinds[kind], int(column.counts[kind])) for kind in np.flatnonzero(column.counts))
        left = count
        while left > 0:
            pattern: Pattern = tuple((k, min(a, remaining[k])) for k, a in full if remaining[k])
            item = next((i for i in packer.market.shelves[shelf].items if shop.can_buy(i)), None)
            if not pattern or item is None:
                break
            fits = min(remaining[k] // a for k, a in pattern)
            bought = min(left, fits, shop.can_buy(item))
            shop.buy(item, bought)
            for k, a in pattern:
                remaining[k] -= a * bought
            buyings.append(Buying(shelf, item, pattern, bought))
            left -= bought
    rest = greedy(packer, remaining, shop)
    whole = Solution((*buyings, *rest.buyings), tuple(a + b for a, b in zip(rest.left, without, strict=True)))
    return cheaper(packer, whole, shop)
