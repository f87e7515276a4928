"""Defragmentation of the groups of NodeProvisioners in one tick, and as the dry run that `forebay plan` shows."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.values import duration
from forebay.demand.evictions import eviction_refused
from forebay.demand.maintenance import may_be_moved
from forebay.lifecycle.moving import MOVE_RETRY
from forebay.lifecycle.steps import WriteStatus
from forebay.lifecycle.transitions import cause, transition
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod, pod_names
from forebay.reconcile.decisions import SyncNode
from forebay.reconcile.group_growth import SizedProvisioner
from forebay.reconcile.member_rotation import SizedMember
from forebay.reconcile.room_elsewhere import RoomElsewhere, movable_pods
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.what_runs import looks_at_other_pods
from forebay.sizing.defragmentation import AVOIDED, is_avoided, is_saved_by_moving, moved_at, next_move_at
from forebay.sizing.target import GroupUse, SizingRules

#: Nodes of one NodeProvisioner that are looked at together, those with the fewest GPUs in use first, and the time
#: between two looks: each simulates where pods could go.
_MOST_LOOKS: Final = 4
CHECK_INTERVAL: Final = timedelta(seconds=15)


class NodeMove(NamedTuple):
    """A node that can be freed: its pods have room on other nodes that are in use."""

    record: GPUInstance
    pods: tuple[Pod, ...]
    #: By UID of a pod, the node that has room for it.
    places: Mapping[str, str]

    @property
    def sentence(self) -> str:
        nodes = ", ".join(sorted(set(self.places.values())))
        return f"{pod_names(self.pods)} {'fits' if len(self.pods) == 1 else 'fit'} on {nodes}"


class Defragmenting(NamedTuple):
    decisions: tuple[WriteStatus | SyncNode, ...] = ()
    #: When time alone may lead to the next move.
    requeue_at: datetime | None = None


def free_node(members: Sequence[SizedMember], use: GroupUse, rules: SizingRules, snapshot: Snapshot) -> NodeMove | None:
    """The node of these members that is freed next; None where that would save none, or no node can be freed."""
    if not is_saved_by_moving(use, rules):
        return None
    usable = [each for each in members if each.usable and each.node is not None and each.ends is None]
    used = {each.node.name for each in usable if each.node is not None and not each.node.empty}
    looked_at = [
        each
        for each in usable
        if each.used and snapshot.pods_by_node.get(each.record.node_name or "") and kept_because(each, snapshot) is None
    ]
    for member in sorted(looked_at, key=lambda each: _gpus_in_use(each, snapshot))[:_MOST_LOOKS]:
        pods = movable_pods(snapshot, [member.record])
        room = RoomElsewhere(snapshot, [member.record], among=used)
        if not room.left(pods):
            return NodeMove(member.record, pods, room.places(pods))
    return None


def defragment(  # noqa: PLR0917 (all that one pass depends on)
    each: SizedProvisioner,
    members: Sequence[SizedMember],
    use: GroupUse,
    rules: SizingRules,
    snapshot: Snapshot,
    excluded: Collection[str],
) -> Defragmenting:
    """The next step: empty nodes are avoided, then the pods of one node move; or nodes are avoided no longer.

    `excluded` names records for which this tick has decided a step already.
    """
    if any(_is_moving(record) for record in each.members):
        return Defragmenting()
    move, requeue_at = None, None
    if each.provisioner.spec.defragment and not any(map(_is_under_way, each.members)):
        due = next_move_at(_all_members(each.name, snapshot), duration(each.provisioner.spec.scale_down_delay))
        if due is not None and snapshot.now < due:
            requeue_at = due
        else:
            move = free_node(members, use, rules, snapshot)
            requeue_at = snapshot.now + CHECK_INTERVAL
    if move is None:
        return Defragmenting(tuple(_attract_again(members, snapshot)), requeue_at)
    avoided = tuple(_avoid(members, snapshot))
    if avoided or move.record.metadata.name in excluded:
        return Defragmenting(avoided, requeue_at)
    sentence = (
        f"NodeProvisioner {each.name} is defragmented: {move.sentence}. Draining and deleting node "
        f"{move.record.node_name}."
    )
    status = transition(move.record.status, InstanceState.DRAINING, Reason.UNDERUTILIZED, sentence, snapshot.now)
    step = WriteStatus(record=move.record, reason=Reason.UNDERUTILIZED, sentence=sentence, status=status)
    return Defragmenting((step,), requeue_at)


def _all_members(provisioner: str, snapshot: Snapshot) -> Iterator[GPUInstance]:
    """Its members, those included that were deleted within the last hour."""
    for record in snapshot.records:
        if record.spec.provisioner_ref is not None and record.spec.provisioner_ref.name == provisioner:
            yield record


def kept_because(member: SizedMember, snapshot: Snapshot) -> str | None:
    """Why the pods of a node in use stay where they are, wherever there is room, as a clause; None: they may move."""
    node, record = member.node, member.record
    if node is None or not member.usable or node.held or node.delete_at is not None or member.ends is not None:
        return "it is held, tainted, about to end or not Ready"
    pods = snapshot.pods_by_node.get(node.name, ())
    if (last := moved_at(record)) is not None and snapshot.now < last + MOVE_RETRY:
        return f"its pods did not leave when they were to move, less than {human(MOVE_RETRY)} ago"
    staying = [pod for pod in pods if not may_be_moved(pod)]
    if staying:
        return f"{pod_names(staying)} must not be moved: of a Job, without a controller, or annotated"
    if looks_at_other_pods(pods):
        return "its pods have rules about other pods"
    if any(pod.deleted is not None for pod in pods):
        return "pods are just leaving it"
    return eviction_refused(pods, snapshot.pod_disruption_budgets)


def _gpus_in_use(member: SizedMember, snapshot: Snapshot) -> tuple[int, str]:
    name = member.record.node_name or ""
    pods = snapshot.pods_by_node.get(name, ())
    return sum(int(pod.shape.gpus(snapshot.rules.gpu_resources)) for pod in pods), name


def _is_moving(record: GPUInstance) -> bool:
    """Whether the pods of the member are being moved to free its node."""
    return (
        record.state is InstanceState.DRAINING
        and record.status is not None
        and cause(record.status) == Reason.UNDERUTILIZED
    )


def _is_under_way(record: GPUInstance) -> bool:
    """Whether the member comes or goes: what is free is known when it has."""
    return record.state is not InstanceState.READY


def _avoid(members: Sequence[SizedMember], snapshot: Snapshot) -> Iterator[SyncNode]:
    """Taints for the empty nodes that kube-scheduler would use as well as others."""
    for member in members:
        if member.node is None or not member.node.empty or member.node.delete_at is not None:
            continue
        node = snapshot.nodes[member.node.name]
        if not is_avoided(node):
            yield SyncNode(record=member.record, node=node, labels={}, taints=(AVOIDED,), remove=())


def _attract_again(members: Sequence[SizedMember], snapshot: Snapshot) -> Iterator[SyncNode]:
    for member in members:
        node = snapshot.nodes.get(member.node.name) if member.node is not None else None
        if node is not None and is_avoided(node):
            yield SyncNode(record=member.record, node=node, labels={}, taints=(), remove=(AVOIDED,))
