"""Small demand as one integer program over all fillings: limits, gangs and places are decided together, and proven.

First as many pods as possible are served, those of the highest priority first; then at the lowest cost.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import highspy
import numpy as np

from forebay.planning.arrays import DOLLAR, ProblemArrays, cap_amounts
from forebay.planning.candidate_groups import LARGEST_TIE, Inventory
from forebay.planning.fillings import all_fillings
from forebay.planning.gangs import GangKey
from forebay.planning.greedy import Packer, Pattern, PatternPurchase, Solution
from forebay.planning.integer import quiet, run_integer
from forebay.planning.place_choices import GroupAtPlace, Place, Places
from forebay.planning.work import Work

_INFINITY = highspy.kHighsInf
_MOST_FILLINGS = 10_000
#: Bounds the search by work, so that the same input gives the same plan on a busy machine.
_MOST_NODES = 2000
#: Among more columns, the presolver looks for parallel ones for longer than the search takes, and that is not counted.
_MOST_PRESOLVED = 1000
_FEASIBLE = highspy.SolutionStatus.kSolutionStatusFeasible

Terms = list[tuple[int, float]]


class ProgramResult(NamedTuple):
    solution: Solution
    #: Lower bound on the cost of as many pods of each priority, in units.
    bound: int


class ExactProgram:
    """One integer program. Its pod groups are those of `places.groups`: each group at each of its places."""

    def __init__(self, packer: Packer, places: Places, needed: Mapping[GangKey, int], inventory: Inventory) -> None:
        self._packer = packer
        self._places = places
        self._inventory = inventory
        self._counts = [each.group.count for each in places.groups]
        self._arrays = ProblemArrays(self._packer, self._counts, inventory)
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._rows: list[tuple[float, float, Terms]] = []
        self._needed = needed

    def solve(self, work: Work) -> ProgramResult | None:
        """None where there are too many fillings, or nothing was found."""
        arrays = self._arrays
        fillings = all_fillings(self._packer.problem, self._counts, arrays.candidate_groups, _MOST_FILLINGS, work)
        if not fillings:
            return None
        served = [self._column(0.0, count) for count in self._counts]
        used = self._filling_columns(fillings, served)
        self._gangs(served)
        self._place_rows(served)
        priorities = sorted({each.group.priority for each in self._places.groups}, reverse=True)
        levels = []
        for priority in priorities:
            of_level = [
                (served[n], 1.0) for n, each in enumerate(self._places.groups) if each.group.priority == priority
            ]
            levels.append(self._row(0.0, _INFINITY, of_level))
        highs = self._model()
        columns = np.arange(len(self._cost), dtype=np.int32)
        for level in levels:
            cost = np.zeros(len(self._cost))
            for column, _ in self._rows[level][2]:
                cost[column] = -1.0
            highs.changeColsCost(len(cost), columns, cost)
            values = self._run(highs, work)
            if values is None:
                return None
            reached = round(sum(values[column] for column, _ in self._rows[level][2]))
            highs.changeRowBounds(level, float(reached), _INFINITY)
        highs.changeColsCost(len(self._cost), columns, np.array(self._cost))
        values = self._run(highs, work)
        if values is None:
            return None
        solution = self._solution(fillings, values, served, used)
        bound = int(highs.getInfo().mip_dual_bound * (1 - 1e-9) * DOLLAR)
        pods = sum(self._counts)
        return None if solution is None else ProgramResult(solution, max(bound - LARGEST_TIE * pods, 0))

    def _column(self, cost: float, upper: float) -> int:
        self._cost.append(cost)
        self._upper.append(float(upper))
        return len(self._cost) - 1

    def _row(self, low: float, high: float, terms: Terms) -> int:
        self._rows.append((low, high, terms))
        return len(self._rows) - 1

    def _filling_columns(self, fillings: Sequence[tuple[int, Pattern]], served: Sequence[int]) -> list[int]:
        """Columns for how often each filling is used, with the rows of pods, stock and limits."""
        arrays, problem = self._arrays, self._packer.problem
        at = {number: n for n, number in enumerate(arrays.candidate_groups)}
        takes: defaultdict[int, Terms] = defaultdict(list)
        nodes: defaultdict[int, Terms] = defaultdict(list)
        used = []
        for number, pattern in fillings:
            candidate_group = problem.candidate_groups[number]
            cost = self._packer.preference_cost(candidate_group, pattern) / DOLLAR
            unlimited = bool(arrays.unlimited[at[number]])
            column = self._column(cost + (float(arrays.price[at[number]]) if unlimited else 0.0), _INFINITY)
            used.append(column)
            for group, count in pattern:
                takes[group].append((column, float(count)))
            if not unlimited:
                nodes[at[number]].append((column, 1.0))
        exactly = any(any(each.preference_cost) for each in problem.candidate_groups)
        for group, column in enumerate(served):
            self._row(0.0, 0.0 if exactly else _INFINITY, [*takes[group], (column, -1.0)])
        by_stock: defaultdict[object, Terms] = defaultdict(list)
        stocks: dict[object, float] = {}
        by_cap: defaultdict[tuple[int, int], Terms] = defaultdict(list)
        left: dict[tuple[int, int], float] = {}
        self._bought: dict[int, tuple[int, int]] = {}
        for number, terms in nodes.items():
            bought: Terms = []
            for each in arrays.available_by_group[number]:
                column = self._column(each.score, each.stock)
                self._bought[column] = (arrays.candidate_groups[number], each.at)
                bought.append((column, -1.0))
                by_stock[each.priced.stock_key].append((column, 1.0))
                stocks[each.priced.stock_key] = float(each.stock)
                for cap in each.priced.caps:
                    for part, (amount, most) in enumerate(cap_amounts(self._inventory, cap, each.priced)):
                        left[cap, part] = max(most, 0.0)
                        if amount:
                            by_cap[cap, part].append((column, amount))
            self._row(-_INFINITY, 0.0, [*terms, *bought])
        for stock, shared in by_stock.items():
            if len(shared) > 1:
                self._row(-_INFINITY, stocks[stock], shared)
        for key, terms in by_cap.items():
            # In units of the limit, so that bytes and dollars are alike to the solver's tolerances.
            scale = left[key] or max(amount for _, amount in terms)
            self._row(-_INFINITY, left[key] / scale, [(column, amount / scale) for column, amount in terms])
        return used

    def _gangs(self, served: Sequence[int]) -> None:
        members: defaultdict[GangKey, list[int]] = defaultdict(list)
        for n, each in enumerate(self._places.groups):
            if each.group.gang is not None:
                members[each.group.gang].append(n)
        by_origin: defaultdict[int, Terms] = defaultdict(list)
        for n, each in enumerate(self._places.groups):
            by_origin[each.origin].append((served[n], 1.0))
        for origin, terms in by_origin.items():
            if len(terms) > 1:
                count = next(each.group.count for each in self._places.groups if each.origin == origin)
                self._row(-_INFINITY, float(count), terms)
        for key, numbers in members.items():
            total = sum({self._places.groups[n].origin: self._counts[n] for n in numbers}.values())
            whole = self._column(0.0, 1.0 if self._needed[key] <= total else 0.0)
            pods = [(served[n], 1.0) for n in numbers]
            self._row(0.0, _INFINITY, [*pods, (whole, -float(min(self._needed[key], total)))])
            self._row(-_INFINITY, 0.0, [*pods, (whole, -float(total))])

    def _place_rows(self, served: Sequence[int]) -> None:
        places = self._places
        total = float(sum(self._counts))
        for members in places.shared:
            chosen: Terms = []
            by_place: defaultdict[Place, Terms] = defaultdict(list)
            for n, each in enumerate(places.groups):
                if each.origin in members:
                    by_place[each.place].append((served[n], 1.0))
            for terms in by_place.values():
                here = self._column(0.0, 1.0)
                chosen.append((here, 1.0))
                self._row(-_INFINITY, 0.0, [*terms, (here, -total)])
            self._row(-_INFINITY, 1.0, chosen)
        for n, each in enumerate(places.groups):
            for number in each.group.rules:
                self._rule(n, each, number, served, total)

    def _rule(self, n: int, each: GroupAtPlace, number: int, served: Sequence[int], total: float) -> None:
        """Rows that hold only while any pod of the group is at the place."""
        places = self._places
        rule = places.rules[number]
        if each.place is None:
            return
        here = self._column(0.0, 1.0)
        self._row(-_INFINITY, 0.0, [(served[n], 1.0), (here, -total)])
        running = places.running[number]
        there: defaultdict[Place, Terms] = defaultdict(list)
        for m, other in enumerate(places.groups):
            if number in other.group.selected_by:
                there[other.place].append((served[m], 1.0))
        most = total + sum(running.values()) + rule.max_skew
        if not rule.max_skew:
            alone = 1.0 if number in each.group.selected_by else 0.0
            self._row(-_INFINITY, most + alone, [*there[each.place], (here, most + running.get(each.place, 0))])
            return
        if number not in each.group.selected_by:
            return
        domains = places.domains(each, number)
        few = len(domains) < rule.min_domains
        for place in [None] if few else domains:
            if place == each.place:
                continue
            least = [] if place is None else [(column, -1.0) for column, _ in there[place]]
            skew = rule.max_skew - running.get(each.place, 0) + (0 if place is None else running.get(place, 0))
            self._row(-_INFINITY, most + skew, [*there[each.place], *least, (here, most)])

    def _model(self) -> highspy.Highs:
        highs = quiet()
        if len(self._cost) > _MOST_PRESOLVED:
            highs.setOptionValue("presolve", "off")
        highs.setOptionValue("mip_max_nodes", _MOST_NODES)
        highs.setOptionValue("mip_rel_gap", 1e-9)
        highs.setOptionValue("mip_abs_gap", 1e-9)
        total = len(self._cost)
        none = np.array([], dtype=np.int32)
        highs.addCols(
            total,
            np.array(self._cost),
            np.zeros(total),
            np.array(self._upper),
            0,
            np.zeros(total, dtype=np.int32),
            none,
            np.array([]),
        )
        highs.changeColsIntegrality(
            total, np.arange(total, dtype=np.int32), np.full(total, highspy.HighsVarType.kInteger)
        )
        merged = []
        for low, high, terms in self._rows:
            sums: defaultdict[int, float] = defaultdict(float)
            for column, value in terms:
                sums[column] += value
            merged.append((low, high, [(column, value) for column, value in sums.items() if value]))
        flat = [pair for _, _, terms in merged for pair in terms]
        starts = np.cumsum([0, *(len(terms) for _, _, terms in merged)])[:-1].astype(np.int32)
        highs.addRows(
            len(merged),
            np.array([low for low, _, _ in merged]),
            np.array([high for _, high, _ in merged]),
            len(flat),
            starts,
            np.array([column for column, _ in flat], dtype=np.int32),
            np.array([value for _, value in flat]),
        )
        return highs

    def _run(self, highs: highspy.Highs, work: Work) -> list[int] | None:
        if work.left() <= 0:
            return None
        run_integer(highs, work)
        if highs.getInfo().primal_solution_status != _FEASIBLE:
            return None
        return [round(value) for value in highs.getSolution().col_value]

    def _solution(
        self, fillings: Sequence[tuple[int, Pattern]], values: Sequence[int], served: Sequence[int], used: Sequence[int]
    ) -> Solution | None:
        """The solution in exact numbers; None where rounding errors of the solver exceed stock or limits."""
        arrays, problem = self._arrays, self._packer.problem
        inventory = self._inventory.copy()
        bought: defaultdict[int, list[int]] = defaultdict(list)
        for column, (number, at) in self._bought.items():
            bought[number] += [at] * values[column]
        remaining = [values[column] for column in served]
        purchases = []
        for (number, full), column in zip(fillings, used, strict=True):
            for _ in range(values[column]):
                pattern = tuple((group, min(n, remaining[group])) for group, n in full if remaining[group])
                if not pattern:
                    continue
                unlimited = arrays.unlimited[arrays.candidate_groups.index(number)]
                at = arrays.available_by_group[arrays.candidate_groups.index(number)][0].at
                if not unlimited:
                    at = bought[number].pop(0)
                priced = problem.candidate_groups[number].members[at]
                if not inventory.can_buy(priced):
                    return None
                inventory.buy(priced, 1)
                for group, n in pattern:
                    remaining[group] -= n
                purchases.append(PatternPurchase(number, priced, pattern, 1))
        if any(remaining):
            return None
        left = tuple(count - values[column] for count, column in zip(self._counts, served, strict=True))
        return Solution(tuple(purchases), left)
