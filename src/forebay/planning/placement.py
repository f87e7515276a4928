"""Placement: rules about zones and other topologies larger than a node (spread, one per zone, all in one zone).

Placement comes before packing. Each pod under such a rule is assigned the cheapest place that the rule allows; packing
then only sees a label that the node must have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.planning.place_choices import NOWHERE, Existing, Place, PlaceChoice, node_places, running_by_place
from forebay.planning.plan import RunningPod
from forebay.planning.pod_groups import Pin, PodGroup, PodGroups, PodRule


class Refused(NamedTuple):
    pods: tuple[Pod, ...]
    reason: Reason
    sentence: str


#: Serves these pod groups and nothing else: how many pods are left over, and the score of the rest.
Trial = Callable[[Sequence[PodGroup]], tuple[int, int]]


#: The few places of a choice that are worth a trial for these pod groups.
Promising = Callable[[Sequence[PodGroup], PlaceChoice], Sequence[Place]]


class PlacedGroups(NamedTuple):
    demand: PodGroups
    refused: list[Refused]
    spread: "Spread"


def assign_places(
    demand: PodGroups,
    choices: Sequence[PlaceChoice | None],
    existing: Existing,
    promising: Promising,
    trial: Trial,
) -> PlacedGroups:
    """The cheapest places that the rules allow. `choices` by pod group."""
    refused: list[Refused] = []
    placed: list[PodGroup] = []
    shared: defaultdict[str, list[tuple[PodGroup, PlaceChoice]]] = defaultdict(list)
    spread = Spread(demand.rules, existing.running, existing.nodes)
    for group, choice in zip(demand.groups, choices, strict=True):
        if choice is None:
            placed.append(group)
        elif choice.sentence:
            refused.append(Refused(group.pods, Reason.AFFINITY_NOT_PLANNED, choice.sentence))
        elif group.rules:
            parts, rest = spread.over(group, choice)
            placed += parts
            refused += rest
        else:
            # Near running pods, several places are possible; one is taken.
            shared[choice.shared or f"{choice.key} {len(shared)}"].append((group, choice))
    for members in shared.values():
        choice = members[0][1]
        groups = [group for group, _ in members]
        placed += _one_place(groups, choice.key, promising(groups, choice), trial)
    return PlacedGroups(msgspec.structs.replace(demand, groups=tuple(placed)), refused, spread)


class Spread:
    """Assigns pods to the cheapest place that all their rules allow, and counts the pods of each place."""

    def __init__(self, rules: Sequence[PodRule], running: Sequence[RunningPod], nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._rules = rules
        self._running = running
        self._counts: dict[int, Counter[str]] = {}

    @property
    def counts_places(self) -> bool:
        """Whether any pod has a rule about places."""
        return bool(self._counts)

    def over(self, group: PodGroup, choice: PlaceChoice) -> tuple[list[PodGroup], list[Refused]]:
        key, order = choice.key, choice.places
        if not order:
            # The pods need a node with this label, and there is none: packing says why no offer fits.
            return [msgspec.structs.replace(group, pin=Pin(key, NOWHERE))], []
        self._open(group, order)
        everywhere = self._alike(group, order)
        pods = {place: list(group.pods[at * everywhere : (at + 1) * everywhere]) for at, place in enumerate(order)}
        waiting = group.pods[len(order) * everywhere :]
        for at, pod in enumerate(waiting):
            place = next((place for place in order if all(self._allows(rule, place) for rule in group.rules)), None)
            if place is None:
                waiting = waiting[at:]
                break
            pods[place].append(pod)
            self._add(group.rules, place, 1)
        else:
            waiting = ()
        parts = [
            msgspec.structs.replace(group, pods=tuple(members), pin=Pin(key, place))
            for place, members in pods.items()
            if members
        ]
        named = ", ".join(map(str, order))
        sentence = (
            f"The pod's rules about {key} allow no more such pods in {named}, the only places with offers that fit: "
            "allow more places, raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway."
        )
        return parts, [Refused(waiting, Reason.SPREAD_IMPOSSIBLE, sentence)] if waiting else []

    def too_many(self, groups: Sequence[PodGroup], left: Sequence[int]) -> dict[int, int]:
        """By number of the pod group: how many of its pods its place may have, where more were planned.

        When some pods got no node, other places have fewer than planned, and the scheduler would refuse the surplus
        here.
        """
        found: dict[int, int] = {}
        for number, counts in self._counts.items():
            if not self._rules[number].max_skew:
                continue
            there = Counter(counts)
            for group, waiting in zip(groups, left, strict=True):
                if number in group.rules and group.pin is not None and group.pin.value is not None:
                    there[group.pin.value] -= waiting
            most = self._least(number, there) + self._rules[number].max_skew
            for at, (group, waiting) in enumerate(zip(groups, left, strict=True)):
                served = group.count - waiting
                if number not in group.rules or group.pin is None or group.pin.value is None or not served:
                    continue
                if there[group.pin.value] > most:
                    allowed = max(served - (there[group.pin.value] - most), 0)
                    found[at] = min(found.get(at, allowed), allowed)
        return found

    def _open(self, group: PodGroup, order: Iterable[Place]) -> None:
        for number in group.rules:
            counts = self._counts.get(number)
            if counts is None:
                counts = self._counts[number] = running_by_place(self._rules[number], self._running)
            for place in (*order, *node_places(group, self._rules[number], self._nodes)):
                if place is not None:
                    counts.setdefault(place, 0)

    def _alike(self, group: PodGroup, order: Sequence[Place]) -> int:
        """How many pods every place gets at least; only the rest must be assigned one by one."""
        rules = [self._rules[number] for number in group.rules]
        if any(
            not rule.max_skew or len(self._counts[n]) > len(order) for n, rule in zip(group.rules, rules, strict=True)
        ):
            return 0
        everywhere = max(group.count // len(order) - max(rule.max_skew for rule in rules) - 1, 0)
        for place in order:
            self._add(group.rules, place, everywhere)
        return everywhere

    def _add(self, rules: Iterable[int], place: Place, count: int) -> None:
        for number in rules:
            if place is not None:
                self._counts[number][place] += count

    def _allows(self, number: int, place: Place) -> bool:
        if place is None:
            return True
        rule, counts = self._rules[number], self._counts[number]
        if not rule.max_skew:
            return not counts[place]
        return counts[place] + 1 - self._least(number, counts) <= rule.max_skew

    def _least(self, number: int, counts: Counter[str]) -> int:
        """Pods in the place that has fewest; 0 where there are fewer places than the rule asks for."""
        return min(counts.values()) if len(counts) >= self._rules[number].min_domains else 0


def _one_place(members: Sequence[PodGroup], key: str, places: Iterable[Place], trial: Trial) -> list[PodGroup]:
    """The pod groups pinned to the one place that serves most of their pods, and the cheapest of those."""
    best: tuple[tuple[int, int, str], list[PodGroup]] | None = None
    for place in places:
        pinned = [msgspec.structs.replace(group, pin=Pin(key, place)) for group in members]
        rank = (*trial(pinned), place or "")
        if best is None or rank < best[0]:
            best = (rank, pinned)
    if best is None:
        # The pods need a node with this label, and there is none: packing says why no offer fits.
        return [msgspec.structs.replace(group, pin=Pin(key, NOWHERE)) for group in members]
    return best[1]
