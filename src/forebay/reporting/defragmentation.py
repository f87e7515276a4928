"""Defragmentation as a dry run: which nodes of NodeProvisioners could be freed, and where their pods would go."""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from forebay.api.node_provisioner import NodeProvisioner
from forebay.demand.reservation import Reservations
from forebay.lifecycle.group_members import members_of
from forebay.model.workloads import Pod
from forebay.reconcile.defragmenting import NodeMove, free_node, kept_because
from forebay.reconcile.group_sizing import group_use, sized_members, sizing_rules
from forebay.reconcile.member_rotation import SizedMember
from forebay.reconcile.snapshot import Snapshot
from forebay.sizing.defragmentation import is_saved_by_moving

#: Pods move from one node in use to another.
_FEWEST: Final = 2
_MOST_NAMED: Final = 3


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True):
    """A node that would be freed."""

    provisioner: str
    node: str
    pods: list[str]
    #: Nodes that the pods would move to.
    to: list[str]
    sentence: str


def planned_moves(snapshot: Snapshot, reservations: Reservations) -> list[PlannedMove]:
    """Nodes that defragmentation would free, one after the other, of all NodeProvisioners by name.

    Also of those without `defragment`, so that everybody can see what it would do; the sentence says so.
    """
    found: list[PlannedMove] = []
    reserved = {each.node for each in reservations.placed.values()}
    for each in sorted(snapshot.provisioners, key=lambda each: each.metadata.name):
        seen = snapshot
        while (move := _next_move(each, seen, reserved)) is not None:
            found.append(_planned(each, move))
            seen = _after(seen, move)
    return found


def unmoved_notes(snapshot: Snapshot, moves: Iterable[PlannedMove]) -> list[str]:
    """Why nothing moves, for each NodeProvisioner that is to be defragmented and has no node to free."""
    moving = {each.provisioner for each in moves}
    return [
        f"NodeProvisioner {each.metadata.name} is to be defragmented, and no node can be freed: "
        f"{_why_none(each, snapshot)}."
        for each in sorted(snapshot.provisioners, key=lambda each: each.metadata.name)
        if each.spec.defragment and each.metadata.name not in moving
    ]


def _why_none(each: NodeProvisioner, snapshot: Snapshot) -> str:
    members = [member for member in _members(each, snapshot, ()) if member.used]
    if len(members) < _FEWEST:
        return f"{len(members)} of its nodes are in use"
    why = [
        f"{member.record.node_name}: {kept_because(member, snapshot) or 'its pods have no room on other nodes in use'}"
        for member in members
    ]
    if not is_saved_by_moving(group_use(_members(each, snapshot, ()), 0), sizing_rules(each.spec)):
        return "its groups would not need fewer nodes"
    more = f"; and {len(why) - _MOST_NAMED} more" if len(why) > _MOST_NAMED else ""
    return f"{'; '.join(why[:_MOST_NAMED])}{more}"


def _next_move(each: NodeProvisioner, snapshot: Snapshot, reserved: Iterable[str]) -> NodeMove | None:
    members = _members(each, snapshot, reserved)
    return free_node(members, group_use(members, 0), sizing_rules(each.spec), snapshot)


def _members(each: NodeProvisioner, snapshot: Snapshot, reserved: Iterable[str]) -> tuple[SizedMember, ...]:
    # Only who lists the groups knows their prices and what ends; moves depend on members that are nodes.
    members = members_of(each.metadata.name, snapshot.records)
    return tuple(sized_members(members, {}, snapshot, set(reserved), {}))


def _planned(each: NodeProvisioner, move: NodeMove) -> PlannedMove:
    node = move.record.node_name or move.record.metadata.name
    told = "" if each.spec.defragment else "With defragment: true t"
    sentence = f"{move.sentence}. {told or 'T'}he pods move, and the node is deleted."
    return PlannedMove(
        provisioner=each.metadata.name,
        node=node,
        pods=sorted(f"{pod.namespace}/{pod.name}" for pod in move.pods),
        to=sorted(set(move.places.values())),
        sentence=sentence,
    )


def _after(snapshot: Snapshot, move: NodeMove) -> Snapshot:
    """The snapshot as it would be when the pods have moved and the node is gone."""
    freed = move.record.node_name or ""
    pods_by_node = {name: pods for name, pods in snapshot.pods_by_node.items() if name != freed}
    used = {name: amounts for name, amounts in snapshot.used.items() if name != freed}
    for pod in move.pods:
        node = move.places[pod.uid]
        pods_by_node[node] = (*pods_by_node.get(node, ()), _on(pod, node))
        used[node] = used[node] + pod.shape.requests if node in used else pod.shape.requests
    return replace(
        snapshot,
        records=tuple(each for each in snapshot.records if each.uid != move.record.uid),
        nodes={name: node for name, node in snapshot.nodes.items() if name != freed},
        pods_by_node=pods_by_node,
        used=used,
    )


def _on(pod: Pod, node: str) -> Pod:
    return replace(pod, node=node)
