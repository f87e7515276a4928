"""Which filling of a node would be worth most, given what each pod is worth: quickly for all shelves at once, and
exactly for one.
"""

from typing import NamedTuple

import highspy
import numpy as np

from forebay.planning.linear import Column, Duals, quiet
from forebay.planning.numbers import Floats, Ints, Numbers


#: More shelves than this are filled in the plain ways only.
_MANY = 8
#: With fewer columns than this, more are sought.
_FEW = 50
_MORE_WAYS = 12
_PASSES = 30
#: So many fillings of a shelf are of use at once.
_FILLINGS = 6
#: So many sets of resource prices are tried on every shelf.
_CEILINGS = 24


class Filler:
    """Fills a node of many shelves at once, each in several ways: by what a pod takes up of what is still free, with
    resources weighed differently in each.
    """

    def __init__(self, numbers: Numbers, seed: int) -> None:
        self._numbers = numbers
        self._random = np.random.default_rng(seed)
        resources = numbers.need.shape[1]
        even = np.ones((1, resources))
        single = np.eye(resources) + 0.05
        self._weights = np.vstack([even, single])

    def fill(self, worth: Floats, shelves: Ints, weights: Floats, most: Ints) -> Ints:
        """By row: how many of each kind. A row is a shelf with weights of the resources, and the most of each kind."""
        numbers = self._numbers
        value = np.where(most > 0, worth[None, :] - numbers.dislike[shelves], -1.0)
        free = numbers.capacity[shelves].copy()
        counts = np.zeros((len(shelves), len(worth)), dtype=np.int64)
        need = numbers.need
        rows = np.arange(len(shelves))
        while len(rows):
            can = value[rows] > 0
            for d in range(need.shape[1]):
                can &= need[None, :, d] <= free[rows, d, None]
            size = (weights[rows] / np.maximum(free[rows], 1e-9)) @ need.T
            density = np.where(can, value[rows] / np.maximum(size, 1e-12), -1.0)
            kind = density.argmax(axis=1)
            alive = density[np.arange(len(rows)), kind] > 0
            rows, kind = rows[alive], kind[alive]
            taken = need[kind]
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(taken > 0, np.floor(free[rows] / taken), np.inf).min(axis=1)
            room = np.minimum(room, most[rows, kind] - counts[rows, kind]).astype(np.int64)
            # Half of what fits, so that another kind may fill the rest better.
            take = (room + 1) // 2
            counts[rows, kind] += take
            free[rows] -= taken * take[:, None]
            value[rows, kind] = np.where(counts[rows, kind] < most[rows, kind], value[rows, kind], -1.0)
        return counts

    def columns(self, duals: Duals, shelves: Ints, *, thorough: bool = False) -> list[Column]:
        """Fillings worth more than their node costs, the most rewarding first."""
        found = self._try(duals, shelves, thorough=thorough, passes=1)
        # Where there is one, there are others: more ways, and more fillings that do not share their pods.
        gaining = np.array(sorted({column.shelf for column in found})[:_MANY], dtype=np.int64)
        if len(found) < _FEW:
            found += self._try(duals, gaining, thorough=True, passes=_PASSES)
        return found

    def _try(self, duals: Duals, shelves: Ints, *, thorough: bool, passes: int) -> list[Column]:
        if not len(shelves):
            return []
        numbers = self._numbers
        ways = len(self._weights) + (_MORE_WAYS if thorough else 0)
        chance = self._random.exponential(size=(ways - len(self._weights), self._weights.shape[1]))
        weights = np.tile(np.vstack([self._weights, chance]), (len(shelves), 1))
        rows = np.repeat(shelves, ways)
        most = numbers.most[rows].copy()
        net = duals.worth[None, :] - numbers.dislike[rows]
        found: dict[tuple[int, bytes], tuple[float, Column]] = {}
        for _ in range(passes):
            counts = self.fill(duals.worth, rows, weights, most)
            gain = (net * counts).sum(axis=1) / np.maximum(duals.node[rows], 1e-12)
            good = np.flatnonzero(gain > 1.0 + 1e-7)
            for row in good:
                key = (int(rows[row]), counts[row].tobytes())
                found.setdefault(key, (float(gain[row]), Column(int(rows[row]), counts[row].copy())))
            if not len(good):
                break
            most = np.maximum(most - counts, 0)
        best = sorted(found.items(), key=lambda pair: (-pair[1][0], pair[0]))
        return [column for _, (_, column) in best]


