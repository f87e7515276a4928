"""Rotation of group members that their provider ends at a known time, or that have drifted, as decisions."""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.demand.maintenance import held_by_people, may_be_moved
from forebay.demand.planned_pods import is_leaving
from forebay.lifecycle.steps import WriteStatus
from forebay.lifecycle.transitions import cause, transition
from forebay.model.reasons import Reason
from forebay.reconcile.decisions import SyncNode
from forebay.reconcile.group_growth import SizedProvisioner
from forebay.reconcile.snapshot import Snapshot
from forebay.sizing.passes import MemberNode, scale_down_taints
from forebay.sizing.rotation import EndingNode, ending_taint, evicted_from, replaced_from, rotation

#: One of so many drifted members is replaced at the same time, and always one.
_AT_A_TIME: Final = 10
_REPLACED: Final = ending_taint(None)


class MemberEnd(NamedTuple):
    """When a member ends, and what is done about it before."""

    #: None: it has drifted, and runs until it is replaced.
    at: datetime | None
    replace_at: datetime
    evict_at: datetime | None


class SizedMember(NamedTuple):
    """One member that is not leaving."""

    record: GPUInstance
    used: bool
    usable: bool
    #: None: it has no node that could be tainted and deleted.
    node: MemberNode | None
    #: Set from when it is to be replaced.
    ends: MemberEnd | None


def member_end(ends_at: datetime, created: datetime | None) -> MemberEnd:
    return MemberEnd(ends_at, replaced_from(ends_at, created), evicted_from(ends_at, created))


def drift_ends(each: SizedProvisioner, snapshot: Snapshot) -> Mapping[str, MemberEnd]:
    """Machines of a rented group that are replaced now because they have drifted, by name of their record.

    A tenth of the group at a time, those that are marked already first, then empty ones. As in pools, a node stays
    while a pod on it would lose its work.
    """
    if each.rented is None or not each.growable():
        return {}
    found: list[tuple[bool, int, str]] = []
    most = max(1, each.size // _AT_A_TIME)
    for record in each.members:
        if is_leaving(record):
            most -= cause(record.status) == Reason.DRIFTED
            continue
        node, pods = snapshot.nodes.get(record.node_name or ""), snapshot.pods_by_node.get(record.node_name or "", ())
        if node is None or record.state is not InstanceState.READY or not each.rented.drifted(record):
            continue
        if held_by_people(record, node, held_by_cordon=False) is None and all(map(may_be_moved, pods)):
            found.append((_REPLACED not in node.taints, len(pods), record.metadata.name))
    return {name: MemberEnd(None, snapshot.now, None) for _, _, name in sorted(found)[: max(most, 0)]}


def rotate_members(
    each: SizedProvisioner,
    members: Collection[SizedMember],
    others: int,
    snapshot: Snapshot,
    excluded: Collection[str],
) -> Iterator[WriteStatus | SyncNode]:
    """Marks the nodes of members that end soon, and drains them when other nodes are there for their pods.

    `others`: how many other nodes the groups need. `excluded` names records for which this tick has decided a step
    already.
    """
    yield from _not_replaced(members, snapshot)
    ending = {
        member.node.name: (member.record, member.ends, _ending_node(member.node, member.ends, snapshot))
        for member in members
        if member.ends is not None and member.node is not None and not member.node.held
    }
    if not ending:
        return
    free = sum(
        member.node is not None and member.ends is None and member.node.empty and member.usable for member in members
    )
    # Nodes that are being emptied count on one each.
    free -= sum(
        record.state is InstanceState.DRAINING and bool(snapshot.pods_by_node.get(record.node_name or ""))
        for record in each.members
    )
    up = sum(member.node is not None and member.ends is None and member.usable for member in members)
    steps = rotation((node for _, _, node in ending.values()), free, snapshot.now, enough_without=up >= others)
    for name in steps.mark:
        record, end, _ = ending[name]
        node = snapshot.nodes[name]
        yield SyncNode(
            record=record, node=node, labels={}, taints=(ending_taint(end.at),), remove=scale_down_taints(node)
        )
    for name in steps.drain:
        record, end, found = ending[name]
        if record.metadata.name in excluded or name in steps.mark:
            continue
        what = "It is empty" if found.empty else "Its pods move to other nodes"
        reason = Reason.DRIFTED if end.at is None else Reason.EXPIRED
        why = f"{record.spec.provider} ends {name} at {end.at:%H:%M:%S} UTC" if end.at is not None else _drifted(record)
        sentence = f"{why}: NodeProvisioner {each.name} replaces it. {what}, and it is deleted."
        status = transition(record.status, InstanceState.DRAINING, reason, sentence, snapshot.now)
        yield WriteStatus(record=record, reason=reason, sentence=sentence, status=status)


def _drifted(record: GPUInstance) -> str:
    return (
        f"Node {record.node_name} was launched from an earlier GPUNodeClass {record.spec.node_class_name}, or earlier "
        "labels, taints or instanceType"
    )


def _not_replaced(members: Collection[SizedMember], snapshot: Snapshot) -> Iterator[SyncNode]:
    """Takes the mark from nodes that are not to be replaced any more: their class was changed back, say."""
    for member in members:
        node = snapshot.nodes.get(member.node.name) if member.node is not None and member.ends is None else None
        if node is not None and _REPLACED in node.taints:
            yield SyncNode(record=member.record, node=node, labels={}, taints=(), remove=(_REPLACED,))


def _ending_node(node: MemberNode, end: MemberEnd, snapshot: Snapshot) -> EndingNode:
    taint = ending_taint(end.at)
    marked = any(each == taint for each in snapshot.nodes[node.name].taints)
    return EndingNode(name=node.name, ends_at=end.at, evict_at=end.evict_at, empty=node.empty, marked=marked)
