"""What can be bought: candidates that are alike to all pods at hand stand on one shelf, cheapest first.

A shop also knows what is left of stock and limits while a plan is being made.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from forebay.model.fit import barred, preference
from forebay.model.nodes import Node
from forebay.model.quantities import UsdPerHour
from forebay.model.requirements import Effect, tolerates
from forebay.model.sources import AMPLE
from forebay.model.workloads import PodShape
from forebay.planning.plan import Candidate, Cap, Preferences
from forebay.planning.pod_groups import PodGroup, PodGroups

_MICROSECOND: Final = timedelta(microseconds=1)
_HOUR: Final = timedelta(hours=1) // _MICROSECOND
_MILLION: Final = 10**6

#: Between equals: fewer nodes, and known providers.
_PER_NODE: Final = UsdPerHour("0.000001").units
_PER_UNKNOWN_PROVIDER: Final = UsdPerHour("0.000001").units
#: Between owned machines that cost nothing: fewer GPUs, and rather two small ones than one as large as both.
_PER_GPU: Final = UsdPerHour("0.000001").units
_PER_GPU_SQUARED: Final = UsdPerHour("0.000000001").units
#: More than any tie breaker of one node: what the bound must allow for, since costs are told without them.
LARGEST_TIE: Final = UsdPerHour("0.00002").units

#: How many nobody will ever want of one offer.
NO_END: Final = 2**31
#: A preferred term and a soft taint count in the scheduler's points, of which one term has at most so many.
_MOST_POINTS: Final = 100

StockKey = tuple[object, ...]
#: By kind: may it go there; what does it count for there in addition.
_Opinion = tuple[tuple[bool, ...], tuple[int, ...]]


class Item(msgspec.Struct, frozen=True, gc=False):
    """One candidate with its price in whole units of `UsdPerHour`."""

    candidate: Candidate
    #: Expected dollars an hour.
    expected: int
    #: The same and the tie breakers: what items are ordered by.
    score: int
    stock_key: StockKey
    #: Numbers of the caps that count it.
    caps: tuple[int, ...]


class CandidateGroup(msgspec.Struct, frozen=True, gc=False):
    """Items that no pod at hand can tell apart."""

    capacity: tuple[int, ...]
    #: Of each kind: how many would fit if nothing else were there; 0 for those that may not go there.
    most: tuple[int, ...]
    #: What one pod of each kind counts for in addition, there: unmet preferences.
    dislike: tuple[int, ...]
    #: Cheapest first.
    items: tuple[Item, ...]


class Market(msgspec.Struct, frozen=True, gc=False):
    resources: tuple[str, ...]
    #: By kind.
    needs: tuple[tuple[int, ...], ...]
    shelves: tuple[CandidateGroup, ...]


def expected_units(candidate: Candidate, preferences: Preferences) -> int:
    """Expected dollars an hour: what is billed for the expected run, and the work that reclaims will cost."""
    offer = candidate.offer
    units = candidate.effective_price.units
    if offer.billing.minimum or offer.billing.increment > preferences.expected_run:
        run = preferences.expected_run // _MICROSECOND
        step = max(offer.billing.increment // _MICROSECOND, 1)
        billed = max(offer.billing.minimum // _MICROSECOND, -(-run // step) * step)
        units = -(-units * billed // run)
    if offer.reclaims_per_million_hours > 0:
        redo = preferences.redo // _MICROSECOND
        units += -(-units * offer.reclaims_per_million_hours * redo // (_MILLION * _HOUR))
    return units


def score_units(candidate: Candidate, expected: int, preferences: Preferences) -> int:
    offer = candidate.offer
    if owned(candidate):
        gpus = min(max(offer.gpu_count, 1), 16)
        return expected + gpus * _PER_GPU + gpus * gpus * _PER_GPU_SQUARED
    known = preferences.known_providers
    new = known is not None and offer.provider not in known
    return expected + _PER_NODE + (_PER_UNKNOWN_PROVIDER if new else 0)


def owned(candidate: Candidate) -> bool:
    return candidate.offer.node_name is not None or not candidate.offer.price


def order(candidate: Candidate) -> tuple[object, ...]:
    """Tells any two candidates apart, so that the order in which they were given never matters."""
    offer = candidate.offer
    return (
        offer.gpu_count,
        *offer.key,
        *candidate.source,
        candidate.pool.namespace,
        candidate.pool.name,
        offer.node_name or "",
        candidate.effective_price.units,
    )


def stock_key(candidate: Candidate) -> StockKey:
    """Pools that share a source share its stock."""
    return (*candidate.source, *candidate.offer.key, candidate.offer.node_name)


def items(candidates: Iterable[Candidate], caps: Sequence[Cap], preferences: Preferences) -> list[Item]:
    """Cheapest first."""
    caps_of = {pool: tuple(n for n, cap in enumerate(caps) if pool in cap.pools) for cap in caps for pool in cap.pools}
    made = []
    for candidate in candidates:
        expected = expected_units(candidate, preferences)
        score = score_units(candidate, expected, preferences)
        made.append(Item(candidate, expected, score, stock_key(candidate), caps_of.get(candidate.pool, ())))
    made.sort(key=lambda item: (item.score, order(item.candidate)))
    return made


class Eligibility:
    """What shapes say to nodes, asked once per look of a node: of its labels only those that some shape mentions."""

    def __init__(self, shapes: Iterable[PodShape]) -> None:
        keys: set[str] = set()
        self._by_name = False
        for shape in shapes:
            keys.update(shape.node_selector)
            terms = [*(shape.node_affinity or ()), *(preferred.term for preferred in shape.preferred_node_affinity)]
            keys.update(requirement.key for term in terms for requirement in term.match_expressions)
            self._by_name = self._by_name or any(term.match_fields for term in terms)
        self._keys = tuple(sorted(keys))

    def look(self, node: Node) -> tuple[object, ...]:
        labels = node.labels
        return (
            tuple(labels.get(key) for key in self._keys) if self._keys else (),
            node.taints,
            node.unschedulable,
            node.name if self._by_name else "",
        )


def admits(kind: PodGroup, candidate: Candidate) -> bool:
    """Whatever their sizes."""
    if candidate.namespaces is not None and kind.namespace not in candidate.namespaces:
        return False
    if kind.pin is not None and candidate.node.labels.get(kind.pin.key) != kind.pin.value:
        return False
    return barred(kind.shape, candidate.node) is None


def dislike(shape: PodShape, node: Node, point: int) -> int:
    """What unmet preferences of a pod there count for, in units."""
    points = sum(preferred.weight for preferred in shape.preferred_node_affinity if preferred.weight > 0)
    if points:
        points -= preference(shape, node)
    for taint in node.taints:
        if taint.effect == Effect.PREFER_NO_SCHEDULE and not tolerates(shape.tolerations, taint):
            points += _MOST_POINTS
    return points * point


def market(demand: PodGroups, goods: Sequence[Item], preferences: Preferences) -> Market:
    kinds = demand.groups
    resources = tuple(sorted({name for kind in kinds for name in kind.needs}))
    needs = tuple(tuple(kind.needs.get(name, 0) for name in resources) for kind in kinds)
    tastes = Eligibility(kind.shape for kind in kinds)
    pins = tuple(sorted({kind.pin.key for kind in kinds if kind.pin is not None}))
    point = preferences.per_preference_point.units
    opinions: dict[tuple[object, ...], _Opinion] = {}
    together: defaultdict[tuple[tuple[int, ...], _Opinion, tuple[int, ...]], list[Item]] = defaultdict(list)
    for item in goods:
        candidate = item.candidate
        node = candidate.node
        look = (tastes.look(node), candidate.namespaces, tuple(node.labels.get(key) for key in pins))
        opinion = opinions.get(look)
        if opinion is None:
            welcome = tuple(admits(kind, candidate) for kind in kinds)
            opinion = opinions[look] = (welcome, tuple(dislike(kind.shape, node, point) for kind in kinds))
        if not any(opinion[0]):
            continue
        capacity = tuple(demand.room.get(name) or node.allocatable.amount(name) for name in resources)
        together[capacity, opinion, item.caps].append(item)
    shelves = []
    for (capacity, opinion, _caps), alike in together.items():
        most = tuple(
            _how_many(need, capacity) if welcome else 0 for need, welcome in zip(needs, opinion[0], strict=True)
        )
        if any(most):
            shelves.append(CandidateGroup(capacity, most, opinion[1], tuple(alike)))
    return Market(resources, needs, tuple(shelves))


def _how_many(need: tuple[int, ...], capacity: tuple[int, ...]) -> int:
    most = NO_END
    for amount, available in zip(need, capacity, strict=True):
        if amount > 0:
            if amount > available:
                return 0
            most = min(most, available // amount)
    return most


class Inventory:
    """What is left of stock and limits."""

    def __init__(self, goods: Iterable[Item], caps: Sequence[Cap]) -> None:
        self._caps = caps
        self._nodes = [cap.nodes for cap in caps]
        self._money = [None if cap.hourly_cost is None else cap.hourly_cost.units for cap in caps]
        self._resources: list[dict[str, int]] = [dict(cap.resources or {}) for cap in caps]
        stock: dict[StockKey, int] = {}
        for item in goods:
            candidate = item.candidate
            available = NO_END if candidate.available is None else candidate.available
            if candidate.offer.node_name is not None:
                available = min(available, 1)
            stock[item.stock_key] = min(stock.get(item.stock_key, NO_END), max(available, 0))
        self._stock = stock

    def copy(self) -> "Inventory":
        other = object.__new__(Inventory)
        other._caps = self._caps
        other._nodes = list(self._nodes)
        other._money = list(self._money)
        other._resources = [dict(each) for each in self._resources]
        other._stock = dict(self._stock)
        return other

    def stock(self, item: Item) -> int:
        return self._stock[item.stock_key]

    def can_buy(self, item: Item) -> int:
        """How many more of it stock and limits allow."""
        most = self._stock[item.stock_key]
        for number in item.caps:
            most = min(most, self._under(number, item))
        return max(most, 0)

    def _under(self, number: int, item: Item) -> int:
        most = NO_END
        nodes, money = self._nodes[number], self._money[number]
        if nodes is not None:
            most = min(most, nodes)
        price = item.candidate.offer.price.units
        if money is not None and price > 0:
            most = min(most, money // price)
        for name, left in self._resources[number].items():
            amount = limit_amounts(item.candidate, name)
            if amount > 0:
                most = min(most, left // amount)
        return most

    def buy(self, item: Item, count: int) -> None:
        self._stock[item.stock_key] -= count
        for number in item.caps:
            nodes, money = self._nodes[number], self._money[number]
            if nodes is not None:
                self._nodes[number] = nodes - count
            if money is not None:
                self._money[number] = money - item.candidate.offer.price.units * count
            left = self._resources[number]
            for name in left:
                left[name] -= limit_amounts(item.candidate, name) * count

    def give_back(self, item: Item, count: int) -> None:
        self.buy(item, -count)

    def forbids(self, item: Item) -> Cap | None:
        """The limit that is in the way of one more."""
        return next((self._caps[number] for number in item.caps if self._under(number, item) < 1), None)

    def cap_left(self, number: int) -> tuple[int | None, int | None, Mapping[str, int]]:
        """Nodes, units of money and resources; None and what is not listed: no limit."""
        return self._nodes[number], self._money[number], self._resources[number]


def limit_amounts(candidate: Candidate, resource: str) -> int:
    """What one of it adds to a limit on resources. An amount that nobody has stated cannot be counted."""
    amount = candidate.node.capacity.amount(resource) or candidate.node.allocatable.amount(resource)
    return 0 if amount >= AMPLE else amount
