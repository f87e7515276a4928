"""A good solution quickly: fill a node of every candidate group, buy the best value for its price, repeat.

The worth of a pod is its cost where it is cheapest: its share of a node full of such pods. A pattern is bought as often
as it stays useful, so the work grows with the number of pod groups, not of pods.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from forebay.planning.candidate_groups import CandidateGroup, Inventory, PackingProblem, PricedCandidate

Pattern = tuple[tuple[int, int], ...]
"""Pods on one node, as (pod group, how many), sorted by pod group."""


class PatternPurchase(NamedTuple):
    """Nodes of one candidate that are filled by the same pattern."""

    candidate_group: int
    priced: PricedCandidate
    pattern: Pattern
    times: int


class Solution(NamedTuple):
    purchases: tuple[PatternPurchase, ...]
    #: How many pods are left without a node, by pod group.
    left: tuple[int, ...]


#: What a node counts as when patterns are compared, given the score of its candidate.
Price = Callable[[int], int]


class Packer:
    """Fills nodes of the candidate groups of one packing problem."""

    def __init__(self, problem: PackingProblem) -> None:
        self.problem = problem
        self.needs = [[(d, amount) for d, amount in enumerate(need) if amount > 0] for need in problem.needs]

    def worth(self, groups: Iterable[int], price: Price) -> dict[int, float]:
        """Cost of one pod of each pod group where it is cheapest."""
        found: dict[int, float] = {}
        candidate_groups = [
            (float(price(candidate_group.members[0].score)), candidate_group)
            for candidate_group in self.problem.candidate_groups
        ]
        for group in groups:
            each = [
                cost / candidate_group.most[group] + candidate_group.preference_cost[group]
                for cost, candidate_group in candidate_groups
                if candidate_group.most[group]
            ]
            found[group] = min(each, default=0.0)
        return found

    def orders(self, number: int, worth: dict[int, float]) -> tuple[list[int], ...]:
        """Orders in which to fill a node of this candidate group: by size, and by worth for the size."""
        candidate_group = self.problem.candidate_groups[number]
        share = {
            group: max(amount / candidate_group.capacity[d] for d, amount in self.needs[group])
            if self.needs[group]
            else 0.0
            for group in worth
            if candidate_group.most[group]
        }
        by_size = sorted(share, key=lambda group: (-share[group], -worth[group], group))
        by_worth = sorted(share, key=lambda group: (-worth[group] / (share[group] or 1.0), group))
        return (by_size, by_worth) if by_size != by_worth else (by_size,)

    def at_most(self, groups: Sequence[int], worth: dict[int, float]) -> Callable[[CandidateGroup], float]:
        """Upper bound on the worth of the pods in one node, by each resource that all of them need."""
        needed = [
            d for d in range(len(self.problem.resources)) if all(self.problem.needs[group][d] for group in groups)
        ]
        rates = [(d, max(worth[group] / self.problem.needs[group][d] for group in groups)) for d in needed]
        return lambda candidate_group: min((candidate_group.capacity[d] * rate for d, rate in rates), default=math.inf)

    def fill(self, candidate_group: CandidateGroup, remaining: Sequence[int], order: Iterable[int]) -> Pattern:
        free = list(candidate_group.capacity)
        most, needs = candidate_group.most, self.needs
        pattern = []
        for group in order:
            count = min(remaining[group], most[group])
            if count <= 0:
                continue
            need = needs[group]
            # Quicker than `min`, in the innermost loop of planning.
            for d, amount in need:
                if free[d] < amount * count:
                    count = free[d] // amount
            if count > 0:
                pattern.append((group, count))
                for d, amount in need:
                    free[d] -= amount * count
        pattern.sort()
        return tuple(pattern)

    def add(self, candidate_group: CandidateGroup, pattern: Pattern, more: Sequence[int]) -> Pattern:
        """The pattern with as many more pods as the node takes, of at most so many of each pod group."""
        taken = dict(pattern)
        free = list(candidate_group.capacity)
        for group, count in pattern:
            for d, amount in self.needs[group]:
                free[d] -= amount * count
        for group in candidate_group.takes:
            count = min(more[group], candidate_group.most[group] - taken.get(group, 0))
            if count <= 0:
                continue
            for d, amount in self.needs[group]:
                if free[d] < amount * count:
                    count = free[d] // amount
            if count > 0:
                taken[group] = taken.get(group, 0) + count
                for d, amount in self.needs[group]:
                    free[d] -= amount * count
        return tuple(sorted(taken.items()))

    def takes(self, candidate_group: CandidateGroup, pattern: Pattern) -> bool:
        free = list(candidate_group.capacity)
        for group, count in pattern:
            if candidate_group.most[group] < count:
                return False
            for d, amount in self.needs[group]:
                free[d] -= amount * count
                if free[d] < 0:
                    return False
        return True

    def free(self, purchase: PatternPurchase) -> list[int]:
        """What is left of each resource on one of the nodes."""
        free = list(self.problem.candidate_groups[purchase.candidate_group].capacity)
        for group, count in purchase.pattern:
            for d, amount in self.needs[group]:
                free[d] -= amount * count
        return free

    def preference_cost(self, candidate_group: CandidateGroup, pattern: Pattern) -> int:
        return sum(candidate_group.preference_cost[group] * count for group, count in pattern)

    def score(self, solution: Solution) -> int:
        return sum(
            (b.priced.score + self.preference_cost(self.problem.candidate_groups[b.candidate_group], b.pattern))
            * b.times
            for b in solution.purchases
        )

    def expected(self, solution: Solution) -> int:
        return sum(
            (b.priced.expected + self.preference_cost(self.problem.candidate_groups[b.candidate_group], b.pattern))
            * b.times
            for b in solution.purchases
        )


def greedy(packer: Packer, counts: Sequence[int], inventory: Inventory, price: Price = lambda score: score) -> Solution:
    """Buys from `inventory`. `price` replaces the score of nodes, for when the number of nodes is limited."""
    remaining = list(counts)
    wanted = [group for group, count in enumerate(remaining) if count > 0]
    if not wanted:
        return Solution((), tuple(remaining))
    worth = packer.worth(wanted, price)
    candidate_groups = packer.problem.candidate_groups
    orders: dict[int, tuple[list[int], ...]] = {}
    front = [0] * len(candidate_groups)
    heap: list[tuple[float, int, Pattern, int]] = []

    def offer(number: int) -> None:
        """Pushes the best pattern for the candidate group's cheapest available candidate onto the heap."""
        candidate_group = candidate_groups[number]
        while front[number] < len(candidate_group.members) and not inventory.can_buy(
            candidate_group.members[front[number]]
        ):
            front[number] += 1
        if front[number] == len(candidate_group.members):
            return
        if number not in orders:
            orders[number] = packer.orders(number, worth)
        cost = price(candidate_group.members[front[number]].score)
        best: tuple[float, int, Pattern, int] | None = None
        for order in orders[number]:
            pattern = packer.fill(candidate_group, remaining, order)
            if pattern:
                value = sum(worth[group] * count for group, count in pattern)
                entry = (
                    -value / (cost + packer.preference_cost(candidate_group, pattern)),
                    number,
                    pattern,
                    front[number],
                )
                best = entry if best is None else min(best, entry)
        if best is not None:
            heapq.heappush(heap, best)

    # Each candidate group starts with an upper bound of its value; most are never filled.
    at_most = packer.at_most(wanted, worth)
    for number, candidate_group in enumerate(candidate_groups):
        if any(candidate_group.most[group] for group in wanted):
            heap.append((-at_most(candidate_group) / price(candidate_group.members[0].score), number, (), 0))
    heapq.heapify(heap)
    purchases = []
    while heap:
        _, number, pattern, at = heapq.heappop(heap)
        if not pattern:
            offer(number)
            continue
        priced = candidate_groups[number].members[at]
        times = inventory.can_buy(priced)
        if times:
            times = min(times, *(remaining[group] // count for group, count in pattern))
        # Patterns only get worse as pods and stock decrease, so the first entry that is still possible is the best one.
        if times:
            inventory.buy(priced, times)
            for group, count in pattern:
                remaining[group] -= count * times
            purchases.append(PatternPurchase(number, priced, pattern, times))
        offer(number)
    return move_to_cheaper(packer, Solution(tuple(purchases), tuple(remaining)), inventory)


def fill_up(packer: Packer, solution: Solution) -> Solution:
    """The solution with pods that it left over added where its nodes have room for them, the first groups first."""
    left = list(solution.left)
    made: list[PatternPurchase] = []
    for purchase in solution.purchases:
        candidate_group = packer.problem.candidate_groups[purchase.candidate_group]
        times = purchase.times
        while times:
            fuller = packer.add(candidate_group, purchase.pattern, left)
            if fuller == purchase.pattern:
                break
            taken = dict(fuller)
            for group, count in purchase.pattern:
                taken[group] -= count
            more = [(group, count) for group, count in taken.items() if count]
            alike = min(times, *(left[group] // count for group, count in more))
            for group, count in more:
                left[group] -= count * alike
            made.append(purchase._replace(pattern=fuller, times=alike))
            times -= alike
        if times:
            made.append(purchase._replace(times=times))
    return Solution(tuple(made), tuple(left))


def move_to_cheaper(packer: Packer, solution: Solution, inventory: Inventory) -> Solution:
    """The same patterns, each moved to the cheapest candidate that takes it."""
    candidate_groups = packer.problem.candidate_groups
    by_score = sorted(
        (priced.score, number, at) for number, s in enumerate(candidate_groups) for at, priced in enumerate(s.members)
    )
    made = []
    for purchase in solution.purchases:
        left = purchase.times
        now = purchase.priced.score + packer.preference_cost(
            candidate_groups[purchase.candidate_group], purchase.pattern
        )
        seen: dict[int, bool] = {}
        for score, number, at in by_score:
            if not left or score >= now:
                break
            candidate_group = candidate_groups[number]
            if number not in seen:
                seen[number] = packer.takes(candidate_group, purchase.pattern)
            if not seen[number] or score + packer.preference_cost(candidate_group, purchase.pattern) >= now:
                continue
            priced = candidate_group.members[at]
            times = _replace(inventory, purchase.priced, priced, left)
            if times:
                made.append(PatternPurchase(number, priced, purchase.pattern, times))
                left -= times
        if left:
            made.append(purchase._replace(times=left))
    return solution._replace(purchases=tuple(made))


def _replace(inventory: Inventory, old: PricedCandidate, new: PricedCandidate, count: int) -> int:
    """Buys `new` in place of up to `count` nodes of `old`, as often as stock and limits allow. Returns how often."""
    # Nearly all candidates, where stock is scarce.
    if not inventory.stock(new) and new.stock_key != old.stock_key:
        return 0
    # Undo the replaced purchase first: both candidates may be under the same limit.
    inventory.undo_buy(old, count)
    low, high = 0, min(inventory.can_buy(new), count)
    # Limits are linear in the number replaced, so if some number is possible, every smaller one is.
    while low < high:
        middle = (low + high + 1) // 2
        inventory.buy(new, middle)
        possible = inventory.can_buy(old) >= count - middle
        inventory.undo_buy(new, middle)
        low, high = (middle, high) if possible else (low, middle - 1)
    inventory.buy(new, low)
    inventory.buy(old, count - low)
    return low
