"""Sizing of instance groups in one tick: members are adopted, created, tainted, drained and left in their group."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from fractions import Fraction
from itertools import chain, islice, repeat
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState
from forebay.api.names import SCALE_DOWN_TAINT
from forebay.api.node_provisioner import NodeProvisionerSpec
from forebay.api.values import duration
from forebay.demand.maintenance import held_by_people, keeps_machine
from forebay.demand.planned_pods import is_leaving
from forebay.demand.reservation import Reservations
from forebay.lifecycle.cooldown import failures_so_far
from forebay.lifecycle.facts import instance_id
from forebay.lifecycle.group_members import member_adoptions, member_spec
from forebay.lifecycle.member_names import new_member_name
from forebay.lifecycle.steps import Adopt, WriteStatus
from forebay.lifecycle.transitions import transition
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.reconcile.decisions import CreateInstance, SyncNode
from forebay.reconcile.defragmenting import CHECK_INTERVAL, defragment
from forebay.reconcile.group_growth import (
    GroupGrowth,
    GrowthForPods,
    SizedProvisioner,
    provisioner_source,
    sized_provisioners,
)
from forebay.reconcile.idle_nodes import IDLE_TAINT
from forebay.reconcile.isolation import Faults
from forebay.reconcile.member_rotation import MemberEnd, SizedMember, drift_ends, member_end, rotate_members
from forebay.reconcile.rented_groups import leave_deleted, next_leave, rented_member_spec
from forebay.reconcile.snapshot import Snapshot
from forebay.sizing.passes import (
    MemberNode,
    Pass,
    deletion_time,
    next_expiry,
    next_pass,
    scale_down_taint,
    scale_down_taints,
)
from forebay.sizing.target import GroupUse, SizingRules, TargetSize, target_size

#: Records of one provisioner that are created in one tick: the next tick follows at once.
_MOST_CREATED: Final = 500
_FREE: Final = Fraction(0)
#: What is said of a member that does not become a usable node.
_LATE: Final = frozenset(
    {Reason.LAUNCH_TIMEOUT, Reason.JOIN_TIMEOUT, Reason.GPUS_MISSING, Reason.NODE_IDENTITY_MISMATCH}
)


class SizedGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of one NodeProvisioner in this tick."""

    sized: SizedProvisioner
    use: GroupUse
    target: TargetSize
    #: Empty nodes that are tainted.
    tainted: int


class GroupDecisions(NamedTuple):
    decisions: tuple[CreateInstance | WriteStatus | SyncNode, ...]
    #: By name of the NodeProvisioner.
    sizes: Mapping[str, SizedGroups]
    requeue_at: datetime | None
    #: When nodes were last looked at that can be freed.
    defragmented: datetime | None = None


def adopt_members(snapshot: Snapshot, claimed: Collection[str] = ()) -> tuple[Adopt, ...]:
    """Records for members of groups that have none, but for those that are `claimed` by a record, by id."""
    if not snapshot.provisioners or snapshot.unreadable_records:
        # What seems to have no record may be the member of one that cannot be read.
        return ()
    records = {record.metadata.name: record for record in snapshot.records}
    found: list[Adopt] = []
    for each in snapshot.provisioners:
        source = snapshot.sources.get(provisioner_source(each))
        if source is not None and each.metadata.deletion_timestamp is None and each.spec.node_class_ref is None:
            adoptions = member_adoptions(each, source, records, snapshot.nodes, snapshot.now)
            found += (adopt for adopt in adoptions if (adopt.status.instance_id or "") not in claimed)
    return tuple(found)


