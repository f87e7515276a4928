"""Column generation: the best mix of patterns by linear programming, rounded to whole nodes, with a lower bound.

The linear program gives the worth of each pod; pricing looks for patterns worth more than their node costs. When there
are none, no plan can cost less than all pods together are worth.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from forebay.planning.arrays import DOLLAR, Floats, Ints, ProblemArrays
from forebay.planning.candidate_groups import LARGEST_TIE, Inventory
from forebay.planning.greedy import Packer, Solution, fill_up
from forebay.planning.knapsack import exact
from forebay.planning.linear import Column, Duals, Master
from forebay.planning.pattern_bound import worthiest_pattern
from forebay.planning.pricing import Filler, UpperBounds
from forebay.planning.rounding import build_solution, dive
from forebay.planning.work import Work

#: Work is bounded by these counts, so that the same input gives the same plan on a slow or a fast machine.
_ROUNDS = 200
_COLUMNS_A_ROUND = 100
_ENOUGH_COLUMNS = 40
#: (Search steps, table cells) for one candidate group: first, and then to prove the bound where nothing was found.
_EFFORTS = ((3000, 100_000), (20_000, 500_000))
#: Seconds of work: for such a search, for each of its steps, and for a table cell.
_SEARCH = 7e-4
_SEARCH_STEP = 2.5e-6
_CELL = 1e-8
#: Shares of the work that remain when rounding starts, when columns are generated again, and for the proof.
_TO_ROUND = 0.55
_TO_GO_ON = 0.45
_TO_PROVE = 0.3
_TO_END = 0.2
_FOR_PROOF = 0.07
#: Share of the work that is left for one integer program; the last one gets all of it.
_FOR_ONE = 0.5
#: A bound this near to the value of the linear program is as good as that value.
_PROVEN = 1e-4
#: Gains below this are rounding errors.
_EPSILON = 1e-9
#: Gap to the linear program that is good enough, after each attempt at rounding.
_ENOUGH = (2e-4, 1e-3, 1e-3)
#: With this gap to the bound, nothing more needs to be proven.
_NEAR = 2e-3
#: Steps of the price are counted from so many times the tie breakers on.
_LEAST_STEP = 10
#: Far more than the rounding error of a sum of node prices, counted in steps.
_STEP_ERROR = 1e-6

#: How many pods of a priority outweigh one of the next higher; and how many priorities are told apart.
_LEVEL = 30.0
_MOST_LEVELS = 3

Rank = Callable[[Solution], tuple[tuple[int, ...], int]]


class Refinement:
    """Improves a first solution, and computes a lower bound on the cost of the pods that it serves.

    With `priorities` (by pod group), the linear program also chooses which pods to serve, because stock or limits do
    not allow all of them: as many as possible, the highest priority first. There is no bound then.
    """

    def __init__(
        self,
        packer: Packer,
        counts: Sequence[int],
        inventory: Inventory,
        first: Solution,
        work: Work,
        *,
        seed: int,
        priorities: Sequence[int] | None = None,
    ) -> None:
        self._packer = packer
        self._work = work
        self._first = first
        self._chooses = priorities is not None
        self._served = [n - (0 if self._chooses else left) for n, left in zip(counts, first.left, strict=True)]
        self._arrays = arrays = ProblemArrays(packer, self._served, inventory)
        self._penalty = _penalty(arrays) if priorities is None else _penalty_by_priority(arrays, priorities)
        self._master = Master(arrays, self._penalty, work)
        self._master.add(_columns_of(arrays, first))
        self._filler = Filler(arrays, seed)
        self._upper_bounds = UpperBounds(arrays)
        self._step = 0 if self._chooses else _price_step(arrays, sum(self._served))
        self._proven = 0.0
        #: How many columns there were when the longest search found no other.
        self._searched = -1
        #: Whether integer programs found no other either.
        self._is_complete = False

    @property
    def bound(self) -> int:
        """Lower bound on the cost of the same pods, in units and without the tie breakers."""
        return max(int(self._without_ties(self._proven)), 0)

    @property
    def _bound(self) -> float:
        return max(self._proven, self._without_ties(self._proven))

    def _without_ties(self, units: float) -> float:
        """The least cost of any solution whose score is not below `units`."""
        cost = units - LARGEST_TIE * sum(self._served)
        return math.ceil(cost / self._step - _STEP_ERROR) * self._step if self._step else cost

    def run(self, rank: Rank) -> Solution:
        """The best solution by `rank`; never worse than the first one."""
        work = self._work
        whole = work.left()
        self._generate(work.keeping(whole * _TO_ROUND))
        best = self._first
        sure = np.floor(self._master.used + _EPSILON)
        if self._chooses:
            return self._round(best, (1.0, 0.8), rank, work)
        if sure.sum() < self._master.used.sum() / 2:
            # Most patterns are used once or not at all: diving does better there, and takes longer.
            best = self._round(best, (None, 1.0), rank, work.keeping(whole * _TO_END))
        else:
            best = self._round(best, (1.0,), rank, work.keeping(whole * _TO_GO_ON))
        while self._packer.score(best) > self._bound * (1 + _NEAR) and work.left() > whole * _TO_END:
            # More columns improve both the bound and the rounding.
            self._generate(work.keeping(whole * _TO_PROVE))
            duals, part = self._master.solve(), work.keeping(whole * _TO_END)
            if not (self._master.add(self._price(duals, part, _EFFORTS)) or self._master.add(self._prove(duals, part))):
                break
        self._master.solve()
        best = self._round(best, (1.0, None, 0.8), rank, work.keeping(whole * _FOR_PROOF))
        if not self._is_complete and self._packer.score(best) > self._bound * (1 + _NEAR):
            self._prove(self._master.solve(), work)
        return best

    def _prove(self, duals: Duals, work: Work) -> list[Column]:
        """Raises the lower bound by integer programs, for the candidate groups that limit it most.

        Returns the patterns worth more than their node that these find.
        """
        arrays = self._arrays
        found: list[Column] = []
        proven = self._upper_bounds.all(duals.worth)
        target = np.maximum(duals.node, _EPSILON)
        asked = np.zeros(len(proven), dtype=bool)
        while work.left() > 0:
            ratio = np.where(asked, 0.0, proven / target)
            candidate_group = int(ratio.argmax())
            if ratio[candidate_group] <= max(1 + _PROVEN, float((proven[asked] / target[asked]).max(initial=0.0))):
                self._is_complete = not found
                break
            asked[candidate_group] = True
            value = duals.worth - arrays.preference_cost[candidate_group]
            capacity, most = arrays.capacity[candidate_group], arrays.most[candidate_group]
            best = worthiest_pattern(value, arrays.need, capacity, most, work)
            proven[candidate_group] = min(best.bound, proven[candidate_group])
            if best.counts is not None and value @ best.counts > target[candidate_group] * (1 + _EPSILON):
                found.append(Column(candidate_group, best.counts))
        self._proven = max(self._proven, _lagrangian(arrays, self._master, duals, proven))
        return found

    def _round(self, best: Solution, ways: tuple[float | None, ...], rank: Rank, work: Work) -> Solution:
        """The best of several roundings; stops when one is near enough to the linear program.

        Each of `ways` is the share of the fractional solution to keep, or None for diving.
        """
        value = self._master.value * DOLLAR
        value = max(value, self._without_ties(value))
        sure = np.floor(self._master.used + _EPSILON)
        for at, (share, gap) in enumerate(zip(ways, _ENOUGH, strict=False)):
            if self._score(best) <= value * (1 + gap) or work.left() <= 0:
                break
            if share is None:
                times: Ints | None = dive(self._arrays, self._master, self._filler, work)
            else:
                part = work.part(1.0 if at == len(ways) - 1 else _FOR_ONE)
                times = self._master.solve_integer(np.floor(sure * share).astype(np.int64), part)
            if times is not None:
                best = min(best, self._solution(times), key=rank)
        return best

    def _solution(self, times: Ints) -> Solution:
        without = [0] * len(self._served) if self._chooses else self._first.left
        solution = build_solution(self._arrays, self._master.columns, times, self._served, without)
        return fill_up(self._packer, solution) if self._chooses else solution

    def _score(self, solution: Solution) -> float:
        """The solution's score; where the program chooses pods, with the penalties of those left out."""
        score = float(self._packer.score(solution))
        if self._chooses:
            left = np.array([solution.left[group] for group in self._arrays.groups])
            score += float(self._penalty @ left) * DOLLAR
        return score

    def _generate(self, work: Work) -> None:
        """Adds columns until (nearly) no pattern is worth more than its node."""
        master = self._master
        duals = master.solve()
        for _ in range(_ROUNDS):
            if work.left() <= 0 or self._searched == len(master.columns):
                return
            gaining = np.flatnonzero(self._upper_bounds.all(duals.worth) > duals.node * (1 + _EPSILON))
            columns = self._filler.columns(duals, gaining, work) or self._filler.columns(
                duals, gaining, work, thorough=True
            )
            if not master.add(columns[:_COLUMNS_A_ROUND]):
                columns = self._price(duals, work, _EFFORTS[:1]) or self._price(duals, work, _EFFORTS)
                if self._bound >= master.value * DOLLAR * (1 - _PROVEN) or not master.add(columns):
                    return
            duals = master.solve()

    def _price(self, duals: Duals, work: Work, efforts: Sequence[tuple[int, int]]) -> list[Column]:
        """Patterns worth more than their node. Raises the lower bound; more efforts search longer for that."""
        arrays = self._arrays
        found: list[Column] = []
        if self._searched == len(self._master.columns):
            return found
        proven = self._upper_bounds.all(duals.worth)
        target = duals.node * (1 + _EPSILON)
        prove = len(efforts) > 1
        if prove:
            self._upper_bounds.tighten(proven, duals.worth, np.flatnonzero(proven > target))
        tried = np.zeros(len(arrays.candidate_groups), dtype=np.int64)
        while work.left() > 0 and (prove or len(found) < _ENOUGH_COLUMNS):
            # The candidate group with the largest ratio limits the bound, and its resource prices say most about
            # others.
            ratio = np.where(tried < len(efforts), proven / np.maximum(target, _EPSILON), 0.0)
            candidate_group = int(ratio.argmax())
            if ratio[candidate_group] <= 1.0:
                break
            steps, cells = efforts[tried[candidate_group]]
            tried[candidate_group] += 1
            best = exact(
                duals.worth - arrays.preference_cost[candidate_group],
                arrays.need,
                arrays.capacity[candidate_group],
                arrays.most[candidate_group],
                above=float(target[candidate_group]),
                steps=steps,
                cells=cells,
            )
            work.spend(_SEARCH + _SEARCH_STEP * best.steps + _CELL * cells)
            np.minimum(proven, self._upper_bounds.learn(best.prices, duals.worth), out=proven)
            proven[candidate_group] = min(best.most, proven[candidate_group])
            if best.patterns:
                # Its new columns will lower the duals; until then another search of it is wasted.
                tried[candidate_group] = len(efforts)
                found += [Column(candidate_group, counts) for counts in best.patterns]
        self._proven = max(self._proven, _lagrangian(arrays, self._master, duals, proven))
        if prove and not found and work.left() > 0:
            self._searched = len(self._master.columns)
        return found


