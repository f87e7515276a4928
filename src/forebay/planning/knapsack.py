"""The one filling of a node that is worth most, and the proof that none is worth more."""

from typing import NamedTuple

import highspy
import numpy as np

from forebay.planning.linear import quiet
from forebay.planning.numbers import Floats, Ints

#: So many fillings of a shelf are of use at once.
_FILLINGS = 6
_SECONDS = 0.1


class Best(NamedTuple):
    #: Each worth more than the one before; the last of them most.
    fillings: list[Ints]
    #: No filling is worth more.
    most: float
    #: Prices of the resources under which that is seen; of use for like shelves.
    prices: Floats


def _knapsack(value: Floats, need: Floats, capacity: Floats, most: Ints) -> highspy.Highs:
    """Which pods to put into one node: to be solved in parts of pods, or in whole ones."""
    highs = quiet()
    kinds, resources = need.shape
    highs.addRows(
        resources,
        np.full(resources, -highspy.kHighsInf),
        # In shares of the node: memory in bytes beside single GPUs would be more than an LP's digits hold.
        np.ones(resources),
        0,
        np.zeros(resources, dtype=np.int32),
        np.array([], dtype=np.int32),
        np.array([]),
    )
    highs.addCols(
        kinds,
        -value,
        np.zeros(kinds),
        most.astype(np.float64),
        kinds * resources,
        np.arange(kinds, dtype=np.int32) * resources,
        np.tile(np.arange(resources, dtype=np.int32), kinds),
        (need / _room(capacity)).ravel(),
    )
    return highs


def _room(capacity: Floats) -> Floats:
    room: Floats = np.maximum(capacity, 1e-300)
    return room


def multipliers(value: Floats, need: Floats, capacity: Floats, most: Ints) -> Floats:
    """What a unit of each resource is worth in a node that could be filled with parts of pods."""
    highs = _knapsack(value, need, capacity, most)
    highs.run()
    duals: Floats = -np.array(highs.getSolution().row_dual)
    prices: Floats = np.maximum(duals, 0.0) / _room(capacity)
    return prices


def _whole(value: Floats, need: Floats, capacity: Floats, most: Ints) -> tuple[Ints, float]:
    """The filling worth most, or one near to it, and what none is worth more than."""
    highs = _knapsack(value, need, capacity, most)
    # A guard: what takes longer would take too long.
    highs.setOptionValue("time_limit", _SECONDS)
    kinds = len(value)
    highs.setOptionValue("mip_max_nodes", 200)
    highs.setOptionValue("mip_rel_gap", 1e-7)
    highs.changeColsIntegrality(kinds, np.arange(kinds, dtype=np.int32), np.full(kinds, highspy.HighsVarType.kInteger))
    highs.run()
    info = highs.getInfo()
    ceiling = -info.mip_dual_bound * (1 + 1e-7)
    counts = np.zeros(kinds, dtype=np.int64)
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        counts = np.rint(np.array(highs.getSolution().col_value)).astype(np.int64)
        # The solver is content with nearly; a node is not.
        if (counts @ need > capacity).any():
            counts[:] = 0
    return counts, ceiling


