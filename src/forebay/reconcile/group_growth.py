"""Growth of instance groups for waiting pods: the first NodeProvisioner whose nodes fit a pod adds nodes for it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import SCALE_DOWN_TAINT, STARTUP_TAINT
from forebay.api.node_provisioner import NodeProvisioner
from forebay.budgets.admission import Admission, Held
from forebay.demand.free_capacity import FreeNode, daemon_overhead, planned_amounts
from forebay.demand.planned_pods import is_leaving
from forebay.lifecycle.cooldown import Cooldown, cooldowns
from forebay.lifecycle.group_members import group_offers, member_node, members_of, unrecorded_members
from forebay.model.nodes import CONDITION_TAINTS, Node
from forebay.model.sources import CooldownKey, Offer, Source, SourceKey, cooldown_keys
from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import Snapshot, revisions
from forebay.sizing.claims import groups_claimed_twice, own_groups
from forebay.sizing.packing import new_nodes

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
        keys = cooldown_keys(self.source.key, offer.key)
        return next((self.cooling[key] for key in keys if key in self.cooling), None)

    def growable(self) -> list[str]:
        """Groups that may grow now, the cheapest first."""
        groups = (each for each in self.groups if each in self.offers and self.cooldown(each) is None)
        return sorted(groups, key=lambda each: (self.offers[each].price, each))


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
        found.append(
            SizedProvisioner(
                provisioner=each,
                source=source,
                groups=own_groups(each, claimed),
                members=tuple(members_of(each.metadata.name, snapshot.records)),
                offers=group_offers(source.listing),
                cooling=cooling,
            )
        )
    return tuple(found)


def provisioner_source(provisioner: NodeProvisioner) -> SourceKey:
    return SourceKey.of_provisioner(provisioner.metadata.name, provisioner.spec.provider.name)


def grow_for_pods(
    snapshot: Snapshot, pods: tuple[Pod, ...], admission: Admission | None, sized: tuple[SizedProvisioner, ...]
) -> GrowthForPods:
    """Nodes for the pods, in the order of NodeProvisioners and of their groups' prices."""
    left, held = pods, list[Held]()
    growth: dict[str, GroupGrowth] = {}
    notes: dict[str, str] = {}
    for each in sized:
        if not left:
            break
        nodes: dict[str, int] = {}
        most = each.provisioner.spec.max_nodes
        for group in each.growable():
            room = None if most is None else most - each.size - sum(nodes.values())
            found = new_nodes(left, _template(each, group, snapshot), room, snapshot.now, snapshot.rules.gpu_resources)
            count, refused = _affordable(found.nodes, each.offers[group], admission)
            held += refused
            if count:
                nodes[group] = count
            left = found.left
        if nodes:
            growth[each.name] = GroupGrowth(nodes=nodes)
        notes |= _notes(each, left, snapshot)
    waiting = {pod.uid for pod in left}
    return GrowthForPods(
        by_provisioner=growth,
        left=left,
        held=tuple(held),
        notes={uid: note for uid, note in notes.items() if uid in waiting},
        sized=sized,
    )


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
    )
    ready = [node for node in own if node is not None and node.ready and node.deleted is None]
    node = max(ready, key=lambda node: (node.created, node.name)) if ready else None
    node = _planned(each, group, snapshot.now) if node is None else _as_new(node)
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
