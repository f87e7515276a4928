"""Rotation of group members that their provider ends at a known time, as decisions."""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.lifecycle.steps import WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.reasons import Reason
from forebay.reconcile.decisions import SyncNode
from forebay.reconcile.group_growth import SizedProvisioner
from forebay.reconcile.snapshot import Snapshot
from forebay.sizing.passes import MemberNode, scale_down_taints
from forebay.sizing.rotation import EndingNode, ending_taint, evicted_from, replaced_from, rotation


class MemberEnd(NamedTuple):
    """When a member ends, and what is done about it before."""

    at: datetime
    replace_at: datetime
    evict_at: datetime


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


def rotate_members(
    each: SizedProvisioner, members: Collection[SizedMember], snapshot: Snapshot, excluded: Collection[str]
) -> Iterator[WriteStatus | SyncNode]:
    """Marks the nodes of members that end soon, and drains them when other nodes are there for their pods.

    `excluded` names records for which this tick has decided a step already.
    """
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
    steps = rotation((node for _, _, node in ending.values()), free, snapshot.now)
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
        sentence = (
            f"{record.spec.provider} ends {name} at {end.at:%H:%M:%S} UTC: NodeProvisioner {each.name} replaces it. "
            f"{what}, and it is deleted."
        )
        status = transition(record.status, InstanceState.DRAINING, Reason.EXPIRED, sentence, snapshot.now)
        yield WriteStatus(record=record, reason=Reason.EXPIRED, sentence=sentence, status=status)


def _ending_node(node: MemberNode, end: MemberEnd, snapshot: Snapshot) -> EndingNode:
    taint = ending_taint(end.at)
    marked = any(each == taint for each in snapshot.nodes[node.name].taints)
    return EndingNode(name=node.name, ends_at=end.at, evict_at=end.evict_at, empty=node.empty, marked=marked)
