"""Pods that refuse to share a node: required anti-affinity on the hostname, in both directions.

Wider topologies, affinity and spreading are the scheduler's alone: where they keep a pod from a node that seems to fit,
`settle` finds out by its waiting.
"""

from collections.abc import Iterable
from typing import Final

from forebay.model.workloads import Pod, PodAffinityTerm

HOSTNAME: Final = "kubernetes.io/hostname"


def has_anti_affinity(pod: Pod) -> bool:
    return any(term.topology_key == HOSTNAME for term in pod.shape.pod_anti_affinity)


def keeps_apart(pod: Pod, others: Iterable[Pod]) -> bool:
    """One of the others must not be on a node with this pod, or this pod with it."""
    return any(_rejects(pod, other) or _rejects(other, pod) for other in others)


def _rejects(pod: Pod, other: Pod) -> bool:
    return any(
        term.topology_key == HOSTNAME and _means(term, pod.namespace, other) for term in pod.shape.pod_anti_affinity
    )


def _means(term: PodAffinityTerm, home: str, other: Pod) -> bool:
    """No selector picks nobody."""
    return (
        other.namespace in (term.namespaces or (home,))
        and term.selector is not None
        and term.selector.matches(other.labels)
    )
