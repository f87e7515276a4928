"""Rules about places larger than a node: spread over zones, one per zone, all in one zone or at one provider.

They are settled before packing. Each pod under such a rule gets the place it is to go to, the cheapest that the rule
allows, and packing sees only a label that its node must have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from forebay.api.names import PROVIDER_LABEL
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod, PodAffinityTerm
from forebay.planning.gangs import TOGETHER, Gangs
from forebay.planning.market import Item, admits
from forebay.planning.plan import Present
from forebay.planning.pod_groups import HOSTNAME, Pin, PodGroup, PodGroups, PodRule

_LABELS: Final = {
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
    "provider": PROVIDER_LABEL,
}


class Refused(NamedTuple):
    pods: tuple[Pod, ...]
    reason: Reason
    sentence: str


#: What it takes to serve these kinds and nothing else: how many pods are left over, and the cost of the others.
Trial = Callable[[Sequence[PodGroup]], tuple[int, int]]


class PlacedGroups(NamedTuple):
    demand: PodGroups
    refused: list[Refused]
    spread: "Spread"


def assign_places(
    demand: PodGroups, goods: Sequence[Item], present: Sequence[Present], gangs: Gangs, trial: Trial
) -> PlacedGroups:
    refused: list[Refused] = []
    settled: list[PodGroup] = []
    groups: defaultdict[tuple[str, str], list[PodGroup]] = defaultdict(list)
    spread = Spread(demand.rules, goods, present)
    for kind in demand.groups:
        together = _together(kind, gangs)
        if kind.shape.pod_affinity:
            groups["", f"{kind.namespace} {kind.shape.pod_affinity}"].append(kind)
        elif together is not None:
            groups[together, str(kind.gang)].append(kind)
        elif kind.rules:
            if why := _not_planned(kind, demand):
                refused.append(Refused(kind.pods, Reason.AFFINITY_NOT_PLANNED, why))
            else:
                parts, rest = spread.over(kind)
                settled += parts
                refused += rest
        else:
            settled.append(kind)
    for (key, _), members in groups.items():
        if key:
            places, sentence = _places(key, goods), ""
        else:
            key, places, sentence = _near(members[0], members[0].shape.pod_affinity, goods, present)  # noqa: PLW2901
        if any(kind.rules for kind in members):
            sentence = "It has rules about places of two kinds, which Forebay does not plan for: keep one of them."
        if sentence:
            pods = tuple(pod for kind in members for pod in kind.pods)
            refused.append(Refused(pods, Reason.AFFINITY_NOT_PLANNED, sentence))
            continue
        settled += _one_place(members, key, places, trial)
    return PlacedGroups(msgspec.structs.replace(demand, groups=tuple(settled)), refused, spread)


def _together(kind: PodGroup, gangs: Gangs) -> str | None:
    if kind.gang is None:
        return None
    known = gangs.get(kind.gang)
    if known is not None and known.together is not None:
        return known.together
    asked = kind.pods[0].annotations.get(TOGETHER)
    return None if asked is None else _LABELS.get(asked, asked)


def _not_planned(kind: PodGroup, demand: PodGroups) -> str | None:
    keys = sorted({demand.rules[number].topology_key for number in kind.rules})
    if len(keys) > 1:
        return f"It has rules about {' and '.join(keys)} at once, which Forebay does not plan for: keep one of them."
    for number in kind.rules:
        if any(number in other.meant and number not in other.rules for other in demand.groups):
            rule = demand.rules[number]
            return (
                f"Its rule about {rule.topology_key} is also about waiting pods that do not have that rule "
                f"({rule.selector}), which Forebay does not plan for: give them the rule too, or select fewer pods."
            )
    return None


def _places(key: str, goods: Iterable[Item]) -> list[str]:
    return sorted({value for item in goods if (value := item.candidate.node.labels.get(key)) is not None})


def _prices(kind: PodGroup, key: str, goods: Sequence[Item]) -> dict[str, int]:
    """By place: the cheapest node that takes one such pod."""
    found: dict[str, int] = {}
    for item in goods:
        node = item.candidate.node
        place = node.labels.get(key)
        if (
            place is not None
            and place not in found
            and item.candidate.available != 0
            and kind.shape.requests.fits_within(node.allocatable)
            and admits(kind, item.candidate)
        ):
            found[place] = item.score
    return found


class Spread:
    """Sends pods to the cheapest place that every rule of theirs allows, and remembers how many went where."""

    def __init__(self, rules: Sequence[PodRule], goods: Sequence[Item], present: Sequence[Present]) -> None:
        self._rules = rules
        self._goods = goods
        self._present = present
        self._counts: dict[int, Counter[str]] = {}

    def over(self, kind: PodGroup) -> tuple[list[PodGroup], list[Refused]]:
        key = self._rules[kind.rules[0]].topology_key
        prices = _prices(kind, key, self._goods)
        order = sorted(prices, key=lambda place: (prices[place], place))
        if not order:
            # No node without the label will do; packing will say why nothing takes them.
            return [msgspec.structs.replace(kind, pin=Pin(key, ""))], []
        self._open(kind.rules, key, order)
        everywhere = self._alike(kind, order)
        pods = {place: list(kind.pods[at * everywhere : (at + 1) * everywhere]) for at, place in enumerate(order)}
        waiting = kind.pods[len(order) * everywhere :]
        for at, pod in enumerate(waiting):
            place = next((place for place in order if all(self._allows(rule, place) for rule in kind.rules)), None)
            if place is None:
                waiting = waiting[at:]
                break
            pods[place].append(pod)
            self._add(kind.rules, place, 1)
        else:
            waiting = ()
        parts = [
            msgspec.structs.replace(kind, pods=tuple(members), pin=Pin(key, place))
            for place, members in pods.items()
            if members
        ]
        sentence = (
            f"Its rules about {key} allow no more such pods in {', '.join(order)}, where offers would take it: allow "
            "more places, raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway."
        )
        return parts, [Refused(waiting, Reason.SPREAD_IMPOSSIBLE, sentence)] if waiting else []

    def too_many(self, kinds: Sequence[PodGroup], left: Sequence[int]) -> dict[int, int]:
        """Where not all could be had: by number of the kind, how many may be in its place, if that is fewer than are.

        More would not be scheduled there while other places have so few.
        """
        found: dict[int, int] = {}
        for number, counts in self._counts.items():
            if not self._rules[number].max_skew:
                continue
            there = Counter(counts)
            for kind, waiting in zip(kinds, left, strict=True):
                if number in kind.rules and kind.pin is not None:
                    there[kind.pin.value] -= waiting
            most = min(there.values()) + self._rules[number].max_skew
            for at, (kind, waiting) in enumerate(zip(kinds, left, strict=True)):
                served = kind.count - waiting
                if number in kind.rules and kind.pin is not None and served and there[kind.pin.value] > most:
                    allowed = max(served - (there[kind.pin.value] - most), 0)
                    found[at] = min(found.get(at, allowed), allowed)
        return found

    def _open(self, rules: Iterable[int], key: str, order: Iterable[str]) -> None:
        for number in rules:
            rule, counts = self._rules[number], self._counts.get(number)
            if counts is None:
                counts = self._counts[number] = Counter()
                for pod in self._present:
                    place = pod.node_labels.get(key)
                    if place is not None:
                        counts[place] += rule.means(pod.namespace, pod.labels)
            for place in order:
                counts.setdefault(place, 0)

    def _alike(self, kind: PodGroup, order: Sequence[str]) -> int:
        """How many can go everywhere, whatever the order; only the rest must be looked at one by one."""
        rules = [self._rules[number] for number in kind.rules]
        if any(
            not rule.max_skew or len(self._counts[n]) > len(order) for n, rule in zip(kind.rules, rules, strict=True)
        ):
            return 0
        everywhere = max(kind.count // len(order) - max(rule.max_skew for rule in rules) - 1, 0)
        for place in order:
            self._add(kind.rules, place, everywhere)
        return everywhere

    def _add(self, rules: Iterable[int], place: str, count: int) -> None:
        for number in rules:
            self._counts[number][place] += count

    def _allows(self, number: int, place: str) -> bool:
        rule, counts = self._rules[number], self._counts[number]
        if not rule.max_skew:
            return not counts[place]
        least = min(counts.values()) if len(counts) >= rule.min_domains else 0
        return counts[place] + 1 - least <= rule.max_skew


def _near(
    kind: PodGroup, terms: Sequence[PodAffinityTerm], goods: Sequence[Item], present: Sequence[Present]
) -> tuple[str, list[str], str]:
    """Key and values of the places where a pod with these affinity terms may go; or why that is not planned."""
    keys = sorted({term.topology_key for term in terms})
    if len(keys) > 1 or keys[0] == HOSTNAME:
        return (
            "",
            [],
            (
                f"It wants to share {' and '.join(keys)} with other pods, which Forebay does not plan for: use a zone "
                "instead, or one pod with several containers."
            ),
        )
    key = keys[0]
    places = _places(key, goods)
    pod = kind.pods[0]
    for term in terms:
        namespaces = term.namespaces or (pod.namespace,)
        selector = term.selector
        near = {
            each.node_labels.get(key)
            for each in present
            if selector is not None and each.namespace in namespaces and selector.matches(each.labels)
        }
        alone = selector is not None and pod.namespace in namespaces and selector.matches(pod.labels)
        if near - {None} or not alone:
            places = [place for place in places if place in near]
        if not places:
            return (
                "",
                [],
                (
                    f"It wants to share {key} with pods that {selector or 'nobody'} picks, and none of them run where "
                    "capacity can be had: start those first, or allow offers where they are."
                ),
            )
    return key, places, ""


def _one_place(members: Sequence[PodGroup], key: str, places: Iterable[str], trial: Trial) -> list[PodGroup]:
    """All of them where most can be served, and there most cheaply."""
    best: tuple[tuple[int, int, str], list[PodGroup]] | None = None
    for place in places:
        pinned = [msgspec.structs.replace(kind, pin=Pin(key, place)) for kind in members]
        rank = (*trial(pinned), place)
        if best is None or rank < best[0]:
            best = (rank, pinned)
    return list(members) if best is None else best[1]