def size_groups(  # noqa: PLR0917 (all that one pass depends on)
    snapshot: Snapshot,
    reservations: Reservations,
    grown: GrowthForPods,
    with_step: Collection[str],
    faults: Faults,
    ordered: Iterable[object] = (),
) -> GroupDecisions:
    """One pass over the groups of every NodeProvisioner.

    `with_step` names GPUInstances for which this tick has decided a step already. `ordered` are the orders of this
    tick: limits of a class are counted from the records, so that a rented group waits for the next tick with its own.
    """
    classes = {each.spec.node_class_name for each in ordered if isinstance(each, CreateInstance)}
    decisions: list[CreateInstance | WriteStatus | SyncNode] = []
    sizes: dict[str, SizedGroups] = {}
    due: list[datetime] = []
    reserved = {each.node for each in reservations.placed.values()}
    excluded = {*with_step, *snapshot.calls_in_flight}
    looked = snapshot.memory.defragmented
    looks = looked is None or snapshot.now >= looked + CHECK_INTERVAL
    for each in grown.sized or sized_provisioners(snapshot):
        ends = {**_ends(each), **drift_ends(each, snapshot)}
        with faults.of("NodeProvisioner", "", each.name):
            members = tuple(sized_members(each.members, _group_prices(each), snapshot, reserved, ends))
            growth = grown.by_provisioner.get(each.name, GroupGrowth())
            use = group_use(members, growth.count)
            rules = sizing_rules(each.provisioner.spec)
            target = target_size(use, rules)
            nodes = [member.node for member in members if member.node is not None and member.ends is None]
            change = next_pass(nodes, use.size - use.ending, target.size - use.ending, snapshot.now)
            decisions += rotate_members(each, members, target.size - use.ending, snapshot, excluded)
            if each.rented is None or each.source.key.node_class not in classes:
                new = tuple(_expand(each, change.expand, growth, target, snapshot))
                decisions += new
                classes |= {one.spec.node_class_name for one in new}
            decisions += _shrink(each, change, members, target, snapshot, excluded)
            if looks and not change.changes:
                freed = defragment(each, members, use, rules, snapshot, excluded)
                decisions += freed.decisions
                due += () if freed.requeue_at is None else (freed.requeue_at,)
            elif looked is not None and each.provisioner.spec.defragment:
                due.append(max(looked + CHECK_INTERVAL, snapshot.now + CHECK_INTERVAL / 3))
            tainted = sum(node.delete_at is not None for node in nodes)
            sizes[each.name] = SizedGroups(sized=each, use=use, target=target, tainted=tainted)
            if (expiry := next_expiry(nodes, snapshot.now)) is not None:
                due.append(expiry)
            due += (at for end in ends.values() for at in (end.replace_at, end.evict_at) if at and at > snapshot.now)
            due += (cooldown.until for group in each.groups if (cooldown := each.cooldown(group)) is not None)
    decisions += _stray_taints(snapshot)
    decisions += leave_deleted(snapshot, excluded)
    due += () if (leaving := next_leave(snapshot)) is None else (leaving,)
    looked = snapshot.now if looks else looked
    return GroupDecisions(tuple(decisions), sizes, min(due, default=None), looked)


def sizing_rules(spec: NodeProvisionerSpec) -> SizingRules:
    return SizingRules(
        min_utilization=spec.min_gpu_utilization_percent,
        max_utilization=spec.max_gpu_utilization_percent,
        min_unutilized=spec.min_unutilized_gpu_nodes or 0,
        max_nodes=spec.max_nodes,
    )


def _ends(each: SizedProvisioner) -> dict[str, MemberEnd]:
    """Members that their provider ends at a known time, by name of their record."""
    listing = each.source.listing
    found = listing.found.instances if listing is not None else ()
    by_id = {one.id: member_end(one.ends_at, one.created) for one in found if one.ends_at is not None}
    ids = {record.metadata.name: instance_id(record) for record in each.members} if by_id else {}
    return {name: by_id[known] for name, known in ids.items() if known in by_id}


def sized_members(
    members: Iterable[GPUInstance],
    prices: Mapping[str, Fraction],
    snapshot: Snapshot,
    reserved: Collection[str],
    ends: Mapping[str, MemberEnd],
) -> Iterator[SizedMember]:
    """Those of the members that are not leaving. `prices`: of a node of each instance group, where they are known;
    `reserved` names nodes that pods wait for.
    """
    for record in members:
        if is_leaving(record):
            continue
        name = record.node_name or ""
        node, pods = snapshot.nodes.get(name), snapshot.pods_by_node.get(name, ())
        used = name in reserved or any(keeps_machine(pod, snapshot.rules.gpu_resources) for pod in pods)
        usable = _is_usable(record, node)
        end = ends.get(record.metadata.name)
        end = end if end is not None and end.replace_at <= snapshot.now else None
        member = None
        if node is not None and record.state is InstanceState.READY:
            member = MemberNode(
                name=name,
                empty=not used and not pods,
                usable=usable,
                delete_at=deletion_time(node),
                held=held_by_people(record, node, held_by_cordon=False) is not None,
                hourly_price=_price(record, prices),
            )
        yield SizedMember(record, used, usable, member, end)


def _is_usable(record: GPUInstance, node: Node | None) -> bool:
    """Whether the member takes pods, or will: one that boots is counted on until its deadline."""
    if node is not None and record.state is InstanceState.READY:
        return node.ready and not node.unschedulable and node.deleted is None
    return record.state is not InstanceState.READY and (record.status is None or record.status.reason not in _LATE)


def _group_prices(each: SizedProvisioner) -> Mapping[str, Fraction]:
    """Of a node of each instance group; machines that are rented one by one have prices of their own."""
    return {group: Fraction(offer.price.amount) for group, offer in each.offers.items() if each.rented is None}


def _price(record: GPUInstance, prices: Mapping[str, Fraction]) -> Fraction:
    reference = record.spec.provisioner_ref
    if reference is None or not record.in_instance_group:
        return Fraction(str(record.hourly_price))
    return prices.get(reference.group or "", _FREE)


