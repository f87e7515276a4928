"""The master problem: how often to use each filling, as a linear program and as one in whole numbers (HiGHS).

Rows: demand of each kind; for shelves with an end, no more nodes than are bought; shared stock; limits. Columns: how
many of each item are bought, how many pods of a kind go without, how often each filling is used.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np

from forebay.planning.arrays import Floats, Ints, Numbers, cap_amounts

_INFINITY = highspy.kHighsInf
_NOTHING = 1e-9
#: Less would be for nothing.
_LEAST_SECONDS = 0.15


def quiet() -> highspy.Highs:
    """A solver that says nothing and keeps to one thread."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    return highs


class Column(NamedTuple):
    """A filling of a node of one shelf."""

    shelf: int
    counts: Ints


class Duals(NamedTuple):
    #: What one more pod of each kind would cost.
    worth: Floats
    #: What a node of each shelf costs, with what its limits make it dearer.
    node: Floats


class Master:
    def __init__(self, numbers: Numbers, penalty: Floats) -> None:
        """`penalty`: what a pod of each kind that goes without counts for; infinite where all must be served."""
        self._numbers = numbers
        self.columns: list[Column] = []
        self._seen: set[tuple[int, bytes]] = set()
        self._rows: list[tuple[float, float]] = [(float(count), _INFINITY) for count in numbers.demand]
        self._shelf_row: dict[int, int] = {}
        for shelf in range(len(numbers.shelves)):
            if not numbers.plain[shelf]:
                self._shelf_row[shelf] = len(self._rows)
                self._rows.append((-_INFINITY, 0.0))
        self._items = [each for each in numbers.offered if each.shelf in self._shelf_row]
        entries = self._item_entries()
        self._highs = highs = quiet()
        highs.addRows(
            len(self._rows),
            np.array([low for low, _ in self._rows]),
            np.array([high for _, high in self._rows]),
            0,
            np.zeros(len(self._rows), dtype=np.int32),
            np.array([], dtype=np.int32),
            np.array([]),
        )
        self._item_cost = np.array([each.score for each in self._items])
        self._item_most = np.array([float(each.stock) for each in self._items])
        self._entries = entries
        self._add(self._item_cost, self._item_most, entries)
        kinds = len(numbers.demand)
        self._without = [kind for kind in range(kinds) if np.isfinite(penalty[kind])]
        self._add(
            penalty[self._without],
            numbers.demand[self._without].astype(np.float64),
            [[(kind, 1.0)] for kind in self._without],
        )
        self._before = len(self._items) + len(self._without)
        self.value = 0.0
        self._primal: Floats = np.zeros(0)
        self._limit_duals: Floats = np.zeros(len(self._rows))

    def _item_entries(self) -> list[list[tuple[int, float]]]:
        shop = self._numbers.shop
        entries: list[list[tuple[int, float]]] = [[(self._shelf_row[each.shelf], -1.0)] for each in self._items]
        by_stock: defaultdict[object, list[int]] = defaultdict(list)
        for number, each in enumerate(self._items):
            by_stock[each.item.stock_key].append(number)
        for members in by_stock.values():
            if len(members) > 1:
                row = len(self._rows)
                self._rows.append((-_INFINITY, float(min(self._items[n].stock for n in members))))
                for n in members:
                    entries[n].append((row, 1.0))
        cap_rows: dict[tuple[int, int], int] = {}
        for number, each in enumerate(self._items):
            for cap in each.item.caps:
                for part, (amount, left) in enumerate(cap_amounts(shop, cap, each.item)):
                    if (cap, part) not in cap_rows:
                        cap_rows[cap, part] = len(self._rows)
                        self._rows.append((-_INFINITY, max(left, 0.0)))
                    if amount:
                        entries[number].append((cap_rows[cap, part], amount))
        return entries

    def _add(self, cost: Floats, most: Floats, entries: Sequence[Sequence[tuple[int, float]]]) -> None:
        starts = np.cumsum([0, *(len(each) for each in entries)])[:-1].astype(np.int32)
        flat = [pair for each in entries for pair in each]
        self._highs.addCols(
            len(entries),
            np.asarray(cost, dtype=np.float64),
            np.zeros(len(entries)),
            np.asarray(most, dtype=np.float64),
            len(flat),
            starts,
            np.array([row for row, _ in flat], dtype=np.int32),
            np.array([value for _, value in flat], dtype=np.float64),
        )

    def add(self, columns: Sequence[Column]) -> int:
        """Those not there yet; how many."""
        numbers = self._numbers
        new, costs, entries = [], [], []
        for column in columns:
            key = (column.shelf, column.counts.tobytes())
            if key in self._seen:
                continue
            self._seen.add(key)
            new.append(column)
            plain = column.shelf not in self._shelf_row
            cost = float(numbers.dislike[column.shelf] @ column.counts)
            costs.append(cost + (float(numbers.price[column.shelf]) if plain else 0.0))
            rows = [(int(kind), float(column.counts[kind])) for kind in np.flatnonzero(column.counts)]
            entries.append(rows if plain else [*rows, (self._shelf_row[column.shelf], 1.0)])
        if new:
            self._add(np.array(costs), np.full(len(new), _INFINITY), entries)
            self.columns += new
        return len(new)

    def ask(self, demand: Ints) -> None:
        """For so many pods of each kind from now on."""
        for kind, count in enumerate(demand):
            self._highs.changeRowBounds(kind, float(count), _INFINITY)

    def solve(self) -> Duals:
        highs = self._highs
        highs.run()
        solution = highs.getSolution()
        self.value = highs.getInfo().objective_function_value
        duals = np.array(solution.row_dual)
        self._primal = np.array(solution.col_value)
        numbers = self._numbers
        node = numbers.price.copy()
        for shelf, row in self._shelf_row.items():
            node[shelf] = max(-duals[row], 0.0)
        # A shelf of which nothing is bought may have any price up to its cheapest item's; the row says the least.
        idle = dict.fromkeys(self._shelf_row, np.inf)
        for number, each in enumerate(self._items):
            extra = -sum(value * duals[row] for row, value in self._entries[number][1:])
            idle[each.shelf] = min(idle[each.shelf], each.score + extra) if self._primal[number] < _NOTHING else 0.0
        for shelf, price in idle.items():
            node[shelf] = max(node[shelf], price)
        self._limit_duals = np.maximum(-duals, 0.0)
        return Duals(np.maximum(duals[: len(numbers.demand)], 0.0), node)

    def rent(self, proven: Floats, scale: float) -> float:
        """What limited nodes bring in at most, given what a filling of each shelf is worth at most: to be taken off
        the worth of the pods for a bound that holds. The duals of the limits are scaled as those of the pods are.
        """
        total = 0.0
        first = len(self._numbers.demand) + len(self._shelf_row)
        for row in range(first, len(self._rows)):
            total += float(self._limit_duals[row]) * scale * self._rows[row][1]
        for number, each in enumerate(self._items):
            dearer = sum(value * self._limit_duals[row] for row, value in self._entries[number][1:]) * scale
            total += max(float(proven[each.shelf]) - each.score - dearer, 0.0) * each.stock
        return total

    @property
    def used(self) -> Floats:
        """How often each filling is used, in parts of nodes."""
        return self._primal[self._before :]

    def whole(self, floor: Ints, seconds: float) -> Ints | None:
        """How often to use each filling, in whole numbers and at least `floor` times; the best found in that time."""
        highs = quiet()
        highs.setOptionValue("time_limit", max(seconds, _LEAST_SECONDS))
        highs.setOptionValue("mip_max_nodes", 200)
        highs.setOptionValue("mip_rel_gap", 1e-4)
        highs.passModel(self._highs.getLp())
        total = self._before + len(self.columns)
        highs.changeColsIntegrality(
            total, np.arange(total, dtype=np.int32), np.full(total, highspy.HighsVarType.kInteger)
        )
        # Fillings that came after `floor` was made are free.
        for number in np.flatnonzero(floor):
            highs.changeColBounds(int(self._before + number), float(floor[number]), _INFINITY)
        highs.run()
        if highs.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        values: Floats = np.array(highs.getSolution().col_value)[self._before :]
        return np.rint(values).astype(np.int64)
