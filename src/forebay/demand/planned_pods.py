"""Whom a machine is for: the pods it was obtained for, whether they still wait, and whether it was in vain."""

from collections.abc import Collection, Iterable
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.parts import Condition, Truth
from forebay.model.reasons import Reason

#: On a GPUInstance: whether its node is idle, since when, and why. Kept there so that it outlives the operator.
IDLE_CONDITION: Final = "Idle"

_LEAVING: Final = frozenset({InstanceState.FINISHED, InstanceState.DRAINING, InstanceState.TERMINATING})


def is_leaving(record: GPUInstance) -> bool:
    """On its way out, or asked to be: what comes onto it now does not stay."""
    state = record.state
    return state in _LEAVING or (record.metadata.deletion_timestamp is not None and state is not InstanceState.GONE)


def planned_nodes(records: Iterable[GPUInstance], among: Collection[str]) -> dict[str, set[str]]:
    """Of the pods `among` (by uid): the nodes that were obtained for each and are not on their way out."""
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


def idle_condition(record: GPUInstance) -> Condition | None:
    for each in record.status.conditions if record.status is not None else ():
        if each.type == IDLE_CONDITION:
            return each
    return None


def refusals(records: Iterable[GPUInstance]) -> dict[str, str]:
    """By uid of the pod, the GPUInstance that was obtained for it and stood idle because the scheduler did not use it.

    Another machine would fare no better, so none is bought for as long as the record is kept.
    """
    found: dict[str, str] = {}
    for record in records:
        idle = idle_condition(record)
        if idle is not None and idle.status is Truth.TRUE and idle.reason == Reason.SCHEDULER_REFUSES:
            for pod in record.spec.pods:
                found[pod.uid] = record.metadata.name
    return found
