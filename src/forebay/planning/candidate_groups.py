"""Candidates with their prices, grouped by what pods can tell apart; and the inventory: stock and limits left.

Candidates of one group have the same capacity for the pods to plan and admit the same of them, cheapest first.
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
from forebay.planning.pod_groups import Pin, PodGroup, PodGroups

_MICROSECOND: Final = timedelta(microseconds=1)
_HOUR: Final = timedelta(hours=1) // _MICROSECOND
_MILLION: Final = 10**6

#: Tie breakers: fewer nodes, and providers already in use.
_PER_NODE: Final = UsdPerHour("0.000001").units
_PER_UNKNOWN_PROVIDER: Final = UsdPerHour("0.000001").units
#: Between owned machines that cost nothing: fewer GPUs, and two small machines rather than one as large as both.
_PER_GPU: Final = UsdPerHour("0.000001").units
_PER_GPU_SQUARED: Final = UsdPerHour("0.000000001").units
#: More than any tie breaker of one node. Bounds allow for this, because costs are shown without tie breakers.
LARGEST_TIE: Final = UsdPerHour("0.00002").units

#: Stands for unlimited stock: more than anybody will ever buy of one offer.
UNLIMITED: Final = 2**31
#: Points of an untolerated PreferNoSchedule taint: as many as a preferred term of the largest weight.
_MOST_POINTS: Final = 100

ARCHITECTURE: Final = "kubernetes.io/arch"

StockKey = tuple[object, ...]
#: Numbers of the pod groups that are admitted, and what their unmet preferences cost.
_Eligibility = tuple[tuple[int, int], ...]


class PricedCandidate(msgspec.Struct, frozen=True, gc=False):
    """A candidate with its price in whole units of `UsdPerHour`."""

    candidate: Candidate
    #: Expected cost of an hour.
    expected: int
    #: The expected cost with tie breakers: candidates are ordered by this.
    score: int
    stock_key: StockKey
    #: Indices of the caps that count the candidate.
    caps: tuple[int, ...]


class CandidateGroup(msgspec.Struct, frozen=True, gc=False):
    """Candidates that none of the pods to plan can tell apart."""

    capacity: tuple[int, ...]
    #: How many pods of each pod group an empty node takes; 0 where they are not admitted.
    most: tuple[int, ...]
    #: Cost of the unmet preferences of one pod of each pod group.
    preference_cost: tuple[int, ...]
    #: Cheapest first.
    members: tuple[PricedCandidate, ...]
    #: Numbers of the pod groups of which an empty node takes any.
    takes: tuple[int, ...]


class PackingProblem(msgspec.Struct, frozen=True, gc=False):
    """Pod groups and candidate groups as plain numbers, ready for packing."""

    resources: tuple[str, ...]
    #: Amounts that one pod needs, by pod group and resource.
    needs: tuple[tuple[int, ...], ...]
    candidate_groups: tuple[CandidateGroup, ...]


def expected_units(candidate: Candidate, preferences: Preferences) -> int:
    """Expected cost of an hour: what is billed for the expected run, and the work that reclaims repeat."""
    offer = candidate.offer
    units = candidate.effective_price.units
    run = preferences.expected_run // _MICROSECOND
    step = max(offer.billing.increment // _MICROSECOND, 1)
    billed = max(offer.billing.minimum // _MICROSECOND, -(-run // step) * step)
    if billed != run:
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
    """Sort key that is different for any two candidates, so that their order in the input never matters."""
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
    """Key of the stock that a candidate is taken from: pools that use the same source share its stock."""
    return (*candidate.source, *candidate.offer.key, candidate.offer.node_name)


def price_candidates(
    candidates: Iterable[Candidate], caps: Sequence[Cap], preferences: Preferences
) -> list[PricedCandidate]:
    """Candidates with prices, cheapest first."""
    caps_of = {pool: tuple(n for n, cap in enumerate(caps) if pool in cap.pools) for cap in caps for pool in cap.pools}
    made = []
    for candidate in candidates:
        expected = expected_units(candidate, preferences)
        score = score_units(candidate, expected, preferences)
        made.append(PricedCandidate(candidate, expected, score, stock_key(candidate), caps_of.get(candidate.pool, ())))
    made.sort(key=lambda priced: (priced.score, order(priced.candidate)))
    return made


class NodeSignatures:
    """Signatures of nodes: all of a node that some pod shape looks at.

    Nodes of one signature are alike to every shape, so eligibility is computed once for each signature.
    """

    def __init__(self, shapes: Iterable[PodShape]) -> None:
        keys: set[str] = {ARCHITECTURE}
        self._by_name = False
        for shape in shapes:
            keys.update(shape.node_selector)
            terms = [*(shape.node_affinity or ()), *(preferred.term for preferred in shape.preferred_node_affinity)]
            keys.update(requirement.key for term in terms for requirement in term.match_expressions)
            self._by_name = self._by_name or any(term.match_fields for term in terms)
        self._keys = tuple(sorted(keys))

    def of(self, node: Node) -> tuple[object, ...]:
        labels = node.labels
        return (
            tuple(labels.get(key) for key in self._keys) if self._keys else (),
            node.taints,
            node.unschedulable,
            node.name if self._by_name else "",
        )


def admits(group: PodGroup, candidate: Candidate) -> bool:
    """Whether a pod of the group may run on an empty node of the candidate, whatever their sizes."""
    if candidate.namespaces is not None and group.namespace not in candidate.namespaces:
        return False
    if group.pin is not None and candidate.node.labels.get(group.pin.key) != group.pin.value:
        return False
    return barred(group.shape, candidate.node) is None and not wrong_architecture(group.shape, candidate)


def wrong_architecture(shape: PodShape, candidate: Candidate) -> bool:
    """Whether the node is not amd64 and neither pod nor pool names an architecture: the image is likely amd64 only."""
    if candidate.any_architecture or candidate.node.labels.get(ARCHITECTURE, "amd64") == "amd64":
        return False
    terms = shape.node_affinity or ()
    named = any(requirement.key == ARCHITECTURE for term in terms for requirement in term.match_expressions)
    return not named and ARCHITECTURE not in shape.node_selector


def preference_cost(shape: PodShape, node: Node, point: int) -> int:
    """Cost of a pod's unmet preferences on this node, in units. `point`: cost of one point."""
    points = sum(preferred.weight for preferred in shape.preferred_node_affinity if preferred.weight > 0)
    if points:
        points -= preference(shape, node)
    for taint in node.taints:
        if taint.effect == Effect.PREFER_NO_SCHEDULE and not tolerates(shape.tolerations, taint):
            points += _MOST_POINTS
    return points * point


