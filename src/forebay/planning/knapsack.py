"""The one filling of a node that is worth most, and the proof that none is worth more."""

import heapq
from typing import NamedTuple

import highspy
import numpy as np

from forebay.planning.arrays import Floats, Ints
from forebay.planning.linear import quiet

#: So many fillings of a shelf are of use at once.
_FILLINGS = 24
_ROUNDING = 1e-9
#: So many kinds are put into one node; what could be done with more is not looked at.
_DEEPEST = 200
#: Of one table for one shelf, and of one for many.
_MOST_CELLS = 10_000
_LARGE_TABLE = 30_000
#: What is small enough to be counted one by one.
_SMALL = 16


class Best(NamedTuple):
    #: The best of them, the very best first.
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


def useful(value: Floats, need: Floats, capacity: Floats, most: Ints) -> Ints:
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


def exact(value: Floats, need: Floats, capacity: Floats, most: Ints, *, above: float, steps: int, cells: int) -> Best:
    """The filling worth most, if that is more than `above`; depth first, as far as relaxations do not rule it out.

    After so many steps it gives up, and `most` is the relaxations' word for what was not looked at. More `cells` make
    these tighter, and take longer to prepare; with none, there is only the relaxation in parts of pods.
    """
    good = useful(value, need, capacity, most)
    if not len(good):
        return Best([], 0.0, np.zeros(len(capacity)))
    prices = multipliers(value[good], need[good], capacity, most[good])
    search = _Search(value[good], need[good], capacity, most[good], prices=prices, cells=cells)
    at_most = search.run(above, steps=steps, keep=_FILLINGS)
    fillings = []
    for _, _, filling in sorted(search.found, reverse=True):
        counts = np.zeros(len(value), dtype=np.int64)
        for at, count in filling:
            counts[good[at]] = count
        fillings.append(counts)
    return Best(fillings, at_most, prices)


def is_counted(d: int, need: Floats, capacity: Floats) -> bool:
    """Whether there are few of the resource in a node, in whole numbers."""
    return bool(capacity[d] <= _SMALL and (need[:, d] == np.rint(need[:, d])).all())


def _axes(need: Floats, capacity: Floats, prices: Floats) -> list[list[int]]:
    """Which resources to look at together: what is counted, with each of the others that matter most."""
    used = [int(d) for d in np.argsort(-prices * capacity, kind="stable") if need[:, d].any()]
    counted = [d for d in used if is_counted(d, need, capacity)][:1]
    others = [d for d in used if d not in counted][:2]
    if counted:
        return [[*counted, d] for d in others] or [counted]
    return [others] if others else []


class _Table:
    """What kinds from the n-th on are worth at most in the room that is left of one or two resources, measured coarsely
    and rounded in favour.

    Small whole numbers, such as GPUs, are kept as they are, which is what makes it much tighter than the relaxation in
    parts of pods.
    """

    def __init__(
        self, value: Floats, need: Floats, capacity: Floats, most: Ints, *, axes: list[int], cells: int
    ) -> None:
        sizes, scale, shape = _steps(need, capacity, axes, cells)
        table: Floats = np.zeros(shape)
        tables = [table]
        for kind in reversed(range(len(value))):
            table = table.copy()
            _raise(table, sizes[kind], float(value[kind]), int(most[kind]))
            tables.append(table)
        self._cells = [each.ravel().data for each in reversed(tables)]
        self._first, self._second = axes[0], axes[-1]
        self._scale, self._second_scale = float(scale[0]), float(scale[-1]) if len(axes) > 1 else 0.0
        self._stride = table.shape[-1] if len(axes) > 1 else 1

    def most(self, at: int, free: list[float]) -> float:
        first = int(free[self._first] * self._scale + _ROUNDING)
        second = int(free[self._second] * self._second_scale + _ROUNDING)
        return float(self._cells[at][first * self._stride + second])


def whole_table(value: Floats, need: Floats, capacity: Floats, most: Ints, *, axes: list[int]) -> tuple[Floats, Floats]:
    """What all kinds are worth at most, by the room there is of these resources; and the steps it is measured in."""
    sizes, scale, shape = _steps(need, capacity, axes, _LARGE_TABLE)
    table: Floats = np.zeros(shape)
    for kind in range(len(value)):
        _raise(table, sizes[kind], float(value[kind]), int(most[kind]))
    return table, scale