def _price_step(arrays: ProblemArrays, pods: int) -> int:
    """Largest number of units that divides the cost of every solution; 0 where that is too little to matter.

    With one type of node, any plan costs a whole number of nodes: often that closes the gap to the linear program.
    """
    step = math.gcd(*(each.priced.expected for each in arrays.available))
    return 0 if step < _LEAST_STEP * LARGEST_TIE * pods or arrays.preference_cost.any() else step


def _penalty(arrays: ProblemArrays) -> Floats:
    """Cost of an unserved pod: more than any way to serve it."""
    alone = np.where(arrays.most > 0, arrays.price[:, None] + arrays.preference_cost, np.inf).min(axis=0)
    return np.where(np.isfinite(alone), alone, 1.0) * 100.0 + 1e-6


def _penalty_by_priority(arrays: ProblemArrays, priorities: Sequence[int]) -> Floats:
    """Equal for all pods of a priority, because their number counts, and more than any way to serve one."""
    alone = np.where(arrays.most > 0, arrays.price[:, None] + arrays.preference_cost, np.inf).min(axis=0)
    mine = [priorities[group] for group in arrays.groups]
    dearest = float(alone[np.isfinite(alone)].max(initial=1.0))
    levels = {priority: level for level, priority in enumerate(sorted(set(mine)))}
    steps = np.array([min(levels[priority], _MOST_LEVELS) for priority in mine], dtype=np.float64)
    return dearest * 4.0 * _LEVEL**steps


