"""Policies that buy capacity in a replay: Forebay's own planner, and first fit to compare it with."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from forebay.model.fit import barred
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import OfferKey
from forebay.model.workloads import Pod, PodShape
from forebay.planning.plan import Candidate, Cap, Preferences
from forebay.planning.planner import plan
from forebay.planning.pod_groups import service_order

#: A replay plans thousands of times; a plan of few pods is done long before.
_DEADLINE: Final = timedelta(milliseconds=200)


def standing_clock() -> float:
    """A clock for plans that end by the work they have done alone: on a busy machine they are the same."""
    return 0.0


class HeldCapacity(NamedTuple):
    """What is rented already."""

    nodes: int
    hourly: UsdPerHour
    #: How many of each offer.
    offers: Counter[OfferKey]


class Bought(NamedTuple):
    candidate: Candidate
    pods: tuple[Pod, ...]


class SpendingLimits(NamedTuple):
    nodes: int | None = None
    hourly: UsdPerHour | None = None

    def left(self, held: HeldCapacity) -> "SpendingLimits":
        """What may be bought beside what is rented already."""
        return SpendingLimits(
            None if self.nodes is None else max(self.nodes - held.nodes, 0),
            None if self.hourly is None else max(self.hourly - held.hourly, UsdPerHour.zero()),
        )

    def cap(self, held: HeldCapacity, candidates: Iterable[Candidate]) -> tuple[Cap, ...]:
        if self.nodes is None and self.hourly is None:
            return ()
        left = self.left(held)
        pools = frozenset(each.pool for each in candidates)
        return (Cap(name="the limits of the simulation", pools=pools, nodes=left.nodes, hourly_cost=left.hourly),)


class BuyingPolicy(Protocol):
    name: str

    def set_candidates(self, candidates: Sequence[Candidate]) -> None:
        """What can be bought from now on, at its present price."""

    def buy(self, pods: Sequence[Pod], held: HeldCapacity) -> Sequence[Bought]:
        """Machines for these pods, none of which fits on what is rented. Pods that get none stay pending."""


#: Purchases for a number of pods: each candidate with the places of its pods among them.
_Purchases = tuple[tuple[Candidate, tuple[int, ...]], ...]


class PlannerPolicy:
    """What the operator does: the planner chooses for all waiting pods at once.

    Pods of a trace have no labels, so that a plan depends on nothing of them but their shapes, in the order in which
    they are served. The same shapes come again and again, and are planned once.
    """

    name = "forebay"

    def __init__(self, candidates: Sequence[Candidate], limits: SpendingLimits) -> None:
        self._limits = limits
        self.set_candidates(candidates)

    def set_candidates(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = candidates
        self._scarce = frozenset(each.offer.key for each in candidates if each.available is not None)
        #: With the shapes: another one must not get the identity of one that is known.
        self._planned: dict[tuple[object, ...], tuple[list[PodShape], _Purchases]] = {}

    def buy(self, pods: Sequence[Pod], held: HeldCapacity) -> Sequence[Bought]:
        rented = {key: count for key, count in held.offers.items() if count and key in self._scarce}
        if any(pod.labels or pod.annotations for pod in pods):
            return [Bought(candidate, taken) for candidate, taken in self._plan(pods, held, rented)]
        served = sorted(pods, key=service_order)
        about = (
            tuple((id(pod.shape), pod.namespace) for pod in served),
            frozenset(rented.items()),
            self._limits.left(held),
        )
        if about not in self._planned:
            places = {pod.uid: place for place, pod in enumerate(served)}
            made = tuple(
                (candidate, tuple(places[pod.uid] for pod in taken))
                for candidate, taken in self._plan(served, held, rented)
            )
            self._planned[about] = ([pod.shape for pod in served], made)
        return [
            Bought(candidate, tuple(served[place] for place in taken)) for candidate, taken in self._planned[about][1]
        ]

    def _plan(
        self, pods: Sequence[Pod], held: HeldCapacity, rented: Mapping[OfferKey, int]
    ) -> Iterable[tuple[Candidate, tuple[Pod, ...]]]:
        left = _in_stock(self._candidates, rented) if rented else self._candidates
        preferences = Preferences(deadline=_DEADLINE)
        made = plan(pods, left, self._limits.cap(held, left), preferences, clock=standing_clock)
        return [(each.candidate, each.pods) for each in made.purchases]


class FirstFitPolicy:
    """One pod after the other: into what was just bought, else on the cheapest machine that fits it alone."""

    name = "first fit"

    def __init__(self, candidates: Sequence[Candidate], limits: SpendingLimits) -> None:
        self._limits = limits
        self.set_candidates(candidates)

    def set_candidates(self, candidates: Sequence[Candidate]) -> None:
        self._candidates = sorted(candidates, key=lambda each: each.effective_price)
        self._fitting: dict[int, tuple[PodShape, list[Candidate]]] = {}

    def buy(self, pods: Sequence[Pod], held: HeldCapacity) -> Sequence[Bought]:
        bought: list[tuple[Candidate, Resources, list[Pod]]] = []
        offers, nodes, hourly = Counter(held.offers), held.nodes, held.hourly
        for pod in pods:
            requests = pod.shape.requests
            for number, (candidate, free, taken) in enumerate(bought):
                if requests.fits_within(free) and barred(pod.shape, candidate.node) is None:
                    taken.append(pod)
                    bought[number] = (candidate, free - requests, taken)
                    break
            else:
                found = self._cheapest(pod.shape, offers, nodes, hourly)
                if found is not None:
                    bought.append((found, found.node.allocatable - requests, [pod]))
                    offers[found.offer.key] += 1
                    nodes, hourly = nodes + 1, hourly + found.offer.price
        return [Bought(candidate, tuple(taken)) for candidate, _, taken in bought]

    def _cheapest(self, shape: PodShape, offers: Counter[OfferKey], nodes: int, hourly: UsdPerHour) -> Candidate | None:
        if self._limits.nodes is not None and nodes >= self._limits.nodes:
            return None
        for candidate in self._all_fitting(shape):
            if candidate.available is not None and offers[candidate.offer.key] >= candidate.available:
                continue
            if self._limits.hourly is None or hourly + candidate.offer.price <= self._limits.hourly:
                return candidate
        return None

    def _all_fitting(self, shape: PodShape) -> list[Candidate]:
        known = self._fitting.get(id(shape))
        if known is None:
            # The shape is kept with its list: another one must not get its identity.
            known = self._fitting[id(shape)] = (shape, [each for each in self._candidates if fits_alone(shape, each)])
        return known[1]


def fits_alone(shape: PodShape, candidate: Candidate) -> bool:
    return shape.requests.fits_within(candidate.node.allocatable) and barred(shape, candidate.node) is None


def at_prices(candidates: Sequence[Candidate], prices: Mapping[OfferKey, UsdPerHour | None]) -> list[Candidate]:
    """The candidates at other prices, without those that cannot be had."""
    found = []
    for each in candidates:
        if each.offer.key not in prices:
            found.append(each)
        elif (price := prices[each.offer.key]) is not None:
            found.append(replace(each, offer=replace(each.offer, price=price), effective_price=price))
    return found


def _in_stock(candidates: Sequence[Candidate], rented: Mapping[OfferKey, int]) -> Sequence[Candidate]:
    """The candidates with what is left of each."""
    return [
        each
        if each.available is None or each.offer.key not in rented
        else replace(each, available=max(each.available - rented[each.offer.key], 0))
        for each in candidates
    ]
