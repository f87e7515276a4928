"""What pods cost at one place: a greedy packing of that place alone, remembered."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from forebay.planning.candidate_groups import Inventory, PricedCandidate, packing_problem
from forebay.planning.greedy import Packer, PatternPurchase, greedy
from forebay.planning.place_choices import Place
from forebay.planning.plan import Cap, Preferences
from forebay.planning.pod_groups import PodGroup, PodGroups
from forebay.planning.work import Work

#: Counts for more than any sum of prices: one pod of the lowest priority that is left over.
_LEFT: Final = 1 << 140
#: Fewer than 2 to this power of pods are planned at once.
_MANY: Final = 30

#: Seconds of work: for a question, for one packing, for each pair of pod group and candidate group in it, and to
#: prepare such a pair.
_ASKED: Final = 6e-6
_GREEDY: Final = 6e-5
_PER_GROUP: Final = 3e-6
_PER_PAIR: Final = 5e-6

#: Pods as (kind, how many), sorted.
Load = tuple[tuple[int, int], ...]


def load_of(counts: Mapping[int, int]) -> Load:
    return tuple(sorted((kind, count) for kind, count in counts.items() if count))


class _Packing:
    """Pods packed at one place."""

    __slots__ = ("cost", "inventory", "more", "nodes")

    def __init__(self, inventory: Inventory) -> None:
        self.cost = 0
        #: Stock and limits that are left.
        self.inventory = inventory
        #: Nodes, with what is free on them.
        self.nodes: list[tuple[Packer, PatternPurchase, list[int]]] = []
        #: What one more pod of a kind adds.
        self.more: dict[int, int] = {}


class PlaceCosts:
    """Costs at the places of one topology key."""

    def __init__(
        self,
        demand: PodGroups,
        priced_candidates: Sequence[PricedCandidate],
        key: str,
        *,
        caps: Sequence[Cap],
        preferences: Preferences,
        work: Work,
    ) -> None:
        kinds: dict[int, PodGroup] = {}
        for group in demand.groups:
            kinds.setdefault(group.kind, group)
        self._number_of = {kind: number for number, kind in enumerate(kinds)}
        groups = tuple(msgspec.structs.replace(group, pin=None) for group in kinds.values())
        self._demand = msgspec.structs.replace(demand, groups=groups)
        levels = {priority: n for n, priority in enumerate(sorted({group.priority for group in groups}))}
        self._penalty = [_LEFT << (_MANY * levels[group.priority]) for group in groups]
        self._caps, self._preferences = caps, preferences
        self._candidates: defaultdict[Place, list[PricedCandidate]] = defaultdict(list)
        for priced in priced_candidates:
            self._candidates[priced.candidate.node.labels.get(key)].append(priced)
        self._work = work
        self._packers: dict[Place, tuple[list[Packer], Inventory]] = {}
        self._known: dict[tuple[Place, Load], _Packing] = {}
        self._known_alone: dict[tuple[Place, int], tuple[int, float]] = {}

    def __call__(self, place: Place, load: Load) -> int:
        """Score of a greedy packing, with a penalty for each pod that is left over."""
        return self._packing(place, load).cost

    def one_more(self, place: Place, load: Load, kind: int) -> int:
        """About what one more pod of the kind adds: nothing where a node has room for it, else the cheapest node."""
        self._work.spend(_ASKED)
        packing = self._packing(place, load)
        number = self._number_of[kind]
        if kind not in packing.more:
            packing.more[kind] = self._one_more(place, packing, number)
        return packing.more[kind]

    def _one_more(self, place: Place, packing: "_Packing", number: int) -> int:
        for packer, purchase, free in packing.nodes:
            candidate_group = packer.problem.candidate_groups[purchase.candidate_group]
            most = candidate_group.most[number]
            if (
                most
                and all(free[d] >= amount for d, amount in packer.needs[number])
                and sum(count for group, count in purchase.pattern if group == number) < most
            ):
                return candidate_group.preference_cost[number]
        found = [
            priced.score + candidate_group.preference_cost[number]
            for packer in self._at(place)[0]
            for candidate_group in packer.problem.candidate_groups
            if candidate_group.most[number]
            for priced in candidate_group.members
            if packing.inventory.can_buy(priced)
        ]
        return min(found, default=self._penalty[number])

    def _packing(self, place: Place, load: Load) -> "_Packing":
        self._work.spend(_ASKED)
        known = self._known.get((place, load))
        if known is not None:
            return known
        packers, inventory = self._at(place)
        left: Sequence[int] = self._counts(load)
        made = self._known[place, load] = _Packing(inventory.copy())
        for packer in packers:
            if not any(left):
                break
            self._work.spend(_GREEDY + _PER_GROUP * len(load) * len(packer.problem.candidate_groups))
            solution = greedy(packer, left, made.inventory)
            made.cost += packer.score(solution)
            made.nodes += [(packer, each, packer.free(each)) for each in solution.purchases]
            left = solution.left
        made.cost += sum(penalty * count for penalty, count in zip(self._penalty, left, strict=True))
        return made

    def unserved(self, load: Load) -> int:
        """Cost of pods that are not served at all."""
        return sum(self._penalty[self._number_of[kind]] * count for kind, count in load)

    def leaves(self, cost: int) -> bool:
        """Whether a pod is left over at this cost."""
        return cost >= _LEFT

    def estimate(self, place: Place, load: Load) -> tuple[int, float]:
        """(Pods that cannot be served, about the cost of the others), from each kind of pod by itself."""
        left, cost = 0, 0.0
        for kind, count in load:
            room, share = self._alone(place, kind)
            left += max(count - room, 0)
            cost += min(count, room) * share
        return left, cost

    def _alone(self, place: Place, kind: int) -> tuple[int, float]:
        """How many pods of the kind the place has room for, and the least share of a node's score that one takes."""
        if (place, kind) not in self._known_alone:
            packers, inventory = self._at(place)
            room, share = 0, float(_LEFT)
            number = self._number_of[kind]
            for candidate_group in (each for packer in packers for each in packer.problem.candidate_groups):
                if most := candidate_group.most[number]:
                    share = min(share, candidate_group.members[0].score / most)
                    room += most * sum(inventory.can_buy(priced) for priced in candidate_group.members)
            self._known_alone[place, kind] = (room, share if room else 0.0)
        return self._known_alone[place, kind]

    def _at(self, place: Place) -> tuple[list[Packer], Inventory]:
        if place not in self._packers:
            here = self._candidates[place]
            self._work.spend(_PER_PAIR * len(here) * len(self._number_of))
            weights = sorted({priced.candidate.weight for priced in here}, reverse=True)
            by_weight = [[priced for priced in here if priced.candidate.weight == weight] for weight in weights]
            packers = [Packer(packing_problem(self._demand, some, self._preferences)) for some in by_weight]
            self._packers[place] = (packers, Inventory(here, self._caps))
        return self._packers[place]

    def _counts(self, load: Load) -> list[int]:
        counts = [0] * len(self._number_of)
        for kind, count in load:
            counts[self._number_of[kind]] = count
        return counts
