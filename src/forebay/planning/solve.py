"""One market, one demand: the best of several quick answers, refined where that may pay, with its bound."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from forebay.planning.greedy import Buying, Packer, Pattern, Solution, greedy
from forebay.planning.market import LARGEST_TIE, Inventory, Market, owned
from forebay.planning.pod_groups import PodGroup
from forebay.planning.small import cheapest, is_small

#: More kinds than this are more than a linear program can deal with in the time.
_MOST_KINDS = 600
#: Of more owned machines at once none is looked at again.
_MOST_NODES = 100


class TimeLimit(NamedTuple):
    """How long to go on."""

    refine: bool
    seed: int
    #: Seconds that are left.
    left: Callable[[], float]


class Solved(NamedTuple):
    solution: Solution
    #: In units; of what the pods served cost at least.
    bound: int


def solve(
    market: Market, kinds: Sequence[PodGroup], counts: Sequence[int], shop: Inventory, thinking: TimeLimit
) -> tuple[Packer, Solved]:
    """Buys from `shop`."""
    packer = Packer(market)
    solution, bound = smallest_first(packer, counts, shop.copy()), 0
    if solution is None:
        solution, bound = _thought_out(packer, kinds, counts, shop, thinking)
    for buying in solution.buyings:
        shop.buy(buying.item, buying.times)
    return packer, Solved(solution, min(bound, packer.expected(solution)))


def _thought_out(
    packer: Packer, kinds: Sequence[PodGroup], counts: Sequence[int], shop: Inventory, thinking: TimeLimit
) -> tuple[Solution, int]:
    solution = _best(packer, kinds, counts, shop)
    bound = fluid_bound(packer, solution)
    if not thinking.refine or bound >= packer.expected(solution):
        return solution, bound
    served = [count - left for count, left in zip(counts, solution.left, strict=True)]
    if is_small(served):
        found = cheapest(packer, served, shop)
        if found is not None:
            bound = max(bound, found[1] - LARGEST_TIE * sum(served))
            if found[0] is not None:
                best = found[0]._replace(left=solution.left)
                return min(solution, best, key=lambda each: solution_rank(packer, kinds, each)), bound
    if len(served) - served.count(0) <= _MOST_KINDS:
        # numpy and HiGHS take longer to load than small demand takes to plan.
        from forebay.planning.refine import Refinement  # noqa: PLC0415

        refinement = Refinement(packer, counts, shop, solution, seed=thinking.seed)
        solution = refinement.run(lambda each: solution_rank(packer, kinds, each), thinking.left)
        bound = max(bound, refinement.bound)
    return solution, bound


def _best(packer: Packer, kinds: Sequence[PodGroup], counts: Sequence[int], shop: Inventory) -> Solution:
    solution = greedy(packer, counts, shop.copy())
    if not any(left and any(shelf.most[n] for shelf in packer.market.shelves) for n, left in enumerate(solution.left)):
        return solution
    # Something is scarce. Nodes may be, so large ones are tried; and those with more priority must not stand back.
    others = (
        greedy(packer, counts, shop.copy(), lambda _score: 1),
        _by_priority(packer, kinds, counts, shop.copy()),
    )
    return min(solution, *others, key=lambda each: solution_rank(packer, kinds, each))


def _by_priority(packer: Packer, kinds: Sequence[PodGroup], counts: Sequence[int], shop: Inventory) -> Solution:
    left = list(counts)
    buyings: list[Buying] = []
    for priority in sorted({kind.priority for kind in kinds}, reverse=True):
        part = greedy(packer, [n if k.priority == priority else 0 for k, n in zip(kinds, left, strict=True)], shop)
        buyings += part.buyings
        left = [part.left[n] if kind.priority == priority else left[n] for n, kind in enumerate(kinds)]
    return Solution(tuple(buyings), tuple(left))


def solution_rank(packer: Packer, kinds: Sequence[PodGroup], solution: Solution) -> tuple[tuple[int, ...], int]:
    """Less is better: fewer pods left out, those of high priority first; then the score."""
    left: defaultdict[int, int] = defaultdict(int)
    for kind, count in zip(kinds, solution.left, strict=True):
        left[kind.priority] += count
    return (tuple(left[priority] for priority in sorted(left, reverse=True)), packer.score(solution))


def smallest_first(packer: Packer, counts: Sequence[int], shop: Inventory) -> Solution | None:
    """Where owned machines that cost nothing can serve everything, they are switched on from the smallest up."""
    shelves = packer.market.shelves
    free = sorted(
        (item.score, number, at)
        for number, shelf in enumerate(shelves)
        for at, item in enumerate(shelf.items)
        if not item.expected and owned(item.candidate)
    )
    remaining = list(counts)
    alike = dict.fromkeys((kind for kind, count in enumerate(counts) if count), 1.0)
    buyings = []
    for _, number, at in free:
        shelf = shelves[number]
        item = shelf.items[at]
        order = packer.orders(number, alike)[0]
        while (most := shop.can_buy(item)) and (pattern := packer.fill(shelf, remaining, order)):
            if packer.disliked(shelf, pattern):
                return None
            times = min(most, *(remaining[kind] // count for kind, count in pattern))
            shop.buy(item, times)
            for kind, count in pattern:
                remaining[kind] -= count * times
            buyings.append(Buying(number, item, pattern, times))
    return None if any(remaining) else Solution(_without_needless(packer, buyings), tuple(remaining))


def _without_needless(packer: Packer, buyings: Sequence[Buying]) -> tuple[Buying, ...]:
    """The small ones came first; a larger one that was needed after them may have room for their pods too."""
    nodes = [each._replace(times=1) for each in buyings for _ in range(each.times)]
    if not 1 < len(nodes) <= _MOST_NODES:
        return tuple(buyings)
    kept: list[Buying] = []
    for at, node in enumerate(nodes):
        later = nodes[at + 1 :]
        if _move(packer, node.pattern, later):
            nodes[at + 1 :] = later
        else:
            kept.append(node)
    return tuple(kept)


def _move(packer: Packer, pattern: Pattern, into: list[Buying]) -> bool:
    """All of these pods, or none."""
    moved = list(into)
    for kind, count in pattern:
        for _ in range(count):
            for at, node in enumerate(moved):
                fuller = dict(node.pattern)
                fuller[kind] = fuller.get(kind, 0) + 1
                more = tuple(sorted(fuller.items()))
                if packer.takes(packer.market.shelves[node.shelf], more):
                    moved[at] = node._replace(pattern=more)
                    break
            else:
                return False
    into[:] = moved
    return True


def served(solution: Solution) -> dict[int, int]:
    """By kind."""
    counts: defaultdict[int, int] = defaultdict(int)
    for buying in solution.buyings:
        for kind, count in buying.pattern:
            counts[kind] += count * buying.times
    return counts


def fluid_bound(packer: Packer, solution: Solution) -> int:
    """What the pods served cost at least, in units: one resource at a time, at its cheapest price anywhere."""
    counts = served(solution)
    shelves = packer.market.shelves
    best = 0
    for d in range(len(packer.market.resources)):
        total = sum(packer.market.needs[kind][d] * count for kind, count in counts.items())
        prices = [(shelf.items[0].score, shelf.capacity[d]) for shelf in shelves if shelf.capacity[d] > 0]
        if total and prices:
            best = max(best, min(-(-total * score // amount) for score, amount in prices))
    for kind in counts:
        best = max(best, min(shelf.items[0].score for shelf in shelves if shelf.most[kind]))
    return max(best - LARGEST_TIE * sum(counts.values()), 0)
