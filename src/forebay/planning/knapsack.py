"""The most valuable pattern for one node, and a proof that no other is worth more."""

import heapq
from itertools import accumulate
from typing import NamedTuple

import highspy
import numpy as np

from forebay.planning.arrays import Floats, Ints
from forebay.planning.integer import quiet

#: Most patterns of one candidate group that are returned at once.
_PATTERNS = 24
_ROUNDING = 1e-9
#: Most pod groups in one node; patterns with more are not searched, only bounded.
_DEEPEST = 200
#: Table cells: for one candidate group, and for a table that many share.
_MOST_CELLS = 10_000
_LARGE_TABLE = 30_000
#: Up to this capacity, a resource is counted one by one.
_SMALL = 16


class Best(NamedTuple):
    #: The most valuable patterns found, best first.
    patterns: list[Ints]
    #: Upper bound on the worth of any pattern.
    most: float
    #: Resource prices that prove the bound; useful for similar candidate groups.
    prices: Floats
    #: Steps that the search took.
    steps: int = 0


def _knapsack(value: Floats, need: Floats, capacity: Floats, most: Ints) -> highspy.Highs:
    """The knapsack of one node as a linear program, to be solved for fractions of pods or for whole pods."""
    highs = quiet()
    groups, resources = need.shape
    highs.addRows(
        resources,
        np.full(resources, -highspy.kHighsInf),
        # In shares of the node: bytes of memory beside single GPUs exceed the precision of an LP.
        np.ones(resources),
        0,
        np.zeros(resources, dtype=np.int32),
        np.array([], dtype=np.int32),
        np.array([]),
    )
    highs.addCols(
        groups,
        -value,
        np.zeros(groups),
        most.astype(np.float64),
        groups * resources,
        np.arange(groups, dtype=np.int32) * resources,
        np.tile(np.arange(resources, dtype=np.int32), groups),
        (need / _room(capacity)).ravel(),
    )
    return highs


def _room(capacity: Floats) -> Floats:
    room: Floats = np.maximum(capacity, 1e-300)
    return room


def multipliers(value: Floats, need: Floats, capacity: Floats, most: Ints) -> Floats:
    """Worth of one unit of each resource in a node that may hold fractions of pods."""
    highs = _knapsack(value, need, capacity, most)
    highs.run()
    duals: Floats = -np.array(highs.getSolution().row_dual)
    prices: Floats = np.maximum(duals, 0.0) / _room(capacity)
    return prices


