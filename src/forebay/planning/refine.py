"""Column generation: the best mix of fillings as a linear program, whole numbers from it, and the proof of how good.

The linear program says what each pod is worth; pricing looks for fillings worth more than their node costs; when there
are none, what the pods are worth together is no more than any plan costs.
"""

from collections.abc import Callable, Sequence

import numpy as np

from forebay.planning.arrays import DOLLAR, Floats, Ints, Numbers
from forebay.planning.greedy import Packer, Solution
from forebay.planning.knapsack import exact
from forebay.planning.linear import Column, Duals, Master
from forebay.planning.market import LARGEST_TIE, Inventory
from forebay.planning.pricing import Ceilings, Filler
from forebay.planning.rounding import Clock, dive, realise

#: Work is bounded by these counts, so that the same input gives the same plan whatever the clock says.
_ROUNDS = 200
_COLUMNS_A_ROUND = 100
_ENOUGH_COLUMNS = 40
#: Steps of the search in one shelf, and entries of its tables: at first, and to prove it where that found nothing.
_EFFORTS = ((3000, 100_000), (20_000, 500_000))
#: Shares of the time that are left when whole numbers are sought, when columns are sought again, and for the proof.
_TO_ROUND = 0.55
_TO_GO_ON = 0.45
_TO_PROVE = 0.3
_TO_END = 0.2
#: A bound within this of the linear program's own value is as good as that.
_PROVEN = 1e-4
#: What counts as no gain.
_EPSILON = 1e-9
#: After so many ways to whole numbers, a gap of this to the linear program is enough.
_ENOUGH = (2e-4, 1e-3, 1e-3, 5e-3)
#: With this gap to the bound, nothing more need be proven.
_NEAR = 2e-3

Rank = Callable[[Solution], tuple[tuple[int, ...], int]]


