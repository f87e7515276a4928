"""Growth of instance groups for waiting pods: the first NodeProvisioner whose nodes fit a pod adds nodes for it."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import SCALE_DOWN_TAINT, STARTUP_TAINT
from forebay.api.node_provisioner import NodeProvisioner
from forebay.budgets.admission import Admission, Held
from forebay.demand.free_capacity import FreeNode, daemon_overhead, planned_amounts
from forebay.demand.planned_pods import is_leaving
from forebay.demand.reservation import Reservation
from forebay.lifecycle.cooldown import Cooldown, cooldowns
from forebay.lifecycle.group_members import group_offers, member_node, members_of, unrecorded_members
from forebay.model.nodes import CONDITION_TAINTS, Node
from forebay.model.sources import CooldownKey, Offer, Source, SourceKey, cooldown_keys
from forebay.model.workloads import Pod
from forebay.planning.gangs import Gang, GangKey, Gangs, gang_key, least_size
from forebay.reconcile.rented_groups import RentedGroup, rented_group, rented_source
from forebay.reconcile.snapshot import Snapshot, revisions
from forebay.reconcile.what_runs import NO_RESERVATIONS, known_gangs
from forebay.sizing.claims import groups_claimed_twice, own_groups
from forebay.sizing.packing import NewNodes, new_nodes

_HOSTNAME = "kubernetes.io/hostname"


class GroupGrowth(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that one NodeProvisioner adds for waiting pods, by group."""

    nodes: Mapping[str, int] = {}

    @property
    def count(self) -> int:
        return sum(self.nodes.values())


class GrowthForPods(msgspec.Struct, frozen=True, kw_only=True):
    """Growth for all waiting pods, and the pods that no group takes."""

    by_provisioner: Mapping[str, GroupGrowth] = {}
    left: tuple[Pod, ...] = ()
    #: Pods whose budgets cannot pay for a node.
    held: tuple[Held, ...] = ()
    #: By UID of a pod: why a group that would fit it does not grow.
    notes: Mapping[str, str] = {}
    #: The NodeProvisioners that were looked at; empty where no pod waits.
    sized: tuple["SizedProvisioner", ...] = ()


class SizedProvisioner(msgspec.Struct, frozen=True, kw_only=True):
    """A NodeProvisioner with what is known of its groups."""

    provisioner: NodeProvisioner
    source: Source
    #: Its groups, without those of another NodeProvisioner.
    groups: tuple[str, ...]
    #: Its members, without those that are gone; leaving ones included.
    members: tuple[GPUInstance, ...]
    #: What a member of each group is.
    offers: Mapping[str, Offer]
    cooling: Mapping[CooldownKey, Cooldown]
    #: What may be rented, where the group is one that Forebay keeps; its `groups` are zones and regions.
    rented: RentedGroup | None = None

    @property
    def name(self) -> str:
        return self.provisioner.metadata.name

    @property
    def size(self) -> int:
        """Members that exist or are launching, without those that are being deleted."""
        return sum(not is_leaving(each) for each in self.members)

    def cooldown(self, group: str) -> Cooldown | None:
        """Why the group is not grown now; None where it may be."""
        offer = self.offers.get(group)
        if offer is None:
            return None
        keys = cooldown_keys(self.source.key, offer.key, ("", self.name))
        return next((self.cooling[key] for key in keys if key in self.cooling), None)

    def growable(self) -> list[str]:
        """Groups that may grow now, the cheapest first."""
        groups = (each for each in self.groups if each in self.offers and self.cooldown(each) is None)
        return sorted(groups, key=lambda each: (self.offers[each].price, each))

    def room(self, group: str, taken: Mapping[str, int]) -> int | None:
        """How many more members the group may get, beside those that are `taken`, by group; None: no limit."""
        most = self.provisioner.spec.max_nodes
        left = None if most is None else most - self.size - sum(taken.values())
        rentable = None if self.rented is None else self.rented.room(group, taken)
        return left if rentable is None else min(rentable, rentable if left is None else left)


