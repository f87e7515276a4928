"""Placement: rules about zones and other topologies larger than a node (spread, one per zone, all in one zone).

Placement comes before packing. Each pod under such a rule is assigned the cheapest place that the rule allows; packing
then only sees a label that the node must have.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from forebay.api.names import PROVIDER_LABEL
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod, PodAffinityTerm
from forebay.planning.candidate_groups import PricedCandidate, admits
from forebay.planning.gangs import TOGETHER, GangKey, Gangs
from forebay.planning.plan import RunningPod
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


#: Serves these pod groups and nothing else: how many pods are left over, and the score of the rest.
Trial = Callable[[Sequence[PodGroup]], tuple[int, int]]


class PlacedGroups(NamedTuple):
    demand: PodGroups
    refused: list[Refused]
    spread: "Spread"


def assign_places(
    demand: PodGroups,
    priced_candidates: Sequence[PricedCandidate],
    running: Sequence[RunningPod],
    gangs: Gangs,
    trial: Trial,
) -> PlacedGroups:
    refused: list[Refused] = []
    placed: list[PodGroup] = []
    shared: defaultdict[tuple[str, str], list[PodGroup]] = defaultdict(list)
    spread = Spread(demand.rules, priced_candidates, running)
    shared_by = _together(demand, gangs)
    for group in demand.groups:
        together = None if group.gang is None else shared_by.get(group.gang)
        if group.shape.pod_affinity:
            shared["", f"{group.namespace} {group.shape.pod_affinity}"].append(group)
        elif together is not None:
            shared[together, str(group.gang)].append(group)
        elif group.rules:
            if why := _not_planned(group, demand):
                refused.append(Refused(group.pods, Reason.AFFINITY_NOT_PLANNED, why))
            else:
                parts, rest = spread.over(group)
                placed += parts
                refused += rest
        else:
            placed.append(group)
    for (key, _), members in shared.items():
        if key:
            places, sentence = _places(key, priced_candidates), ""
        else:
            key, places, sentence = _near(members[0], members[0].shape.pod_affinity, priced_candidates, running)  # noqa: PLW2901
        if any(group.rules for group in members):
            sentence = "The pod has affinity and spread rules about places, which Forebay does not plan for: keep one."
        if sentence:
            pods = tuple(pod for group in members for pod in group.pods)
            refused.append(Refused(pods, Reason.AFFINITY_NOT_PLANNED, sentence))
            continue
        placed += _one_place(members, key, places, trial)
    return PlacedGroups(msgspec.structs.replace(demand, groups=tuple(placed)), refused, spread)


def _together(demand: PodGroups, gangs: Gangs) -> dict[GangKey, str]:
    """Label whose value the nodes of a whole gang must share, by gang. One pod that asks for it is enough."""
    found: dict[GangKey, str] = {}
    for group in demand.groups:
        if group.gang is None:
            continue
        known = gangs.get(group.gang)
        if known is not None and known.together is not None:
            found[group.gang] = known.together
        elif (asked := group.pods[0].annotations.get(TOGETHER)) is not None:
            found.setdefault(group.gang, _LABELS.get(asked, asked))
    return found


def _not_planned(group: PodGroup, demand: PodGroups) -> str | None:
    keys = sorted({demand.rules[number].topology_key for number in group.rules})
    if len(keys) > 1:
        return f"The pod has rules about {' and '.join(keys)}, which Forebay does not plan for: keep one of them."
    for number in group.rules:
        if any(number in other.selected_by and number not in other.rules for other in demand.groups):
            rule = demand.rules[number]
            return (
                f"The pod's rule about {rule.topology_key} also selects waiting pods without that rule "
                f"({rule.selector}), which Forebay does not plan for: give them the rule too, or select fewer pods."
            )
    return None


def _places(key: str, priced_candidates: Iterable[PricedCandidate]) -> list[str]:
    return sorted(
        {value for priced in priced_candidates if (value := priced.candidate.node.labels.get(key)) is not None}
    )


def _prices(group: PodGroup, key: str, priced_candidates: Sequence[PricedCandidate]) -> dict[str, int]:
    """Score of the cheapest node that takes such a pod, by place."""
    found: dict[str, int] = {}
    for priced in priced_candidates:
        node = priced.candidate.node
        place = node.labels.get(key)
        if (
            place is not None
            and place not in found
            and priced.candidate.available != 0
            and group.shape.requests.fits_within(node.allocatable)
            and admits(group, priced.candidate)
        ):
            found[place] = priced.score
    return found


class Spread:
    """Assigns pods to the cheapest place that all their rules allow, and counts the pods of each place."""

    def __init__(
        self, rules: Sequence[PodRule], priced_candidates: Sequence[PricedCandidate], running: Sequence[RunningPod]
    ) -> None:
        self._rules = rules
        self._goods = priced_candidates
        self._running = running
        self._counts: dict[int, Counter[str]] = {}

    @property
    def counts_places(self) -> bool:
        """Whether any pod has a rule about places."""
        return bool(self._counts)

    def over(self, group: PodGroup) -> tuple[list[PodGroup], list[Refused]]:
        key = self._rules[group.rules[0]].topology_key
        prices = _prices(group, key, self._goods)
        order = sorted(prices, key=lambda place: (prices[place], place))
        if not order:
            # The pods need a node with this label, and there is none: packing says why no offer fits.
            return [msgspec.structs.replace(group, pin=Pin(key, ""))], []
        self._open(group.rules, key, order)
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
        sentence = (
            f"The pod's rules about {key} allow no more such pods in {', '.join(order)}, the only places with offers "
            "that fit: allow more places, raise maxSkew, or use whenUnsatisfiable: ScheduleAnyway."
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
                if number in group.rules and group.pin is not None:
                    there[group.pin.value] -= waiting
            most = self._least(number, there) + self._rules[number].max_skew
            for at, (group, waiting) in enumerate(zip(groups, left, strict=True)):
                served = group.count - waiting
                if number in group.rules and group.pin is not None and served and there[group.pin.value] > most:
                    allowed = max(served - (there[group.pin.value] - most), 0)
                    found[at] = min(found.get(at, allowed), allowed)
        return found

    def _open(self, rules: Iterable[int], key: str, order: Iterable[str]) -> None:
        for number in rules:
            rule, counts = self._rules[number], self._counts.get(number)
            if counts is None:
                counts = self._counts[number] = Counter()
                for pod in self._running:
                    place = pod.node_labels.get(key)
                    if place is not None:
                        counts[place] += rule.selects(pod.namespace, pod.labels)
            for place in order:
                counts.setdefault(place, 0)

    def _alike(self, group: PodGroup, order: Sequence[str]) -> int:
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

    def _add(self, rules: Iterable[int], place: str, count: int) -> None:
        for number in rules:
            self._counts[number][place] += count

    def _allows(self, number: int, place: str) -> bool:
        rule, counts = self._rules[number], self._counts[number]
        if not rule.max_skew:
            return not counts[place]
        return counts[place] + 1 - self._least(number, counts) <= rule.max_skew

    def _least(self, number: int, counts: Counter[str]) -> int:
        """Pods in the place that has fewest; 0 where there are fewer places than the rule asks for."""
        return min(counts.values()) if len(counts) >= self._rules[number].min_domains else 0


def _near(
    group: PodGroup,
    terms: Sequence[PodAffinityTerm],
    priced_candidates: Sequence[PricedCandidate],
    running: Sequence[RunningPod],
) -> tuple[str, list[str], str]:
    """Topology key and places where a pod with these affinity terms may go, or a sentence why that is not planned."""
    keys = sorted({term.topology_key for term in terms})
    if len(keys) > 1 or keys[0] == HOSTNAME:
        return (
            "",
            [],
            (
                f"The pod's affinity is about {' and '.join(keys)}, which Forebay does not plan for: use a zone "
                "instead, or one pod with several containers."
            ),
        )
    key = keys[0]
    places = _places(key, priced_candidates)
    pod = group.pods[0]
    for term in terms:
        namespaces = term.namespaces or (pod.namespace,)
        selector = term.selector
        near = {
            each.node_labels.get(key)
            for each in running
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
                    f"The pod's affinity needs a {key} where pods of {selector or 'an empty selector'} run, and no "
                    "offer is in one: start those pods first, or allow offers where they run."
                ),
            )
    return key, places, ""


def _one_place(members: Sequence[PodGroup], key: str, places: Iterable[str], trial: Trial) -> list[PodGroup]:
    """The pod groups pinned to the one place that serves most of their pods, and the cheapest of those."""
    best: tuple[tuple[int, int, str], list[PodGroup]] | None = None
    for place in places:
        pinned = [msgspec.structs.replace(group, pin=Pin(key, place)) for group in members]
        rank = (*trial(pinned), place)
        if best is None or rank < best[0]:
            best = (rank, pinned)
    if best is None:
        # The pods need a node with this label, and there is none: packing says why no offer fits.
        return [msgspec.structs.replace(group, pin=Pin(key, "")) for group in members]
    return best[1]
