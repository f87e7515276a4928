"""Settled GPUInstances: a tick that remembers what it need not look at again decides what one that does not would."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, PoolRef, ProvisionerRef, Purpose, ResourceLifetime, SecondaryResource
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_node_pool import ConsolidationPolicy, Disruption, GPUNodePool, GPUNodePoolSpec
from forebay.api.instance_order import PlannedNode
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER, MAINTENANCE_ANNOTATION, OUT_OF_SERVICE_TAINT, STARTUP_TAINT
from forebay.api.node_provisioner import GroupProvider, NodeProvisioner, NodeProvisionerSpec
from forebay.api.parts import NodeClassRef, PodRef
from forebay.disruption.machine_use import MachineUses
from forebay.lifecycle.steps import DeleteRecord, WriteStatus
from forebay.model.kept import kept_mapping, kept_tuple
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Effect, Taint
from forebay.model.sources import Delivery, InstancePhase, Offer, Source, SourceKey
from forebay.model.workloads import Phase
from forebay.reconcile.decisions import CreateInstance, SyncNode
from forebay.reconcile.orders import template_hash
from forebay.reconcile.settled import Settled
from forebay.reconcile.snapshot import OperatorRules, Snapshot
from forebay.reconcile.tick import tick
from tests.unit.lifecycle.builders import (
    NOW,
    OWNED,
    RENTED,
    S,
    instance,
    listed,
    node,
    owned_spec,
    pod,
    record,
    rented_spec,
)

MACHINES = ("r1", "r2", "gpu-1", "gpu-2", "m1")
#: Two containers for the same pod.
CONTAINERS = ("c1", "c2")
NAMES = (*MACHINES, *CONTAINERS)
STATES = [state for state in S if state not in {S.RUNNING, S.FINISHED}]
CONTAINER_STATES = [state for state in S if state not in {S.JOINED, S.READY, S.DRAINING}]
POOL = PoolRef(namespace="team", name="lab")
OWN, CLOUD = SourceKey("owned", "webhook"), SourceKey("cheap", "simulated")
#: Offered no machine at first. A machine that two sources name belongs to the first by name.
OTHER = SourceKey("other", "webhook")
GROUPS = SourceKey.of_provisioner("gpus", "simulated")
UNDERUTILIZED = ConsolidationPolicy.WHEN_UNDERUTILIZED
CHANGES = [
    *("node", "no node", "pods", "pending", "listing", "source", "pool", "class", "provisioner", "rules", "record"),
    *("spec", "call", "unreadable", "cost", "unreadable pool", "unreadable class", "unreadable provisioner"),
    "container's pod",
]
UNREADABLE = {
    "unreadable pool": ("unreadable_pools", (("team", "lab"),)),
    "unreadable class": ("unreadable_classes", ("cheap",)),
    "unreadable provisioner": ("unreadable_provisioners", ("gpus",)),
}
spans = st.sampled_from([0, 0.3, 1, 5, 30, 61, 119, 121, 301, 601, 3601]).map(lambda span: timedelta(seconds=span))


def offer(name):
    room = Resources({"cpu": 8000, "nvidia.com/gpu": 2})
    return Offer(
        provider="webhook", instance_type=name, node_name=name, gpu_count=2, price=UsdPerHour(0), allocatable=room
    )


def rentable(price):
    """What the cloud offers: two GPUs, at this price."""
    room = Resources({"cpu": 8000, "nvidia.com/gpu": 2})
    return Offer(
        provider="simulated",
        instance_type="a100x2",
        region="us-east",
        gpu_count=2,
        price=UsdPerHour(price),
        allocatable=room,
    )


def of_machine(name, state, since, made_of=None, purpose=Purpose.PODS, **status):
    if name.startswith("gpu"):
        spec = replace(owned_spec(name), node_class_name="owned", pool_ref=POOL)
        return record(state, owned=True, name=name, since=since, spec=spec, **{"instance_id": name, **status})
    if name in CONTAINERS:
        runs = (PodRef(namespace="team", name="remote", uid="uid-remote"),)
        spec = rented_spec(name, pool_ref=POOL, delivers=Delivery.CONTAINER, node=None, pods=runs)
        return record(state, name=name, since=since, spec=spec, **{"instance_id": f"i-{name}", **status})
    if name.startswith("m"):
        of_group = ProvisionerRef(name="gpus", group="near")
        spec = rented_spec(name, node_class_name=None, provisioner_ref=of_group, pods=(), purpose=Purpose.GROUP)
    else:
        spec = rented_spec(name, pool_ref=POOL, template_hash=made_of or CURRENT, purpose=purpose)
    return record(state, name=name, since=since, spec=spec, **{"instance_id": f"i-{name}", **status})


def node_class(name, provider, **metadata):
    meta = ObjectMeta(name=name, uid=f"uid-{name}", finalizers=[CLASS_FINALIZER], **metadata)
    return GPUNodeClass(metadata=meta, spec=GPUNodeClassSpec(providers=(ProviderEntry(name=provider),)))


def pool(after="5m", expire="Never", least=0, policy=ConsolidationPolicy.WHEN_IDLE):
    disruption = Disruption(consolidate_after=after, expire_after=expire, consolidation_policy=policy)
    spec = GPUNodePoolSpec(node_class_ref=NodeClassRef(name="cheap"), disruption=disruption, min_nodes=least)
    return GPUNodePool(metadata=ObjectMeta(name="lab", namespace="team", uid="uid-lab"), spec=spec)


#: What machines of the pool are made of.
CURRENT = template_hash(node_class("cheap", "simulated"), pool())


def provisioner(*groups):
    spec = NodeProvisionerSpec(
        existing_instance_group_names=groups, min_unutilized_gpu_nodes=1, provider=GroupProvider(name="simulated")
    )
    return NodeProvisioner(metadata=ObjectMeta(name="gpus", uid="uid-gpus", creation_timestamp=NOW), spec=spec)


def remote(found):
    return {found.uid: found}


#: The pod of the containers as it runs, is being deleted, and has ended.
REMOTE_PODS = (
    pod("remote"),
    pod("remote", deleted=NOW),
    replace(pod("remote"), phase=Phase.SUCCEEDED),
)


def beginning(idle=()):
    """All machines Ready, with a pod on each node but those in `idle`."""
    records = tuple(of_machine(name, S.READY, NOW - timedelta(hours=1)) for name in MACHINES)
    containers = (of_machine("c1", S.RUNNING, NOW - timedelta(hours=1)), of_machine("c2", S.GONE, NOW))
    own = Source(key=OWN, capabilities=OWNED, offers=(offer("gpu-1"), offer("gpu-2")))
    return Snapshot(
        now=NOW,
        records=(*records, *containers),
        nodes={name: node(name) for name in MACHINES},
        pods_by_node={name: (replace(pod(f"on-{name}"), node=name),) for name in MACHINES if name not in idle},
        container_pods=remote(REMOTE_PODS[0]),
        sources={
            OWN: own,
            CLOUD: Source(key=CLOUD, capabilities=RENTED, offers=(rentable(1),)),
            OTHER: Source(key=OTHER, capabilities=OWNED, offers=()),
            GROUPS: Source(key=GROUPS, capabilities=RENTED, offers=()),
        },
        pools=(pool(),),
        provisioners=(provisioner("near"),),
        classes=(node_class("owned", "webhook"), node_class("cheap", "simulated")),
        rules=OperatorRules(),
    )


@st.composite
def other_nodes(draw, name, now):
    made = node(
        name,
        ready=draw(st.booleans()),
        cordoned=draw(st.sampled_from([None, None, now])),
        users_cordon=draw(st.integers(0, 4)) == 0,
        unready_since=now,
        ready_since=now,
    )
    kept = st.sampled_from([{}, {MAINTENANCE_ANNOTATION: "RAM"}, {"forebay.dev/do-not-disrupt": "true"}])
    taints = st.sampled_from(
        [(), (Taint(STARTUP_TAINT, f"uid-{name}"),), (Taint(OUT_OF_SERVICE_TAINT, "nodeshutdown", Effect.NO_EXECUTE),)]
    )
    return replace(made, annotations={**made.annotations, **draw(kept)}, taints=draw(taints))


@st.composite
def other_sources(draw, seen):
    """The sources after one of them offers something else, can do something else, or is configured no longer."""
    key = draw(st.sampled_from([OWN, OTHER, CLOUD, GROUPS]))
    others = {each: source for each, source in seen.sources.items() if each != key}
    if draw(st.integers(0, 3)) == 0:
        return others
    usual = OWNED if key in (OWN, OTHER) else RENTED
    capabilities = draw(st.sampled_from([usual, usual, replace(usual, settle_time=timedelta(hours=1))]))
    offers = {
        OWN: [None, (), (offer("gpu-2"),), (offer("gpu-1"), offer("gpu-2"))],
        OTHER: [(), (offer("gpu-1"),)],
        CLOUD: [None, (), (rentable(1),), (rentable("0.2"),)],
        GROUPS: [None, ()],
    }
    listing = draw(st.sampled_from([None, listings(draw, key, seen.now)]))
    made = Source(key=key, capabilities=capabilities, offers=draw(st.sampled_from(offers[key])), listing=listing)
    return {**others, key: made}


def listings(draw, key, now):
    own = key in (OWN, OTHER)
    reclaims = st.sampled_from([None, None, None, now + timedelta(minutes=1), now + timedelta(minutes=9)])
    shown = [
        instance(
            name if own else f"i-{name}",
            draw(st.sampled_from(InstancePhase)),
            owner=f"uid-{name}",
            reclaim_at=None if own else draw(reclaims),
        )
        for name in NAMES
        if name.startswith("gpu") is own and draw(st.integers(0, 3))
    ]
    unknown = [name for name in NAMES if own and draw(st.integers(0, 3)) == 0]
    return listed(*shown, asked=now - draw(spans), unknown=unknown)


def states_of(name):
    return CONTAINER_STATES if name in CONTAINERS else STATES


def changed(draw, seen):
    """The snapshot after one thing has changed."""
    known, now = {each.metadata.name: each for each in seen.records}, seen.now
    name = draw(st.sampled_from([*NAMES, *sorted(known.keys() - set(NAMES))]))
    match draw(st.sampled_from(CHANGES)):
        case "node":
            return replace(seen, nodes={**seen.nodes, name: draw(other_nodes(name, now))})
        case "no node":
            return replace(seen, nodes={key: each for key, each in seen.nodes.items() if key != name})
        case "pods":
            other, users = replace(pod("other", gpus=0), node=name), replace(pod(), node=name)
            stays = replace(users, annotations={"forebay.dev/do-not-disrupt": "true"})
            there = {name: draw(st.sampled_from([(), (other,), (users,), (stays,)]))}
            return replace(seen, pods_by_node=seen.pods_by_node | there)
        case "container's pod":
            return replace(seen, container_pods=draw(st.sampled_from([{}, *map(remote, REMOTE_PODS)])))
        case "pending":
            waits = replace(pod(), phase=Phase.PENDING, node=None, unschedulable_since=now)
            untried = replace(waits, unschedulable_since=None)
            large = replace(waits, shape=pod(gpus=64).shape)
            return replace(seen, pending=draw(st.sampled_from([(), (waits,), (large,), (untried,), (large, waits)])))
        case "listing":
            key = draw(st.sampled_from([*seen.sources]))
            source = replace(seen.sources[key], listing=listings(draw, key, now))
            return replace(seen, sources={**seen.sources, key: source})
        case "source":
            return replace(seen, sources=draw(other_sources(seen)))
        case "pool":
            pools = [
                (),
                (pool(),),
                (pool("Never"),),
                (pool("0s"),),
                (pool("1m", "2h"),),
                (pool(least=2),),
                (pool("0s", least=3),),
                (pool("1m", policy=UNDERUTILIZED),),
                (pool("1m", "2h", least=1, policy=UNDERUTILIZED),),
            ]
            return replace(seen, pools=draw(st.sampled_from(pools)))
        case "class":
            cheap = node_class("cheap", "simulated", deletion_timestamp=draw(st.sampled_from([None, now])))
            return replace(seen, classes=draw(st.sampled_from([(seen.classes[0],), (seen.classes[0], cheap)])))
        case "provisioner":
            others = [(), (provisioner("near"),), (provisioner("far"),)]
            return replace(seen, provisioners=draw(st.sampled_from(others)))
        case "unreadable pool" | "unreadable class" | "unreadable provisioner" as what:
            field, names = UNREADABLE[what]
            return replace(seen, **{field: frozenset(draw(st.sampled_from([(), names])))})
        case "rules":
            waits, gpus = draw(st.sampled_from([3, 30])), draw(st.sampled_from([None, frozenset({"amd.com/gpu"})]))
            delays = {"drain_delay": timedelta(seconds=waits), "adoption_grace": timedelta(minutes=waits)}
            return replace(seen, rules=OperatorRules(**delays, gpu_resources=gpus))
        case "record":
            purpose = draw(st.sampled_from([Purpose.PODS, Purpose.STATIC]))
            of = draw(st.sampled_from(NAMES)) if name not in NAMES else name
            made = of_machine(of, draw(st.sampled_from(states_of(of))), now - draw(spans), purpose=purpose)
            if name not in NAMES:
                # One that was created meanwhile comes to another state.
                made = record(draw(st.sampled_from(STATES)), name=name, since=now - draw(spans), spec=known[name].spec)
            elif draw(st.integers(0, 4)) == 0:
                made = of_machine(name, made.state, now - draw(spans), made_of="an earlier template")
            if draw(st.integers(0, 4)) == 0:
                made = replace(made, metadata=replace(made.metadata, deletion_timestamp=now))
            if draw(st.integers(0, 4)) == 0:
                key = SecondaryResource(kind="K", name="k", until=ResourceLifetime.GONE, retry_at=now + draw(spans))
                made = replace(made, status=replace(made.status, secondary_resources=(key,)))
            known[made.metadata.name] = made
            return replace(seen, records=tuple(known.values()))
        case "spec" if name in known:
            planned = PlannedNode(name=draw(st.sampled_from(NAMES)), labels={"forebay.dev/rack": "7"})
            other = replace(known[name], spec=replace(known[name].spec, node=planned))
            return replace(seen, records=tuple((known | {name: other}).values()))
        case "call":
            return replace(seen, calls_in_flight=frozenset(draw(st.sampled_from([(), (name,)]))))
        case "unreadable":
            return replace(seen, unreadable_records=draw(st.sampled_from([{}, {name: "unknown field"}])))
        case "cost":
            return replace(seen, unrecorded_cost=frozenset(draw(st.sampled_from([(), (f"uid-{name}",)]))))
    return seen


def applied(seen, decisions):
    """The snapshot after the decisions about records and nodes are carried out, as far as they change these."""
    records = {each.metadata.name: each for each in seen.records}
    nodes = dict(seen.nodes)
    for each in decisions:
        if isinstance(each, WriteStatus):
            records[each.record.metadata.name] = replace(each.record, status=each.status)
        elif isinstance(each, CreateInstance):
            meta = ObjectMeta(name=each.name, uid=f"uid-{each.name}", creation_timestamp=seen.now)
            records[each.name] = GPUInstance(metadata=meta, spec=each.spec, status=each.status)
        elif isinstance(each, DeleteRecord):
            records.pop(each.record.metadata.name, None)
        elif isinstance(each, SyncNode) and each.node.name in nodes:
            labels = {**each.node.labels, **each.labels}
            nodes[each.node.name] = replace(each.node, labels=labels, taints=(*each.node.taints, *each.taints))
    return replace(seen, records=tuple(records.values()), nodes=nodes)


def observed(seen, before):
    """The snapshot as an observer makes it: collections are the same objects while nothing in them changes."""
    return replace(
        seen,
        records=kept_tuple(before.records, seen.records),
        nodes=kept_mapping(before.nodes, seen.nodes),
        pods_by_node=kept_mapping(before.pods_by_node, seen.pods_by_node),
        container_pods=kept_mapping(before.container_pods, seen.container_pods),
    )


def without_memory(seen):
    """The snapshot without anything that only saves time."""
    memory = replace(seen.memory, settled=Settled(), uses=MachineUses(), plans=())
    plain = {name: dict(getattr(seen, name)) for name in ("nodes", "pods_by_node", "container_pods")}
    return replace(seen, memory=memory, records=(*seen.records,), **plain)


@pytest.mark.law
@given(st.data())
def test_what_a_tick_remembers_of_settled_machines_never_changes_what_it_decides(data):
    seen = last = beginning(idle=data.draw(st.sets(st.sampled_from(NAMES))))
    for _ in range(12):
        seen = replace(seen, now=seen.now + data.draw(spans))
        for _ in range(data.draw(st.integers(0, 3))):
            seen = changed(data.draw, seen)
        seen = last = observed(seen, last)
        result = tick(seen)
        afresh = tick(without_memory(seen))

        assert result.decisions == afresh.decisions
        assert result.requeue_at == afresh.requeue_at
        assert result.errors == afresh.errors == {}
        # Now and then nothing of it can be written.
        seen = applied(seen, result.decisions) if data.draw(st.integers(0, 3)) else seen
        seen = replace(seen, memory=result.memory)


def test_machines_that_are_as_they_were_are_not_looked_at_again():
    seen = beginning()
    for _ in range(3):
        result = tick(seen)
        seen = replace(applied(seen, result.decisions), memory=result.memory)
    assert set(seen.memory.settled.records) == set(NAMES), "containers that run among them"

    later = tick(replace(seen, now=seen.now + timedelta(minutes=10))).memory
    assert all(later.settled.records[name] is seen.memory.settled.records[name] for name in NAMES)
    assert all(later.uses.by_name[name] is seen.memory.uses.by_name[name] for name in MACHINES)

    lost = replace(seen, nodes={**seen.nodes, "r1": node("r1", ready=False)})
    assert "r1" not in tick(lost).memory.settled.records


def test_a_tick_in_an_unchanged_cluster_asks_no_machine_anything():
    seen = beginning()
    for _ in range(3):
        seen = observed(seen, seen)
        result = tick(seen)
        seen = replace(applied(seen, result.decisions), memory=result.memory)
    seen = observed(seen, seen)
    settled = tick(seen).memory
    same = replace(seen, now=seen.now + timedelta(seconds=1), memory=settled)

    again = tick(same).memory
    assert again.settled.records is settled.settled.records
    assert again.uses is settled.uses
    lost = kept_mapping({}, {**seen.nodes, "r1": node("r1", ready=False)})
    changed_since = tick(replace(same, nodes=lost)).memory
    assert changed_since.uses is not settled.uses
    assert "r1" not in changed_since.settled.records


@pytest.mark.parametrize("found", [None, *REMOTE_PODS[1:]])
def test_a_container_that_runs_is_ended_when_its_pod_is(found):
    seen = beginning()
    seen = replace(seen, memory=tick(seen).memory)
    assert "c1" in seen.memory.settled.records

    assert ended(tick(replace(seen, container_pods={} if found is None else remote(found)))) == {"c1"}


def test_of_two_containers_of_a_pod_the_older_one_stays_although_the_other_was_settled():
    seen = beginning()
    seen = replace(seen, memory=tick(seen).memory)
    older = of_machine("c2", S.RUNNING, NOW - timedelta(hours=2))

    assert ended(tick(replace(seen, records=(*seen.records[:-1], older)))) == {"c1"}


def ended(result):
    steps = (each for each in result.decisions if isinstance(each, WriteStatus))
    return {each.record.metadata.name for each in steps if each.status.state is S.TERMINATING}


def test_a_machine_that_waits_because_too_many_nodes_are_lost_is_replaced_once_fewer_are():
    seen = beginning()
    up = seen.nodes
    seen = replace(seen, nodes={name: replace(each, ready=False) for name, each in up.items()})
    for _ in range(4):
        result = tick(seen)
        seen = replace(applied(seen, result.decisions), memory=result.memory, now=seen.now + timedelta(minutes=20))
    assert "r1" in seen.memory.settled.records

    seen = replace(seen, nodes={**up, "r1": seen.nodes["r1"]})
    ended = [each for each in tick(seen).decisions if isinstance(each, WriteStatus) and each.record.uid == "uid-r1"]
    assert [each.status.state for each in ended] == [S.DRAINING]


@pytest.mark.parametrize(
    ("unreadable", "name"),
    [
        ({"pools": (), "unreadable_pools": frozenset({("team", "lab")})}, "r1"),
        ({"classes": (), "unreadable_classes": frozenset({"cheap", "owned"})}, "r1"),
        ({"provisioners": (), "unreadable_provisioners": frozenset({"gpus"})}, "m1"),
    ],
)
def test_machines_of_what_cannot_be_read_stay_as_they_are_until_it_is_known_to_be_deleted(unreadable, name):
    seen = replace(beginning(), **unreadable)
    for _ in range(3):
        result = tick(seen)
        seen = replace(applied(seen, result.decisions), memory=result.memory)
    assert name in seen.memory.settled.records

    deleted = replace(seen, **{field: frozenset() for field in unreadable if field.startswith("unreadable")})
    assert name in {each.record.metadata.name for each in tick(deleted).decisions if isinstance(each, WriteStatus)}


def test_a_machine_with_a_call_in_flight_is_looked_at_again_when_the_call_has_ended():
    seen = beginning()
    gone = of_machine("r1", S.GONE, NOW)
    seen = replace(seen, records=(gone,), nodes={}, pods_by_node={}, sources={}, provisioners=())
    result = tick(seen)
    assert result.requeue_at == NOW + timedelta(hours=1), "when the record expires"
    called = tick(replace(seen, memory=result.memory, calls_in_flight=frozenset({"r1"})))
    assert called.requeue_at is None
    assert "r1" not in called.memory.settled.records


def test_a_pod_that_nothing_fits_is_planned_for_again_only_when_something_has_changed():
    large = replace(pod(gpus=64), phase=Phase.PENDING, node=None, unschedulable_since=NOW)
    first = tick(replace(beginning(), pending=(large,)))
    assert len(first.memory.plans) == 1
    seen = replace(applied(beginning(), first.decisions), pending=(large,), memory=first.memory)

    later = tick(replace(seen, now=NOW + timedelta(minutes=9)))
    assert later.memory.plans[0] is first.memory.plans[0]
    cheaper = replace(seen.sources[CLOUD], offers=(rentable("0.2"),))
    assert tick(replace(seen, sources={**seen.sources, CLOUD: cheaper})).memory.plans[0] is not first.memory.plans[0]
    assert tick(replace(seen, pending=())).memory.plans == ()


def test_a_clock_that_was_set_back_makes_a_tick_look_at_every_machine():
    seen = beginning()
    seen = applied(seen, tick(seen).decisions)
    settled = tick(seen).memory.settled

    assert settled.still(seen.now, settled.context)
    assert not settled.still(seen.now - timedelta(seconds=1), settled.context)
