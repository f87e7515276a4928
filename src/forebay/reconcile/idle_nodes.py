"""Idle nodes are used last, so that those that are about to go are not filled while others have room.

kube-scheduler spreads pods by default: of two nodes it takes the empty one, which is then kept and paid for. A taint
with the effect PreferNoSchedule makes it the last choice, and keeps no pod away that fits nowhere else.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import SCALE_DOWN_TAINT
from forebay.disruption.machine_use import MachineUse
from forebay.model.kept import among
from forebay.model.requirements import Effect, Taint
from forebay.reconcile.decisions import SyncNode
from forebay.reconcile.snapshot import Snapshot

IDLE_TAINT: Final = Taint(SCALE_DOWN_TAINT, "idle", Effect.PREFER_NO_SCHEDULE)
#: A node that goes within this time is not worth two writes.
_WORTH_MARKING: Final = timedelta(seconds=30)
_LEAVING: Final = frozenset({InstanceState.DRAINING, InstanceState.TERMINATING})


def mark_idle_nodes(
    snapshot: Snapshot,
    machines: Iterable[MachineUse],
    goes_at: Mapping[str, datetime],
    besides: Collection[str] = (),
) -> Iterator[SyncNode]:
    """Nodes that get the taint, because they are idle and go at a known time, and those that lose it.

    `goes_at` has, by name of the machine, from when a node without GPU pods may go. `besides` names nodes that are
    being changed already.
    """
    yield from _unmark(snapshot, machines, goes_at, besides)
    unmarked = [
        each
        for each in among(machines, _is_unmarked)
        if each.name in goes_at and goes_at[each.name] - snapshot.now > _WORTH_MARKING
    ]
    if not unmarked or not _others_run(snapshot, machines):
        return
    for machine in unmarked:
        if machine.node is not None and machine.node.name not in besides:
            yield SyncNode(record=machine.record, node=machine.node, labels={}, taints=(IDLE_TAINT,))


def _unmark(
    snapshot: Snapshot, machines: Iterable[MachineUse], goes_at: Mapping[str, datetime], besides: Collection[str]
) -> Iterator[SyncNode]:
    """Takes the taint from nodes that are in use, or stay, or whose machine is gone: a Node of your own outlives it."""
    marked = [each for each in snapshot.nodes_by_taint.get(SCALE_DOWN_TAINT, ()) if IDLE_TAINT in each.taints]
    if not marked or snapshot.unreadable_records:
        return
    by_node = {each.record.node_name: each for each in machines if each.record.state is not InstanceState.GONE}
    for node in marked:
        machine = by_node.get(node.name)
        goes = machine is not None and machine.user is None and (machine.name in goes_at or _is_leaving(machine))
        if not goes and node.name not in besides:
            yield SyncNode(record=None, node=node, labels={}, taints=(), remove=(IDLE_TAINT,))


def _is_unmarked(machine: MachineUse) -> bool:
    return machine.idle and machine.node is not None and IDLE_TAINT not in machine.node.taints


def _is_leaving(machine: MachineUse) -> bool:
    return machine.record.state in _LEAVING


def _others_run(snapshot: Snapshot, machines: Iterable[MachineUse]) -> bool:
    """Whether there is any node with GPUs that is not idle, so that pods have a choice."""
    idle = {each.record.node_name for each in machines if each.idle}
    gpus = snapshot.rules.gpu_resources
    return any(
        node.ready and name not in idle and node.allocatable.any_gpu(gpus) for name, node in snapshot.nodes.items()
    )
