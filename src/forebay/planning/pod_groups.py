"""Pod groups: pods that are interchangeable to the planner, so that ten thousand pods become a few dozen counts.

Rules between pods of one node become resources of which every node has a limited amount: a host port is a resource
that each node has once. Packing then only needs to know amounts.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from forebay.model.encoding import enc_hook
from forebay.model.requirements import LabelOperator, LabelSelector, NodeSelectorTerm, Requirement
from forebay.model.workloads import Pod, PodShape
from forebay.planning.gangs import TOGETHER, GangKey, gang_key

HOSTNAME: Final = "kubernetes.io/hostname"
#: More than the pods of any node: a pod that takes all of it is alone.
_ALL: Final = 2**20

_encoder = msgspec.json.Encoder(enc_hook=enc_hook, order="deterministic")


class PodRule(msgspec.Struct, frozen=True):
    """Required anti-affinity or topology spread towards the pods that `selector` picks."""

    topology_key: str
    namespaces: tuple[str, ...]
    selector: LabelSelector
    #: How many more of these pods one place may have than another. 0 (anti-affinity): none beside the pods with the
    #: rule.
    max_skew: int
    #: Least number of places to spread over.
    min_domains: int = 1
    honors_node_affinity: bool = True
    honors_node_taints: bool = False

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return namespace in self.namespaces and self.selector.matches(labels)


class Pin(NamedTuple):
    """A label that the node must have, because a place was chosen for several pods together."""

    key: str
    #: None: the node must not have the label.
    value: str | None


class PodGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Interchangeable pods, in the order in which they are served."""

    shape: PodShape
    pods: tuple[Pod, ...]
    #: Requests of the shape, and the resources that stand for rules between pods of one node.
    needs: Mapping[str, int]
    gang: GangKey | None = None
    pin: Pin | None = None
    #: Rules about places larger than a node, which placement handles: numbers into `PodGroups.rules`.
    rules: tuple[int, ...] = ()
    #: Rules of any pod group whose selector picks these pods.
    selected_by: frozenset[int] = frozenset()
    #: Groups with an equal number here are alike to packing: they differ only in their gang, or in rules about places.
    kind: int = -1

    @property
    def count(self) -> int:
        return len(self.pods)

    @property
    def namespace(self) -> str:
        return self.pods[0].namespace

    @property
    def priority(self) -> int:
        return self.shape.priority


class PodGroups(msgspec.Struct, frozen=True, kw_only=True):
    groups: tuple[PodGroup, ...]
    #: Amount that every node has of each resource that stands for a rule.
    room: Mapping[str, int]
    rules: tuple[PodRule, ...] = ()
    #: Whether rules about pods of one node are planned more strictly than the scheduler needs.
    is_strict: bool = False

    def gangs(self) -> Counter[GangKey]:
        """Number of pods in each gang."""
        members: Counter[GangKey] = Counter()
        for group in self.groups:
            if group.gang is not None:
                members[group.gang] += group.count
        return members

    def by_kind(self) -> tuple[list[PodGroup], list[int]]:
        """One group for all that are alike to packing and at one place; and by pod group, the number of its own."""
        numbers: dict[tuple[int, Pin | None], int] = {}
        own = [numbers.setdefault((group.kind, group.pin), len(numbers)) for group in self.groups]
        members: list[list[Pod]] = [[] for _ in numbers]
        first: dict[int, PodGroup] = {}
        for number, group in zip(own, self.groups, strict=True):
            members[number] += group.pods
            first.setdefault(number, group)
        if len(numbers) == len(own):
            return list(self.groups), own
        return [msgspec.structs.replace(first[n], pods=tuple(pods)) for n, pods in enumerate(members)], own


def pod_groups(pods: Iterable[Pod], served: Sequence[frozenset[str]]) -> PodGroups:
    """Pods by group. `served`: sets of namespaces that pools serve; pods of one group are in the same of these sets."""
    canonical: dict[int, bytes] = {}
    by_rule: dict[bytes, int] = {}
    rules: list[PodRule] = []
    ordered = sorted(pods, key=service_order)
    for pod in ordered:
        if id(pod.shape) not in canonical:
            canonical[id(pod.shape)] = _encoder.encode(pod.shape)
    ruled = {key for pod in ordered if _has_rules(pod.shape) for key in [id(pod.shape)]}
    owned: dict[_Traits, tuple[int, ...]] = {}
    for pod in ordered if ruled else ():
        if id(pod.shape) in ruled and (traits := _traits(pod)) not in owned:
            numbers = []
            for rule in _rules(pod):
                identity = _encoder.encode(rule)
                if identity not in by_rule:
                    by_rule[identity] = len(rules)
                    rules.append(rule)
                numbers.append(by_rule[identity])
            owned[traits] = tuple(sorted(numbers))
    selecting = _RuleIndex(rules)
    alike: defaultdict[tuple[object, ...], list[Pod]] = defaultdict(list)
    known: dict[_Traits, tuple[object, ...]] = {}
    for pod in ordered:
        key: tuple[object, ...] = (canonical[id(pod.shape)],)
        if pod.annotations or pod.labels:
            key += (gang_key(pod), pod.annotations.get(TOGETHER))
        if served:
            key += tuple(pod.namespace in names for names in served)
        if rules:
            traits = _traits(pod)
            if traits not in known:
                known[traits] = (owned.get(traits, ()), tuple(sorted(selecting.rules_for(pod))))
            key += known[traits]
        if pod.shape.pod_affinity:
            key += (pod.namespace, *sorted(pod.labels.items()))
        alike[key].append(pod)
    room: dict[str, int] = {}
    kinds: dict[tuple[object, ...], int] = {}
    made = []
    # On new nodes, a rule matters that selects a waiting pod.
    felt = frozenset(number for members in alike.values() for number in selecting.rules_for(members[0]))
    for members in alike.values():
        first = members[0]
        mine = owned.get(_traits(first), ())
        selected_by = selecting.rules_for(first)
        needs = _needs(first.shape, rules, felt.intersection(mine), selected_by, room)
        kind = (canonical[id(first.shape)], *needs.items(), *(first.namespace in names for names in served))
        made.append(
            PodGroup(
                shape=_with_spread_keys(first.shape),
                pods=tuple(members),
                needs=needs,
                kind=kinds.setdefault(kind, len(kinds)),
                gang=gang_key(first),
                rules=tuple(number for number in mine if rules[number].topology_key != HOSTNAME),
                selected_by=selected_by,
            )
        )
    strict = any(_is_strict(group, rules, owned.get(_traits(group.pods[0]), ())) for group in made)
    return PodGroups(groups=tuple(made), room=room, rules=tuple(rules), is_strict=strict)