def _columns_of(arrays: ProblemArrays, solution: Solution) -> list[Column]:
    """The patterns of a solution as columns."""
    groups = {group: n for n, group in enumerate(arrays.groups)}
    candidate_groups = {candidate_group: n for n, candidate_group in enumerate(arrays.candidate_groups)}
    made = []
    for purchase in solution.purchases:
        counts = np.zeros(len(groups), dtype=np.int64)
        for group, count in purchase.pattern:
            counts[groups[group]] = count
        if purchase.candidate_group in candidate_groups:
            made.append(Column(candidate_groups[purchase.candidate_group], counts))
            continue
        # Its candidate group was dropped as dominated: use one that takes the same pods for no more.
        room = (arrays.capacity >= counts @ arrays.need).all(axis=1) & (arrays.most >= counts).all(axis=1)
        made += [
            Column(int(candidate_group), counts) for candidate_group in np.flatnonzero(room & arrays.unlimited)[:1]
        ]
    return made


def _lagrangian(arrays: ProblemArrays, master: Master, duals: Duals, proven: Floats) -> float:
    """Lower bound in units: worth of the pods less what nodes can earn at most. Valid for any duals."""
    scale = 1.0
    for candidate_group in np.flatnonzero(arrays.unlimited):
        if proven[candidate_group] > arrays.price[candidate_group]:
            scale = min(scale, float(arrays.price[candidate_group] / proven[candidate_group]))
    value = float(duals.worth @ arrays.demand) * scale - master.scarcity_rent(proven * scale, scale)
    # Far more than the rounding error of sums of doubles.
    return max(value * (1 - 1e-9), 0.0) * DOLLAR
