"""Limit on replacing unhealthy nodes: where many fail at once, the cause is rarely the nodes."""

from collections.abc import Iterable, Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.lifecycle.transitions import cause
from forebay.model.nodes import Node
from forebay.model.reasons import Reason

#: Replacement is paused while more than this many nodes, and more than one in `SHARE`, are unhealthy.
MANY: Final = 3
SHARE: Final = 5


def replacement_paused(records: Iterable[GPUInstance], nodes: Mapping[str, Node]) -> str | None:
    """Why no unhealthy node among the records of one pool is replaced now, and what to do; None where they are."""
    unhealthy: list[str] = []
    counted = 0
    for record in records:
        if record.state is InstanceState.READY:
            counted += 1
            node = nodes.get(record.node_name or "")
            if node is None or not node.ready:
                unhealthy.append(record.metadata.name)
        elif cause(record.status) == Reason.UNHEALTHY:  # it is leaving because of that
            counted += 1
            unhealthy.append(record.metadata.name)
    if len(unhealthy) <= MANY or len(unhealthy) * SHARE <= counted:
        return None
    shown = ", ".join(sorted(unhealthy)[:MANY])
    return (
        f"{len(unhealthy)} of {counted} nodes are unhealthy at once ({shown}, ...), so none is replaced: the cause is "
        "probably not the nodes. Check the network and the control plane; delete a GPUInstance to replace its machine "
        "anyway."
    )