def _is_strict(group: PodGroup, rules: Sequence[PodRule], mine: Collection[int]) -> bool:
    """Whether pods of the group are kept apart that the scheduler would let share a node.

    Namely pods that a rule of others selects, and pods that avoid others and not each other.
    """
    return any(
        rules[number].topology_key == HOSTNAME and (number not in mine or not rules[number].max_skew)
        for number in group.selected_by.symmetric_difference(mine)
    )


_Traits = tuple[int, str, frozenset[tuple[str, str]]]


def _traits(pod: Pod) -> _Traits:
    """All of a pod that rules between pods look at."""
    return id(pod.shape), pod.namespace, frozenset(pod.labels.items())


class _RuleIndex:
    """Finds the rules that select a pod, without asking each of hundreds of rules for each of thousands of pods."""

    def __init__(self, rules: Sequence[PodRule]) -> None:
        self._rules = rules
        self._by_label: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._others: list[int] = []
        for number, rule in enumerate(rules):
            if rule.selector.match_labels:
                self._by_label[min(rule.selector.match_labels.items())].append(number)
            else:
                self._others.append(number)

    def rules_for(self, pod: Pod) -> frozenset[int]:
        if not self._rules:
            return frozenset()
        likely = [*self._others, *(n for pair in pod.labels.items() for n in self._by_label.get(pair, ()))]
        return frozenset(n for n in likely if self._rules[n].selects(pod.namespace, pod.labels))


def service_order(pod: Pod) -> tuple[object, ...]:
    """Sort key by which pods are served, one before the other."""
    return (-pod.shape.priority, pod.created, pod.namespace, pod.name, pod.uid)


def _with_spread_keys(shape: PodShape) -> PodShape:
    """The shape, on nodes with the labels of spreads without a selector: that is all which these ask for."""
    asked = {spread.topology_key for spread in shape.topology_spread if spread.selector is None} - {HOSTNAME}
    if not asked:
        return shape
    there = tuple(Requirement(key, LabelOperator.EXISTS, ()) for key in sorted(asked))
    terms = [term for term in shape.node_affinity or () if term.match_expressions or term.match_fields]
    required = [msgspec.structs.replace(each, match_expressions=(*each.match_expressions, *there)) for each in terms]
    either = (NodeSelectorTerm(there),) if shape.node_affinity is None else tuple(required)
    return msgspec.structs.replace(shape, node_affinity=either)


def _has_rules(shape: PodShape) -> bool:
    return bool(shape.pod_anti_affinity or shape.topology_spread)


def _rules(pod: Pod) -> Iterable[PodRule]:
    for term in pod.shape.pod_anti_affinity:
        if term.selector is not None:
            yield PodRule(term.topology_key, tuple(sorted(term.namespaces or (pod.namespace,))), term.selector, 0)
    for spread in pod.shape.topology_spread:
        if spread.selector is not None:
            same = tuple(
                Requirement(key, LabelOperator.IN, (pod.labels[key],))
                for key in spread.match_label_keys
                if key in pod.labels
            )
            selector = LabelSelector(spread.selector.match_labels, (*spread.selector.match_expressions, *same))
            yield PodRule(
                spread.topology_key,
                (pod.namespace,),
                selector,
                max(spread.max_skew, 1),
                max(spread.min_domains or 1, 1),
                spread.honors_node_affinity,
                spread.honors_node_taints,
            )


def _needs(
    shape: PodShape, rules: Sequence[PodRule], mine: frozenset[int], selected_by: frozenset[int], room: dict[str, int]
) -> Mapping[str, int]:
    # An API server refuses negative requests, but a file may hold one: it must not make room for others.
    needs = {name: max(amount, 0) for name, amount in shape.requests.items()}
    for port, protocol in shape.host_ports:
        name = f"host port {port}/{protocol}"
        needs[name] = room[name] = 1
    for number in mine | selected_by:
        rule = rules[number]
        if rule.topology_key != HOSTNAME:
            continue
        name = f"neighbours by rule {number}"
        if rule.max_skew:
            # New nodes start with none of these pods, and one may stay without any: so no node may have more than the
            # skew. Pods that their own rule does not select are not counted.
            if number in selected_by:
                needs[name], room[name] = 1, rule.max_skew
        else:
            # Stricter than the scheduler where a pod avoids other pods but not those of its own group.
            needs[name], room[name] = _ALL if number in mine else 1, _ALL
    return needs
