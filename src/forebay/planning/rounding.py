"""From parts of nodes to whole ones."""

from collections.abc import Callable, Sequence

import numpy as np

from forebay.planning.arrays import Ints, Numbers
from forebay.planning.greedy import Buying, Pattern, Solution, cheaper, greedy
from forebay.planning.linear import Column, Master
from forebay.planning.pricing import Filler

#: Seconds that are left.
Clock = Callable[[], float]

_WHOLE = 1e-9
#: Fillings used in nearly one node are used in one.
_SURE = 0.8
#: And of the others, one for so many pods that wait.
_PODS_A_STEP = 100
_ROUNDS_A_STEP = 3
_COLUMNS_A_ROUND = 100


def dive(numbers: Numbers, master: Master, filler: Filler, left: Clock) -> Ints:
    """How often to use each filling. Takes what the linear program is sure of and asks it again about the rest."""
    demand, most = numbers.demand, numbers.most
    remaining = demand.copy()
    times: Ints = np.zeros(len(master.columns), dtype=np.int64)
    while remaining.any() and left() > 0:
        for number, count in _certain(master, remaining):
            times[number] += count
            remaining = np.maximum(remaining - master.columns[number].counts * count, 0)
        numbers.most = np.minimum(most, remaining)
        master.ask(remaining)
        duals = master.solve()
        for _ in range(_ROUNDS_A_STEP):
            if not master.add(filler.columns(duals, np.arange(len(numbers.shelves)))[:_COLUMNS_A_ROUND]):
                break
            duals = master.solve()
        times = np.concatenate([times, np.zeros(len(master.columns) - len(times), dtype=np.int64)])
    numbers.most = most
    master.ask(demand)
    master.solve()
    return times


def _certain(master: Master, remaining: Ints) -> list[tuple[int, int]]:
    """Fillings to settle on, how often: at least one, and none of which a pod would have no use."""
    used = master.used
    whole = np.floor(used + _WHOLE).astype(np.int64)
    parts = used - whole
    order = np.argsort(-parts, kind="stable")
    few = max(1, int(remaining.sum()) // _PODS_A_STEP)
    up = [int(n) for at, n in enumerate(order) if parts[n] > _SURE or (at < few and parts[n] > _WHOLE)]
    whole[up] += 1
    rest = remaining.copy()
    settled: list[tuple[int, int]] = []
    for number in np.argsort(-used, kind="stable"):
        counts = master.columns[number].counts
        count = min(int(whole[number]), int(np.min(rest[counts > 0] // counts[counts > 0])))
        if not count and whole[number] and not settled:
            count = 1
        if count > 0:
            settled.append((int(number), count))
            rest = np.maximum(rest - counts * count, 0)
    return settled


def realise(
    numbers: Numbers, columns: Sequence[Column], times: Ints, served: Sequence[int], without: Sequence[int]
) -> Solution:
    """Bought item by item and pod by pod, in exact numbers; what does not work out is left to the greedy."""
    packer, shop = numbers.packer, numbers.shop.copy()
    remaining = list(served)
    buyings: list[Buying] = []
    use = [(int(times[n]), int(n)) for n in np.flatnonzero(times)]
    # The most used first: what is too much is then taken from the others.
    for count, n in sorted(use, key=lambda pair: (-pair[0], pair[1])):
        counts, shelf = columns[n].counts, numbers.shelves[columns[n].shelf]
        full = tuple((numbers.groups[kind], int(counts[kind])) for kind in np.flatnonzero(counts))
        left = count
        while left > 0:
            pattern: Pattern = tuple((kind, min(a, remaining[kind])) for kind, a in full if remaining[kind])
            item = next((item for item in packer.market.shelves[shelf].items if shop.can_buy(item)), None)
            if not pattern or item is None:
                break
            bought = min(left, shop.can_buy(item), *(remaining[kind] // a for kind, a in pattern))
            shop.buy(item, bought)
            for kind, a in pattern:
                remaining[kind] -= a * bought
            buyings.append(Buying(shelf, item, pattern, bought))
            left -= bought
    rest = greedy(packer, remaining, shop)
    whole = Solution((*buyings, *rest.buyings), tuple(a + b for a, b in zip(rest.left, without, strict=True)))
    return cheaper(packer, whole, shop)
