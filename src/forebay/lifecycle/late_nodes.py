"""Late nodes: those that become Ready after a termination call of their machine was sent.

The call may still act, minutes later, or another may follow it: a pod that is bound meanwhile would be lost with the
machine. So the node is cordoned as soon as it is seen, also while the call is under way.
"""

from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.lifecycle.steps import Drain
from forebay.lifecycle.wording import terminated
from forebay.model.nodes import Node
from forebay.model.reasons import Reason

_ENDING: Final = (InstanceState.DRAINING, InstanceState.TERMINATING)


def cordon(record: GPUInstance, node: Node) -> Drain:
    sentence = f"Cordoning node {node.name}, so that no more pods are placed on it before it is {terminated(record)}."
    return Drain(record=record, reason=Reason.DRAINING, sentence=sentence, node=node)


def cordon_late_node(record: GPUInstance, node: Node | None) -> Drain | None:
    """The cordon of the machine's own node, where the machine may be terminated by a call that was sent before."""
    status = record.status
    called = status is not None and record.state in _ENDING and status.termination_attempts
    if not called or node is None or not node.ready or node.unschedulable:
        return None
    return cordon(record, node)
