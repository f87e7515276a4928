"""Pods that end in a moment, although the API server still lists them: their room is free for the next ones.

The node of an owned machine keeps the pods of its previous run until its kubelet has started again. Until then the node
of a machine that was powered on for other pods seems full, and another machine would be powered on for these.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.workloads import Pod

#: So long a kubelet is given to end them: less than `reservation.SCHEDULER_GRACE`, after which a pod that the scheduler
#: has not placed counts as refused.
ENDED_WITHIN: Final = timedelta(seconds=45)
_COMES: Final = frozenset({InstanceState.LAUNCHING, InstanceState.LAUNCHED, InstanceState.JOINED, InstanceState.READY})


class SoonUsed(NamedTuple):
    #: Requests of the pods on each node, without those of pods that end in a moment.
    by_node: Mapping[str, Resources]
    #: When the first of those pods counts again, if it has not ended by then.
    until: datetime | None = None


def soon_used(
    used: Mapping[str, Resources],
    records: Iterable[GPUInstance],
    pending: Iterable[Pod],
    nodes: Mapping[str, Node],
    *,
    pods_by_node: Mapping[str, Collection[Pod]],
    now: datetime,
) -> SoonUsed:
    """`used`, where nodes that were launched for `pending` pods are without the pods that end in a moment."""
    just_ready = [
        (record, node, node.ready_since + ENDED_WITHIN)
        for record in records
        if record.state in _COMES
        and (node := nodes.get(record.node_name or "")) is not None
        and node.ready_since is not None
        and now < node.ready_since + ENDED_WITHIN
    ]
    waiting = {pod.uid for pod in pending} if just_ready else set()
    found: dict[str, Resources] = {}
    ends: list[datetime] = []
    for record, node, until in just_ready:
        if any(each.uid in waiting for each in record.spec.pods):
            ended = [pod for pod in pods_by_node.get(node.name, ()) if _went_down(pod, node)]
            for pod in ended:
                found[node.name] = found.get(node.name, used.get(node.name, Resources())) - pod.shape.requests
            ends += [until] if ended else []
    return SoonUsed({**used, **found}, min(ends)) if found else SoonUsed(used)


def _went_down(pod: Pod, node: Node) -> bool:
    """Whether a pod that is being deleted went down with its node, which is Ready again."""
    return pod.deleted is not None and node.ready_since is not None and pod.created < node.ready_since