def _useful(value: Floats, need: Floats, capacity: Floats, most: Ints) -> Ints:
    """Kinds that a best filling may need: not those that another, of which there is plenty, could always replace."""
    good = np.flatnonzero((value > 0) & (most > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.where(need[good] > 0, np.floor(capacity[None, :] / need[good]), np.inf).min(axis=1)
    plenty = most[good] >= alone
    smaller = (need[good][:, None, :] <= need[good][None, :, :]).all(axis=2) & plenty[:, None]
    worth = value[good]
    better = smaller & (worth[:, None] >= worth[None, :])
    # Of two that are alike in all, the first stays.
    alike = better & better.T
    better &= ~(alike & (np.arange(len(good))[:, None] >= np.arange(len(good))[None, :]))
    useful: Ints = good[~better.any(axis=0)]
    return useful


def exact(value: Floats, need: Floats, capacity: Floats, most: Ints, *, above: float, steps: int, prove: bool) -> Best:
    """The filling worth most, if that is more than `above`; depth first with the relaxation as a bound.

    After so many steps it gives up, and `most` is the relaxation's word for what was not looked at; unless it must
    `prove`, and then HiGHS goes on.
    """
    good = _useful(value, need, capacity, most)
    prices = multipliers(value[good], need[good], capacity, most[good])
    search = _Search(value[good], need[good], capacity, most[good], prices)
    search.run(above, steps)
    best, unseen, found = search.best, search.unseen, search.found
    if unseen > best and prove:
        whole, ceiling = _whole(value[good], need[good], capacity, most[good])
        unseen = min(unseen, ceiling)
        if float(value[good] @ whole) > best:
            best = float(value[good] @ whole)
            found.append({at: int(count) for at, count in enumerate(whole)})
    fillings = []
    for filling in found[-_FILLINGS:]:
        counts = np.zeros(len(value), dtype=np.int64)
        for at, count in filling.items():
            counts[good[at]] = count
        fillings.append(counts)
    return Best(fillings, max(best, unseen), prices)


class _Search:
    """Depth first over the kinds, those first that are worth most for what they take up at `prices`."""

    def __init__(self, value: Floats, need: Floats, capacity: Floats, most: Ints, prices: Floats) -> None:
        weight = need @ prices
        efficiency = value / np.maximum(weight, 1e-300)
        self._kinds = [int(n) for n in np.argsort(-efficiency, kind="stable")]
        self._values = [float(value[n]) for n in self._kinds]
        self._weights = [float(weight[n]) for n in self._kinds]
        self._limits = [int(most[n]) for n in self._kinds]
        self._needs = [[(d, float(amount)) for d, amount in enumerate(need[n]) if amount > 0] for n in self._kinds]
        #: From each kind on: what room is worth at most, and what kinds worth more than their weight add to that.
        self._rates = [min(float(efficiency[n]), 1.0) for n in self._kinds]
        self._surplus = [0.0] * (len(self._kinds) + 1)
        for at in reversed(range(len(self._kinds))):
            extra = max(self._values[at] - self._weights[at], 0.0) * self._limits[at]
            self._surplus[at] = self._surplus[at + 1] + extra
        self._room = float(prices @ capacity)
        self._free = [float(amount) for amount in capacity]
        self._chosen: dict[int, int] = {}
        self._left = 0
        self.best = 0.0
        #: What is worth at most that which was not looked at.
        self.unseen = 0.0
        #: Fillings, each worth more than the one before.
        self.found: list[dict[int, int]] = []

    def run(self, above: float, steps: int) -> None:
        self.best, self._left = above, steps
        self._descend(0, 0.0, self._room)

    def _descend(self, at: int, got: float, room: float) -> None:
        self._left -= 1
        if got > self.best:
            self.best = got
            self.found.append(dict(self._chosen))
        free, count = self._free, 0
        while not count:
            if at == len(self._kinds):
                return
            bound = got + self._surplus[at] + self._rates[at] * room
            if bound <= self.best * (1 + 1e-12):
                return
            if self._left <= 0:
                self.unseen = max(self.unseen, bound)
                return
            count = self._limits[at]
            for d, amount in self._needs[at]:
                count = min(count, int(free[d] // amount))
            at += not count
        for d, amount in self._needs[at]:
            free[d] -= amount * count
        for taken in range(count, 0, -1):
            self._chosen[self._kinds[at]] = taken
            self._descend(at + 1, got + self._values[at] * taken, room - self._weights[at] * taken)
            for d, amount in self._needs[at]:
                free[d] += amount
        del self._chosen[self._kinds[at]]
        self._descend(at + 1, got, room)