class Best(NamedTuple):
    #: Each worth more than the one before; the last of them most.
    fillings: list[Ints]
    #: No filling is worth more.
    most: float
    #: Multipliers of the resources under which that is seen; of use for like shelves.
    multipliers: Floats


class Ceilings:
    """What a filling of each shelf is worth at most, by all the resource prices met so far: any price gives a bound."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._prices: list[Floats] = []

    def all(self, worth: Floats) -> Floats:
        """By shelf. Prices of late come first, and few of them do most of the work."""
        lowest = np.full(len(self._numbers.shelves), np.inf)
        for prices in self._prices[-_CEILINGS:]:
            np.minimum(lowest, self._by(prices, worth), out=lowest)
        return lowest

    def learn(self, prices: Floats, worth: Floats) -> Floats:
        """Remembers resource prices; by shelf, the bound that they give."""
        self._prices.append(prices)
        return self._by(prices, worth)

    def _by(self, prices: Floats, worth: Floats) -> Floats:
        numbers = self._numbers
        net = np.maximum((worth - numbers.need @ prices)[None, :] - numbers.dislike, 0.0)
        bound: Floats = numbers.capacity @ prices + (net * numbers.most).sum(axis=1)
        return bound


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
    duals = -np.array(highs.getSolution().row_dual)
    return np.maximum(duals, 0.0) / _room(capacity)


def _whole(value: Floats, need: Floats, capacity: Floats, most: Ints) -> tuple[Ints, float]:
    """The filling worth most, or one near to it, and what none is worth more than."""
    highs = _knapsack(value, need, capacity, most)
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
    """Kinds that a best filling may need: not those for which another, of which there is plenty, takes less for more."""
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
    weight = need[good] @ prices
    efficiency = value[good] / np.maximum(weight, 1e-300)
    order = np.lexsort((good, -efficiency))
    kinds = [int(good[n]) for n in order]
    values = [float(value[kind]) for kind in kinds]
    weights = [float(weight[n]) for n in order]
    rates = [min(float(efficiency[n]), 1.0) for n in order]
    limits = [int(most[kind]) for kind in kinds]
    needs = [[(d, float(a)) for d, a in enumerate(need[kind]) if a > 0] for kind in kinds]
    surplus = [0.0]
    for v, w, u in zip(reversed(values), reversed(weights), reversed(limits), strict=True):
        surplus.append(surplus[-1] + max(v - w, 0.0) * u)
    surplus.reverse()
    rates.append(0.0)
    free = [float(amount) for amount in capacity]
    best = above
    found: list[dict[int, int]] = []
    chosen: dict[int, int] = {}
    left = steps
    unseen = 0.0

    def descend(at: int, got: float, room: float) -> None:
        nonlocal best, left, unseen
        left -= 1
        if got > best:
            best = got
            found.append(dict(chosen))
        while at < len(kinds):
            bound = got + surplus[at] + rates[at] * room
            if bound <= best * (1 + 1e-12):
                return
            if left <= 0:
                unseen = max(unseen, bound)
                return
            count = limits[at]
            for d, amount in needs[at]:
                count = min(count, int(free[d] // amount))
            if count > 0:
                break
            at += 1
        else:
            return
        for d, amount in needs[at]:
            free[d] -= amount * count
        taken = count
        while taken > 0:
            chosen[kinds[at]] = taken
            descend(at + 1, got + values[at] * taken, room - weights[at] * taken)
            taken -= 1
            for d, amount in needs[at]:
                free[d] += amount
        chosen.pop(kinds[at], None)
        descend(at + 1, got, room)

    descend(0, 0.0, float(prices @ capacity))
    if unseen > best and prove:
        whole, ceiling = _whole(value[good], need[good], capacity, most[good])
        unseen = min(unseen, ceiling)
        if float(value[good] @ whole) > best:
            best = float(value[good] @ whole)
            found.append({int(kind): int(count) for kind, count in zip(good, whole, strict=True)})
    fillings = []
    for filling in found[-_FILLINGS:]:
        counts = np.zeros(len(value), dtype=np.int64)
        for kind, count in filling.items():
            counts[kind] = count
        fillings.append(counts)
    return Best(fillings, max(best, unseen), prices)
