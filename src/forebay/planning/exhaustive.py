"""Exact planning of small demand: the cheapest plan by dynamic programming over the pods that are still to serve."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from forebay.planning.candidate_groups import Inventory, PricedCandidate
from forebay.planning.greedy import Packer, Pattern, PatternPurchase, Solution

#: More steps than this take longer than column generation.
_MOST_STEPS = 20_000

_State = tuple[int, ...]


def is_small(counts: Sequence[int]) -> bool:
    """Whether all states of the dynamic program can be visited: one step for each part of each state."""
    return prod((n + 1) * (n + 2) // 2 for n in counts) <= _MOST_STEPS


def cheapest(packer: Packer, counts: Sequence[int], inventory: Inventory) -> tuple[Solution | None, int] | None:
    """The cheapest plan that serves all pods, and its score, which is a lower bound.

    The plan is None where it would exceed stock or limits; the whole result is None where some pod fits nowhere.
    """
    groups = [group for group, count in enumerate(counts) if count]
    cheapest_by_pattern = _CheapestByPattern(packer, groups, inventory)
    whole = tuple(counts[group] for group in groups)
    best: dict[_State, tuple[int, _State]] = {(0,) * len(groups): (0, ())}
    # In this order, every state comes after the smaller ones that it builds on.
    for state in product(*(range(n + 1) for n in whole)):
        if state in best:
            continue
        found: tuple[int, _State] | None = None
        for part in _parts(state):
            offer = cheapest_by_pattern[part]
            rest = best.get(tuple(a - b for a, b in zip(state, part, strict=True)))
            if offer is not None and rest is not None and (found is None or offer[0] + rest[0] < found[0]):
                found = (offer[0] + rest[0], part)
        if found is not None:
            best[state] = found
    if whole not in best:
        return None
    return _plan(packer, best, whole, cheapest_by_pattern, inventory.copy()), best[whole][0]


def _parts(state: _State) -> Iterator[_State]:
    """Pods that one node may take: some of the first waiting pod group, so that no set of nodes is tried twice."""
    first = next(n for n, count in enumerate(state) if count)
    ranges = [range(n == first, count + 1) for n, count in enumerate(state)]
    return iter(product(*ranges))


class _CheapestByPattern(dict[_State, "tuple[int, int, PricedCandidate, Pattern] | None"]):
    """Cheapest candidate for each pattern, as (cost, number of the candidate group, candidate, pattern)."""

    def __init__(self, packer: Packer, groups: Sequence[int], inventory: Inventory) -> None:
        super().__init__()
        self._packer = packer
        self._groups = groups
        self._available = sorted(
            (priced.score, number, at)
            for number, candidate_group in enumerate(packer.problem.candidate_groups)
            for at, priced in enumerate(candidate_group.members)
            if inventory.can_buy(priced)
        )

    def __missing__(self, part: _State) -> "tuple[int, int, PricedCandidate, Pattern] | None":
        pattern = tuple((group, count) for group, count in zip(self._groups, part, strict=True) if count)
        best: tuple[int, int, PricedCandidate, Pattern] | None = None
        takes: dict[int, bool] = {}
        for score, number, at in self._available:
            if best is not None and score >= best[0]:
                break
            candidate_group = self._packer.problem.candidate_groups[number]
            if number not in takes:
                takes[number] = self._packer.takes(candidate_group, pattern)
            if takes[number]:
                cost = score + self._packer.preference_cost(candidate_group, pattern)
                if best is None or cost < best[0]:
                    best = (cost, number, candidate_group.members[at], pattern)
        self[part] = best
        return best


def _plan(
    packer: Packer,
    best: dict[_State, tuple[int, _State]],
    whole: _State,
    cheapest_by_pattern: _CheapestByPattern,
    inventory: Inventory,
) -> Solution | None:
    purchases: list[PatternPurchase] = []
    state = whole
    while any(state):
        part = best[state][1]
        offer = cheapest_by_pattern[part]
        assert offer is not None
        _, number, priced, pattern = offer
        if not inventory.can_buy(priced):
            return None
        inventory.buy(priced, 1)
        purchases.append(PatternPurchase(number, priced, pattern, 1))
        state = tuple(a - b for a, b in zip(state, part, strict=True))
    return Solution(tuple(purchases), (0,) * len(packer.problem.needs))
