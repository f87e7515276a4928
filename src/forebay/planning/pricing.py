"""Pricing: patterns worth more than their node costs, found quickly for many candidate groups at once."""

import numpy as np

from forebay.planning.arrays import Floats, Ints, ProblemArrays
from forebay.planning.knapsack import is_counted, useful, whole_table
from forebay.planning.linear import Column, Duals
from forebay.planning.work import Work

#: Most candidate groups that are searched a second time, with random weights.
_MOST_SEARCHED_AGAIN = 8
#: With fewer columns than this, the second search runs.
_FEW = 160
#: Patterns that gain less are left to the exact search, which may find a better one.
_GAIN = 3e-4
_MORE_WAYS = 12
_PASSES = 30
#: For fewer candidate groups, searching each one is quicker than building a shared table.
_WORTH_A_TABLE = 3
#: Nodes whose sizes differ by no more than this factor share a table.
_ALIKE = 4.0
#: Seconds of work to fill many nodes; for a step of that: for itself, and for each node, pod group and resource.
_TRY = 3e-4
_GOOD = 5e-6
_STEP = 8e-5
_STEP_BY_PAIR = 5e-9
#: How many of the latest resource prices are tried on every candidate group.
_RECENT_PRICES = 24


class Filler:
    """Fills one node of each of many candidate groups at once, in several ways.

    Pods are chosen by their worth for the share of the free resources that they take; each way weighs the resources
    differently.
    """

    def __init__(self, arrays: ProblemArrays, seed: int) -> None:
        self._arrays = arrays
        self._random = np.random.default_rng(seed)
        resources = arrays.need.shape[1]
        even = np.ones((1, resources))
        single = np.eye(resources) + 0.05
        self._weights = np.vstack([even, single])

    def fill(self, worth: Floats, candidate_groups: Ints, weights: Floats, most: Ints, work: Work) -> Ints:
        """Pods of each pod group, by row: a candidate group, weights of resources, and most pods of each group."""
        arrays = self._arrays
        value = np.where(most > 0, worth[None, :] - arrays.preference_cost[candidate_groups], -1.0)
        free = arrays.capacity[candidate_groups].copy()
        counts = np.zeros((len(candidate_groups), len(worth)), dtype=np.int64)
        need = arrays.need
        rows = np.arange(len(candidate_groups))
        while len(rows):
            work.spend(_STEP + _STEP_BY_PAIR * len(rows) * len(worth) * (need.shape[1] + 2))
            can = value[rows] > 0
            for d in range(need.shape[1]):
                can &= need[None, :, d] <= free[rows, d, None]
            size = (weights[rows] / np.maximum(free[rows], 1e-9)) @ need.T
            density = np.where(can, value[rows] / np.maximum(size, 1e-12), -1.0)
            group = density.argmax(axis=1)
            alive = density[np.arange(len(rows)), group] > 0
            rows, group = rows[alive], group[alive]
            taken = need[group]
            with np.errstate(divide="ignore", invalid="ignore"):
                room = np.where(taken > 0, np.floor(free[rows] / taken), np.inf).min(axis=1)
            room = np.minimum(room, most[rows, group] - counts[rows, group]).astype(np.int64)
            # Half of what fits, so that another pod group may fill the rest better.
            take = (room + 1) // 2
            counts[rows, group] += take
            free[rows] -= taken * take[:, None]
            value[rows, group] = np.where(counts[rows, group] < most[rows, group], value[rows, group], -1.0)
        return counts

    def columns(self, duals: Duals, candidate_groups: Ints, work: Work, *, thorough: bool = False) -> list[Column]:
        """Patterns worth more than their node costs, the largest gain first."""
        found = self._try(duals, candidate_groups, work, thorough=thorough, passes=1)
        # Candidate groups with one such pattern usually have more: try more weights, and patterns for other pods.
        gaining = np.array(sorted({column.candidate_group for column in found})[:_MOST_SEARCHED_AGAIN], dtype=np.int64)
        if len(found) < _FEW:
            found += self._try(duals, gaining, work, thorough=True, passes=_PASSES)
        return found

    def _try(self, duals: Duals, candidate_groups: Ints, work: Work, *, thorough: bool, passes: int) -> list[Column]:
        if not len(candidate_groups):
            return []
        arrays = self._arrays
        ways = len(self._weights) + (_MORE_WAYS if thorough else 0)
        work.spend(_TRY)
        chance = self._random.exponential(size=(ways - len(self._weights), self._weights.shape[1]))
        weights = np.tile(np.vstack([self._weights, chance]), (len(candidate_groups), 1))
        rows = np.repeat(candidate_groups, ways)
        most = arrays.most[rows].copy()
        net = duals.worth[None, :] - arrays.preference_cost[rows]
        found: dict[tuple[int, bytes], tuple[float, Column]] = {}
        for _ in range(passes):
            counts = self.fill(duals.worth, rows, weights, most, work)
            gain = (net * counts).sum(axis=1) / np.maximum(duals.node[rows], 1e-12)
            good = np.flatnonzero(gain > 1.0 + _GAIN)
            work.spend(_GOOD * len(good))
            for row in good:
                key = (int(rows[row]), counts[row].tobytes())
                found.setdefault(key, (float(gain[row]), Column(int(rows[row]), counts[row].copy())))
            if not len(good) or len(found) >= _FEW or work.left() <= 0:
                break
            most = np.maximum(most - counts, 0)
        best = sorted(found.items(), key=lambda pair: (-pair[1][0], pair[0]))
        return [column for _, (_, column) in best]


