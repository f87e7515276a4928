"""One place for pods that must share one: each where it adds least to the cost of the pods that are there already."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from forebay.planning.place_choices import NOWHERE, Place
from forebay.planning.place_costs import Load, PlaceCosts, load_of
from forebay.planning.pod_groups import Pin, PodGroup
from forebay.planning.work import Work

#: How many of the places that seem cheapest are tried for each set of pods; and how many of those already in use.
_TRIED: Final = 6
_TRIED_IN_USE: Final = 6
_ROUNDS: Final = 8
#: Seconds of work for an estimate.
_ESTIMATE: Final = 3e-6

#: Pods of each kind at each place.
Loads = defaultdict[Place, Counter[int]]


class SharedUnit(NamedTuple):
    """Pod groups that must go to one place."""

    groups: tuple[PodGroup, ...]
    key: str
    places: tuple[Place, ...]
    #: A gang of which all pods are needed: served as a whole or not at all.
    whole: bool

    @property
    def load(self) -> Load:
        counts: Counter[int] = Counter()
        for group in self.groups:
            counts[group.kind] += group.count
        return load_of(counts)

    def pinned(self, place: Place) -> list[PodGroup]:
        return [msgspec.structs.replace(group, pin=Pin(self.key, place)) for group in self.groups]


class SharedPlaces:
    """Chooses places for units of one topology key, beside the pods that `loads` has there."""

    def __init__(self, units: Sequence[SharedUnit], costs: PlaceCosts, loads: Loads, work: Work) -> None:
        self._units = units
        self._costs = costs
        self._loads = loads
        self._work = work
        self._pods = [unit.load for unit in units]
        self._ranked: list[list[Place]] = []
        cheapest: list[tuple[int, float]] = []
        for unit, load in zip(units, self._pods, strict=True):
            work.spend(_ESTIMATE * len(unit.places) * len(load))
            estimates = sorted((*costs.estimate(place, load), str(place), place) for place in unit.places)
            self._ranked.append([place for *_, place in estimates])
            cheapest.append(estimates[0][:2] if estimates else (0, 0.0))
        #: None: not served.
        self._place: list[Place | None] = [None] * len(units)
        self._served = [False] * len(units)

        def order(number: int) -> tuple[object, ...]:
            pods = sum(count for _, count in self._pods[number])
            return (-max(group.priority for group in units[number].groups), cheapest[number][1] / pods, number)

        self._order = sorted(range(len(units)), key=order)

    def choose(self) -> list[list[PodGroup]]:
        """The groups of each unit, pinned to a place."""
        for number in self._order:
            self._insert(number)
        for _ in range(_ROUNDS):
            if not self._improve():
                break
        return [
            unit.pinned(place if served else (ranked[0] if ranked else NOWHERE))
            for unit, place, served, ranked in zip(self._units, self._place, self._served, self._ranked, strict=True)
        ]

    def _improve(self) -> bool:
        """Moves each unit to where it adds least now. Whether any was moved."""
        moved = False
        for number in self._order:
            if self._work.left() <= 0:
                return False
            was = (self._served[number], self._place[number])
            if self._served[number]:
                self._loads[self._place[number]].subtract(dict(self._pods[number]))
            self._insert(number)
            moved = moved or was != (self._served[number], self._place[number])
        return moved

    def _insert(self, number: int) -> None:
        unit, load = self._units[number], self._pods[number]
        best: tuple[int, int, Place] | None = None
        for rank, place in enumerate(self._likely(number)):
            before = self._costs(place, load_of(self._loads[place]))
            after = self._costs(place, load_of(self._loads[place] + Counter(dict(load))))
            more = after - before
            if unit.whole and self._costs.leaves(more):
                continue
            # Of equals, the place it had stays.
            key = (more, -1 if place == self._place[number] else rank, place)
            best = key if best is None or key[:2] < best[:2] else best
        self._served[number] = best is not None and best[0] < self._costs.unserved(load)
        if best is not None and self._served[number]:
            self._place[number] = best[2]
            self._loads[best[2]].update(dict(load))

    def _likely(self, number: int) -> list[Place]:
        ranked = self._ranked[number]
        late = self._work.left() <= 0
        in_use = [place for place in ranked[_TRIED:] if self._loads[place].total()][:_TRIED_IN_USE]
        return ranked[:2] if late else [*ranked[:_TRIED], *in_use]
