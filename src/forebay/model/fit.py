"""Whether a pod of some shape may run on a node, and if not, why: kube-scheduler's filters, in its order and words.

Affinity between pods is not decided here: it depends on the other pods of the cluster, not on this node alone.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.requirements import Effect, Taint, tolerates
from forebay.model.workloads import POD_COUNT, PodShape

#: Key of the taint that a cordoned node has.
CORDON_TAINT: Final = "node.kubernetes.io/unschedulable"
_CORDON: Final = Taint(CORDON_TAINT, "", Effect.NO_SCHEDULE)


class Filter(StrEnum):
    """kube-scheduler's name for the rule that kept a pod off a node."""

    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    TAINT_TOLERATION = "TaintToleration"
    NODE_AFFINITY = "NodeAffinity"
    NODE_PORTS = "NodePorts"
    NODE_RESOURCES_FIT = "NodeResourcesFit"


class Misfit(msgspec.Struct, frozen=True):
    filter: Filter
    #: In kube-scheduler's words. Several only where several resources are short.
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(self.reasons)


_UNSCHEDULABLE: Final = Misfit(Filter.NODE_UNSCHEDULABLE, ("node(s) were unschedulable",))
_AFFINITY: Final = Misfit(Filter.NODE_AFFINITY, ("node(s) didn't match Pod's node affinity/selector",))
_PORTS: Final = Misfit(Filter.NODE_PORTS, ("node(s) didn't have free ports for the requested pod ports",))


def barred(shape: PodShape, node: Node) -> Misfit | None:
    """Why such a pod could not run on `node` even if that were empty: the part of `misfit` that is worth caching."""
    if node.unschedulable and not tolerates(shape.tolerations, _CORDON):
        return _UNSCHEDULABLE
    for taint in node.taints:
        if taint.repels and not tolerates(shape.tolerations, taint):
            # Newer schedulers say only "taint(s)"; a reader needs to know which taint.
            return Misfit(Filter.TAINT_TOLERATION, (f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}",))
    return None if selects(shape, node) else _AFFINITY


def misfit(
    shape: PodShape, node: Node, free: Resources, ports_in_use: Collection[tuple[int, str]] = ()
) -> Misfit | None:
    """Why a pod of this shape cannot run on `node` with `free` resources left; None where it can."""
    if found := barred(shape, node):
        return found
    if any(port in ports_in_use for port in shape.host_ports):
        return _PORTS
    if shape.requests.fits_within(free):
        return None
    return Misfit(
        Filter.NODE_RESOURCES_FIT,
        tuple(
            "Too many pods" if name == POD_COUNT else f"Insufficient {name}" for name in shape.requests.short_of(free)
        ),
    )


def untainted(shape: PodShape, taints: Iterable[Taint]) -> bool:
    """Whether the pod tolerates every one of the taints that keeps pods away."""
    return all(not taint.repels or tolerates(shape.tolerations, taint) for taint in taints)


def selects(shape: PodShape, node: Node) -> bool:
    """Whether the node has the labels (or the name) that the pod requires."""
    return selects_labels(shape, node.labels, node.name)


def selects_labels(shape: PodShape, labels: Mapping[str, str], name: str) -> bool:
    """As `selects`, for the labels and the name of a node."""
    for key, value in shape.node_selector.items():
        if labels.get(key) != value:
            return False
    return shape.node_affinity is None or any(term.matches(labels, name) for term in shape.node_affinity)


def preference(shape: PodShape, node: Node) -> int:
    """Sum of the weights of the pod's preferred terms that match the node."""
    return sum(
        preferred.weight
        for preferred in shape.preferred_node_affinity
        if preferred.term.matches(node.labels, node.name)
    )