class UpperBounds:
    """Upper bounds on the worth of any pattern of each candidate group. Any resource prices give a valid bound."""

    def __init__(self, arrays: ProblemArrays) -> None:
        self._arrays = arrays
        self._prices: list[Floats] = []

    def all(self, worth: Floats) -> Floats:
        """Upper bounds by candidate group, from the latest resource prices and from each resource alone."""
        lowest = np.full(len(self._arrays.candidate_groups), np.inf)
        need = self._arrays.need
        alone = np.divide(worth[:, None], need, out=np.zeros_like(need), where=need > 0).max(axis=0)
        for prices in (*np.diag(alone), *self._prices[-_RECENT_PRICES:]):
            np.minimum(lowest, self._by(prices, worth), out=lowest)
        return lowest

    def learn(self, prices: Floats, worth: Floats) -> Floats:
        """Remembers resource prices and returns the upper bounds that they give, by candidate group."""
        self._prices.append(prices)
        return self._by(prices, worth)

    def tighten(self, upper_bounds: Floats, worth: Floats, candidate_groups: Ints) -> None:
        """Lowers the bounds of these candidate groups by tables over the GPUs and one other resource.

        One table, built for the largest node, serves many candidate groups: the most worth that fits into so many GPUs
        and so much memory is never less than what a node of that size can hold.
        """
        if len(candidate_groups) < _WORTH_A_TABLE:
            return
        arrays = self._arrays
        need, capacity = arrays.need, arrays.capacity[candidate_groups]
        few = [d for d in range(need.shape[1]) if is_counted(d, need, capacity.max(axis=0))]
        if not few:
            return
        most = arrays.most[candidate_groups].max(axis=0)
        groups = useful(worth, need, capacity.max(axis=0), most)
        for d in range(need.shape[1]):
            if d == few[0]:
                continue
            # In blocks of similar size: the steps of a large node are too coarse for a small one.
            order = np.argsort(capacity[:, d], kind="stable")
            starts = [0]
            for at in range(1, len(order)):
                if capacity[order[at], d] > _ALIKE * capacity[order[starts[-1]], d]:
                    starts.append(at)
            for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
                block = order[start:end]
                largest = capacity[block].max(axis=0)
                table, scale = whole_table(worth[groups], need[groups], largest, most[groups], axes=[few[0], d])
                cells = np.floor(capacity[block][:, [few[0], d]] * scale + 1e-9).astype(np.int64)
                here = candidate_groups[block]
                upper_bounds[here] = np.minimum(upper_bounds[here], table[cells[:, 0], cells[:, 1]])

    def _by(self, prices: Floats, worth: Floats) -> Floats:
        arrays = self._arrays
        net = np.maximum((worth - arrays.need @ prices)[None, :] - arrays.preference_cost, 0.0)
        bound: Floats = arrays.capacity @ prices + (net * arrays.most).sum(axis=1)
        return bound
