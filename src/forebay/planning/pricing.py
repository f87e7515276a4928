"""Which fillings are worth more than their node, given what each pod is worth: quickly, for many shelves at once."""

import numpy as np

from forebay.planning.arrays import Floats, Ints, Numbers
from forebay.planning.knapsack import is_counted, useful, whole_table
from forebay.planning.linear import Column, Duals

#: More shelves than this are filled in the plain ways only.
_MANY = 8
#: With fewer columns than this, more are sought.
_FEW = 160
#: A filling that gains less is left to the exact search, which may know a better one.
_GAIN = 3e-4
_MORE_WAYS = 12
_PASSES = 30
#: For fewer shelves, searching each is quicker than a table for all.
_WORTH_A_TABLE = 3
#: Nodes that differ by no more than this in size share a table.
_ALIKE = 4.0
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
            good = np.flatnonzero(gain > 1.0 + _GAIN)
            for row in good:
                key = (int(rows[row]), counts[row].tobytes())
                found.setdefault(key, (float(gain[row]), Column(int(rows[row]), counts[row].copy())))
            if not len(good) or len(found) >= _FEW:
                break
            most = np.maximum(most - counts, 0)
        best = sorted(found.items(), key=lambda pair: (-pair[1][0], pair[0]))
        return [column for _, (_, column) in best]


class Ceilings:
    """What a filling of each shelf is worth at most, by all the resource prices met so far: any price gives a bound."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._prices: list[Floats] = []

    def all(self, worth: Floats) -> Floats:
        """By shelf. The latest prices tell most; each resource alone, as dear as any pod makes it, tells a little."""
        lowest = np.full(len(self._numbers.shelves), np.inf)
        need = self._numbers.need
        alone = np.where(need > 0, worth[:, None] / np.maximum(need, 1e-300), 0.0).max(axis=0)
        for prices in (*np.diag(alone), *self._prices[-_CEILINGS:]):
            np.minimum(lowest, self._by(prices, worth), out=lowest)
        return lowest

    def learn(self, prices: Floats, worth: Floats) -> Floats:
        """Remembers resource prices; by shelf, the bound that they give."""
        self._prices.append(prices)
        return self._by(prices, worth)

    def tighten(self, ceilings: Floats, worth: Floats, shelves: Ints) -> None:
        """Of these shelves, by tables of one resource beside the GPUs: each tells of many shelves, being made for the
        largest. What is worth most in so many GPUs and so much memory is more than any node of that size can hold.
        """
        if len(shelves) < _WORTH_A_TABLE:
            return
        numbers = self._numbers
        need, capacity = numbers.need, numbers.capacity[shelves]
        few = [d for d in range(need.shape[1]) if need[:, d].any() and is_counted(d, need, capacity.max(axis=0))]
        if not few:
            return
        most = numbers.most[shelves].max(axis=0)
        kinds = useful(worth, need, capacity.max(axis=0), most)
        for d in range(need.shape[1]):
            if d == few[0] or not need[:, d].any():
                continue
            # In groups of like size: for a small node, the steps of a large one are too coarse.
            order = np.argsort(capacity[:, d], kind="stable")
            starts = [0]
            for at in range(1, len(order)):
                if capacity[order[at], d] > _ALIKE * capacity[order[starts[-1]], d]:
                    starts.append(at)
            for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
                group = order[start:end]
                largest = capacity[group].max(axis=0)
                table, scale = whole_table(worth[kinds], need[kinds], largest, most[kinds], axes=[few[0], d])
                cells = np.floor(capacity[group][:, [few[0], d]] * scale + 1e-9).astype(np.int64)
                here = shelves[group]
                ceilings[here] = np.minimum(ceilings[here], table[cells[:, 0], cells[:, 1]])

    def _by(self, prices: Floats, worth: Floats) -> Floats:
        numbers = self._numbers
        net = np.maximum((worth - numbers.need @ prices)[None, :] - numbers.dislike, 0.0)
        bound: Floats = numbers.capacity @ prices + (net * numbers.most).sum(axis=1)
        return bound
