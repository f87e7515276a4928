"""Which places each pod group may go to, as rules about zones and other topologies larger than a node allow."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from forebay.api.names import PROVIDER_LABEL
from forebay.model.fit import selects_labels, untainted
from forebay.model.nodes import Node
from forebay.model.requirements import Taint
from forebay.model.workloads import PodAffinityTerm, PodShape
from forebay.planning.candidate_groups import PricedCandidate, admits
from forebay.planning.gangs import TOGETHER, GangKey, Gangs
from forebay.planning.plan import RunningPod
from forebay.planning.pod_groups import HOSTNAME, Pin, PodGroup, PodGroups, PodRule

_LABELS: Final = {
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
    "provider": PROVIDER_LABEL,
}
#: Value of a topology label. None: nodes without the label, where anti-affinity never forbids a pod.
Place = str | None
#: Place of pods that need a node with a label that no offer has: packing says why none fits.
NOWHERE: Final = ""


class Existing(NamedTuple):
    """What is in the cluster, as far as rules about places look at it."""

    running: Sequence[RunningPod]
    nodes: Sequence[Node]


class PlaceChoice(NamedTuple):
    """Where the pods of one group may go."""

    key: str
    #: Cheapest first where the pods are spread.
    places: tuple[Place, ...]
    #: Groups with an equal value here must all go to one place.
    shared: str | None = None
    #: Because their gang must be together.
    is_gang: bool = False
    #: Why such rules are not planned for; "" where they are.
    sentence: str = ""


def place_choices(
    demand: PodGroups, priced_candidates: Sequence[PricedCandidate], running: Sequence[RunningPod], gangs: Gangs
) -> list[PlaceChoice | None]:
    """By pod group; None where the pods may go anywhere."""
    together = _together(demand, gangs)
    offered = _OfferedPlaces(priced_candidates)
    return [_choice(group, demand, offered, running, together) for group in demand.groups]


def _choice(
    group: PodGroup,
    demand: PodGroups,
    offered: "_OfferedPlaces",
    running: Sequence[RunningPod],
    together: Mapping[GangKey, "_Together"],
) -> PlaceChoice | None:
    shared = None if group.gang is None else together.get(group.gang)
    rules = bool(group.rules) + bool(group.shape.pod_affinity) + (shared is not None)
    if rules > 1:
        why = "The pod has several of affinity, spread and together rules, which Forebay does not plan for: keep one."
        return PlaceChoice("", (), sentence=why)
    if group.shape.pod_affinity:
        return _affinity_not_planned(group, demand) or _near(group, group.shape.pod_affinity, offered, running)
    if group.gang is not None and shared is not None:
        return _beside_gang(group.gang, shared, offered)
    if group.rules:
        if unplanned := _not_planned(group, demand):
            return PlaceChoice("", (), sentence=unplanned)
        key = demand.rules[group.rules[0]].topology_key
        prices = dict(offered.prices(group, key))
        if any(demand.rules[number].max_skew for number in group.rules):
            prices.pop(None, None)
        return PlaceChoice(key, tuple(sorted(prices, key=lambda place: (prices[place], place or ""))))
    return None


class _Together(NamedTuple):
    """What the nodes of a whole gang must share."""

    key: str
    #: Its values on nodes of the gang that are there or launching.
    there: frozenset[str]


def _together(demand: PodGroups, gangs: Gangs) -> dict[GangKey, _Together]:
    """By gang. One pod that asks for it is enough."""
    found: dict[GangKey, str] = {}
    for group in demand.groups:
        if group.gang is None:
            continue
        known = gangs.get(group.gang)
        if known is not None and known.together is not None:
            found[group.gang] = known.together
        elif (asked := group.pods[0].annotations.get(TOGETHER)) is not None:
            found.setdefault(group.gang, _LABELS.get(asked, asked))
    nodes = {gang: gangs[gang].nodes for gang in found if gang in gangs}
    return {
        gang: _Together(key, frozenset(labels[key] for labels in nodes.get(gang, ()) if key in labels))
        for gang, key in found.items()
    }


def _beside_gang(gang: GangKey, shared: _Together, offered: "_OfferedPlaces") -> PlaceChoice:
    """One place for all of a gang, and where some of it is placed, that place."""
    key, there = shared
    places = [place for place in offered.values(key) if not there or place in there]
    if there and not places:
        why = (
            f"All pods of the gang {gang} must share one {key}, those that have a node are in "
            f"{', '.join(sorted(there))}, and no offer is there: allow offers there, or delete those pods, so that the "
            "whole gang can go elsewhere."
        )
        return PlaceChoice("", (), sentence=why)
    return PlaceChoice(key, tuple(places), f"gang {gang}", is_gang=True)


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


def _affinity_not_planned(group: PodGroup, demand: PodGroups) -> PlaceChoice | None:
    """A refusal where the affinity also selects waiting pods that may go elsewhere: the first of them would decide."""
    for term in group.shape.pod_affinity:
        namespaces = term.namespaces or (group.namespace,)
        for other in demand.groups:
            if (
                term.selector is not None
                and term not in other.shape.pod_affinity
                and any(pod.namespace in namespaces and term.selector.matches(pod.labels) for pod in other.pods)
                and any(pod.namespace in namespaces and term.selector.matches(pod.labels) for pod in group.pods)
            ):
                why = (
                    f"The pod's affinity also selects waiting pods without that affinity ({term.selector}), which "
                    "Forebay does not plan for: give them the affinity too, or select fewer pods."
                )
                return PlaceChoice("", (), sentence=why)
    return None


class _OfferedPlaces:
    """Places that candidates are in, remembered."""

    def __init__(self, priced_candidates: Sequence[PricedCandidate]) -> None:
        self._candidates = priced_candidates
        self._values: dict[str, list[str]] = {}
        self._prices: dict[tuple[int, str], dict[Place, int]] = {}

    def values(self, key: str) -> list[str]:
        if key not in self._values:
            labels = (priced.candidate.node.labels.get(key) for priced in self._candidates)
            self._values[key] = sorted({value for value in labels if value is not None})
        return self._values[key]

    def prices(self, group: PodGroup, key: str) -> Mapping[Place, int]:
        """Score of the cheapest node that takes such a pod, by place."""
        found = self._prices.get((group.kind, key))
        if found is None:
            found = self._prices[group.kind, key] = {}
            for priced in self._candidates:
                node = priced.candidate.node
                place = node.labels.get(key)
                if (
                    place not in found
                    and priced.candidate.available != 0
                    and group.shape.requests.fits_within(node.allocatable)
                    and admits(group, priced.candidate)
                ):
                    found[place] = priced.score
        return found


def _near(
    group: PodGroup,
    terms: Sequence[PodAffinityTerm],
    offered: _OfferedPlaces,
    running: Sequence[RunningPod],
) -> PlaceChoice:
    """Places where a pod with these affinity terms may go, or a sentence why that is not planned."""
    keys = sorted({term.topology_key for term in terms})
    if len(keys) > 1 or keys[0] == HOSTNAME:
        why = (
            f"The pod's affinity is about {' and '.join(keys)}, which Forebay does not plan for: use a zone instead, "
            "or one pod with several containers."
        )
        return PlaceChoice("", (), sentence=why)
    key = keys[0]
    places = offered.values(key)
    pod = group.pods[0]
    near_running = False
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
            near_running = True
            places = [place for place in places if place in near]
        if not places:
            why = (
                f"The pod's affinity needs a {key} where pods of {selector or 'an empty selector'} run, and no offer "
                "is in one: start those pods first, or allow offers where they run."
            )
            return PlaceChoice("", (), sentence=why)
    # Near running pods, each pod may choose any of their places; otherwise the first one decides for all.
    return PlaceChoice(key, tuple(places), None if near_running else f"{group.namespace} {terms}")


def node_places(group: PodGroup, rule: PodRule, nodes: Iterable[Node]) -> set[str]:
    """Places of the nodes that the rule counts for such a pod, as kube-scheduler does. They need not have room."""
    return {
        place
        for node in nodes
        if (place := node.labels.get(rule.topology_key)) is not None
        and _is_counted(rule, group.shape, node.labels, node.name, node.taints)
    }


def _is_counted(rule: PodRule, shape: PodShape, labels: Mapping[str, str], name: str, taints: Iterable[Taint]) -> bool:
    """Whether a spread counts a node, and what runs there, for pods of the shape."""
    return (not rule.honors_node_affinity or selects_labels(shape, labels, name)) and (
        not rule.honors_node_taints or untainted(shape, taints)
    )


def running_by_place(demand: PodGroups, number: int, running: Iterable[RunningPod]) -> Counter[str]:
    """Running pods that the rule counts, by place: where it is a spread, those on nodes that a pod with it may use."""
    rule = demand.rules[number]
    shapes = [group.shape for group in demand.groups if number in group.rules]
    counts: Counter[str] = Counter()
    for pod in running:
        place = pod.node_labels.get(rule.topology_key)
        if (
            place is not None
            and rule.selects(pod.namespace, pod.labels)
            and (
                not rule.max_skew
                or any(_is_counted(rule, of, pod.node_labels, pod.node_name, pod.node_taints) for of in shapes)
            )
        ):
            counts[place] += 1
    return counts


class GroupAtPlace(NamedTuple):
    """All pods of a group, pinned to one of the places that they may go to."""

    group: PodGroup
    #: Number of the group in the demand.
    origin: int
    place: Place


class Places(NamedTuple):
    """Pod groups at each of their places, for a program that chooses."""

    groups: tuple[GroupAtPlace, ...]
    #: Sets of groups (by number in the demand) that must go to one place.
    shared: tuple[frozenset[int], ...]
    rules: tuple[PodRule, ...]
    #: Running pods by place, for each rule.
    running: tuple[Mapping[str, int], ...]
    nodes: tuple[Node, ...]

    @classmethod
    def of(
        cls,
        demand: PodGroups,
        choices: Sequence[PlaceChoice | None],
        running: Sequence[RunningPod],
        nodes: Sequence[Node],
    ) -> "Places":
        """`choices` by pod group; groups whose rules are not planned for are left out."""
        made: list[GroupAtPlace] = []
        shared: dict[str, set[int]] = {}
        for number, (group, choice) in enumerate(zip(demand.groups, choices, strict=True)):
            if choice is None:
                made.append(GroupAtPlace(group, number, NOWHERE))
                continue
            if choice.sentence:
                continue
            for place in choice.places or (NOWHERE,):
                pinned = msgspec.structs.replace(group, pin=Pin(choice.key, place))
                made.append(GroupAtPlace(pinned, number, place))
            if choice.shared is not None:
                shared.setdefault(choice.shared, set()).add(number)
        return cls(
            tuple(made),
            tuple(frozenset(members) for members in shared.values()),
            demand.rules,
            tuple(running_by_place(demand, number, running) for number in range(len(demand.rules))),
            tuple(nodes),
        )

    def domains(self, at: GroupAtPlace, number: int) -> list[str]:
        """Places over which a rule spreads the pods of the group."""
        mine = {each.place for each in self.groups if each.origin == at.origin and each.place is not None}
        return sorted(mine.union(self.running[number], node_places(at.group, self.rules[number], self.nodes)))