def group_use(members: Collection[SizedMember], needed: int) -> GroupUse:
    """The members, counted."""
    return GroupUse(
        size=len(members),
        used=sum(member.used for member in members),
        unusable=sum(not member.usable and not member.used and member.ends is None for member in members),
        needed=needed,
        ending=sum(member.ends is not None for member in members),
    )


def _shrink(  # noqa: PLR0917 (all that one pass depends on)
    each: SizedProvisioner,
    change: Pass,
    members: Collection[SizedMember],
    target: TargetSize,
    snapshot: Snapshot,
    excluded: Collection[str],
) -> Iterator[WriteStatus | SyncNode]:
    by_node = {member.node.name: member.record for member in members if member.node is not None}
    delay = duration(each.provisioner.spec.scale_down_delay)
    for name in change.delete:
        record = by_node[name]
        if record.metadata.name in excluded:
            continue
        sentence = (
            f"Node {name} has been empty and tainted for {human(delay)}, and NodeProvisioner {each.name} needs "
            f"{target.size} of {each.size} nodes. Draining it; a pod that comes keeps it."
        )
        status = transition(record.status, InstanceState.DRAINING, Reason.IDLE, sentence, snapshot.now)
        yield WriteStatus(record=record, reason=Reason.IDLE, sentence=sentence, status=status)
    taint = scale_down_taint(snapshot.now, delay)
    for name in change.taint:
        node = snapshot.nodes[name]
        yield SyncNode(record=by_node[name], node=node, labels={}, taints=(taint,), remove=scale_down_taints(node))
    for name in change.untaint:
        node = snapshot.nodes[name]
        yield SyncNode(record=by_node[name], node=node, labels={}, taints=(), remove=scale_down_taints(node))


def _expand(
    each: SizedProvisioner, count: int, growth: GroupGrowth, target: TargetSize, snapshot: Snapshot
) -> Iterator[CreateInstance]:
    """New members: first in the groups that waiting pods need, the rest in the cheapest group that may grow."""
    groups = each.growable()
    if not count or not groups:
        return
    # Somebody may ask for two thousand million nodes.
    count = min(count, _MOST_CREATED)
    needed = (group for group, nodes in growth.nodes.items() for _ in range(nodes))
    new: Counter[str] = Counter()
    taken = {record.metadata.name for record in snapshot.records} | snapshot.nodes.keys()
    failures: dict[str, int] = {}
    where = "member of instance group" if each.rented is None else f"machine of {each.source.key.provider} in"
    for asked in islice(chain(needed, repeat(groups[0])), count):
        # A rented group goes on in the next zone or region where stock or limits leave no room in this one.
        allowed = (place for place in (asked, *groups) if each.rented is None or each.room(place, new) != 0)
        if (group := next(allowed, None)) is None:
            return
        new[group] += 1
        offer = each.offers[group]
        if group not in failures:
            failures[group] = failures_so_far(snapshot.records, each.source.key, offer.key, ("", each.name))
        name = new_member_name(each.provisioner, len(each.members), taken)
        taken.add(name)
        sentence = (
            f"NodeProvisioner {each.name} has {each.size} nodes and needs {target.size} ({target.reason}): one more "
            f"{where} {group} ({offer.instance_type}, {offer.price})."
        )
        failed = failures[group]
        yield CreateInstance(
            name=name,
            spec=_member_spec(each, group, name, sentence),
            # A cooldown grows with each failure, across GPUInstances.
            status=GPUInstanceStatus(state=InstanceState.REQUESTED, failures=failed) if failed else None,
            reason=Reason.GROUP_TARGET,
            sentence=sentence,
        )


def _member_spec(each: SizedProvisioner, group: str, name: str, why: str) -> GPUInstanceSpec:
    if each.rented is not None:
        return rented_member_spec(each.name, group, name, each.rented, each.source, why)
    return member_spec(each.name, group, name, each.source.key.provider, each.offers[group], why)


def _stray_taints(snapshot: Snapshot) -> Iterator[SyncNode]:
    """Nodes that carry the taint although no NodeProvisioner will delete them."""
    tainted = snapshot.nodes_by_taint.get(SCALE_DOWN_TAINT, ())
    if not tainted or snapshot.unreadable_provisioners or snapshot.unreadable_records:
        return
    live = {each.metadata.name for each in snapshot.provisioners}
    members = {
        record.node_name
        for record in snapshot.records
        if record.spec.provisioner_ref is not None
        and record.spec.provisioner_ref.name in live
        and record.state is not InstanceState.GONE
    }
    for node in tainted:
        # Idle nodes of pools have a value of their own (`idle_nodes`).
        stray = tuple(each for each in scale_down_taints(node) if each != IDLE_TAINT)
        if stray and node.name not in members:
            yield SyncNode(record=None, node=node, labels={}, taints=(), remove=stray)
