"""Solves one packing problem: the best of several greedy solutions, refined where that may pay, with its bound."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from forebay.planning.candidate_groups import LARGEST_TIE, Inventory, owned
from forebay.planning.components import Component, SplitProblem
from forebay.planning.exhaustive import cheapest, is_small
from forebay.planning.greedy import Packer, Pattern, PatternPurchase, Solution, greedy
from forebay.planning.pod_groups import PodGroup
from forebay.planning.work import Work

#: With more pod groups than this, the linear program cannot be solved in time.
_MOST_POD_GROUPS = 600
#: Share of the time that stays for cost and bound after the pods to serve are chosen.
_SHARE_TO_REFINE = 0.35
#: Seconds of work for a greedy solution: for itself, for each pod group in each candidate group and in each purchase.
_GREEDY = 2e-4
_GREEDY_BY_PAIR = 2e-6
_GREEDY_BY_PURCHASE = 1.5e-6
#: With more owned machines than this, `_without_unneeded` is skipped.
_MOST_NODES = 100


class SearchEffort(NamedTuple):
    """Whether to refine the greedy solution, and for how long."""

    refine: bool
    seed: int
    work: Work
    #: Whether the linear program may choose which pods to serve where not all can be.
    choose: bool = True


class Solved(NamedTuple):
    solution: Solution
    #: Lower bound on the cost of the pods served, in units of `UsdPerHour`.
    bound: int


def solve(
    problem: SplitProblem,
    groups: Sequence[PodGroup],
    counts: Sequence[int],
    inventory: Inventory,
    effort: SearchEffort,
) -> tuple[Packer, Solved]:
    """Packer and solution for these pods. Takes the purchases of the solution from `inventory`."""
    packer = Packer(problem.whole)
    solution, bound = smallest_first(packer, counts, inventory.copy()), 0
    if solution is None:
        if len(problem.parts) == 1:
            first = _best(packer, groups, counts, inventory, effort)
            solution, bound = _search(packer, groups, counts, inventory, effort, first=first)
        else:
            solution, bound = _each_alone(problem.parts, groups, counts, inventory, effort)
    for purchase in solution.purchases:
        inventory.buy(purchase.priced, purchase.times)
    return packer, Solved(solution, min(bound, packer.expected(solution)))


def _each_alone(
    parts: Sequence[Component],
    groups: Sequence[PodGroup],
    counts: Sequence[int],
    inventory: Inventory,
    effort: SearchEffort,
) -> tuple[Solution, int]:
    """Solution of the whole problem from those of its parts; those that may gain most get most of the time."""
    waiting: list[tuple[int, int, Solution]] = []
    packers = [Packer(part.problem) for part in parts]
    for at, (part, packer) in enumerate(zip(parts, packers, strict=True)):
        mine = [counts[group] for group in part.groups]
        if any(mine):
            first = _best(packer, [groups[group] for group in part.groups], mine, inventory, effort)
            gain = packer.expected(first) - resource_bound(packer, served_pods(first))
            waiting.append((gain, at, first))
    waiting.sort(key=lambda each: (-each[0], each[1]))
    left, bound = list(counts), 0
    purchases: list[PatternPurchase] = []
    rest = sum(gain for gain, _, _ in waiting)
    for gain, at, first in waiting:
        part, packer = parts[at], packers[at]
        share = effort._replace(work=effort.work.part(gain / max(rest, 1)))
        rest -= gain
        of_part = [groups[group] for group in part.groups]
        here = [counts[group] for group in part.groups]
        solution, at_least = _search(packer, of_part, here, inventory, share, first=first)
        bound += min(at_least, packer.expected(solution))
        for group, without in zip(part.groups, solution.left, strict=True):
            left[group] = without
        purchases += (
            each._replace(
                candidate_group=part.candidate_groups[each.candidate_group],
                pattern=tuple((part.groups[group], count) for group, count in each.pattern),
            )
            for each in solution.purchases
        )
    return Solution(tuple(purchases), tuple(left)), bound


def _search(
    packer: Packer,
    groups: Sequence[PodGroup],
    counts: Sequence[int],
    inventory: Inventory,
    effort: SearchEffort,
    *,
    first: Solution,
) -> tuple[Solution, int]:
    solution = first
    if (
        effort.refine
        and effort.choose
        and effort.work.left() > 0
        and _is_scarce(packer, solution, inventory)
        and len(groups) <= _MOST_POD_GROUPS
    ):
        # The linear program chooses which pods to serve, in a part of the time.
        from forebay.planning.refine import Refinement  # noqa: PLC0415

        part = effort.work.part(1 - _SHARE_TO_REFINE)
        priorities = [group.priority for group in groups]
        choosing = Refinement(packer, counts, inventory, solution, part, seed=effort.seed, priorities=priorities)
        solution = choosing.run(lambda each: solution_rank(packer, groups, each))
    bound = resource_bound(packer, served_pods(solution))
    if not effort.refine or effort.work.left() <= 0 or bound >= packer.expected(solution):
        return solution, bound
    served = [count - left for count, left in zip(counts, solution.left, strict=True)]
    if is_small(served):
        found = cheapest(packer, served, inventory)
        if found is not None:
            bound = max(bound, found[1] - LARGEST_TIE * sum(served))
            if found[0] is not None:
                best = found[0]._replace(left=solution.left)
                return min(solution, best, key=lambda each: solution_rank(packer, groups, each)), bound
    if len(served) - served.count(0) <= _MOST_POD_GROUPS:
        # numpy and HiGHS take longer to load than small demand takes to plan.
        from forebay.planning.refine import Refinement  # noqa: PLC0415

        refinement = Refinement(packer, counts, inventory, solution, effort.work, seed=effort.seed)
        solution = refinement.run(lambda each: solution_rank(packer, groups, each))
        bound = max(bound, refinement.bound)
    return solution, bound


def _is_scarce(packer: Packer, solution: Solution, inventory: Inventory) -> bool:
    """Whether a pod is left over that some candidate fits of which any could be bought from `inventory`."""
    waiting = {group for group, left in enumerate(solution.left) if left}
    return bool(waiting) and any(
        not waiting.isdisjoint(candidate_group.takes)
        and any(inventory.can_buy(priced) for priced in candidate_group.members)
        for candidate_group in packer.problem.candidate_groups
    )


def _best(
    packer: Packer, groups: Sequence[PodGroup], counts: Sequence[int], inventory: Inventory, effort: SearchEffort
) -> Solution:
    wanted = sum(1 for count in counts if count)
    each = _GREEDY + _GREEDY_BY_PAIR * wanted * len(packer.problem.candidate_groups)
    effort.work.spend(each)
    solution = greedy(packer, counts, inventory.copy())
    buying = _GREEDY_BY_PURCHASE * wanted * len(solution.purchases)
    effort.work.spend(buying)
    if effort.work.left() <= 0 or not _is_scarce(packer, solution, inventory):
        return solution
    # Something is scarce. Try the largest nodes, in case nodes are; and serve pods of higher priority first.
    effort.work.spend(2 * (each + buying))
    others = (
        greedy(packer, counts, inventory.copy(), lambda _score: 1),
        _by_priority(packer, groups, counts, inventory.copy()),
    )
    return min(solution, *others, key=lambda each: solution_rank(packer, groups, each))


def _by_priority(packer: Packer, groups: Sequence[PodGroup], counts: Sequence[int], inventory: Inventory) -> Solution:
    left = list(counts)
    purchases: list[PatternPurchase] = []
    for priority in sorted({group.priority for group in groups}, reverse=True):
        part = greedy(
            packer, [n if k.priority == priority else 0 for k, n in zip(groups, left, strict=True)], inventory
        )
        purchases += part.purchases
        left = [part.left[n] if group.priority == priority else left[n] for n, group in enumerate(groups)]
    return Solution(tuple(purchases), tuple(left))


def solution_rank(packer: Packer, groups: Sequence[PodGroup], solution: Solution) -> tuple[tuple[int, ...], int]:
    """Sort key, least is best: fewer pods left out (highest priority first), then the lower score."""
    left: defaultdict[int, int] = defaultdict(int)
    for group, count in zip(groups, solution.left, strict=True):
        left[group.priority] += count
    return (tuple(left[priority] for priority in sorted(left, reverse=True)), packer.score(solution))


def smallest_first(packer: Packer, counts: Sequence[int], inventory: Inventory) -> Solution | None:
    """Powers on free owned machines from the smallest up; None where they cannot serve all pods."""
    candidate_groups = packer.problem.candidate_groups
    free = sorted(
        (priced.score, number, at)
        for number, candidate_group in enumerate(candidate_groups)
        for at, priced in enumerate(candidate_group.members)
        if not priced.expected and owned(priced.candidate)
    )
    remaining = list(counts)
    alike = dict.fromkeys((group for group, count in enumerate(counts) if count), 1.0)
    purchases = []
    for _, number, at in free:
        candidate_group = candidate_groups[number]
        priced = candidate_group.members[at]
        order = packer.orders(number, alike)[0]
        while (most := inventory.can_buy(priced)) and (pattern := packer.fill(candidate_group, remaining, order)):
            if packer.preference_cost(candidate_group, pattern):
                return None
            times = min(most, *(remaining[group] // count for group, count in pattern))
            inventory.buy(priced, times)
            for group, count in pattern:
                remaining[group] -= count * times
            purchases.append(PatternPurchase(number, priced, pattern, times))
    return None if any(remaining) else Solution(_without_unneeded(packer, purchases), tuple(remaining))


def _without_unneeded(packer: Packer, purchases: Sequence[PatternPurchase]) -> tuple[PatternPurchase, ...]:
    """Purchases without those small nodes whose pods also fit on the larger nodes that were added after them."""
    nodes = [each._replace(times=1) for each in purchases for _ in range(each.times)]
    if not 1 < len(nodes) <= _MOST_NODES:
        return tuple(purchases)
    kept: list[PatternPurchase] = []
    for at, node in enumerate(nodes):
        later = nodes[at + 1 :]
        if _move(packer, node.pattern, later):
            nodes[at + 1 :] = later
        else:
            kept.append(node)
    return tuple(kept)


def _move(packer: Packer, pattern: Pattern, into: list[PatternPurchase]) -> bool:
    """Moves all pods of `pattern` to the nodes `into`; returns False and changes nothing where they do not all fit."""
    moved = list(into)
    for group, count in pattern:
        for _ in range(count):
            for at, node in enumerate(moved):
                fuller = dict(node.pattern)
                fuller[group] = fuller.get(group, 0) + 1
                more = tuple(sorted(fuller.items()))
                if packer.takes(packer.problem.candidate_groups[node.candidate_group], more):
                    moved[at] = node._replace(pattern=more)
                    break
            else:
                return False
    into[:] = moved
    return True


def served_pods(solution: Solution) -> dict[int, int]:
    """Number of pods served, by pod group."""
    counts: defaultdict[int, int] = defaultdict(int)
    for purchase in solution.purchases:
        for group, count in purchase.pattern:
            counts[group] += count * purchase.times
    return counts


def resource_bound(packer: Packer, counts: Mapping[int, int]) -> int:
    """Lower bound on the cost of so many pods of each group, in units: the cheapest price of the scarcest resource."""
    candidate_groups = packer.problem.candidate_groups
    best = 0
    for d in range(len(packer.problem.resources)):
        total = sum(packer.problem.needs[group][d] * count for group, count in counts.items())
        if total:
            least = min(
                -(-total * candidate_group.members[0].score // candidate_group.capacity[d])
                for candidate_group in candidate_groups
                if candidate_group.capacity[d] > 0
            )
            best = max(best, least)
    for group in counts:
        best = max(
            best,
            min(
                candidate_group.members[0].score for candidate_group in candidate_groups if candidate_group.most[group]
            ),
        )
    return max(best - LARGEST_TIE * sum(counts.values()), 0)
