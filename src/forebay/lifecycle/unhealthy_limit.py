"""Where many nodes turn unhealthy at once, the cause is rarely the nodes."""

from collections.abc import Iterable, Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.lifecycle.transitions import cause
from forebay.model.nodes import Node
from forebay.model.reasons import Reason

#: More than this many, and more than one in `SHARE`.
MANY: Final = 3
SHARE: Final = 5


def replacement_paused(records: Iterable[GPUInstance], nodes: Mapping[str, Node]) -> str | None:
    """Of the records of one pool: why none is given up as unhealthy now, and what to do."""
    unhealthy: list[str] = []
    counted = 0
    for record in records:
        state = record.state
        given_up = (
            state in (InstanceState.DRAINING, InstanceState.TERMINATING) and cause(record.status) == Reason.UNHEALTHY
        )
        if state is not InstanceState.READY and not given_up:
            continue
        counted += 1
        node = nodes.get(record.node_name or "")
        if given_up or node is None or not node.ready:
            unhealthy.append(record.metadata.name)
    if len(unhealthy) <= MANY or len(unhealthy) * SHARE <= counted:
        return None
    shown = ", ".join(sorted(unhealthy)[:MANY])
    return (
        f"{len(unhealthy)} of {counted} nodes are unhealthy at once ({shown}, ...): the cause may lie elsewhere, so "
        "none is given up. Look at the network and the control plane; delete a GPUInstance to give it up all the same."
    )
