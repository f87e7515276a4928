"""Replacements: GPUInstances that were launched to take the pods of others, which are drained when these are Ready."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.parts import Condition, Truth
from forebay.demand.free_capacity import FreeNode
from forebay.demand.planned_pods import is_leaving
from forebay.model.kept import kept
from forebay.model.workloads import Pod

#: Condition of a GPUInstance whose node is to be replaced: True while a replacement is looked for or launching.
REPLACEMENT: Final = "Replacement"
#: Condition of a GPUInstance whose pods fit on other nodes or on a cheaper one, and since when.
UNDERUTILIZED: Final = "Underutilized"

#: Characters that Kubernetes adds to a generated name.
_RANDOM_END: Final = 5
_EMPTIED: Final = frozenset({InstanceState.TERMINATING, InstanceState.GONE})
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


def told_of_replacement(record: GPUInstance) -> bool:
    """Whether the GPUInstance has the condition that speaks of its replacement, whatever that says."""
    return condition_of(record, REPLACEMENT) is not None


def is_to_be_replaced(record: GPUInstance) -> bool:
    """Whether the GPUInstance is still on its way to be replaced: its replacement is wanted until it has gone."""
    if record.state is InstanceState.DRAINING:
        return True
    told = (condition_of(record, kind) for kind in (REPLACEMENT, UNDERUTILIZED))
    return record.state is InstanceState.READY and any(each is not None and each.status is Truth.TRUE for each in told)


@kept
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


def expected_pods(
    records: Iterable[GPUInstance], pods_by_node: Mapping[str, Collection[Pod]]
) -> dict[str, tuple[Pod, ...]]:
    """By UID of a replacement, the pods that it was launched for and that are still on the replaced nodes.

    A replacement whose pods are just leaving has an entry, though it may be empty.
    """
    found: dict[str, tuple[Pod, ...]] = {}
    for old, new in replaced(records):
        planned = {pod.uid for pod in new.spec.pods}
        there = tuple(pod for pod in pods_by_node.get(old.node_name or "", ()) if pod.uid in planned)
        if there or (planned and old.state is InstanceState.DRAINING):
            found[new.uid] = (*found.get(new.uid, ()), *there)
    return found


def moved_at(record: GPUInstance, records: Mapping[str, GPUInstance]) -> datetime | None:
    """When the last node that the replacement stands for was empty; None where it replaces none, or none is so far.

    `records` are all GPUInstances, by UID.
    """
    gone = (records.get(each.uid) for each in record.spec.replaces)
    ends = (old.status.since for old in gone if old is not None and old.status is not None and old.state in _EMPTIED)
    return max((each for each in ends if each is not None), default=None)


def succeeds(pod: Pod, record: GPUInstance) -> bool:
    """Whether the pod takes the place of one that a replacement was launched for: its controller created it with the
    same name, or with the same name but for the random end.
    """
    if not record.spec.replaces or pod.owner is None:
        return False
    stem = _stem(pod.name)
    return any(
        each.namespace == pod.namespace and (each.name == pod.name or (stem and _stem(each.name) == stem))
        for each in record.spec.pods
    )


def _stem(name: str) -> str:
    """What a controller names all its pods after; "" where the name has no random end."""
    stem, _, end = name.rpartition("-")
    return stem if len(end) == _RANDOM_END else ""


def without_promised(
    free: Iterable[FreeNode],
    records: Iterable[GPUInstance],
    pods_by_node: Mapping[str, tuple[Pod, ...]],
    leaving: frozenset[str] = frozenset(),
    pending: Iterable[Pod] = (),
) -> tuple[FreeNode, ...]:
    """The free nodes without the room that replacements keep for pods which are still on the replaced nodes.

    Room for the pods of those in `leaving` (UIDs) counts as free; so does that for an evicted pod which ends slowly,
    once the pod that takes its place is on the new node, or `pending`: that pod counts for itself.
    """
    free = tuple(free)
    pending = tuple(pending)
    promised: dict[str, list[Pod]] = {}
    for old, new in replaced(records):
        if old.uid not in leaving and new.node_name is not None:
            expected = {pod.uid for pod in new.spec.pods}
            on_old = pods_by_node.get(old.node_name or "", ())
            come = [pod for pod in (*pods_by_node.get(new.node_name, ()), *pending) if succeeds(pod, new)]
            kept_for = _without_succeeded((pod for pod in on_old if pod.uid in expected), come)
            promised.setdefault(new.node_name, []).extend(kept_for)
    if not promised:
        return free
    return tuple(without_pods(each, promised.get(each.node.name, ())) for each in free)


def _without_succeeded(expected: Iterable[Pod], successors: Iterable[Pod]) -> Iterable[Pod]:
    """The expected pods without those that are ending and in whose place another one of the same owner has come."""
    come = Counter((pod.namespace, pod.owner) for pod in successors)
    for pod in expected:
        key = (pod.namespace, pod.owner)
        if pod.deleted is not None and come[key]:
            come[key] -= 1
        else:
            yield pod


def without_pods(free_node: FreeNode, pods: Iterable[Pod]) -> FreeNode:
    """The free node with less room, by what the pods request."""
    room = free_node.free
    for pod in pods:
        room -= pod.shape.requests
    return replace(free_node, free=room)


def _ends(record: GPUInstance) -> bool:
    return record.state is InstanceState.GONE or is_leaving(record)
