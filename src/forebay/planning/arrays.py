"""The packing problem as numpy arrays, for loops that run over all pod groups and candidate groups many times.

Floats available only guide the search: the cost of what is bought is computed again in exact units, and the lower bound
is rounded down.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from forebay.planning.candidate_groups import UNLIMITED, Inventory, PricedCandidate, limit_amounts
from forebay.planning.greedy import Packer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Units of `UsdPerHour` in a dollar.
DOLLAR: Final = 10.0**24


class AvailableCandidate:
    """A candidate that stock and limits still allow to buy."""

    __slots__ = ("at", "candidate_group", "priced", "score", "stock")

    def __init__(self, candidate_group: int, at: int, priced: PricedCandidate, stock: int) -> None:
        self.candidate_group = candidate_group
        self.at = at
        self.priced = priced
        self.stock = stock
        self.score = priced.score / DOLLAR


class ProblemArrays:
    """The part of a packing problem that these pods can use, as arrays.

    Pod groups and candidate groups are numbered anew: `groups` and `candidate_groups` hold their numbers in the
    problem.
    """

    def __init__(self, packer: Packer, counts: Sequence[int], inventory: Inventory) -> None:
        problem = packer.problem
        self.packer = packer
        self.inventory = inventory
        self.groups = [group for group, count in enumerate(counts) if count > 0]
        self.demand: Ints = np.array([counts[group] for group in self.groups], dtype=np.int64)
        pods = int(self.demand.sum())
        candidate_groups: list[tuple[int, list[AvailableCandidate]]] = []
        self.available: list[AvailableCandidate] = []
        for number, candidate_group in enumerate(problem.candidate_groups):
            if not any(candidate_group.most[group] for group in self.groups):
                continue
            enough = pods
            available = []
            for at, priced in enumerate(candidate_group.members):
                stock = min(inventory.can_buy(priced), pods)
                if stock > 0:
                    available.append(AvailableCandidate(len(candidate_groups), at, priced, stock))
                    # Under limits, the candidate with the lowest score need not be the best one to buy.
                    enough -= stock if not priced.caps else 0
                    if enough <= 0:
                        break
            if available:
                candidate_groups.append((number, available))
        self.candidate_groups = [number for number, _ in candidate_groups]
        self.available_by_group = [available for _, available in candidate_groups]
        self._build_arrays(pods)
        self._keep(self._undominated())

    def _build_arrays(self, pods: int) -> None:
        problem = self.packer.problem
        used = [d for d in range(len(problem.resources)) if any(problem.needs[group][d] for group in self.groups)]
        self.need: Floats = np.array(
            [[problem.needs[group][d] for d in used] for group in self.groups], dtype=np.float64
        )
        self.need = self.need.reshape(len(self.groups), len(used))
        candidate_groups = [problem.candidate_groups[number] for number in self.candidate_groups]
        self.capacity: Floats = np.array([[s.capacity[d] for d in used] for s in candidate_groups], dtype=np.float64)
        self.capacity = self.capacity.reshape(len(candidate_groups), len(used))
        most = np.array(
            [[min(s.most[group], UNLIMITED) for group in self.groups] for s in candidate_groups], dtype=np.int64
        )
        self.most: Ints = np.minimum(most.reshape(len(candidate_groups), len(self.groups)), self.demand)
        self.preference_cost: Floats = np.array(
            [[s.preference_cost[group] / DOLLAR for group in self.groups] for s in candidate_groups], dtype=np.float64
        ).reshape(len(candidate_groups), len(self.groups))
        self.price: Floats = np.array([available[0].score for available in self.available_by_group])
        #: Candidate groups with enough stock and no limits: each of their nodes costs just its price.
        self.unlimited = np.array(
            [available[0].stock >= pods and not available[0].priced.caps for available in self.available_by_group],
            dtype=np.bool_,
        )

    def _undominated(self) -> list[int]:
        """Candidate groups that no unlimited one replaces for the same price or less. The first of equals stays."""
        dominated = np.zeros(len(self.candidate_groups), dtype=np.bool_)
        for other in np.lexsort((-self.capacity.sum(axis=1), self.price)):
            if not self.unlimited[other] or dominated[other]:
                continue
            worse = ~dominated & (self.price >= self.price[other])
            worse[other] = False
            rows = np.flatnonzero(worse)
            less = (
                (self.capacity[rows] <= self.capacity[other]).all(axis=1)
                & (self.most[rows] <= self.most[other]).all(axis=1)
                & (self.preference_cost[rows] >= self.preference_cost[other]).all(axis=1)
            )
            dominated[rows[less]] = True
        return [int(n) for n in np.flatnonzero(~dominated)]

    def _keep(self, numbers: list[int]) -> None:
        self.candidate_groups = [self.candidate_groups[n] for n in numbers]
        self.available_by_group = [self.available_by_group[n] for n in numbers]
        for at, available in enumerate(self.available_by_group):
            for each in available:
                each.candidate_group = at
        self.available = [each for available in self.available_by_group for each in available]
        self.capacity, self.most = self.capacity[numbers], self.most[numbers]
        self.preference_cost, self.price, self.unlimited = (
            self.preference_cost[numbers],
            self.price[numbers],
            self.unlimited[numbers],
        )


def cap_amounts(inventory: Inventory, number: int, priced: PricedCandidate) -> list[tuple[float, float]]:
    """(Amount that one node takes, amount left) for each limit of the cap, in a fixed order."""
    amounts = []
    nodes, money, resources = inventory.cap_left(number)
    if nodes is not None:
        amounts.append((1.0, float(nodes)))
    if money is not None:
        amounts.append((priced.candidate.offer.price.units / DOLLAR, money / DOLLAR))
    for name, left in sorted(resources.items()):
        amounts.append((float(limit_amounts(priced.candidate, name)), float(left)))
    return amounts
