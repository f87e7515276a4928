"""From the fractional solution of the linear program to whole nodes."""

from collections.abc import Sequence

import numpy as np

from forebay.planning.arrays import Floats, Ints, ProblemArrays
from forebay.planning.greedy import Pattern, PatternPurchase, Solution, greedy, move_to_cheaper
from forebay.planning.linear import Column, Master
from forebay.planning.pricing import Filler
from forebay.planning.work import Work

_WHOLE = 1e-9
#: Patterns used in nearly one node are rounded up.
_SURE = 0.8
#: Of the other patterns, one is rounded up for so many waiting pods.
_PODS_A_STEP = 100
_ROUNDS_A_STEP = 3
_COLUMNS_A_ROUND = 100


def dive(arrays: ProblemArrays, master: Master, filler: Filler, work: Work) -> Ints:
    """How often to use each pattern, by diving: fix what the linear program is nearly sure of, solve the rest again."""
    demand, most = arrays.demand, arrays.most
    remaining = demand.copy()
    times: Ints = np.zeros(len(master.columns), dtype=np.int64)
    while remaining.any() and work.left() > 0:
        for number, count in columns_to_fix(master.used, master.columns, remaining):
            times[number] += count
            remaining = np.maximum(remaining - master.columns[number].counts * count, 0)
        arrays.most = np.minimum(most, remaining)
        master.set_demand(remaining)
        duals = master.solve()
        for _ in range(_ROUNDS_A_STEP):
            if not master.add(filler.columns(duals, np.arange(len(arrays.candidate_groups)), work)[:_COLUMNS_A_ROUND]):
                break
            duals = master.solve()
        times = np.concatenate([times, np.zeros(len(master.columns) - len(times), dtype=np.int64)])
    arrays.most = most
    master.set_demand(demand)
    master.solve()
    return times


def columns_to_fix(used: Floats, columns: Sequence[Column], remaining: Ints) -> list[tuple[int, int]]:
    """(Column, how often) to fix now: at least one, and none that has no pods left to serve."""
    whole = np.floor(used + _WHOLE).astype(np.int64)
    parts = used - whole
    order = np.argsort(-parts, kind="stable")
    few = max(1, int(remaining.sum()) // _PODS_A_STEP)
    up = [int(n) for at, n in enumerate(order) if parts[n] > _SURE or (at < few and parts[n] > _WHOLE)]
    whole[up] += 1
    rest = remaining.copy()
    fixed: list[tuple[int, int]] = []
    for number in np.argsort(-used, kind="stable"):
        counts = columns[number].counts
        count = min(int(whole[number]), int(np.min(rest[counts > 0] // counts[counts > 0])))
        if not count and whole[number] and not fixed:
            count = 1
        if count > 0:
            fixed.append((int(number), count))
            rest = np.maximum(rest - counts * count, 0)
    return fixed


def build_solution(
    arrays: ProblemArrays, columns: Sequence[Column], times: Ints, served: Sequence[int], without: Sequence[int]
) -> Solution:
    """The solution in exact numbers, candidate by candidate; pods that these columns cannot serve go to `greedy`."""
    packer, inventory = arrays.packer, arrays.inventory.copy()
    remaining = list(served)
    purchases: list[PatternPurchase] = []
    use = [(int(times[n]), int(n)) for n in np.flatnonzero(times)]
    # Most used first: surplus nodes are then those of rarely used patterns.
    for count, n in sorted(use, key=lambda pair: (-pair[0], pair[1])):
        counts, candidate_group = columns[n].counts, arrays.candidate_groups[columns[n].candidate_group]
        full = tuple((arrays.groups[group], int(counts[group])) for group in np.flatnonzero(counts))
        left = count
        while left > 0:
            pattern: Pattern = tuple((group, min(a, remaining[group])) for group, a in full if remaining[group])
            priced = next(
                (
                    priced
                    for priced in packer.problem.candidate_groups[candidate_group].members
                    if inventory.can_buy(priced)
                ),
                None,
            )
            if not pattern or priced is None:
                break
            bought = min(left, inventory.can_buy(priced), *(remaining[group] // a for group, a in pattern))
            inventory.buy(priced, bought)
            for group, a in pattern:
                remaining[group] -= a * bought
            purchases.append(PatternPurchase(candidate_group, priced, pattern, bought))
            left -= bought
    rest = greedy(packer, remaining, inventory)
    whole = Solution((*purchases, *rest.purchases), tuple(a + b for a, b in zip(rest.left, without, strict=True)))
    return move_to_cheaper(packer, whole, inventory)
