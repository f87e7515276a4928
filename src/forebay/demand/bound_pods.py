"""Pods bound to the node of an owned machine that is off: demand for that very machine.

kube-scheduler binds a pod that tolerates everything to a NotReady node too. No scheduler looks at such a pod again: it
waits until the machine is powered on.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.model.kept import kept
from forebay.model.nodes import Node
from forebay.model.requirements import LabelOperator, NodeSelectorTerm, Requirement, Toleration
from forebay.model.workloads import Phase, Pod, PodShape

#: States of a record in which its machine is up, or on its way down: lifecycle decides what becomes of its pods.
_SERVING_OR_LEAVING: Final = frozenset(
    {InstanceState.READY, InstanceState.DRAINING, InstanceState.TERMINATING, InstanceState.FINISHED}
)
_ANYTHING: Final = (Toleration(operator="Exists"),)


def waiting_for_their_machine(
    machines: Iterable[str],
    nodes: Mapping[str, Node],
    records: Iterable[GPUInstance],
    bound_to: Callable[[str], Iterable[Pod]],
) -> tuple[Pod, ...]:
    """GPU pods that wait on the NotReady nodes of owned `machines`, as unschedulable pods that fit no other node."""
    off = _off(records, machines, nodes)
    return tuple(_pinned(pod, name) for name in off for pod in bound_to(name) if _waits(pod))


@kept
def _off(records: Iterable[GPUInstance], machines: Iterable[str], nodes: Mapping[str, Node]) -> tuple[str, ...]:
    busy = {record.node_name for record in records if record.state in _SERVING_OR_LEAVING}
    there = ((name, nodes.get(name)) for name in sorted(set(machines) - busy))
    return tuple(name for name, node in there if node is not None and not node.ready and node.deleted is None)


def _waits(pod: Pod) -> bool:
    """True for a pod that has never started. One that ran when its machine went off is replaced by its owner."""
    return pod.phase is Phase.PENDING and pod.deleted is None and pod.started is None and pod.occupies_node


def _pinned(pod: Pod, node: str) -> Pod:
    """The pod as it would be if its binding were a requirement. Taints and selectors count no more once it is bound."""
    name = Requirement("metadata.name", LabelOperator.IN, (node,))
    shape = PodShape(
        requests=pod.shape.requests,
        node_affinity=(NodeSelectorTerm(match_fields=(name,)),),
        tolerations=_ANYTHING,
        priority=pod.shape.priority,
        scheduler_name=pod.shape.scheduler_name,
        host_ports=pod.shape.host_ports,
    )
    message = f"The pod is bound to node {node}, whose machine is off."
    return replace(
        pod, shape=shape, node=None, nominated_node=None, unschedulable_since=pod.created, unschedulable_message=message
    )
