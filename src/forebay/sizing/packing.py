"""How many nodes of a group waiting pods need: pods are packed by all their resources, not only by GPUs."""

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from forebay.demand.free_capacity import FreeNode
from forebay.demand.reservation import reserve
from forebay.model.workloads import Pod


class NewNodes(msgspec.Struct, frozen=True, kw_only=True):
    """New nodes of one group, and the pods that they would take."""

    #: The pods of each node.
    nodes: tuple[tuple[Pod, ...], ...] = ()
    #: Pods that do not fit such a node, or for which no further node is allowed.
    left: tuple[Pod, ...] = ()

    @property
    def count(self) -> int:
        return len(self.nodes)

    @property
    def pods(self) -> tuple[Pod, ...]:
        return tuple(pod for pods in self.nodes for pod in pods)


def new_nodes(
    pods: Sequence[Pod],
    template: FreeNode,
    most: int | None,
    now: datetime,
    gpu_resources: Collection[str] | None = None,
) -> NewNodes:
    """The nodes like `template` that take these pods, by best fit, and at most `most` of them."""
    limit = len(pods) if most is None else min(most, len(pods))
    if limit <= 0:
        return NewNodes(left=tuple(pods))
    copies = [
        replace(template, node=replace(template.node, name=f"{template.node.name}-{at:06}"), launching="new")
        for at in range(limit)
    ]
    found = reserve(pods, copies, now, gpu_resources=gpu_resources)
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.uid in found.placed:
            by_node.setdefault(found.placed[pod.uid].node, []).append(pod)
    left = tuple(pod for pod in pods if pod.uid not in found.placed)
    return NewNodes(nodes=tuple(tuple(each) for each in by_node.values()), left=left)
