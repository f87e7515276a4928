"""Placement: rules about zones and other topologies larger than a node (spread, one per zone, all in one zone).

Placement comes before packing. Each pod under such a rule is assigned the place that the rule allows and where it adds
least to the cost of the pods that are there already; packing then only sees a label that the node must have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.planning.gangs import GangKey
from forebay.planning.place_choices import NOWHERE, Existing, Place, PlaceChoice, node_places, running_by_place
from forebay.planning.place_costs import PlaceCosts, load_of
from forebay.planning.pod_groups import Pin, PodGroup, PodGroups
from forebay.planning.shared_places import Loads, SharedPlaces, SharedUnit
from forebay.planning.work import Work

#: How often all pods under rules about places are looked at again.
_ROUNDS: Final = 4
#: Of how many places, the dearest and the cheapest, moves are tried.
_MOVES: Final = 12


class Refused(NamedTuple):
    pods: tuple[Pod, ...]
    reason: Reason
    sentence: str


#: Costs at the places of a topology key.
CostsOf = Callable[[str, Work], PlaceCosts]


class PlacedGroups(NamedTuple):
    demand: PodGroups
    refused: list[Refused]
    spread: "Spread"


def assign_places(
    demand: PodGroups,
    choices: Sequence[PlaceChoice | None],
    existing: Existing,
    needed: Mapping[GangKey, int],
    *,
    costs_of: CostsOf,
    work: Work,
) -> PlacedGroups:
    """Places that the rules allow, and that seem cheapest. `choices` by pod group, `needed` by gang."""
    refused: list[Refused] = []
    placed: list[PodGroup] = []
    shared: defaultdict[str, list[tuple[PodGroup, PlaceChoice]]] = defaultdict(list)
    spread = Spread(demand, existing)
    spread_over: defaultdict[str, list[tuple[PodGroup, PlaceChoice]]] = defaultdict(list)
    for group, choice in zip(demand.groups, choices, strict=True):
        if choice is None:
            placed.append(group)
        elif choice.sentence:
            refused.append(Refused(group.pods, Reason.AFFINITY_NOT_PLANNED, choice.sentence))
        elif group.rules and choice.places:
            spread_over[choice.key].append((group, choice))
        elif group.rules:
            # The pods need a node with this label, and there is none: packing says why no offer fits.
            placed.append(msgspec.structs.replace(group, pin=Pin(choice.key, NOWHERE)))
        else:
            # Near running pods, several places are possible; one is taken.
            shared[choice.shared or f"{choice.key} {len(shared)}"].append((group, choice))
    loads: defaultdict[str, Loads] = defaultdict(lambda: defaultdict(Counter))
    for key, groups in spread_over.items():
        parts, rest = spread.over(groups, costs_of(key, work), loads[key], work)
        placed += parts
        refused += rest
    units: defaultdict[str, list[SharedUnit]] = defaultdict(list)
    for members in shared.values():
        choice = members[0][1]
        alike = tuple(group for group, _ in members)
        gang = alike[0].gang if choice.is_gang else None
        whole = gang is not None and needed[gang] >= sum(group.count for group in alike)
        units[choice.key].append(SharedUnit(alike, choice.key, choice.places, whole))
    for key, some in units.items():
        for pinned in SharedPlaces(some, costs_of(key, work), loads[key], work).choose():
            placed += pinned
    return PlacedGroups(msgspec.structs.replace(demand, groups=tuple(placed)), refused, spread)


class Spread:
    """Assigns pods to the cheapest place that all their rules allow, and counts the pods of each place."""

    def __init__(self, demand: PodGroups, existing: Existing) -> None:
        self._demand = demand
        self._rules = demand.rules
        self._running, self._nodes = existing
        self._counts: dict[int, Counter[str]] = {}

    @property
    def counts_places(self) -> bool:
        """Whether any pod has a rule about places."""
        return bool(self._counts)

    def over(
        self, groups: Sequence[tuple[PodGroup, PlaceChoice]], costs: PlaceCosts, loads: Loads, work: Work
    ) -> tuple[list[PodGroup], list[Refused]]:
        """The groups in parts at their places; `loads` gets their pods."""
        # First what every place gets, then the rest of the pods that are most expensive.
        assigned = [self._everywhere(group, choice.places, loads) for group, choice in groups]
        dearest = sorted(
            range(len(groups)),
            key=lambda n: (-costs.one_more(groups[n][1].places[0], (), groups[n][0].kind), n),
        )
        for n in dearest:
            self._assign(groups[n][0], assigned[n], costs, loads)
        for _ in range(_ROUNDS):
            moved = [self._improve(groups[n][0], assigned[n], costs, loads, work) for n in dearest]
            if not any(moved):
                break
        parts: list[PodGroup] = []
        refused: list[Refused] = []
        for (group, choice), counts in zip(groups, assigned, strict=True):
            at = 0
            for place, count in counts.items():
                if count:
                    pods = group.pods[at : at + count]
                    parts.append(msgspec.structs.replace(group, pods=pods, pin=Pin(choice.key, place)))
                    at += count
            if at < group.count:
                sentence = (
                    f"The pod's rules about {choice.key} allow no more such pods in "
                    f"{', '.join(map(str, choice.places))}, the only places with offers that fit: allow more places, "
                    "raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway."
                )
                refused.append(Refused(group.pods[at:], Reason.SPREAD_IMPOSSIBLE, sentence))
        return parts, refused

    def _everywhere(self, group: PodGroup, order: Sequence[Place], loads: Loads) -> dict[Place, int]:
        """Pods of the group that every place gets."""
        self._open(group, order)
        everywhere = self._alike(group, order)
        for place in order:
            loads[place][group.kind] += everywhere
        return dict.fromkeys(order, everywhere)

    def _assign(self, group: PodGroup, pods: dict[Place, int], costs: PlaceCosts, loads: Loads) -> None:
        """Adds the rest of the pods, each to the place that its rules allow where it adds least to the cost."""
        added: dict[Place, int] = {}
        for _ in range(group.count - sum(pods.values())):
            allowed = self._allowed(group, pods)
            if not allowed:
                return
            for each in allowed:
                if each not in added:
                    added[each] = costs.one_more(each, load_of(loads[each]), group.kind)
            # Of equal ones, the first.
            place = min(allowed, key=added.__getitem__)
            del added[place]
            pods[place] += 1
            loads[place][group.kind] += 1
            self._add(group.rules, place, 1)

    def _improve(self, group: PodGroup, pods: dict[Place, int], costs: PlaceCosts, loads: Loads, work: Work) -> bool:
        """Moves pods from where they cost most to where they add least, as far as the rules allow. Whether any did."""
        moved = False
        saved: dict[Place, int] = {}
        added: dict[Place, int] = {}
        while work.left() > 0:
            for place, count in pods.items():
                if place not in added:
                    added[place] = costs.one_more(place, load_of(loads[place]), group.kind)
                if place not in saved and count:
                    saved[place] = -_more(costs, loads, place, group.kind, -1)
            found = self._best_move(group, saved, added)
            if found is None:
                return moved
            old, new = found
            exact = _more(costs, loads, new, group.kind)
            if exact >= saved[old]:
                # The estimate was too low.
                added[new] = exact
                continue
            moved = True
            for place, count in zip(found, (-1, 1), strict=True):
                pods[place] += count
                loads[place][group.kind] += count
                self._add(group.rules, place, count)
                saved.pop(place, None)
                added.pop(place, None)
        return moved

    def _best_move(
        self, group: PodGroup, saved: Mapping[Place, int], added: Mapping[Place, int]
    ) -> tuple[Place, Place] | None:
        """The move that gains most, of the few that seem best."""
        dear = sorted(saved, key=lambda place: (-saved[place], str(place)))[:_MOVES]
        cheap = sorted(added, key=lambda place: (added[place], str(place)))[:_MOVES]
        gains = sorted(
            ((added[new] - saved[old], str(old), str(new), old, new) for old in dear for new in cheap if old != new),
            key=lambda each: each[:3],
        )
        return next(
            ((old, new) for gain, _, _, old, new in gains if gain < 0 and self._may_move(group, old, new)), None
        )

    def _may_move(self, group: PodGroup, old: Place, new: Place) -> bool:
        self._add(group.rules, old, -1)
        allowed = bool(self._allowed(group, [new]))
        self._add(group.rules, new, 1)
        # Where fewer are left, others may now have too many.
        fine = allowed and all(
            max(counts.values()) - self._least(number, counts) <= self._rules[number].max_skew
            for number in group.rules
            if self._rules[number].max_skew
            for counts in [self._counts[number]]
        )
        self._add(group.rules, new, -1)
        self._add(group.rules, old, 1)
        return fine

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
                counts = self._counts[number] = running_by_place(self._demand, number, self._running)
            for place in (*order, *node_places(group, self._rules[number], self._nodes)):
                if place is not None:
                    counts.setdefault(place, 0)

    def _alike(self, group: PodGroup, order: Sequence[Place]) -> int:
        """How many pods every place gets at least; only the rest must be assigned one by one."""
        rules = [(self._rules[number], self._counts[number]) for number in group.rules]
        if any(not rule.max_skew or len(counts) > len(order) for rule, counts in rules):
            return 0
        everywhere = group.count // len(order)
        if any(len(set(counts.values())) > 1 for _, counts in rules):
            everywhere = max(everywhere - max(rule.max_skew for rule, _ in rules) - 1, 0)
        for place in order:
            self._add(group.rules, place, everywhere)
        return everywhere

    def _add(self, rules: Iterable[int], place: Place, count: int) -> None:
        for number in rules:
            if place is not None:
                self._counts[number][place] += count

    def _allowed(self, group: PodGroup, places: Iterable[Place]) -> list[Place]:
        """Those of the places that may get one more pod of the group."""
        most: list[tuple[Counter[str], int]] = []
        for number in group.rules:
            rule, counts = self._rules[number], self._counts[number]
            most.append((counts, self._least(number, counts) + rule.max_skew if rule.max_skew else 1))
        return [place for place in places if place is None or all(counts[place] < n for counts, n in most)]

    def _least(self, number: int, counts: Counter[str]) -> int:
        """Pods in the place that has fewest; 0 where there are fewer places than the rule asks for."""
        return min(counts.values()) if len(counts) >= self._rules[number].min_domains else 0


def _more(costs: PlaceCosts, loads: Loads, place: Place, kind: int, count: int = 1) -> int:
    """What pods of the kind add to the cost at a place."""
    before = loads[place]
    after = before.copy()
    after[kind] += count
    return costs(place, load_of(after)) - costs(place, load_of(before))