def packing_problem(
    demand: PodGroups, priced_candidates: Sequence[PricedCandidate], preferences: Preferences
) -> PackingProblem:
    groups = demand.groups
    alone = _needed_alone(demand)
    resources = tuple(sorted({name for group in groups for name in group.needs if name not in alone}))
    needs = tuple(tuple(group.needs.get(name, 0) for name in resources) for group in groups)
    limits = [
        min((demand.room[name] // n for name, n in group.needs.items() if name in alone), default=UNLIMITED)
        for group in groups
    ]
    sparse = [[(d, amount) for d, amount in enumerate(need) if amount > 0] for need in needs]
    signatures = NodeSignatures(group.shape for group in groups)
    pins = tuple(sorted({group.pin.key for group in groups if group.pin is not None}))
    # Groups at different places have few different shapes.
    kinds: dict[tuple[int, str], PodGroup] = {}
    by_pin: defaultdict[Pin | None, defaultdict[tuple[int, str], list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, group in enumerate(groups):
        kind = (id(group.shape), group.namespace)
        kinds.setdefault(kind, msgspec.structs.replace(group, pin=None) if group.pin is not None else group)
        by_pin[group.pin][kind].append(number)
    point = preferences.per_preference_point.units
    known: dict[tuple[object, ...], dict[tuple[int, str], int]] = {}
    by_signature: dict[tuple[object, ...], int] = {}
    eligibilities: dict[_Eligibility, int] = {}
    alike_candidates: defaultdict[tuple[tuple[int, ...], int, tuple[int, ...]], list[PricedCandidate]] = defaultdict(
        list
    )
    for priced in priced_candidates:
        candidate = priced.candidate
        node = candidate.node
        of_node = (signatures.of(node), candidate.namespaces, candidate.any_architecture)
        there: tuple[Pin | None, ...] = (None, *(Pin(key, node.labels.get(key)) for key in pins))
        signature = (of_node, there)
        if signature not in by_signature:
            if of_node not in known:
                known[of_node] = {
                    kind: preference_cost(group.shape, node, point)
                    for kind, group in kinds.items()
                    if admits(group, candidate)
                }
            costs = known[of_node]
            found = sorted(
                (number, costs[kind])
                for pin in there
                if pin in by_pin
                for kind, numbers in by_pin[pin].items()
                if kind in costs
                for number in numbers
            )
            by_signature[signature] = eligibilities.setdefault(tuple(found), len(eligibilities))
        capacity = tuple(demand.room.get(name) or node.allocatable.amount(name) for name in resources)
        alike_candidates[capacity, by_signature[signature], priced.caps].append(priced)
    candidate_groups = []
    by_number = list(eligibilities)
    for (capacity, eligibility, _caps), alike in alike_candidates.items():
        most, cost = [0] * len(groups), [0] * len(groups)
        for number, unmet in by_number[eligibility]:
            most[number] = min(_how_many(sparse[number], capacity), limits[number])
            cost[number] = unmet
        takes = tuple(number for number, _ in by_number[eligibility] if most[number])
        if takes:
            candidate_groups.append(CandidateGroup(capacity, tuple(most), tuple(cost), tuple(alike), takes))
    return PackingProblem(resources, needs, tuple(candidate_groups))


def _needed_alone(demand: PodGroups) -> frozenset[str]:
    """Resources that stand for a rule between pods of a single group: a limit on its pods says the same.

    A group at different places counts as single, because these share no node.
    """
    needing: defaultdict[str, list[PodGroup]] = defaultdict(list)
    for group in demand.groups:
        for name in group.needs:
            if name in demand.room:
                needing[name].append(group)
    return frozenset(name for name, groups in needing.items() if len(groups) == 1 or _apart(groups))


def _apart(groups: Sequence[PodGroup]) -> bool:
    pins = {group.pin for group in groups if group.pin is not None}
    return len(pins) == len(groups) and len({pin.key for pin in pins}) == 1


def _how_many(need: Sequence[tuple[int, int]], capacity: tuple[int, ...]) -> int:
    """How many pods an empty node takes. `need`: (number of the resource, amount) for each that the pod needs."""
    most = UNLIMITED
    for d, amount in need:
        if capacity[d] < amount * most:
            most = capacity[d] // amount
    return most


class Inventory:
    """Stock and limits that are left while a plan is made."""

    def __init__(self, priced_candidates: Iterable[PricedCandidate], caps: Sequence[Cap]) -> None:
        self._caps = caps
        self._nodes = [cap.nodes for cap in caps]
        self._money = [None if cap.hourly_cost is None else cap.hourly_cost.units for cap in caps]
        self._resources: list[dict[str, int]] = [dict(cap.resources or {}) for cap in caps]
        stock: dict[StockKey, int] = {}
        for priced in priced_candidates:
            candidate = priced.candidate
            available = UNLIMITED if candidate.available is None else candidate.available
            if candidate.offer.node_name is not None:
                available = min(available, 1)
            stock[priced.stock_key] = min(stock.get(priced.stock_key, UNLIMITED), max(available, 0))
        self._stock = stock

    def copy(self) -> "Inventory":
        other = object.__new__(Inventory)
        other._caps = self._caps
        other._nodes = list(self._nodes)
        other._money = list(self._money)
        other._resources = [dict(each) for each in self._resources]
        other._stock = dict(self._stock)
        return other

    def stock(self, priced: PricedCandidate) -> int:
        return self._stock[priced.stock_key]

    def can_buy(self, priced: PricedCandidate) -> int:
        """How many more nodes of the candidate stock and limits allow."""
        most = self._stock[priced.stock_key]
        for number in priced.caps:
            most = min(most, self._under(number, priced))
        return max(most, 0)

    def _under(self, number: int, priced: PricedCandidate) -> int:
        most = UNLIMITED
        nodes, money = self._nodes[number], self._money[number]
        if nodes is not None:
            most = min(most, nodes)
        price = priced.candidate.offer.price.units
        if money is not None and price > 0:
            most = min(most, money // price)
        for name, left in self._resources[number].items():
            amount = limit_amounts(priced.candidate, name)
            if amount > 0:
                most = min(most, left // amount)
        return most

    def buy(self, priced: PricedCandidate, count: int) -> None:
        self._stock[priced.stock_key] -= count
        for number in priced.caps:
            nodes, money = self._nodes[number], self._money[number]
            if nodes is not None:
                self._nodes[number] = nodes - count
            if money is not None:
                self._money[number] = money - priced.candidate.offer.price.units * count
            left = self._resources[number]
            for name in left:
                left[name] -= limit_amounts(priced.candidate, name) * count

    def undo_buy(self, priced: PricedCandidate, count: int) -> None:
        self.buy(priced, -count)

    def forbids(self, priced: PricedCandidate) -> list[Cap]:
        """The limits that forbid one more node of the candidate."""
        return [self._caps[number] for number in priced.caps if self._under(number, priced) < 1]

    def cap_left(self, number: int) -> tuple[int | None, int | None, Mapping[str, int]]:
        """(Nodes, units of money, resources) left under a cap; None or not listed: not limited."""
        return self._nodes[number], self._money[number], self._resources[number]


def limit_amounts(candidate: Candidate, resource: str) -> int:
    """Amount that one node counts for under a limit; an unknown amount counts as 0."""
    amount = candidate.node.capacity.amount(resource) or candidate.node.allocatable.amount(resource)
    return 0 if amount >= AMPLE else amount
