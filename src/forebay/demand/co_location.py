"""Required pod anti-affinity on the hostname: pods that must not share a node, in both directions.

Wider topologies, affinity and topology spread are left to the scheduler. Where these keep a pod from a node that seems
to fit, `reservation` notices that the pod stays unbound and stops counting on that node.
"""

from collections.abc import Iterable
from typing import Final

from forebay.model.workloads import Pod, PodAffinityTerm

HOSTNAME: Final = "kubernetes.io/hostname"


def has_anti_affinity(pod: Pod) -> bool:
    return any(term.topology_key == HOSTNAME for term in pod.shape.pod_anti_affinity)


def violates_anti_affinity(pod: Pod, others: Iterable[Pod]) -> bool:
    """Whether the pod must not share a node with one of the others, by its own terms or by theirs."""
    return any(_rejects(pod, other) or _rejects(other, pod) for other in others)


def _rejects(pod: Pod, other: Pod) -> bool:
    return any(
        term.topology_key == HOSTNAME and _selects(term, pod.namespace, other) for term in pod.shape.pod_anti_affinity
    )


def _selects(term: PodAffinityTerm, own_namespace: str, other: Pod) -> bool:
    """Whether the term selects the other pod. A term without a selector selects none."""
    return (
        other.namespace in (term.namespaces or (own_namespace,))
        and term.selector is not None
        and term.selector.matches(other.labels)
    )
