"""Settled GPUInstances: a tick that remembers what it need not look at again decides what one that does not would."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.api.gpu_instance import PlannedNode, PoolRef, ResourceLifetime, SecondaryResource
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_node_pool import Disruption, GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.names import CLASS_FINALIZER, MAINTENANCE_ANNOTATION, OUT_OF_SERVICE_TAINT, STARTUP_TAINT
from forebay.api.parts import NodeClassRef
from forebay.lifecycle.steps import DeleteRecord, WriteStatus
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Effect, Taint
from forebay.model.sources import InstancePhase, Offer, Source, SourceKey
from forebay.model.workloads import Phase
from forebay.reconcile.decisions import SyncNode
from forebay.reconcile.snapshot import Memory, OperatorRules, Snapshot
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

NAMES = ("r1", "r2", "gpu-1", "gpu-2")
STATES = [state for state in S if state not in {S.RUNNING, S.FINISHED}]
POOL = PoolRef(namespace="team", name="lab")
OWN, CLOUD = SourceKey("owned", "webhook"), SourceKey("cheap", "simulated")
spans = st.sampled_from([0, 0.3, 1, 5, 30, 61, 119, 121, 301, 601, 3601]).map(lambda span: timedelta(seconds=span))


def offer(name):
    room = Resources({"cpu": 8000, "nvidia.com/gpu": 2})
    return Offer(
        provider="webhook", instance_type=name, node_name=name, gpu_count=2, price=UsdPerHour(0), allocatable=room
    )


def of_machine(name, state, since, **status):
    if name.startswith("gpu"):
        spec = replace(owned_spec(name), node_class_name="owned", pool_ref=POOL)
        return record(state, owned=True, name=name, since=since, spec=spec, **{"instance_id": name, **status})
    spec = rented_spec(name, pool_ref=POOL, template_hash="before")
    return record(state, name=name, since=since, spec=spec, **{"instance_id": f"i-{name}", **status})


def node_class(name, provider, **metadata):
    meta = ObjectMeta(name=name, uid=f"uid-{name}", finalizers=[CLASS_FINALIZER], **metadata)
    return GPUNodeClass(metadata=meta, spec=GPUNodeClassSpec(providers=(ProviderEntry(name=provider),)))


def pool(after="5m", expire="Never"):
    spec = GPUNodePoolSpec(
        node_class_ref=NodeClassRef(name="cheap"), disruption=Disruption(consolidate_after=after, expire_after=expire)
    )
    return GPUNodePool(metadata=ObjectMeta(name="lab", namespace="team", uid="uid-lab"), spec=spec)


def beginning():
    records = tuple(of_machine(name, S.READY, NOW - timedelta(hours=1)) for name in NAMES)
    own = Source(key=OWN, capabilities=OWNED, offers=(offer("gpu-1"), offer("gpu-2")))
    return Snapshot(
        now=NOW,
        records=records,
        nodes={name: node(name) for name in NAMES},
        pods_by_node={name: (replace(pod(f"on-{name}"), node=name),) for name in NAMES},
        sources={OWN: own, CLOUD: Source(key=CLOUD, capabilities=RENTED, offers=())},
        pools=(pool(),),
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


def listings(draw, key, now):
    own = key is OWN
    shown = [
        instance(name if own else f"i-{name}", draw(st.sampled_from(InstancePhase)), owner=f"uid-{name}")
        for name in NAMES
        if name.startswith("gpu") is own and draw(st.integers(0, 3))
    ]
    unknown = [name for name in NAMES if own and draw(st.integers(0, 3)) == 0]
    return listed(*shown, asked=now - draw(spans), unknown=unknown)


def changed(draw, seen):
    """The snapshot after one thing has changed."""
    name, now = draw(st.sampled_from(NAMES)), seen.now
    known = {each.metadata.name: each for each in seen.records}
    match draw(
        st.sampled_from(["node", "no node", "pods", "pending", "listing", "pool", "class", "record", "spec", "call"])
    ):
        case "node":
            return replace(seen, nodes={**seen.nodes, name: draw(other_nodes(name, now))})
        case "no node":
            return replace(seen, nodes={key: each for key, each in seen.nodes.items() if key != name})
        case "pods":
            there = draw(
                st.sampled_from([(), (replace(pod("other", gpus=0), node=name),), (replace(pod(), node=name),)])
            )
            return replace(seen, pods_by_node={**seen.pods_by_node, name: there})
        case "pending":
            waits = replace(pod(), phase=Phase.PENDING, node=None, unschedulable_since=now)
            untried = replace(waits, unschedulable_since=None)
            return replace(seen, pending=draw(st.sampled_from([(), (waits,), (untried,)])))
        case "listing":
            key = draw(st.sampled_from([OWN, CLOUD]))
            listing = listings(draw, key, now)
            return replace(seen, sources={**seen.sources, key: replace(seen.sources[key], listing=listing)})
        case "pool":
            return replace(seen, pools=draw(st.sampled_from([(), (pool(),), (pool("0s"),), (pool("1m", "2h"),)])))
        case "class":
            deleted = draw(st.sampled_from([None, now]))
            cheap = node_class("cheap", "simulated", deletion_timestamp=deleted)
            return replace(seen, classes=(seen.classes[0], cheap))
        case "record":
            made = of_machine(name, draw(st.sampled_from(STATES)), now - draw(spans))
            if draw(st.integers(0, 4)) == 0:
                made = replace(made, metadata=replace(made.metadata, deletion_timestamp=now))
            if draw(st.integers(0, 4)) == 0:
                key = SecondaryResource(kind="K", name="k", until=ResourceLifetime.GONE, retry_at=now + draw(spans))
                made = replace(made, status=replace(made.status, secondary_resources=(key,)))
            known[name] = made
            return replace(seen, records=tuple(known.values()))
        case "spec" if name in known:
            planned = PlannedNode(name=draw(st.sampled_from(NAMES)), labels={"forebay.dev/rack": "7"})
            known[name] = replace(known[name], spec=replace(known[name].spec, node=planned))
            return replace(seen, records=tuple(known.values()))
        case "call":
            return replace(seen, calls_in_flight=frozenset(draw(st.sampled_from([(), (name,)]))))
    return seen


def applied(seen, decisions):
    """The snapshot after the decisions about records and nodes are carried out, as far as they change these."""
    records = {each.metadata.name: each for each in seen.records}
    nodes = dict(seen.nodes)
    for each in decisions:
        if isinstance(each, WriteStatus):
            records[each.record.metadata.name] = replace(each.record, status=each.status)
        elif isinstance(each, DeleteRecord):
            records.pop(each.record.metadata.name, None)
        elif isinstance(each, SyncNode) and each.node.name in nodes:
            labels = {**each.node.labels, **each.labels}
            nodes[each.node.name] = replace(each.node, labels=labels, taints=(*each.node.taints, *each.taints))
    return replace(seen, records=tuple(records.values()), nodes=nodes)


def without_memory_of_settled(memory: Memory) -> Memory:
    return Memory(reservations=memory.reservations, orphans=memory.orphans, reported=memory.reported)


@pytest.mark.law
@given(st.data())
def test_what_a_tick_remembers_of_settled_machines_never_changes_what_it_decides(data):
    seen = beginning()
    for _ in range(12):
        seen = replace(seen, now=seen.now + data.draw(spans))
        for _ in range(data.draw(st.integers(0, 2))):
            seen = changed(data.draw, seen)
        result = tick(seen)
        afresh = tick(replace(seen, memory=without_memory_of_settled(seen.memory)))

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
    assert set(seen.memory.settled.records) == set(NAMES)

    later = tick(replace(seen, now=seen.now + timedelta(minutes=10))).memory
    assert all(later.settled.records[name] is seen.memory.settled.records[name] for name in NAMES)
    assert all(later.uses[name] is seen.memory.uses[name] for name in NAMES)

    lost = replace(seen, nodes={**seen.nodes, "r1": node("r1", ready=False)})
    assert "r1" not in tick(lost).memory.settled.records


def test_a_clock_that_was_set_back_makes_a_tick_look_at_every_machine():
    seen = beginning()
    seen = applied(seen, tick(seen).decisions)
    settled = tick(seen).memory.settled

    assert settled.still(seen.now, settled.context)
    assert not settled.still(seen.now - timedelta(seconds=1), settled.context)
