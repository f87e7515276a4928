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
from forebay.planning.pricing import Ceilings, Filler, exact

#: Work is bounded by these counts, so that the same input gives the same plan whatever the clock says.
_ROUNDS = 200
_COLUMNS_A_ROUND = 100
_STEPS = 500
#: A bound within this of the linear program's own value is as good as that.
_PROVEN = 1e-4
#: Share of the time that is kept for whole numbers.
_KEPT = 0.45
#: What counts as no gain.
_EPSILON = 1e-9
#: Whole numbers are sought with this share of the linear program's own kept, until the gap is no more than that.
_ATTEMPTS = ((1.0, 2e-4), (0.8, 1e-3), (0.0, 5e-3))

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
    time, seed = left(), 0
    served = [count - left for count, left in zip(counts, first.left, strict=True)]
    numbers = Numbers(packer, served, shop)
    master = Master(numbers, _penalty(numbers))
    master.add(_columns_of(numbers, first))
    filler = Filler(numbers, seed)
    bound = _generate(numbers, master, filler, lambda: left() - _KEPT * time)
    best = first
    if packer.score(best) > bound * (1 + _ATTEMPTS[0][1]) and len(numbers.shelves) <= 4:
        found = _dive(numbers, master, filler, served, first.left, left)
        best = min(best, found, key=rank)  # type: ignore[type-var]
    for share, gap in _ATTEMPTS:
        if packer.score(best) <= bound * (1 + gap) or left() <= 0:
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


def _generate(numbers: Numbers, master: Master, filler: Filler, left: Clock) -> float:
    """Until no filling is worth more than its node, or nearly. Returns the bound, in units."""
    ceilings = Ceilings(numbers)
    best = 0.0
    for _ in range(_ROUNDS):
        duals = master.solve()
        if left() <= 0:
            break
        promising = np.flatnonzero(ceilings.all(duals.worth) > duals.node * (1 + _EPSILON))
        columns = filler.columns(duals, promising) or filler.columns(duals, promising, thorough=True)
        if master.add(columns[:_COLUMNS_A_ROUND]):
            continue
        columns, proven = price_exactly(numbers, duals, ceilings, prove=False)
        if not columns:
            columns, proven = price_exactly(numbers, duals, ceilings, prove=True)
        best = max(best, _bound(numbers, master, duals, proven))
        if best >= master.value * DOLLAR * (1 - _PROVEN) or not master.add(columns):
            return best
    return max(best, _bound(numbers, master, duals, price_exactly(numbers, duals, ceilings, prove=True)[1]))


def price_exactly(numbers: Numbers, duals: Duals, ceilings: Ceilings, *, prove: bool) -> tuple[list[Column], Floats]:
    """Fillings that gain, and by shelf what one is worth at most; to `prove` that there are none takes longer."""
    found: list[Column] = []
    proven = ceilings.all(duals.worth)
    target = duals.node * (1 + _EPSILON)
    # Those that promise most come first: their resource prices are the most telling about others.
    for shelf in np.argsort(-proven / target, kind="stable"):
        if proven[shelf] <= target[shelf]:
            continue
        value = duals.worth - numbers.dislike[shelf]
        capacity, most = numbers.capacity[shelf], numbers.most[shelf]
        best = exact(value, numbers.need, capacity, most, above=float(target[shelf]), steps=_STEPS, prove=prove)
        np.minimum(proven, ceilings.learn(best.multipliers, duals.worth), out=proven)
        proven[shelf] = min(best.most, proven[shelf])
        found += [Column(int(shelf), counts) for counts in best.fillings]
    return found, proven


def _dive(
    numbers: Numbers, master: Master, filler: Filler, served: Sequence[int], without: Sequence[int], left: Clock
) -> Solution:
    """Takes what the linear program is sure of, and asks it again about the rest."""
    demand, most = numbers.demand, numbers.most
    remaining = demand.copy()
    times = np.zeros(0, dtype=np.int64)
    while remaining.any() and left() > 0:
        used = master.used
        times = np.concatenate([times, np.zeros(len(used) - len(times), dtype=np.int64)])
        parts = used - np.floor(used + 1e-9)
        take = np.floor(used + 1e-9).astype(np.int64)
        order = np.argsort(-parts, kind="stable")
        sure = order[parts[order] > 0.8]
        few = order[: max(1, int(remaining.sum()) // 100)]
        take[np.union1d(sure, few[parts[few] > 1e-6])] += 1
        progress = False
        for n in np.argsort(-used, kind="stable"):
            if not take[n]:
                continue
            counts = master.columns[n].counts
            fits = take[n]
            if (np.minimum(counts, remaining) < counts).any() and (counts * fits > remaining).any():
                whole = np.min(remaining[counts > 0] // counts[counts > 0])
                fits = min(fits, whole)
                if not fits and not progress:
                    fits = 1
            if fits > 0:
                times[n] += fits
                remaining = np.maximum(remaining - counts * fits, 0)
                progress = True
        numbers.most = np.minimum(most, remaining)
        master.ask(remaining)
        duals = master.solve()
        for _ in range(3):
            if not master.add(filler.columns(duals, np.arange(len(numbers.shelves)))[:_COLUMNS_A_ROUND]):
                break
            duals = master.solve()
    numbers.most = most
    master.ask(demand)
    master.solve()
    times = np.concatenate([times, np.zeros(len(master.columns) - len(times), dtype=np.int64)])
    return _realise(numbers, master.columns, times, served, without)


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