def useful(value: Floats, need: Floats, capacity: Floats, most: Ints) -> Ints:
    """Pod groups that a best pattern may need: without those that another, plentiful one can always replace."""
    good = np.flatnonzero((value > 0) & (most > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.where(need[good] > 0, np.floor(capacity[None, :] / need[good]), np.inf).min(axis=1)
    plenty = most[good] >= alone
    smaller = (need[good][:, None, :] <= need[good][None, :, :]).all(axis=2) & plenty[:, None]
    worth = value[good]
    better = smaller & (worth[:, None] >= worth[None, :])
    # Of two identical pod groups the first stays.
    alike = better & better.T
    better &= ~(alike & (np.arange(len(good))[:, None] >= np.arange(len(good))[None, :]))
    useful: Ints = good[~better.any(axis=0)]
    return useful


def exact(value: Floats, need: Floats, capacity: Floats, most: Ints, *, above: float, steps: int, cells: int) -> Best:
    """The most valuable pattern, if it is worth more than `above`. Searches depth first and prunes by relaxations.

    After `steps` steps the search stops, and `most` covers the unsearched part by its relaxations. More `cells` make
    the relaxations tighter and slower to prepare; with 0 only the relaxation to fractions of pods is used.
    """
    good = useful(value, need, capacity, most)
    if not len(good):
        return Best([], 0.0, np.zeros(len(capacity)))
    prices = multipliers(value[good], need[good], capacity, most[good])
    search = _Search(value[good], need[good], capacity, most[good], prices=prices, cells=cells)
    at_most = search.run(above, steps=steps, keep=_PATTERNS)
    patterns = []
    for _, _, pattern in sorted(search.found, reverse=True):
        counts = np.zeros(len(value), dtype=np.int64)
        for at, count in pattern:
            counts[good[at]] = count
        patterns.append(counts)
    return Best(patterns, at_most, prices, search.steps)


def is_counted(d: int, need: Floats, capacity: Floats) -> bool:
    """Whether a node has few of the resource, in whole numbers."""
    return bool(capacity[d] <= _SMALL and (need[:, d] == np.rint(need[:, d])).all())


def _axes(need: Floats, capacity: Floats, prices: Floats) -> list[list[int]]:
    """Resources to put into one table: the counted one with each of the most valuable others."""
    used = [int(d) for d in np.argsort(-prices * capacity, kind="stable") if need[:, d].any()]
    counted = [d for d in used if is_counted(d, need, capacity)][:1]
    others = [d for d in used if d not in counted][:2]
    if counted:
        return [[*counted, d] for d in others] or [counted]
    return [others] if others else []


class _Table:
    """Upper bound on the worth of the pod groups from the n-th on, by what is free of one or two resources.

    Amounts are rounded in favour of fitting. Small whole numbers such as GPUs stay exact, which makes the bound much
    tighter than the relaxation to fractions of pods.
    """

    def __init__(
        self, value: Floats, need: Floats, capacity: Floats, most: Ints, *, axes: list[int], cells: int
    ) -> None:
        sizes, scale, shape = _steps(need, capacity, axes, cells)
        table: Floats = np.zeros(shape)
        tables = [table]
        for group in reversed(range(len(value))):
            table = table.copy()
            _raise(table, sizes[group], float(value[group]), int(most[group]))
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
    """Upper bound on the worth of all pod groups by free amounts of these resources, and the steps per unit."""
    sizes, scale, shape = _steps(need, capacity, axes, _LARGE_TABLE)
    table: Floats = np.zeros(shape)
    for group in range(len(value)):
        _raise(table, sizes[group], float(value[group]), int(most[group]))
    return table, scale


def _steps(need: Floats, capacity: Floats, axes: list[int], cells: int) -> tuple[Ints, Floats, list[int]]:
    """(Steps that each pod takes, steps per unit of each resource, shape of a table of `cells` cells)."""
    few = [is_counted(d, need, capacity) for d in axes]
    for d, one_by_one in zip(axes, few, strict=True):
        cells //= int(capacity[d]) + 1 if one_by_one else 1
    steps = [
        int(capacity[d]) if one_by_one else max(int(cells ** (1 / few.count(False))) - 1, 1)
        for d, one_by_one in zip(axes, few, strict=True)
    ]
    scale: Floats = np.array([step / max(float(capacity[d]), 1e-300) for d, step in zip(axes, steps, strict=True)])
    shape = [step + 1 for step in steps]
    # A size beyond the table is as good as the first that does not fit: larger numbers would only overflow.
    sizes: Ints = np.minimum(np.floor(need[:, axes] * scale + _ROUNDING), shape).astype(np.int64)
    return sizes, scale, shape


def _raise(table: Floats, size: Ints, value: float, most: int) -> None:
    """Raises the table by up to `most` pods of this size and value.

    1, 2, 4, ... pods add up to any number; a few too many only make the bound a little looser.
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
    """Depth-first search over pod groups, in order of their value for the resources they take at `prices`."""

    def __init__(
        self, value: Floats, need: Floats, capacity: Floats, most: Ints, *, prices: Floats, cells: int
    ) -> None:
        weight = need @ prices
        efficiency = value / np.maximum(weight, 1e-200)
        self._groups = [int(n) for n in np.argsort(-efficiency, kind="stable")]
        self._values = [float(value[n]) for n in self._groups]
        self._weights = [float(weight[n]) for n in self._groups]
        self._limits = [int(most[n]) for n in self._groups]
        self._needs = [[(d, float(amount)) for d, amount in enumerate(need[n]) if amount > 0] for n in self._groups]
        #: From each pod group on: worth of free resources at most, and what pod groups worth more than that add.
        self._rates = [min(float(efficiency[n]), 1.0) for n in self._groups]
        extra = [
            max(worth - takes, 0.0) * limit
            for worth, takes, limit in zip(self._values, self._weights, self._limits, strict=True)
        ]
        self._surplus = [*accumulate(reversed(extra))][::-1]
        order = np.array(self._groups, dtype=np.int64)
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
        self.steps = 0
        #: Upper bound on the worth of what was not searched.
        self.unseen = 0.0
        #: The best patterns as (worth, when it was found, pods of each pod group).
        self.found: list[tuple[float, int, tuple[tuple[int, int], ...]]] = []

    def run(self, above: float, *, steps: int, keep: int) -> float:
        """Upper bound on the worth of the best pattern; `above` if none is worth more."""
        self._floor, self._left, self._keep = above, steps, keep
        self._descend(0, 0.0, self._room, _DEEPEST)
        self.steps = steps - self._left
        return max(above, self.unseen, *(worth for worth, _, _ in self.found))

    def _descend(self, at: int, got: float, room: float, deeper: int) -> None:
        """Searches pod groups from `at` on; `deeper`: how many more pod groups the node may take."""
        self._left -= 1
        if got > self._floor:
            heapq.heappush(self.found, (got, self._left, tuple(self._chosen.items())))
            if len(self.found) > self._keep:
                heapq.heappop(self.found)
                self._floor = self.found[0][0]
        free = self._free
        while at < len(self._groups):
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
                self._chosen[self._groups[at]] = taken
                self._descend(at + 1, got + self._values[at] * taken, room - self._weights[at] * taken, deeper - 1)
                for d, amount in self._needs[at]:
                    free[d] += amount
            self._chosen.pop(self._groups[at], None)
            at += 1
            self._left -= 1