def sized_provisioners(snapshot: Snapshot) -> tuple[SizedProvisioner, ...]:
    """NodeProvisioners whose groups are listed, and whose members all have a record, by name.

    Nothing is decided about any other: what is not known is never taken for empty.
    """
    if not snapshot.provisioners or snapshot.unreadable_records:
        return ()
    claimed = groups_claimed_twice(snapshot.provisioners)
    cooling = cooldowns(snapshot.records, snapshot.now, revisions(snapshot))
    found: list[SizedProvisioner] = []
    for each in sorted(snapshot.provisioners, key=lambda each: each.metadata.name):
        source = snapshot.sources.get(provisioner_source(each))
        if source is None or source.listing is None or each.metadata.deletion_timestamp is not None:
            continue
        if unrecorded_members(each, source, snapshot.records):
            continue
        rented = rented_group(each, source, snapshot) if each.spec.node_class_ref is not None else None
        found.append(
            SizedProvisioner(
                provisioner=each,
                source=source,
                groups=own_groups(each, claimed) if rented is None else tuple(rented.candidates),
                members=tuple(members_of(each.metadata.name, snapshot.records)),
                offers=group_offers(source.listing) if rented is None else rented.offers,
                cooling=cooling,
                rented=rented,
            )
        )
    return tuple(found)


def provisioner_source(provisioner: NodeProvisioner) -> SourceKey:
    own = SourceKey.of_provisioner(provisioner.metadata.name, provisioner.spec.provider.name)
    return rented_source(provisioner) or own


def grow_for_pods(
    snapshot: Snapshot,
    pods: tuple[Pod, ...],
    admission: Admission | None,
    sized: tuple[SizedProvisioner, ...],
    reserved: Mapping[str, Reservation] = NO_RESERVATIONS,
) -> GrowthForPods:
    """Nodes for the pods, in the order of NodeProvisioners and of their groups' prices; for gangs all or none.

    `reserved` are pods (by UID) with room on a free or launching node: members of gangs that need no capacity.
    """
    left, held = pods, list[Held]()
    growth: dict[str, GroupGrowth] = {}
    notes: dict[str, str] = {}
    gangs = known_gangs(snapshot, pods, reserved) if sized and any(map(gang_key, pods)) else {}
    for each in sized:
        if not left:
            break
        nodes: dict[str, int] = {}
        packed = _packed(each, left, snapshot, gangs)
        for group, found in packed.by_group.items():
            count, refused = _affordable(found.nodes, each.offers[group], admission)
            held += refused
            if count:
                nodes[group] = count
        left = packed.left
        if nodes:
            growth[each.name] = GroupGrowth(nodes=nodes)
        notes |= {**_notes(each, left, snapshot), **packed.notes}
    waiting = {pod.uid for pod in left}
    return GrowthForPods(
        by_provisioner=growth,
        left=left,
        held=tuple(held),
        notes={uid: note for uid, note in notes.items() if uid in waiting},
        sized=sized,
    )


class _Packed(NamedTuple):
    by_group: Mapping[str, NewNodes]
    left: tuple[Pod, ...]
    notes: Mapping[str, str]


def _packed(each: SizedProvisioner, pods: tuple[Pod, ...], snapshot: Snapshot, gangs: Gangs) -> _Packed:
    """The pods on new nodes of the groups. A gang of which too many pods find no place gets none at all."""
    kept, dropped = pods, tuple[Pod, ...]()
    while True:
        found: dict[str, NewNodes] = {}
        left = kept
        for group in each.growable():
            room = each.room(group, {other: nodes.count for other, nodes in found.items()})
            template = _template(each, group, snapshot)
            found[group] = new_nodes(left, template, room, snapshot.now, snapshot.rules.gpu_resources)
            left = found[group].left
        broken = _incomplete(kept, left, gangs) if gangs else set()
        if not broken:
            why = f"NodeProvisioner {each.name} has no room for the whole gang now"
            return _Packed(found, (*left, *dropped), {pod.uid: why for pod in dropped})
        dropped += tuple(pod for pod in kept if gang_key(pod) in broken)
        kept = tuple(pod for pod in kept if gang_key(pod) not in broken)


