"""The master problem: how often to use each pattern, as a linear program and as an integer program (HiGHS).

Rows: the demand of each pod group; for candidate groups with limited stock, no more nodes than are bought; stock that
candidates share; limits. Columns: how many of each limited candidate are bought, how many pods of each pod group stay
unserved, how often each pattern is used.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np

from forebay.planning.arrays import Floats, Ints, ProblemArrays, cap_amounts
from forebay.planning.integer import quiet, run_integer
from forebay.planning.work import Work

_INFINITY = highspy.kHighsInf
_ROUNDING = 1e-9
#: Seconds of work for a linear program: to run it, for each row and column to read, and for each iteration by row.
_RUN = 4e-4
_READ = 2e-7
_ITERATION = 1e-5
_ITERATION_BY_ROW = 2e-7
#: Seconds of work before an integer program finds anything, by the square of the pod groups that it has to serve.
_BEFORE_ANY = 4e-6


class Column(NamedTuple):
    """A pattern for one candidate group."""

    candidate_group: int
    counts: Ints


class Duals(NamedTuple):
    #: Price of one more pod of each pod group.
    worth: Floats
    #: Price of a node of each candidate group, raised by the limits that it uses.
    node: Floats


class Master:
    def __init__(self, arrays: ProblemArrays, penalty: Floats, work: Work) -> None:
        """`penalty`: cost of an unserved pod of each pod group; infinite where all pods must be served."""
        self._arrays = arrays
        self._work = work
        self.columns: list[Column] = []
        self._seen: set[tuple[int, bytes]] = set()
        self._rows: list[tuple[float, float]] = [(float(count), _INFINITY) for count in arrays.demand]
        self._candidate_group_row: dict[int, int] = {}
        for candidate_group in range(len(arrays.candidate_groups)):
            if not arrays.unlimited[candidate_group]:
                self._candidate_group_row[candidate_group] = len(self._rows)
                self._rows.append((-_INFINITY, 0.0))
        self._limited = [each for each in arrays.available if each.candidate_group in self._candidate_group_row]
        entries = self._limited_entries()
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
        self._limited_cost = np.array([each.score for each in self._limited])
        self._limited_most = np.array([float(each.stock) for each in self._limited])
        self._entries = entries
        self._add(self._limited_cost, self._limited_most, entries)
        groups = len(arrays.demand)
        self._unserved = [group for group in range(groups) if np.isfinite(penalty[group])]
        self._add(
            penalty[self._unserved],
            arrays.demand[self._unserved].astype(np.float64),
            [[(group, 1.0)] for group in self._unserved],
        )
        self._first_column = len(self._limited) + len(self._unserved)
        self.value = 0.0
        self._primal: Floats = np.zeros(0)
        self._limit_duals: Floats = np.zeros(len(self._rows))

    def _limited_entries(self) -> list[list[tuple[int, float]]]:
        inventory = self._arrays.inventory
        entries: list[list[tuple[int, float]]] = [
            [(self._candidate_group_row[each.candidate_group], -1.0)] for each in self._limited
        ]
        by_stock: defaultdict[object, list[int]] = defaultdict(list)
        for number, each in enumerate(self._limited):
            by_stock[each.priced.stock_key].append(number)
        for members in by_stock.values():
            if len(members) > 1:
                row = len(self._rows)
                self._rows.append((-_INFINITY, float(min(self._limited[n].stock for n in members))))
                for n in members:
                    entries[n].append((row, 1.0))
        cap_rows: dict[tuple[int, int], int] = {}
        for number, each in enumerate(self._limited):
            for cap in each.priced.caps:
                for part, (amount, left) in enumerate(cap_amounts(inventory, cap, each.priced)):
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
        """Adds the columns that are not there yet and returns how many those were."""
        arrays = self._arrays
        new, costs, entries = [], [], []
        for column in columns:
            key = (column.candidate_group, column.counts.tobytes())
            if key in self._seen:
                continue
            self._seen.add(key)
            new.append(column)
            unlimited = column.candidate_group not in self._candidate_group_row
            cost = float(arrays.preference_cost[column.candidate_group] @ column.counts)
            costs.append(cost + (float(arrays.price[column.candidate_group]) if unlimited else 0.0))
            rows = [(int(group), float(column.counts[group])) for group in np.flatnonzero(column.counts)]
            entries.append(rows if unlimited else [*rows, (self._candidate_group_row[column.candidate_group], 1.0)])
        if new:
            self._add(np.array(costs), np.full(len(new), _INFINITY), entries)
            self.columns += new
        return len(new)

    def set_demand(self, demand: Ints) -> None:
        """Sets how many pods of each pod group must be served."""
        for group, count in enumerate(demand):
            self._highs.changeRowBounds(group, float(count), _INFINITY)

    def solve(self) -> Duals:
        highs = self._highs
        highs.run()
        solution = highs.getSolution()
        info = highs.getInfo()
        self.value = info.objective_function_value
        rows = len(self._rows)
        self._work.spend(
            _RUN
            + _READ * (rows + self._first_column + len(self.columns))
            + (_ITERATION + _ITERATION_BY_ROW * rows) * info.simplex_iteration_count
        )
        duals = np.array(solution.row_dual)
        self._primal = np.array(solution.col_value)
        arrays = self._arrays
        node = arrays.price.copy()
        for candidate_group, row in self._candidate_group_row.items():
            node[candidate_group] = max(-duals[row], 0.0)
        # An unused candidate group may have any price up to its cheapest candidate's; the row's dual is the lowest of
        # them.
        idle = dict.fromkeys(self._candidate_group_row, np.inf)
        for number, each in enumerate(self._limited):
            extra = -sum(value * duals[row] for row, value in self._entries[number][1:])
            idle[each.candidate_group] = (
                min(idle[each.candidate_group], each.score + extra) if self._primal[number] < _ROUNDING else 0.0
            )
        for candidate_group, price in idle.items():
            node[candidate_group] = max(node[candidate_group], price)
        self._limit_duals = np.maximum(-duals, 0.0)
        return Duals(np.maximum(duals[: len(arrays.demand)], 0.0), node)

    def scarcity_rent(self, proven: Floats, scale: float) -> float:
        """Most that limited nodes can earn, given the most that a pattern of each candidate group is worth.

        A valid lower bound subtracts this from the worth of the pods. The duals of the limits are scaled like those of
        the pods.
        """
        total = 0.0
        first = len(self._arrays.demand) + len(self._candidate_group_row)
        for row in range(first, len(self._rows)):
            total += float(self._limit_duals[row]) * scale * self._rows[row][1]
        for number, each in enumerate(self._limited):
            limit_cost = sum(value * self._limit_duals[row] for row, value in self._entries[number][1:]) * scale
            total += max(float(proven[each.candidate_group]) - each.score - limit_cost, 0.0) * each.stock
        return total

    @property
    def used(self) -> Floats:
        """How often each pattern is used; fractions of nodes are allowed."""
        return self._primal[self._first_column :]

    def solve_integer(self, floor: Ints, work: Work) -> Ints | None:
        """How often to use each pattern, in whole nodes and at least `floor` times; the best found, if any."""
        served = sum(
            (self.columns[n].counts * floor[n] for n in np.flatnonzero(floor)), np.zeros_like(self._arrays.demand)
        )
        before = _BEFORE_ANY * int((served < self._arrays.demand).sum()) ** 2
        if work.left() < before:
            return None
        work.spend(before)
        highs = quiet()
        highs.setOptionValue("mip_max_nodes", 200)
        highs.setOptionValue("mip_rel_gap", 1e-4)
        highs.passModel(self._highs.getLp())
        total = self._first_column + len(self.columns)
        highs.changeColsIntegrality(
            total, np.arange(total, dtype=np.int32), np.full(total, highspy.HighsVarType.kInteger)
        )
        # Columns added after `floor` was computed have no lower bound.
        for number in np.flatnonzero(floor):
            highs.changeColBounds(int(self._first_column + number), float(floor[number]), _INFINITY)
        run_integer(highs, work)
        if highs.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return None
        values: Floats = np.array(highs.getSolution().col_value)[self._first_column :]
        return np.rint(values).astype(np.int64)
