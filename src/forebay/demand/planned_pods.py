"""Pods that a GPUInstance was launched for: their planned nodes, and whether these are idle or leaving."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.parts import Condition
from forebay.model.kept import among, kept

#: Condition of a GPUInstance: whether its node is idle, since when, and why. In the API, to survive operator restarts.
IDLE_CONDITION: Final = "Idle"

_LEAVING: Final = frozenset({InstanceState.FINISHED, InstanceState.DRAINING, InstanceState.TERMINATING})


def is_gone(record: GPUInstance) -> bool:
    return record.state is InstanceState.GONE


def is_leaving(record: GPUInstance) -> bool:
    """Whether the GPUInstance is draining, terminating or deleted: pods scheduled there now would not stay."""
    state = record.state
    return state in _LEAVING or (record.metadata.deletion_timestamp is not None and state is not InstanceState.GONE)


def planned_nodes(records: Iterable[GPUInstance], among: Collection[str]) -> dict[str, set[str]]:
    """Names of the nodes launched for each of the pods `among` (UIDs), without nodes that are leaving."""
    found: dict[str, set[str]] = {}
    if not among:
        return found
    for record in records:
        uids = [pod.uid for pod in record.spec.pods if pod.uid in among]
        if not uids or is_leaving(record) or record.state is InstanceState.GONE:
            continue
        name = record.node_name
        if name is not None:
            for uid in uids:
                found.setdefault(uid, set()).add(name)
    return found


def runs_remotely(record: GPUInstance) -> bool:
    """Whether the GPUInstance is a remote container and no node."""
    return not record.spec.delivers.has_node


@kept
def live_containers(records: Iterable[GPUInstance]) -> Mapping[str, GPUInstance]:
    """The remote container of each pod (by UID) that has one which is not proven gone; the oldest, where two have it.

    Such a pod needs no other capacity, and must not get any: its work would be done twice.
    """
    found: dict[str, GPUInstance] = {}
    for record in among(records, runs_remotely):
        if record.state is InstanceState.GONE:
            continue
        for pod in record.spec.pods:
            known = found.get(pod.uid)
            if known is None or _order(record) < _order(known):
                found[pod.uid] = record
    return found


def _order(record: GPUInstance) -> tuple[bool, float, str]:
    created = record.metadata.creation_timestamp
    # One that the provider was asked for goes before one that it was not: a container may run already.
    return not (record.status is not None and record.status.attempt), created.timestamp() if created else 0, record.uid


def idle_condition(record: GPUInstance) -> Condition | None:
    for each in record.status.conditions if record.status is not None else ():
        if each.type == IDLE_CONDITION:
            return each
    return None