def _steps(need: Floats, capacity: Floats, axes: list[int], cells: int) -> tuple[Ints, Floats, list[int]]:
    """What kinds take of each resource in whole steps, the steps of one unit, and the shape of a table of so many
    cells.
    """
    few = [is_counted(d, need, capacity) for d in axes]
    for d, one_by_one in zip(axes, few, strict=True):
        cells //= int(capacity[d]) + 1 if one_by_one else 1
    fine = max(int(cells ** (1 / few.count(False))) - 1, 1) if not all(few) else 1
    steps = [int(capacity[d]) if one_by_one else fine for d, one_by_one in zip(axes, few, strict=True)]
    scale: Floats = np.array([step / max(float(capacity[d]), 1e-300) for d, step in zip(axes, steps, strict=True)])
    shape = [step + 1 for step in steps]
    # What does not fit is as good as the first size that does not: numbers beyond that only overflow.
    sizes: Ints = np.minimum(np.floor(need[:, axes] * scale + _ROUNDING), shape).astype(np.int64)
    return sizes, scale, shape


def _raise(table: Floats, size: Ints, value: float, most: int) -> None:
    """To what is had with up to so many of this size and value: 1, 2, 4, ... of it make up any number, and a few too
    many only make the bound a little looser.
    """
    times = 1
    while most > 0:
        if any(s * times >= n for s, n in zip(size, table.shape, strict=True)):
            return
        upper = tuple(slice(int(s) * times, None) for s in size)
        lower = tuple(slice(0, n - int(s) * times) for s, n in zip(size, table.shape, strict=True))
        table[upper] = np.maximum(table[upper], table[lower] + value * times)
        most -= times
        times *= 2


class _Search:
    """Depth first over the kinds, those first that are worth most for what they take up at `prices`."""

    def __init__(
        self, value: Floats, need: Floats, capacity: Floats, most: Ints, *, prices: Floats, cells: int
    ) -> None:
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
        order = np.array(self._kinds, dtype=np.int64)
        self._tables = [
            _Table(
                value[order], need[order], capacity, most[order], axes=axes, cells=min(cells // len(order), _MOST_CELLS)
            )
            for axes in (_axes(need, capacity, prices) if cells else ())
        ]
        self._room = float(prices @ capacity)
        self._free = [float(amount) for amount in capacity]
        self._chosen: dict[int, int] = {}
        self._left = 0
        self._floor = 0.0
        self._keep = 1
        #: What is worth at most that which was not looked at.
        self.unseen = 0.0
        #: The best fillings: what each is worth, when it was found, how many of which kinds.
        self.found: list[tuple[float, int, tuple[tuple[int, int], ...]]] = []

    def run(self, above: float, *, steps: int, keep: int) -> float:
        """What the best filling is worth at most; `above` if there is none worth more."""
        self._floor, self._left, self._keep = above, steps, keep
        self._descend(0, 0.0, self._room, _DEEPEST)
        return max(above, self.unseen, *(worth for worth, _, _ in self.found))

    def _descend(self, at: int, got: float, room: float, deeper: int) -> None:
        """With kinds from `at` on; `deeper`: how many kinds more may be put into the same node."""
        self._left -= 1
        if got > self._floor:
            heapq.heappush(self.found, (got, self._left, tuple(self._chosen.items())))
            if len(self.found) > self._keep:
                heapq.heappop(self.found)
                self._floor = self.found[0][0]
        free = self._free
        while at < len(self._kinds):
            bound = self._surplus[at] + self._rates[at] * room
            for table in self._tables:
                bound = min(bound, table.most(at, free))
            bound += got
            if bound <= self._floor * (1 + 1e-12):
                return
            if self._left <= 0 or not deeper:
                self.unseen = max(self.unseen, bound)
                return
            count = self._limits[at]
            for d, amount in self._needs[at]:
                count = min(count, int(free[d] // amount))
            for d, amount in self._needs[at]:
                free[d] -= amount * count
            for taken in range(count, 0, -1):
                self._chosen[self._kinds[at]] = taken
                self._descend(at + 1, got + self._values[at] * taken, room - self._weights[at] * taken, deeper - 1)
                for d, amount in self._needs[at]:
                    free[d] += amount
            self._chosen.pop(self._kinds[at], None)
            at += 1
            self._left -= 1
