"""InterPodAffinity: required affinity and anti-affinity between pods, as counts per topology domain.

The counts follow each pod that is bound or goes, so that a filter looks at domains and never at all pods.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from forebay.embedded.api.objects import Labels
from forebay.model.workloads import PodAffinityTerm, PodShape

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"

_MAX_CACHED_COUNTS = 256


class LabelledPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as the affinity terms of other pods see it."""

    namespace: str
    labels: Labels
    shape: PodShape


class _TermCount(msgspec.Struct):
    """Per topology domain, the number of pods that count for one term: as its targets, or as the pods that have it."""

    term: PodAffinityTerm
    #: Of the pods that have the term.
    namespace: str
    domains: Counter[str]

    def matches(self, pod: LabelledPod) -> bool:
        return term_matches(self.term, self.namespace, pod)


def term_matches(term: PodAffinityTerm, namespace: str, pod: LabelledPod) -> bool:
    """Whether the term selects the pod. `namespace` is that of the pod which has the term."""
    if pod.namespace not in (term.namespaces or (namespace,)):
        return False
    return term.selector is not None and term.selector.matches(pod.labels)


class InterPodAffinity:
    """All bound pods with the labels of their nodes. When a node's labels change, its pods are removed and added."""

    def __init__(self) -> None:
        self._pods: dict[int, tuple[LabelledPod, Labels]] = {}
        #: The pods that a term selects; counted from the first filter with this term on.
        self._targets: dict[tuple[object, ...], _TermCount] = {}
        #: The pods that have an anti-affinity term, which keeps the pods it selects out of their domains.
        self._existing_anti_affinity: dict[tuple[object, ...], _TermCount] = {}

    def add(self, pod: LabelledPod, node: Labels) -> None:
        self._pods[id(pod)] = (pod, node)
        self._update_counts(pod, node, 1)

    def remove(self, pod: LabelledPod) -> None:
        _, node = self._pods.pop(id(pod))
        self._update_counts(pod, node, -1)

    def filter_for(self, pod: LabelledPod) -> Callable[[Labels], str | None] | None:
        """A filter that returns why a node with given labels cannot take the pod.

        None when no term concerns the pod, which is the common case.
        """
        existing = [count for count in self._existing_anti_affinity.values() if count.matches(pod)]
        shape = pod.shape
        if not existing and not shape.pod_affinity and not shape.pod_anti_affinity:
            return None
        affinity = [self._target_count(term, pod.namespace) for term in shape.pod_affinity]
        # The first pod of a group that selects itself has none to join, so it may go anywhere.
        is_first = not any(count.domains for count in affinity) and all(count.matches(pod) for count in affinity)
        anti_affinity = [self._target_count(term, pod.namespace) for term in shape.pod_anti_affinity]

        def reason(node: Labels) -> str | None:
            for count in affinity:
                domain = node.get(count.term.topology_key)
                if domain is None or (not is_first and not count.domains[domain]):
                    return AFFINITY
            if _any_in(anti_affinity, node):
                return ANTI_AFFINITY
            return EXISTING_ANTI_AFFINITY if _any_in(existing, node) else None

        return reason

    def _target_count(self, term: PodAffinityTerm, namespace: str) -> _TermCount:
        identity = _identity(term, namespace)
        count = self._targets.pop(identity, None)
        if count is None:
            count = _TermCount(term, namespace, Counter())
            for pod, node in self._pods.values():
                _count_target(count, pod, node, 1)
        # Every pod that is bound or goes is matched against each of these, so the least recently used one is dropped.
        self._targets[identity] = count
        if len(self._targets) > _MAX_CACHED_COUNTS:
            del self._targets[next(iter(self._targets))]
        return count

    def _update_counts(self, pod: LabelledPod, node: Labels, by: int) -> None:
        for count in self._targets.values():
            _count_target(count, pod, node, by)
        for term in pod.shape.pod_anti_affinity:
            identity = _identity(term, pod.namespace)
            existing = self._existing_anti_affinity.setdefault(identity, _TermCount(term, pod.namespace, Counter()))
            _add(existing.domains, node.get(term.topology_key), by)
            if not existing.domains:
                del self._existing_anti_affinity[identity]


def _count_target(count: _TermCount, pod: LabelledPod, node: Labels, by: int) -> None:
    if count.matches(pod):
        _add(count.domains, node.get(count.term.topology_key), by)


def _add(domains: Counter[str], domain: str | None, by: int) -> None:
    if domain is not None:
        domains[domain] += by
        if not domains[domain]:
            del domains[domain]


def _any_in(counts: Iterable[_TermCount], node: Labels) -> bool:
    domains = ((count.domains, node.get(count.term.topology_key)) for count in counts)
    return any(domain is not None and domain in known for known, domain in domains)


def _identity(term: PodAffinityTerm, namespace: str) -> tuple[object, ...]:
    selector = term.selector
    if selector is None:
        return (term.topology_key, term.namespaces, namespace)
    labels = tuple(sorted(selector.match_labels.items()))
    return (term.topology_key, term.namespaces, namespace, labels, selector.match_expressions)
