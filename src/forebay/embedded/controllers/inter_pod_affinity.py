"""Required affinity and anti-affinity between pods: counts per topology that follow each pod as it comes and goes."""

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from forebay.embedded.api.objects import Labels
from forebay.model.workloads import PodAffinityTerm, PodShape

AFFINITY = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY = "node(s) didn't satisfy existing pods anti-affinity rules"


_MOST_COUNTS = 256


class LabelledPod(msgspec.Struct, frozen=True, gc=False):
    """A pod as other pods' terms see it."""

    namespace: str
    labels: Labels
    shape: PodShape


class _Count(msgspec.Struct):
    """How many of the pods a term means are in each domain of its topology."""

    term: PodAffinityTerm
    namespace: str
    domains: Counter[str]

    def means(self, pod: LabelledPod) -> bool:
        return term_matches(self.term, self.namespace, pod)


def term_matches(term: PodAffinityTerm, namespace: str, pod: LabelledPod) -> bool:
    """`namespace` is that of the pod which has the term."""
    if pod.namespace not in (term.namespaces or (namespace,)):
        return False
    return term.selector is not None and term.selector.matches(pod.labels)


class InterPodAffinity:
    """Pods by the labels of the nodes they are on. A node whose labels change has its pods removed and added again."""

    def __init__(self) -> None:
        self._pods: dict[int, tuple[LabelledPod, Labels]] = {}
        #: Pods that are the object of some pod's term, counted once the term has been asked about.
        self._objects: dict[tuple[object, ...], _Count] = {}
        #: Pods that keep others away, by the term with which they do.
        self._guards: dict[tuple[object, ...], _Count] = {}

    def add(self, pod: LabelledPod, node: Labels) -> None:
        self._pods[id(pod)] = (pod, node)
        self._shift(pod, node, 1)

    def remove(self, pod: LabelledPod) -> None:
        _, node = self._pods.pop(id(pod))
        self._shift(pod, node, -1)

    def refusal(self, pod: LabelledPod) -> Callable[[Labels], str | None] | None:
        """Why a node with these labels cannot take the pod. None when no rule concerns it, the common case."""
        guards = [count for count in self._guards.values() if count.means(pod)]
        shape = pod.shape
        if not guards and not shape.pod_affinity and not shape.pod_anti_affinity:
            return None
        near = [self._count(term, pod.namespace) for term in shape.pod_affinity]
        # The first of a group that wants to be together has nobody to join: it may go anywhere.
        alone = not any(count.domains for count in near) and all(count.means(pod) for count in near)
        away = [self._count(term, pod.namespace) for term in shape.pod_anti_affinity]

        def reason(node: Labels) -> str | None:
            for count in near:
                domain = node.get(count.term.topology_key)
                if domain is None or (not alone and not count.domains[domain]):
                    return AFFINITY
            if _any_in(away, node):
                return ANTI_AFFINITY
            return EXISTING_ANTI_AFFINITY if _any_in(guards, node) else None

        return reason

    def _count(self, term: PodAffinityTerm, namespace: str) -> _Count:
        identity = _identity(term, namespace)
        count = self._objects.pop(identity, None)
        if count is None:
            count = _Count(term, namespace, Counter())
            for pod, node in self._pods.values():
                _tick(count, pod, node, 1)
        # Every pod that comes or goes is held against each of these: the one asked about longest ago is let go.
        self._objects[identity] = count
        if len(self._objects) > _MOST_COUNTS:
            del self._objects[next(iter(self._objects))]
        return count

    def _shift(self, pod: LabelledPod, node: Labels, by: int) -> None:
        for count in self._objects.values():
            _tick(count, pod, node, by)
        for term in pod.shape.pod_anti_affinity:
            identity = _identity(term, pod.namespace)
            guard = self._guards.setdefault(identity, _Count(term, pod.namespace, Counter()))
            _add(guard.domains, node.get(term.topology_key), by)
            if not guard.domains:
                del self._guards[identity]


def _tick(count: _Count, pod: LabelledPod, node: Labels, by: int) -> None:
    if count.means(pod):
        _add(count.domains, node.get(count.term.topology_key), by)


def _add(domains: Counter[str], domain: str | None, by: int) -> None:
    if domain is not None:
        domains[domain] += by
        if not domains[domain]:
            del domains[domain]


def _any_in(counts: Iterable[_Count], node: Labels) -> bool:
    domains = ((count.domains, node.get(count.term.topology_key)) for count in counts)
    return any(domain is not None and domain in known for known, domain in domains)


def _identity(term: PodAffinityTerm, namespace: str) -> tuple[object, ...]:
    selector = term.selector
    if selector is None:
        return (term.topology_key, term.namespaces, namespace)
    labels = tuple(sorted(selector.match_labels.items()))
    return (term.topology_key, term.namespaces, namespace, labels, selector.match_expressions)