def _incomplete(pods: Sequence[Pod], left: Sequence[Pod], gangs: Gangs) -> set[GangKey]:
    """Gangs of which fewer pods would run than they need."""
    waiting: dict[GangKey, list[Pod]] = {}
    for pod in pods:
        if (key := gang_key(pod)) is not None:
            waiting.setdefault(key, []).append(pod)
    without = Counter(gang_key(pod) for pod in left)
    found: set[GangKey] = set()
    for key, some in waiting.items():
        gang = gangs.get(key, Gang())
        stated = gang.min_count if gang.min_count is not None else least_size(some[0])
        needed = len(some) + gang.placed + gang.others if stated is None else stated
        placed = len(some) - without[key]
        if placed and placed + gang.placed < needed:
            found.add(key)
    return found


def _affordable(
    nodes: Sequence[tuple[Pod, ...]], offer: Offer, admission: Admission | None
) -> tuple[int, tuple[Held, ...]]:
    """How many of the nodes the budgets of their pods can pay, and the pods held back."""
    if admission is None:
        return len(nodes), ()
    count, held = 0, list[Held]()
    for pods in nodes:
        refusal = admission.admit_launch(pods, offer.price, offer.billing.minimum)
        if refusal is None:
            count += 1
        else:
            held += (replace(refusal, pod=pod) for pod in pods)
    return count, tuple(held)


def _notes(each: SizedProvisioner, left: tuple[Pod, ...], snapshot: Snapshot) -> dict[str, str]:
    """Why groups whose nodes would fit a pod do not grow for it."""
    if not left:
        return {}
    most, found = each.provisioner.spec.max_nodes, dict[str, str]()
    full = most is not None and each.size >= most
    for group in each.groups:
        why = f"NodeProvisioner {each.name} has reached its maxNodes of {most}" if full else None
        if group not in each.offers:
            continue
        limit = each.rented.limit(group) if each.rented is not None else None
        if limit is not None and why is None:
            why = f"{limit} leaves no room for one more machine of NodeProvisioner {each.name}"
        if (cooldown := each.cooldown(group)) is not None:
            why = f"instance group {group} of NodeProvisioner {each.name} is cooling down: {cooldown.sentence}"
        if why is not None:
            template = _template(each, group, snapshot)
            fitting = new_nodes(left, template, None, snapshot.now, snapshot.rules.gpu_resources)
            found |= {pod.uid: why.rstrip(".") for pod in fitting.pods}
    return found


def _template(each: SizedProvisioner, group: str, snapshot: Snapshot) -> FreeNode:
    """An empty new node of the group: like its newest Ready node, or as its offer says."""
    own = (
        snapshot.nodes.get(record.node_name or "")
        for record in each.members
        if record.state is InstanceState.READY
        and record.spec.provisioner_ref is not None
        and record.spec.provisioner_ref.group == group
        and not (each.rented is not None and each.rented.drifted(record))
    )
    ready = [node for node in own if node is not None and node.ready and node.deleted is None]
    node = max(ready, key=lambda node: (node.created, node.name)) if ready else None
    if node is not None:
        node = _as_new(node)
    elif each.rented is not None:
        node = replace(each.rented.candidates[group].node, name=group)
    else:
        node = _planned(each, group, snapshot.now)
    return FreeNode(node=node, free=node.allocatable - daemon_overhead(node, snapshot.daemons))


def _planned(each: SizedProvisioner, group: str, now: datetime) -> Node:
    offer = each.offers[group]
    planned = member_node(each.name, group, offer)
    amounts = planned_amounts(planned)
    return Node(
        name=group,
        uid="",
        resource_version=0,
        created=now,
        labels=planned.labels,
        taints=offer.taints,
        capacity=amounts,
        allocatable=amounts,
        ready=False,
    )


def _as_new(node: Node) -> Node:
    """The node without what is its own, or passes."""
    passing: Collection[str] = (SCALE_DOWN_TAINT, STARTUP_TAINT)
    taints = tuple(
        each for each in node.taints if each.key not in passing and not each.key.startswith(CONDITION_TAINTS)
    )
    labels = {key: value for key, value in node.labels.items() if key != _HOSTNAME}
    return replace(node, labels=labels, taints=taints, unschedulable=False)