class Refinement:
    """Of a first solution, for the pods that it serves."""

    def __init__(self, packer: Packer, counts: Sequence[int], shop: Inventory, first: Solution, *, seed: int) -> None:
        self._packer = packer
        self._first = first
        self._served = [count - left for count, left in zip(counts, first.left, strict=True)]
        self._numbers = numbers = Numbers(packer, self._served, shop)
        self._master = Master(numbers, _penalty(numbers))
        self._master.add(_columns_of(numbers, first))
        self._filler = Filler(numbers, seed)
        self._ceilings = Ceilings(numbers)
        self._bound = 0.0

    @property
    def bound(self) -> int:
        """In units: what the same pods cost at least, without the tie breakers."""
        return max(int(self._bound) - LARGEST_TIE * sum(self._served), 0)

    def run(self, rank: Rank, left: Clock) -> Solution:
        """No worse than the first."""
        time = left()
        self._generate(lambda: left() - time * _TO_ROUND)
        best = self._first
        sure = np.floor(self._master.used + _EPSILON)
        if sure.sum() < self._master.used.sum() / 2:
            # Fillings that are used once or not at all: diving does better, and takes longer.
            best = self._round(best, (None, 1.0), rank, lambda: left() - time * _TO_END)
        else:
            best = self._round(best, (1.0,), rank, lambda: left() - time * _TO_GO_ON)
        while self._packer.score(best) > self._bound * (1 + _NEAR) and left() > time * _TO_END:
            # More columns make a better bound, and better whole numbers.
            self._generate(lambda: left() - time * _TO_PROVE)
            if not self._master.add(self._price(self._master.solve(), lambda: left() - time * _TO_END, prove=True)):
                break
        self._master.solve()
        return self._round(best, (1.0, None, 0.8, 0.0), rank, left)

    def _round(self, best: Solution, ways: tuple[float | None, ...], rank: Rank, left: Clock) -> Solution:
        """Whole numbers, in one way after the other until they are near enough to what the linear program says: a
        share of its own that is kept, or None for diving.
        """
        value = self._master.value * DOLLAR
        sure = np.floor(self._master.used + _EPSILON)
        for share, gap in zip(ways, _ENOUGH, strict=False):
            if self._packer.score(best) <= value * (1 + gap) or left() <= 0:
                break
            if share is None:
                times: Ints | None = dive(self._numbers, self._master, self._filler, left)
            else:
                times = self._master.whole(np.floor(sure * share).astype(np.int64), left())
            if times is not None:
                best = min(best, self._realised(times), key=rank)
        return best

    def _realised(self, times: Ints) -> Solution:
        return realise(self._numbers, self._master.columns, times, self._served, self._first.left)

    def _generate(self, left: Clock) -> None:
        """Until no filling is worth more than its node, or nearly."""
        master = self._master
        duals = master.solve()
        for _ in range(_ROUNDS):
            if left() <= 0:
                return
            promising = np.flatnonzero(self._ceilings.all(duals.worth) > duals.node * (1 + _EPSILON))
            columns = self._filler.columns(duals, promising) or self._filler.columns(duals, promising, thorough=True)
            if not master.add(columns[:_COLUMNS_A_ROUND]):
                columns = self._price(duals, left, prove=False) or self._price(duals, left, prove=True)
                if self._bound >= master.value * DOLLAR * (1 - _PROVEN) or not master.add(columns):
                    return
            duals = master.solve()

    def _price(self, duals: Duals, left: Clock, *, prove: bool) -> list[Column]:
        """Fillings that gain. What is seen of all others gives a bound; to `prove` that there are none takes longer."""
        numbers = self._numbers
        found: list[Column] = []
        proven = self._ceilings.all(duals.worth)
        target = duals.node * (1 + _EPSILON)
        if prove:
            self._ceilings.tighten(proven, duals.worth, np.flatnonzero(proven > target))
        efforts = _EFFORTS if prove else _EFFORTS[:1]
        tried = np.zeros(len(numbers.shelves), dtype=np.int64)
        while left() > 0 and (prove or len(found) < _ENOUGH_COLUMNS):
            # The one that promises most is what the bound suffers from, and its prices tell most about others.
            promise = np.where(tried < len(efforts), proven / np.maximum(target, _EPSILON), 0.0)
            shelf = int(promise.argmax())
            if promise[shelf] <= 1.0:
                break
            steps, cells = efforts[tried[shelf]]
            tried[shelf] += 1
            best = exact(
                duals.worth - numbers.dislike[shelf],
                numbers.need,
                numbers.capacity[shelf],
                numbers.most[shelf],
                above=float(target[shelf]),
                steps=steps,
                cells=cells,
            )
            np.minimum(proven, self._ceilings.learn(best.prices, duals.worth), out=proven)
            proven[shelf] = min(best.most, proven[shelf])
            if best.fillings:
                # What is worth more than its node will be worth less when it is known; then is the time to look again.
                tried[shelf] = len(efforts)
                found += [Column(shelf, counts) for counts in best.fillings]
        self._bound = max(self._bound, _lagrangian(numbers, self._master, duals, proven))
        return found


def _penalty(numbers: Numbers) -> Floats:
    """More than any way of serving a pod costs, so that none goes without if it can be helped."""
    alone = np.where(numbers.most > 0, numbers.price[:, None] + numbers.dislike, np.inf).min(axis=0)
    return np.where(np.isfinite(alone), alone, 1.0) * 100.0 + 1e-6


def _columns_of(numbers: Numbers, solution: Solution) -> list[Column]:
    """The fillings of a solution."""
    kinds = {kind: n for n, kind in enumerate(numbers.groups)}
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
        made += [Column(int(shelf), counts) for shelf in np.flatnonzero(room & numbers.plain)[:1]]
    return made


def _lagrangian(numbers: Numbers, master: Master, duals: Duals, proven: Floats) -> float:
    """In units. What the pods are worth, less what nodes bring in at most: a bound for any duals, near or far."""
    scale = 1.0
    for shelf in np.flatnonzero(numbers.plain):
        if proven[shelf] > numbers.price[shelf]:
            scale = min(scale, float(numbers.price[shelf] / proven[shelf]))
    value = float(duals.worth @ numbers.demand) * scale - master.rent(proven * scale, scale)
    # The error of sums of doubles is far less than this.
    return max(value * (1 - 1e-9), 0.0) * DOLLAR
