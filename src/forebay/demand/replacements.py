"""Replacements: GPUInstances that were launched to take the pods of others, which are drained when these are Ready."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.parts import Condition, Truth
from forebay.demand.free_capacity import FreeNode
from forebay.demand.planned_pods import is_leaving
from forebay.model.workloads import Pod

#: Condition of a GPUInstance whose node is to be replaced: True while a replacement is looked for or launching.
REPLACEMENT: Final = "Replacement"
#: Condition of a GPUInstance whose pods fit on other nodes or on a cheaper one, and since when.
UNDERUTILIZED: Final = "Underutilized"

_PLACED: Final = frozenset({InstanceState.READY, InstanceState.DRAINING})


class Replaced(NamedTuple):
    """A GPUInstance that is still to go, and the one that takes its place."""

    record: GPUInstance
    by: GPUInstance


def condition_of(record: GPUInstance, kind: str) -> Condition | None:
    status = record.status
    if status is not None:
        # A plain loop: every tick asks this of every record.
        for each in status.conditions:
            if each.type == kind:
                return each
    return None


def is_to_be_replaced(record: GPUInstance) -> bool:
    """Whether the GPUInstance is still on its way to be replaced: its replacement is wanted until it has gone."""
    if record.state is InstanceState.DRAINING:
        return True
    told = (condition_of(record, kind) for kind in (REPLACEMENT, UNDERUTILIZED))
    return record.state is InstanceState.READY and any(each is not None and each.status is Truth.TRUE for each in told)


def replaced(records: Iterable[GPUInstance]) -> tuple[Replaced, ...]:
    """Each GPUInstance that is to be replaced, with the one that is launched for that and has not failed."""
    records = tuple(records)
    new = [each for each in records if each.spec.replaces and not _ends(each)]
    if not new:
        return ()
    by_uid = {each.uid: each for each in records if each.state in _PLACED}
    return tuple(
        Replaced(old, each)
        for each in new
        for reference in each.spec.replaces
        if (old := by_uid.get(reference.uid)) is not None and is_to_be_replaced(old)
    )


def without_promised(
    free: Iterable[FreeNode],
    records: Iterable[GPUInstance],
    pods_by_node: Mapping[str, tuple[Pod, ...]],
    leaving: frozenset[str] = frozenset(),
) -> tuple[FreeNode, ...]:
    """The free nodes without the room that replacements keep for pods which are still on the replaced nodes.

    Room for the pods of those in `leaving` (UIDs) counts as free.
    """
    free = tuple(free)
    promised: dict[str, list[Pod]] = {}
    for old, new in replaced(records):
        if old.uid not in leaving and new.node_name is not None:
            expected = {pod.uid for pod in new.spec.pods}
            on_old = pods_by_node.get(old.node_name or "", ())
            promised.setdefault(new.node_name, []).extend(pod for pod in on_old if pod.uid in expected)
    if not promised:
        return free
    return tuple(without_pods(each, promised.get(each.node.name, ())) for each in free)


def without_pods(free_node: FreeNode, pods: Iterable[Pod]) -> FreeNode:
    """The free node with less room, by what the pods request."""
    room = free_node.free
    for pod in pods:
        room -= pod.shape.requests
    return replace(free_node, free=room)


def _ends(record: GPUInstance) -> bool:
    return record.state is InstanceState.GONE or is_leaving(record)
