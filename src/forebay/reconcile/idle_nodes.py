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
    marked = [each for each in snapshot.nodes_by_taint.get(SCALE_DOWN_TAINT, ()) if IDLE_TAINT in each.taints]
    unmarked = [
        each
        for each in among(machines, _is_unmarked)
        if each.name in goes_at and goes_at[each.name] - snapshot.now > _WORTH_MARKING
    ]
    if not marked and not unmarked:
        return
    # Of two machines for one node, the node is that of the one that is not gone.
    by_node = {each.record.node_name: each for each in sorted(machines, key=_is_live) if each.record.node_name}
    for node in marked:
        if node.name not in besides and not snapshot.unreadable_records and _stays(by_node.get(node.name), goes_at):
            yield SyncNode(record=None, node=node, labels={}, taints=(), remove=(IDLE_TAINT,))
    if not unmarked or not _others_run(snapshot, by_node):
        return
    for machine in unmarked:
        if machine.node is not None and machine.node.name not in besides:
            yield SyncNode(record=machine.record, node=machine.node, labels={}, taints=(IDLE_TAINT,))


def _stays(machine: MachineUse | None, goes_at: Mapping[str, datetime]) -> bool:
    """Whether a node is in use, or kept, or outlives its machine."""
    return machine is None or machine.user is not None or not (machine.name in goes_at or _is_leaving(machine))


def _is_unmarked(machine: MachineUse) -> bool:
    return machine.idle and machine.node is not None and IDLE_TAINT not in machine.node.taints


def _is_live(machine: MachineUse) -> bool:
    return machine.record.state is not InstanceState.GONE


def _is_leaving(machine: MachineUse) -> bool:
    """Whether the node goes with its machine."""
    if machine.record.state is InstanceState.GONE:
        return not machine.policy.node_outlives_it
    return machine.record.state in _LEAVING


def _others_run(snapshot: Snapshot, by_node: Mapping[str, MachineUse]) -> bool:
    """Whether there is a node with GPUs that is in use, or somebody else's, so that pods have a choice."""
    gpus = snapshot.rules.gpu_resources
    return any(
        node.ready and (name not in by_node or by_node[name].user is not None) and node.allocatable.any_gpu(gpus)
        for name, node in snapshot.nodes.items()
    )
